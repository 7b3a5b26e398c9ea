"""The text of an answer, piece by piece, as its tokens are sampled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from py_core.backends.base import TokenSequence
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.sampling import SamplingParams


async def stream_text(
    model: Model, sequence: TokenSequence, max_tokens: int, sampling: SamplingParams, timings: Timings, *,
    raw: bool = False,
) -> AsyncIterator[str]:  # fmt: skip
    """Yield what each batch of tokens adds to the text, "" where it ends within a character. After a prefill.

    raw: special tokens are shown, and the end token does not end the text. `timings` are filled as by Engine.generate,
    whose errors this raises.
    """
    decoder = model.tokenizer.stream(skip_special=not raw)
    generated = model.engine.generate(sequence, max_tokens, sampling, timings, ignore_end=raw)
    async with aclosing(generated) as batches:  # type: ignore[type-var]
        async for ids in batches:
            yield "".join(decoder.push(token) for token in ids)
    yield decoder.flush()
