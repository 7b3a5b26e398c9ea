"""Tiny models of diffusion."""

from __future__ import annotations

from pathlib import Path

from tests.backends.backend_pairs import CONTEXT
from tests.tiny.llama import TinyLlama
from tests.tiny.models import Variant

MASK = 0


def tiny_diffusion(block: int, shifted: bool = False) -> Variant:
    """Return a tiny model of LLaDA's architecture whose rows see their block; 0: the whole text."""
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    return Variant(**{**vars(tiny), "architecture": "llada", "diffusion": (block, shifted)})


def write_diffusion(path: Path, block: int, shifted: bool = False) -> Path:
    return tiny_diffusion(block, shifted).write(path)
