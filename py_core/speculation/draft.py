"""A draft: a second, smaller model of the same vocabulary, which guesses what the model samples next.

It follows each text in a sequence of its own and decodes a few tokens, by the rules and the seed of the answer: what a
draw makes of two distributions that are alike is often the same token. The model then runs them in one pass
(`Decoder.verify`), and keeps those that it samples itself. Whether that pays, `Lookahead` decides.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from py_core.backends.base import MAX_LOGIT_ROWS, BackendError, TokenSequence, WorkersRestartedError
from py_core.backends.protocols import Backend, HasPages
from py_core.paging.page_table import PAGE
from py_core.sampling import SamplingParams
from py_core.speculation.lookahead import Drafted

READ_AT_ONCE = 128
"""Tokens that a draft reads before the answer goes on by one: a long text does not hold it up."""

_FEW = 8
"""Tokens that it reads with its first step, as those of the last pass; more are read by themselves, and timed so."""


class Draft:
    """Of one engine. Its backend is used in the turns of the engine's own: nobody else asks for it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.paged = backend if isinstance(backend, HasPages) else None
        self._followers: dict[int, Follower] = {}
        """By the numbers of the sequences that they follow."""
        self.passes = self.guessed = self.right = 0
        """Passes of the model with guesses of the draft, how many these were, and how many of them were right."""

    def follow(self, sequence: TokenSequence) -> Follower:
        """What guesses for this sequence until it is freed, also where the draft failed for its last answer."""
        follower = self._followers.get(sequence.number)
        if follower is None:
            follower = self._followers[sequence.number] = Follower(self)
        follower.works = True
        return follower

    def free(self, sequence: TokenSequence) -> None:
        """Give back what follows this sequence, if something does."""
        if follower := self._followers.pop(sequence.number, None):
            follower.free()

    async def limit_memory(self, nbytes: int) -> None:
        """See `HasPages.limit_memory`."""
        if self.paged:
            await self.paged.limit_memory(nbytes)

    def close(self) -> None:
        """Release the weights and the device."""
        self.backend.close()


class Follower:
    """Follows one sequence: a `Drafter`."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._sequence = draft, draft.backend.new_sequence()
        self._known = 0
        """Tokens of the text that was guessed behind last: the sequence began with it then."""
        self.works = True

    def unread(self, tokens: Sequence[int]) -> int | None:
        # A pass's guesses, and as many as are decoded beyond them, have to find room.
        if not self.works or len(tokens) + 2 * MAX_LOGIT_ROWS > self._draft.backend.context_length:
            return None
        return max(0, len(tokens) - min(self._sequence.stored, self._shared(tokens)))

    async def propose(self, tokens: Sequence[int], count: int, sampling: SamplingParams) -> Drafted:
        """A draft that fails guesses nothing any more in this answer, which goes on without."""
        try:
            return await self._propose(tokens, count, sampling)
        except (BackendError, WorkersRestartedError):
            self.works = False
            return Drafted([])

    async def _propose(self, tokens: Sequence[int], count: int, sampling: SamplingParams) -> Drafted:
        backend, sequence = self._draft.backend, self._sequence
        begin = time.perf_counter()
        held = min(self._shared(tokens), sequence.stored + _FEW)
        if held < sequence.length:
            backend.truncate(sequence, held)
        self._known = len(tokens)
        if self._draft.paged and len(tokens) - held > PAGE:
            held = self._draft.paged.begin_with(sequence, tokens)  # what it has read for another sequence
        read = min(len(tokens) - held, READ_AT_ONCE)
        if read > _FEW:
            await backend.prefill(sequence, tokens[held : held + read])
            if sequence.length < len(tokens):
                return Drafted([], read, time.perf_counter() - begin)
        elif read:
            backend.append(sequence, tokens[held:])
            read = 0
        reading, begin = time.perf_counter() - begin, time.perf_counter()
        guess = [token async for ids in backend.decode(sequence, count, sampling) for token in ids]
        return Drafted(guess, read, reading, time.perf_counter() - begin)

    def judge(self, guessed: int, right: int) -> None:
        draft = self._draft
        draft.passes, draft.guessed, draft.right = draft.passes + 1, draft.guessed + guessed, draft.right + right

    def free(self) -> None:
        self._draft.backend.free(self._sequence)

    def _shared(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens it holds: most often all that was there at the last guess, and some of that."""
        held = self._sequence.tokens
        most = min(len(held), len(tokens))
        at = min(self._known, most)
        at = at if held[:at] == tokens[:at] else 0
        while at < most and held[at] == tokens[at]:
            at += 1
        return at
