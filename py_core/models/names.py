"""What people call a model. Files call themselves many things ("Smollm2 135M 8k Lc100K Mix1 Ep2"), so the name of the
file comes first. A model of a list is called what the list says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from py_core.showing import one_line

_FORMAT = re.compile(r"[-._ ](?:ud-)?(?:i?q\d(?:_\w+)?|b?f16|fp16|f32)$", re.IGNORECASE)
_NAMELESS = re.compile(r"(?:ggml[-_])?model|(?:sha256[-:])?[0-9a-f]{16,}|", re.IGNORECASE)
_SIZE = re.compile(r"\d+(?:\.\d+)?[bmk]")


def title_of(own: str, stem: str) -> str:
    """own: what the file calls itself, or "". stem: its name without ".gguf". "qwen3-0.6b-q4_k_m" is "Qwen3 0.6B"."""
    called = _FORMAT.sub("", stem)
    if _NAMELESS.fullmatch(called):
        return own or stem
    words = re.split(r"[-_ ]+", called)
    return one_line(" ".join(word.upper() if _SIZE.fullmatch(word) else word[:1].upper() + word[1:] for word in words))


def licence_of(metadata: Mapping[str, Any]) -> str:
    """The licence that a model says it has, in one short line; "" where it tells none."""
    licence = metadata.get("general.license")
    return one_line(licence) if isinstance(licence, str) else ""
