"""How many answers run at a time, and how many requests wait for that."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from app.api.errors import ApiError
from py_core.engine.turns import Priority


class Slots:
    """Requests come to their turn by their priority, and equals in the order in which they came. `running`, `waiting`:
    how many there are."""

    def __init__(self, most: int, queue: int) -> None:
        """most: answers at a time. queue: requests that may wait."""
        self.running = 0
        self._most, self._queue = most, queue
        self._is_closed = False
        self._waiting = deque[tuple[int, asyncio.Future[None], Priority]]()

    def close(self) -> None:
        """Refuse all that wait, and those to come."""
        self._is_closed = True
        while self._waiting:
            if not (turn := self._waiting.popleft()[1]).done():
                turn.set_exception(_closed())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def held(self, answers: int, priority: Priority = Priority.INTERACTIVE) -> AsyncIterator[None]:
        """Hold so many slots until the end of the block. Raises ApiError if too many requests wait already, or
        after `close`."""
        if self._is_closed:
            raise _closed()
        ahead = sum(other <= priority for _, _, other in self._waiting)
        if ahead or self.running + answers > self._most:
            if len(self._waiting) >= self._queue:
                raise ApiError(
                    "Too many requests wait for an answer: send this one again later.", HTTPStatus.TOO_MANY_REQUESTS
                )
            turn = asyncio.get_running_loop().create_future()
            self._waiting.insert(ahead, (answers, turn, priority))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled() and turn.exception() is None:
                    self.running -= answers
                elif (answers, turn, priority) in self._waiting:
                    self._waiting.remove((answers, turn, priority))
                self._go_on()
                raise
        else:
            self.running += answers
        try:
            yield
        finally:
            self.running -= answers
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self.running + self._waiting[0][0] <= self._most:
            answers, turn, _ = self._waiting.popleft()
            if not turn.done():  # otherwise its client has just left
                self.running += answers
                turn.set_result(None)


def _closed() -> ApiError:
    """Return the refusal of a server that ends."""
    return ApiError("The server is closing: send the request again when it is back.", HTTPStatus.SERVICE_UNAVAILABLE)
