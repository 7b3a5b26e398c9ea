"""The texts that come with Sonata for the background loop."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from py_core.learning.consolidation_job import Texts

FILE = Path(__file__).with_name("learning_texts.toml")


@cache
def shipped_texts() -> Texts:
    found = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Texts(tuple(found["texts"]), tuple(found["prompts"]), tuple(found["probe"]))
