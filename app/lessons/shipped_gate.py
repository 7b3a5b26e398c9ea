"""The gate of lessons that comes with Sonata, natively and in the page."""

from __future__ import annotations

from pathlib import Path

from py_core.learning.gate.gate import Gate

GATE = Path(__file__).with_name("gate.safetensors")


def shipped_gate() -> Gate:
    """Raises GateError."""
    return Gate.from_bytes(GATE.read_bytes())
