"""The contents of a model's memory with open conversations: for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from py_core.backends.memory_use import MemoryUse
from py_core.engine.engine import Timings
from py_core.loading import Model

OWNERS = {
    "weights": "weights", "adapters": "adapters", "scratch": "activations and tables",
    "conversations": "keys and values of conversations", "kept": "kept for similar starts", "free": "free pages",
    "draft": "the draft model",
}  # fmt: skip


async def measure_memory(model: Model, conversations: int, tokens: int) -> MemoryUse:
    """Opens this number of conversations of this many tokens each, no two alike. Raises ValueError if they do not fit
    the context, BackendError if memory runs out."""
    engine = model.engine
    if tokens > engine.context_length:
        raise ValueError(f"The model has room for {engine.context_length} tokens: choose fewer.")
    for number in range(conversations):
        sequence = engine.new_sequence()
        await engine.prefill(sequence, _text(number, tokens, model.config.vocab_size), Timings())
    return engine.memory()


def _text(number: int, tokens: int, vocabulary: int) -> Sequence[int]:
    return [(number * 7919 + at * 31) % (vocabulary - 3) + 3 for at in range(tokens)]
