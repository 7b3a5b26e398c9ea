"""Serves several sequences on one backend.

A backend does one thing at a time. Each request (a prompt to read, tokens to sample, hidden states, logits) waits for
its turn (turns.py); sequences that are decoded have theirs together (together.py). A turn is given up after
`TURN_SECONDS` where another request of its priority waits, and at once for a more urgent one: a long text between two
forward passes, decoding between two batches of steps. While nobody waits, decoding keeps batches in flight.

Nobody who reads tokens holds a turn. What is sampled goes into the sequence's own stream; a reader who pauses stops
this sequence once `LOOK_AHEAD` tokens wait for him, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TypeVar

from py_core.backends.base import AfterPass, BackendError, TokenSequence
from py_core.backends.protocols import Backend
from py_core.engine.together import Decoding, SequenceGroup
from py_core.engine.turns import DeviceTurn, Priority, Turns
from py_core.sampling import SamplingParams
from py_core.training.session import AfterPiece

T = TypeVar("T")

MOST_REQUESTS = 24
"""Sequences that something is under way for at a time: as many as a step has rows, and twice as many that wait."""


class Scheduler:
    """The only one who calls a backend's methods that wait for its device."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turns = Turns()
        self._tasks: dict[int, asyncio.Task[object] | Decoding] = {}
        """What is under way, by its sequence's number."""
        self._to_the_end = {priority: asyncio.Lock() for priority in Priority}
        """Held by a request that goes on to its end before others of its priority that have several passes."""
        self._groups: dict[tuple[Priority, int], SequenceGroup] = {}
        """Sequences that are decoded together, by their priority and their set of LoRA matrices."""

    async def call(
        self, sequence: TokenSequence, work: Callable[[AfterPass], Awaitable[T]], priority: Priority,
        on_pass: Callable[[int], None] = lambda stored: None,
    ) -> T:  # fmt: skip
        """Run a method of the backend that waits for its device and works on one sequence, such as `prefill`.

        `work` gets what the method calls after each pass, if it has several. `on_pass` then gets the number of the
        sequence's tokens that are stored, and others may have their turn. Texts that do not fit into memory together
        would take each other's pages in every turn, and none would ever be read: one of them is read to its end first.
        """

        async def in_turn() -> T:
            first, is_first, most = self._to_the_end[priority], False, 0
            async with DeviceTurn(self._turns, priority) as turn, AsyncExitStack() as until_done:

                async def after_pass(stored: int) -> None:
                    nonlocal is_first, most
                    on_pass(stored)
                    # Where the sequence was ended, also by `on_pass`, the work ends here.
                    await asyncio.sleep(0)
                    if stored <= most and not first.locked():  # somebody took pages that it had read already
                        await until_done.enter_async_context(first)
                        is_first = True
                    most = max(most, stored)
                    # After the last pass the logits are there: sampling can go on at once, without another pass.
                    if stored >= sequence.length:
                        return
                    if first.locked() and not is_first:
                        await turn.stand_aside(first)
                    else:
                        await turn.give_way()

                return await work(after_pass)

        return await self._run(sequence, in_turn())

    async def alone(self, work: Callable[[], Awaitable[T]], priority: Priority) -> T:
        """Run something that belongs to no sequence, such as a measurement, while nothing else uses the device."""
        async with DeviceTurn(self._turns, priority):
            return await work()

    async def in_pieces(self, work: Callable[[AfterPiece], Awaitable[T]], priority: Priority) -> T:
        """Run something that belongs to no sequence, such as a pass of training; others go first between its pieces.

        `work` gets what it waits for after each piece.
        """
        async with DeviceTurn(self._turns, priority) as turn:

            async def after_piece() -> None:
                # Whoever came meanwhile asks for his turn.
                await asyncio.sleep(0)
                await turn.give_way()

            return await work(after_piece)

    async def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, priority: Priority
    ) -> AsyncIterator[list[int]]:
        """As `Runs.decode`, and sampling goes on while the reader works with what he got.

        Closing the iterator drops what was sampled and not read. Ends early, too, where `end` was called.
        """
        start, delivered = sequence.length, 0
        key = priority, sequence.adapter
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
        """Requests of Priority.IDLE get no turn meanwhile; one that has it gives it up after its piece of work."""
        self._turns.held += 1
        try:
            yield
        finally:
            self._turns.held -= 1
            self._turns.go_on()

    def end(self, sequence: TokenSequence) -> None:
        """End what is under way for a sequence, and drop what is in flight for it. The others go on."""
        if task := self._tasks.pop(sequence.number, None):
            task.cancel()

    async def _run(self, sequence: TokenSequence, work: Coroutine[object, object, T]) -> T:
        """Run work for a sequence in a task that `end` can find. Raises BackendError where it was ended so."""
        task = asyncio.ensure_future(work)
        with self._claim(sequence, task):
            try:
                return await task
            except asyncio.CancelledError:
                if not self._goes_on(sequence, task):
                    raise BackendError(
                        "engine.changed-meanwhile", "This conversation was changed meanwhile. Send the message again."
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
                "The model works for {most} conversations already, the most at a time. Wait "
                "until one of them has its answer, then send the message again.",
                most=MOST_REQUESTS,
            )
        self._tasks[sequence.number] = task
        try:
            yield
        finally:
            if self._goes_on(sequence, task):
                del self._tasks[sequence.number]

    def _goes_on(self, sequence: TokenSequence, task: asyncio.Task[T] | Decoding) -> bool:
        """Whether this goes on: `end` was not called since it began."""
        return self._tasks.get(sequence.number) is task
