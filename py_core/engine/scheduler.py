"""Serves several sequences on one backend, in turns.

A backend does one thing at a time. Each request (a prompt to read, tokens to sample, hidden states, logits) waits for
its turn. It gives the turn up after `TURN_SECONDS` where another request of its priority waits, and at once for a more
urgent one: a long text between two forward passes, decoding between two batches of steps. While nobody waits, decoding
keeps batches in flight.

Nobody who reads tokens holds a turn. What is sampled goes into the sequence's own stream; a reader who pauses stops
this sequence once `LOOK_AHEAD` tokens wait for him, and no other.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from enum import IntEnum
from typing import TypeVar

from py_core.backends.base import AfterPass, Backend, BackendError, TokenSequence
from py_core.backends.training import AfterPiece
from py_core.sampling import SamplingParams

T = TypeVar("T")

TURN_SECONDS = 0.1
"""How long a request goes on while an equal one waits. Handing over leaves the device idle for some milliseconds, until
it is known that its work has ended; a tenth of a second between two words is hardly seen."""

LOOK_AHEAD = 128
"""Tokens that may wait for a reader: more than a fast device samples before one who does not pause comes to read."""


class Priority(IntEnum):
    """The order of requests; a lower number is more urgent."""

    INTERACTIVE = 0
    """A person waits for the answer."""
    BACKGROUND = 1
    """The request may wait until the device has nothing else to do."""
    IDLE = 2
    """The request may wait until nobody needs the model for a while (`Scheduler.idle_held`)."""


class Scheduler:
    """The only one who calls a backend's methods that wait for its device."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turns = _Turns()
        self._tasks: dict[int, asyncio.Task[object]] = {}
        """Running tasks by their sequence's slot."""

    async def call(
        self, sequence: TokenSequence, work: Callable[[AfterPass], Awaitable[T]], priority: Priority,
        on_pass: Callable[[int], None] = lambda stored: None,
    ) -> T:  # fmt: skip
        """Run a method of the backend that waits for its device and works on one sequence, such as `prefill`.

        `work` gets what the method calls after each pass, if it has several. `on_pass` then gets the number of the
        sequence's tokens that are stored, and others may have their turn.
        """

        async def in_turn() -> T:
            async with _Turn(self._turns, priority) as turn:

                async def after_pass(stored: int) -> None:
                    on_pass(stored)
                    # Where the sequence was ended, also by `on_pass`, the work ends here.
                    await asyncio.sleep(0)
                    # After the last pass the logits are there: sampling can go on at once, without another pass.
                    if stored < sequence.length:
                        await turn.give_way()

                return await work(after_pass)

        return await self._run(sequence, in_turn())

    async def alone(self, work: Callable[[], Awaitable[T]], priority: Priority) -> T:
        """Run something that belongs to no sequence, such as a measurement, while nothing else uses the device."""
        async with _Turn(self._turns, priority):
            return await work()

    async def in_pieces(self, work: Callable[[AfterPiece], Awaitable[T]], priority: Priority) -> T:
        """Run something that belongs to no sequence, such as a pass of training; others go first between its pieces.

        `work` gets what it waits for after each piece.
        """
        async with _Turn(self._turns, priority) as turn:

            async def after_piece() -> None:
                # Whoever came meanwhile asks for his turn.
                await asyncio.sleep(0)
                await turn.give_way()

            return await work(after_piece)

    async def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, priority: Priority
    ) -> AsyncIterator[list[int]]:
        """As `Backend.decode`, and sampling goes on while the reader works with what he got.

        Closing the iterator drops what was sampled and not read. Ends early, too, where `end` was called.
        """
        start, delivered = sequence.length, 0
        stream = _Stream()
        task = asyncio.ensure_future(self._sample(sequence, n, sampling, priority, stream))
        task.add_done_callback(lambda done: stream.close())
        with self._claim(sequence, task):
            try:
                while (ids := await stream.read()) and self._goes_on(sequence, task):
                    delivered += len(ids)
                    yield ids
                if self._goes_on(sequence, task):
                    await task
            finally:
                task.cancel()
                await asyncio.wait([task])
                if self._goes_on(sequence, task):
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
        if task := self._tasks.pop(sequence.slot, None):
            task.cancel()

    async def _sample(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, priority: Priority, stream: _Stream
    ) -> None:
        left = min(n, self._backend.context_length - sequence.length)
        while left > 0:
            await stream.room()
            async with _Turn(self._turns, priority) as turn:

                def keep_going(turn: _Turn = turn) -> bool:
                    return stream.has_room and not turn.is_over

                steps = self._backend.decode(sequence, left, sampling, keep_going)
                async with aclosing(steps) as batches:  # type: ignore[type-var]
                    async for ids in batches:
                        turn.is_used = True
                        left -= len(ids)
                        stream.write(ids)
                        # Where a batch is there already, waiting for it would not let the reader in between.
                        await asyncio.sleep(0)

    async def _run(self, sequence: TokenSequence, work: Coroutine[object, object, T]) -> T:
        """Run work for a sequence in a task that `end` can find. Raises BackendError where it was ended so."""
        task = asyncio.ensure_future(work)
        with self._claim(sequence, task):
            try:
                return await task
            except asyncio.CancelledError:
                if not self._goes_on(sequence, task):
                    raise BackendError("This conversation was changed meanwhile. Send the message again.") from None
                raise

    @contextmanager
    def _claim(self, sequence: TokenSequence, task: asyncio.Task[T]) -> Iterator[None]:
        if sequence.slot in self._tasks:
            task.cancel()
            raise BackendError("This conversation is still being answered. Stop that answer first.")
        self._tasks[sequence.slot] = task
        try:
            yield
        finally:
            if self._goes_on(sequence, task):
                del self._tasks[sequence.slot]

    def _goes_on(self, sequence: TokenSequence, task: asyncio.Task[T]) -> bool:
        """Whether the task goes on: `end` was not called since it began."""
        return self._tasks.get(sequence.slot) is task


class _Turns:
    """The queue for the device: the most urgent request goes first, and among equals the one that came first."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.held = 0
        """How many want idle work to stand still."""

    async def take(self, priority: Priority) -> None:
        if not self._taken and not self.is_held(priority):
            self._taken = True
            return
        handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), handed_over))
        try:
            await handed_over
        except asyncio.CancelledError:
            if not handed_over.cancelled():
                self.hand_over()
            raise

    def is_held(self, priority: int) -> bool:
        return bool(self.held) and priority == Priority.IDLE

    def go_on(self) -> None:
        """Where nobody has the device, who waits for it may have it now."""
        if not self._taken:
            self._taken = True
            self.hand_over()

    def hand_over(self) -> None:
        self._drop_cancelled()
        if self._waiting and not self.is_held(self._waiting[0][0]):
            heapq.heappop(self._waiting)[2].set_result(None)
        else:
            self._taken = False

    @property
    def most_urgent(self) -> int | None:
        """The priority of who is next, if anybody waits."""
        self._drop_cancelled()
        return self._waiting[0][0] if self._waiting else None

    def _drop_cancelled(self) -> None:
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)


class _Turn:
    """The right to use the device, as a context."""

    def __init__(self, turns: _Turns, priority: Priority) -> None:
        self._turns, self._priority = turns, priority
        self._held, self._since = False, 0.0
        self.is_used = False
        """Whether it brought its owner further. It is not over before, however short turns are."""

    async def __aenter__(self) -> _Turn:
        await self._turns.take(self._priority)
        self._held, self._since, self.is_used = True, time.perf_counter(), False
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._held:
            self._held = False
            self._turns.hand_over()

    @property
    def is_over(self) -> bool:
        """Whether another request should have the device now."""
        if self.is_used and self._turns.is_held(self._priority):
            return True
        waiting = self._turns.most_urgent
        if not self.is_used or waiting is None or waiting > self._priority:
            return False
        return waiting < self._priority or time.perf_counter() - self._since >= TURN_SECONDS

    async def give_way(self) -> None:
        """Let others go first if it is their turn."""
        self.is_used = True
        if self.is_over:
            await self.__aexit__()
            await self.__aenter__()


class _Stream:
    """The ids of one sequence on their way to its reader."""

    def __init__(self) -> None:
        self._unread: list[int] = []
        self._closed = False
        self._written, self._was_read = asyncio.Event(), asyncio.Event()

    @property
    def has_room(self) -> bool:
        return len(self._unread) < LOOK_AHEAD

    def write(self, ids: list[int]) -> None:
        self._unread += ids
        self._written.set()

    def close(self) -> None:
        """Nothing more will be written."""
        self._closed = True
        self._written.set()

    async def read(self) -> list[int]:
        """All that was written and not read yet, as soon as there is something; nothing at the end."""
        while not self._unread and not self._closed:
            self._written.clear()
            await self._written.wait()
        ids, self._unread = self._unread, []
        self._was_read.set()
        return ids

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while not self.has_room:
            self._was_read.clear()
            await self._was_read.wait()
