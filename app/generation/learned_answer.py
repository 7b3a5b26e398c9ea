"""The tokens of a taught answer, with the adapters of its lesson, one after the other.

The answer is said as it was taught: the likeliest token each time. There is no penalty on words used before, because it
would break an answer that repeats words. There is no search for loops, because a taught answer may have them. The
answer's length is limited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from py_core.engine.engine import Engine, Timings
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence

LEARNED_SAMPLING = SamplingParams(temperature=0.0)
BEYOND = 32
"""Tokens that an answer may have beyond those that were taught: if it misses its end, it stops soon."""


@dataclass(frozen=True)
class AnswerHead:
    """The number of an adapter at the head's input, and how many of the answer's tokens it gives before the next
    adapter. The last adapter of an answer gives all tokens that follow."""

    number: int
    tokens: int


def longest_learned(heads: Sequence[AnswerHead]) -> int:
    """Return the most tokens that an answer with these adapters may have."""
    return sum(head.tokens for head in heads) + BEYOND


async def ids_of_learned(
    engine: Engine, sequence: TokenSequence, heads: Sequence[AnswerHead], max_tokens: int, timings: Timings
) -> AsyncIterator[list[int]]:
    """Yield tokens as Engine.generate does. Afterwards the sequence has no adapter at the head's input."""
    left = max_tokens
    try:
        for number, head in enumerate(heads):
            wanted = left if number == len(heads) - 1 else min(head.tokens, left)
            engine.use_head_adapter(sequence, head.number)
            part, before = Timings(), (timings.new_tokens, timings.decode_seconds)

            def told(part: Timings = part, before: tuple[int, float] = before) -> None:
                timings.reason, timings.new_tokens = part.reason, before[0] + part.new_tokens
                timings.decode_seconds = before[1] + part.decode_seconds

            generated = engine.generate(sequence, wanted, LEARNED_SAMPLING, part)
            async with aclosing(generated) as batches:  # type: ignore[type-var]
                async for ids in batches:
                    told()
                    yield ids
            told()
            timings.first_token_seconds = timings.first_token_seconds or part.first_token_seconds
            left -= part.new_tokens
            if part.reason != "length" or left <= 0:
                return
    finally:
        engine.use_head_adapter(sequence, 0)
