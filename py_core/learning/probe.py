"""Measures the effect of a LoRA set on a model: how well it still predicts texts, and which answers it gives."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from py_core.engine.engine import Engine, Timings
from py_core.engine.scheduler import Priority
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence

_PASS = 16
"""Tokens that are read at a time, since a message may have to wait for it; all at once take a CPU 600 ms."""


async def perplexity(engine: Engine, texts: Sequence[Sequence[int]], adapter: int, priority: Priority) -> float:
    """exp of the mean nats per token, over all tokens but the first of each text (token ids); inf if that overflows.

    adapter: the number of the set, 0 for the model alone. A text longer than the context is cut. Raises BackendError.
    """
    nats, tokens = 0.0, 0
    async with sequence_with(engine, adapter) as sequence:
        for text in texts:
            cut = text[: engine.context_length]
            for start in range(1, len(cut), _PASS):
                found = await engine.token_logprobs(sequence, cut[: start + _PASS], start, priority=priority)
                nats -= float(found.sum(dtype="float64"))
                tokens += len(found)
    return math.exp(min(nats / tokens, 700.0)) if math.isfinite(nats) else math.inf


async def greedy(
    engine: Engine, sequence: TokenSequence, prompt: Sequence[int], most: int, priority: Priority,
    expected: Sequence[int] = (),
) -> list[int]:  # fmt: skip
    """The likeliest tokens after a prompt, at most `most`, without the end token. Raises BackendError.

    If the answer does not begin as `expected`, generation stops at the first difference. A prefix of the prompt that
    the sequence already holds does not run again.
    """
    await engine.prefill(sequence, prompt, Timings(), priority=priority)
    said: list[int] = []
    generated = engine.generate(sequence, most, SamplingParams(), Timings(), priority=priority)
    async with aclosing(generated) as batches:  # type: ignore[type-var]
        async for ids in batches:
            said += ids
            if expected and said != list(expected[: len(said)]):
                break
    return said


@asynccontextmanager
async def sequence_with(engine: Engine, adapter: int) -> AsyncIterator[TokenSequence]:
    """A sequence that runs with the LoRA set of this number, 0 for the model alone."""
    sequence = engine.new_sequence()
    try:
        engine.use_adapter(sequence, adapter)
        yield sequence
    finally:
        engine.free(sequence)
