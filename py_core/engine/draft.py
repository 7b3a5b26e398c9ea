"""A draft: a second, smaller model with the same vocabulary, which guesses what the model samples next.

It follows each text in a sequence of its own and decodes a few tokens with the sampling rules and the seed of the
answer: a draw from two similar distributions often gives the same token. The model then runs the guesses in one pass
(`Decoder.verify`), and keeps those that it samples itself. `Lookahead` decides if that pays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from py_core.backend_errors import BackendError, WorkersRestartedError
from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.backends.protocols import Backend, HasPages
from py_core.paging.page_table import PAGE
from py_core.sampling import SamplingParams
from py_core.speculation.lookahead import Drafted
from py_core.token_sequence import TokenSequence

READ_AT_ONCE = 128
"""Tokens that a draft reads before the answer continues by one, so that a long text does not hold the answer up."""

_FEW = 8
"""Tokens that the draft reads with its first step, such as those of the last pass. More are read and timed
separately."""


class Draft:
    """The draft of one engine. Its backend is used only in the engine's own turns."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.paged = backend if isinstance(backend, HasPages) else None
        self._followers: dict[int, Follower] = {}
        """The followers by the numbers of the sequences that they follow."""
        self.passes = self.guessed = self.right = 0
        """The number of the model's passes with guesses of the draft, of these guesses, and of those that were
        right."""

    def follow(self, sequence: TokenSequence) -> Follower:
        """The follower that guesses for this sequence until it is freed, even if the draft failed for its last
        answer."""
        follower = self._followers.get(sequence.number)
        if follower is None:
            follower = self._followers[sequence.number] = Follower(self)
        follower.works = True
        return follower

    def free(self, sequence: TokenSequence) -> None:
        """Give back the follower of this sequence, if there is one."""
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
        """Tokens of the text at the last guess: the follower's sequence began with the text then."""
        self.works = True

    def unread(self, tokens: Sequence[int]) -> int | None:
        # There must be room for a pass's guesses, and for as many tokens that are decoded after them.
        if not self.works or len(tokens) + 2 * MAX_LOGIT_ROWS > self._draft.backend.context_length:
            return None
        return max(0, len(tokens) - min(self._sequence.stored, self._shared(tokens)))

    async def propose(self, tokens: Sequence[int], count: int, sampling: SamplingParams) -> Drafted:
        """Guess the next tokens. A draft that fails guesses nothing more in this answer, which continues without it."""
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
            held = self._draft.paged.begin_with(sequence, tokens)  # what the draft has read for another sequence
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
        """How many of the first tokens it holds: usually the whole text of the last guess, and part of that guess."""
        held = self._sequence.tokens
        most = min(len(held), len(tokens))
        at = min(self._known, most)
        at = at if held[:at] == tokens[:at] else 0
        while at < most and held[at] == tokens[at]:
            at += 1
        return at
