"""Generates tokens: keeps what a conversation's pages already hold, samples, and stops where the model says so."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from py_core.backends.base import Backend, ContextFullError, TokenSequence, too_long
from py_core.sampling import SamplingParams


@dataclass
class Timings:
    """Filled while an answer is generated. Rates are tokens a second; 0 before there is one."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_seconds: float = 0.0
    new_tokens: int = 0
    decode_seconds: float = 0.0
    reason: str = ""
    first_token_seconds: float = field(default=0.0, repr=False)

    @property
    def prefill_tok_s(self) -> float:
        """Of the prompt's tokens that had to be run."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tok_s(self) -> float:
        """From the end of the prefill; the end-of-text token counts as one."""
        return self.new_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Engine:
    """One model on one backend."""

    def __init__(self, backend: Backend, end_tokens: Collection[int]) -> None:
        self.backend = backend
        self._end_tokens = frozenset(end_tokens)

    def new_sequence(self) -> TokenSequence:
        return self.backend.new_sequence()

    async def prefill(self, sequence: TokenSequence, prompt: Sequence[int], timings: Timings) -> None:
        """Make the sequence hold exactly `prompt`. What it shares with the prompt from the start on is not run again.

        Raises ContextFullError when the prompt does not fit; the sequence then still holds what it held.
        """
        if len(prompt) > self.backend.context_length:
            raise ContextFullError(too_long(len(prompt), self.backend.context_length))
        begin = time.perf_counter()
        # At least the last token runs, to give logits.
        shared = min(_shared_length(sequence.tokens, prompt), max(len(prompt) - 1, 0))
        timings.prompt_tokens, timings.reused_tokens = len(prompt), shared
        self.backend.truncate(sequence, shared)
        try:
            await self.backend.prefill(sequence, prompt[shared:])
        finally:
            timings.prefill_seconds = time.perf_counter() - begin

    async def generate(
        self,
        sequence: TokenSequence,
        max_tokens: int,
        sampling: SamplingParams,
        timings: Timings,
        *,
        ignore_end: bool = False,
    ) -> AsyncIterator[list[int]]:
        """Yield the ids that follow, without the end token; `timings.reason` says why it ended: end, length or context.

        The sequence keeps what was yielded, and the end token. Closing the iterator early loses nothing yielded.
        """
        begin = time.perf_counter()
        start = sequence.length
        wanted = max_tokens
        timings.reason = "length"
        if start + wanted > self.backend.context_length:
            wanted, timings.reason = self.backend.context_length - start, "context"
        async with aclosing(self.backend.decode(sequence, wanted, sampling)) as batches:  # type: ignore[type-var]
            async for ids in batches:
                seen = timings.new_tokens
                if not timings.new_tokens:
                    timings.first_token_seconds = time.perf_counter() - begin
                end = (
                    None if ignore_end else next((i for i, token in enumerate(ids) if token in self._end_tokens), None)
                )
                kept = ids if end is None else ids[:end]
                timings.new_tokens = seen + len(kept) + (end is not None)
                timings.decode_seconds = time.perf_counter() - begin
                if kept:
                    yield kept
                if end is not None:
                    timings.reason = "end"
                    break
        if timings.reason == "end":
            # What was sampled past the end token, while it was in flight, never happened.
            self.backend.truncate(sequence, start + timings.new_tokens)


def _shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
