"""Serves several sequences on one backend.

A backend does one thing at a time. Each request (a prompt to read, tokens to sample, hidden states, logits) waits for
its turn (turns.py); sequences that are decoded share their turns (sequence_group.py). If another request of the same
priority waits, a turn ends after `TURN_SECONDS`; if a more urgent one waits, it ends at once: a long text between two
forward passes, decoding between two batches of steps. While no request waits, decoding keeps batches in flight.

A reader of tokens never holds a turn. Sampled tokens go into the sequence's own stream. If a reader pauses, its
sequence stops once `LOOK_AHEAD` tokens wait for it; no other sequence does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TypeVar

from py_core.backend_errors import BackendError
from py_core.backends.protocols import AfterPass, Backend
from py_core.engine.sequence_group import Decoding, SequenceGroup
from py_core.engine.turns import DeviceTurn, Priority, Turns
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from py_core.training.session import AfterPiece

T = TypeVar("T")

MOST_REQUESTS = 24
"""The most sequences with work under way: the rows of a step, and twice as many that wait."""


class Scheduler:
    """The only caller of the backend's methods that wait for its device."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turns = Turns()
        self._tasks: dict[int, asyncio.Task[object] | Decoding] = {}
        """The work under way, by its sequence's number."""
        self._to_the_end = {priority: asyncio.Lock() for priority in Priority}
        """Held by a request that runs to its end before other requests of its priority with several passes."""
        self._groups: dict[tuple[Priority, int, bool], SequenceGroup] = {}
        """Sequences that are decoded together, by their priority, their set of LoRA matrices, and if they want
        probabilities: their steps are waited for."""

    async def call(
        self, sequence: TokenSequence, work: Callable[[AfterPass], Awaitable[T]], priority: Priority,
        on_pass: Callable[[int], None] = lambda stored: None,
    ) -> T:  # fmt: skip
        """Run a method of the backend that waits for its device and works on one sequence, such as `prefill`.

        If the method has several passes, it calls the argument of `work` after each. `on_pass` then gets the number of
        the sequence's stored tokens, and other requests may have their turn. Texts that do not fit into memory together
        would take each other's pages in every turn, and none would be read to its end. So one of them is finished
        first.
        """

        async def in_turn() -> T:
            first, is_first, most = self._to_the_end[priority], False, 0
            async with DeviceTurn(self._turns, priority) as turn, AsyncExitStack() as until_done:

                async def after_pass(stored: int) -> None:
                    nonlocal is_first, most
                    on_pass(stored)
                    # If the sequence was ended, also by `on_pass`, the work ends here.
                    await asyncio.sleep(0)
                    if stored <= most and not first.locked():  # another sequence took pages that it had read already
                        await until_done.enter_async_context(first)
                        is_first = True
                    most = max(most, stored)
                    # After the last pass the logits are there: sampling can start at once, without another pass.
                    if stored >= sequence.length:
                        return
                    if first.locked() and not is_first:
                        await turn.stand_aside(first)
                    else:
                        await turn.give_way()

                return await work(after_pass)

        return await self._run(sequence, in_turn())

    async def alone(self, work: Callable[[], Awaitable[T]], priority: Priority) -> T:
        """Run work that belongs to no sequence, such as a measurement, while nothing else uses the device."""
        async with DeviceTurn(self._turns, priority):
            return await work()

    async def until_wanted(self, work: Callable[[Callable[[], bool]], Awaitable[bool]], priority: Priority) -> None:
        """Run work that belongs to no sequence until it returns True. It gets a function that says if a more urgent
        request waits: then it ends early, returns False, and is repeated once the device is free again."""

        async def in_turn() -> bool:
            async with DeviceTurn(self._turns, priority) as turn:
                return await work(lambda: turn.is_wanted)

        while not await in_turn():
            pass

    async def in_pieces(self, work: Callable[[AfterPiece], Awaitable[T]], priority: Priority) -> T:
        """Run work that belongs to no sequence, such as a pass of training. Other requests go first between its pieces.

        `work` gets a function that it awaits after each piece.
        """
        async with DeviceTurn(self._turns, priority) as turn:

            async def after_piece() -> None:
                # Requests that came meanwhile ask for their turn.
                await asyncio.sleep(0)
                await turn.give_way()

            return await work(after_piece)

    async def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, priority: Priority
    ) -> AsyncIterator[list[int]]:
        """See `Runs.decode`. Sampling continues while the reader works with the tokens that it has.

        Closing the iterator drops tokens that were sampled and not read. The iterator also ends early if `end` is
        called.
        """
        start, delivered = sequence.length, 0
        key = priority, sequence.adapter, sampling.likeliest is not None
        group = self._groups.setdefault(key, SequenceGroup(self._backend, self._turns, priority))
        decoding = Decoding(group, sequence, min(n, self._backend.context_length - start), sampling)
        with self._claim(sequence, decoding):
            try:
                if decoding.left > 0:
                    group.join(decoding)
                else:
                    decoding.stream.close()
                while (ids := await decoding.stream.read()) and self._goes_on(sequence, decoding):
                    delivered += len(ids)
                    yield ids
                if decoding.error and self._goes_on(sequence, decoding):
                    raise decoding.error
            finally:
                await group.leave(decoding)
                if group.is_empty and self._groups.get(key) is group:
                    del self._groups[key]
                if self._goes_on(sequence, decoding):
                    self._backend.truncate(sequence, start + delivered)

    @contextmanager
    def idle_held(self) -> Iterator[None]:
        """Requests of Priority.IDLE get no turn meanwhile. A request with a turn gives it up after its piece of
        work."""
        self._turns.held += 1
        try:
            yield
        finally:
            self._turns.held -= 1
            self._turns.go_on()

    def end(self, sequence: TokenSequence) -> None:
        """End the work under way for a sequence, and drop what is in flight for it. Other sequences continue."""
        if task := self._tasks.pop(sequence.number, None):
            task.cancel()

    async def _run(self, sequence: TokenSequence, work: Coroutine[object, object, T]) -> T:
        """Run work for a sequence in a task that `end` can find. Raises BackendError if `end` stopped it."""
        task = asyncio.ensure_future(work)
        with self._claim(sequence, task):
            try:
                return await task
            except asyncio.CancelledError:
                if not self._goes_on(sequence, task):
                    raise BackendError(
                        "engine.changed-meanwhile",
                        "This conversation has changed in the meantime. Send the message again.",
                    ) from None
                raise

    @contextmanager
    def _claim(self, sequence: TokenSequence, task: asyncio.Task[T] | Decoding) -> Iterator[None]:
        if sequence.number in self._tasks:
            task.cancel()
            raise BackendError(
                "engine.still-answering", "This conversation is still being answered. Stop that answer first."
            )
        if len(self._tasks) >= MOST_REQUESTS:
            task.cancel()
            raise BackendError(
                "engine.too-many-requests",
                "The model is already answering {most} conversations, the most that it can at a time. Wait until "
                "one of them has its answer, then send the message again.",
                most=MOST_REQUESTS,
            )
        self._tasks[sequence.number] = task
        try:
            yield
        finally:
            if self._goes_on(sequence, task):
                del self._tasks[sequence.number]

    def _goes_on(self, sequence: TokenSequence, task: asyncio.Task[T] | Decoding) -> bool:
        """True if the task continues: `end` was not called since it began."""
        return self._tasks.get(sequence.number) is task
