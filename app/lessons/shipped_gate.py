"""The gates of lessons that come with Sonata, natively and in the page: one for the states of each embedder."""

from __future__ import annotations

from pathlib import Path

from py_core.learning.gate.gate import Gate

GATE = Path(__file__).with_name("gate.safetensors")
MULTILINGUAL_GATE = GATE.with_name("gate_multilingual.safetensors")


def shipped_gate(is_multilingual: bool = False) -> Gate:
    """is_multilingual: of the embedder. Raises GateError."""
    return Gate.from_bytes((MULTILINGUAL_GATE if is_multilingual else GATE).read_bytes())
