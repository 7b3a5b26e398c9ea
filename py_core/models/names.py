"""The titles of models for people. Names inside files are unreliable ("Smollm2 135M 8k Lc100K Mix1 Ep2"), so the file's
name takes precedence. A model from a list has the list's title."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from py_core.display import one_line

_FORMAT = re.compile(r"[-._ ](?:ud-)?(?:i?q\d(?:_\w+)?|b?f16|fp16|f32)$", re.IGNORECASE)
_NAMELESS = re.compile(r"(?:ggml[-_])?model|(?:sha256[-:])?[0-9a-f]{16,}|", re.IGNORECASE)
_SIZE = re.compile(r"\d+(?:\.\d+)?[bmk]")


def title_of(own: str, stem: str) -> str:
    """own: the name inside the file, or "". stem: the file's name without ".gguf". "qwen3-0.6b-q4_k_m" is "Qwen3
    0.6B"."""
    called = _FORMAT.sub("", stem)
    if _NAMELESS.fullmatch(called):
        return own or stem
    words = re.split(r"[-_ ]+", called)
    return one_line(" ".join(word.upper() if _SIZE.fullmatch(word) else word[:1].upper() + word[1:] for word in words))


def licence_of(metadata: Mapping[str, Any]) -> str:
    """The licence that a model declares, in one short line; "" if it declares none."""
    licence = metadata.get("general.license")
    return one_line(licence) if isinstance(licence, str) else ""
