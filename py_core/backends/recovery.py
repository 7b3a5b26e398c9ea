"""Recovery from a lost device: its contents are brought back, and work in flight runs again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from py_core.backend_errors import BackendError
from py_core.backends.device import Device
from py_core.paging.pages import Pages

T = TypeVar("T")

_MOST_LOSSES = 3
"""The most devices lost in a row, without a token between them, that recovery accepts."""


class Recovery:
    """`rebuild` brings back what was lost, including adapters. If the pages were lost, `Pages.forget` is part of it."""

    def __init__(self, device: Device, pages: Pages, rebuild: Callable[[], Awaitable[None]]) -> None:
        self.errors = device.RESTARTS
        """The errors that mean that the device was lost."""
        self.is_lost = False
        self.losses = 0
        """The number of losses in a row. The start of a call, or a token, sets it to 0."""
        self.rebuilds = 0
        """How often the device's state was rebuilt."""
        self._device, self._pages, self._rebuild = device, pages, rebuild
        self._restarts = device.restarts

    def mark(self) -> None:
        """Note that the device is gone. The next call that needs it replaces it."""
        self.is_lost, self._pages.logits_of = True, None

    def note(self, error: Exception) -> None:
        """Note a loss, which `restore` makes up for. Raises the error itself if losses follow one another too often."""
        self.mark()
        self.losses += 1
        if self.losses > _MOST_LOSSES:
            raise error

    async def restore(self) -> None:
        """Rebuild the device's state if a call lost it, this one or an earlier one."""
        if self._restarts != self._device.restarts:  # maybe in a call that its caller did not await to the end
            self._restarts = self._device.restarts
            self.mark()
        if self.is_lost:
            await self._rebuild()
            self.rebuilds += 1
            self.is_lost = False

    async def attempt(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Try the work once and return its result; None if the device is lost meanwhile, or has no memory for it."""
        self.losses = 0
        try:
            await self.restore()
            return await work()
        except self.errors as error:
            self.note(error)
        except BackendError:
            pass
        return None

    async def placed(self, place: Callable[[], Awaitable[None]], remove: Callable[[], None] = lambda: None) -> None:
        """Bring something to the device, again if the device is lost meanwhile; `remove` it if it does not fit."""
        self.losses = 0
        while True:
            try:
                await self.restore()
                await place()
                return await self._pages.fit()
            except self.errors as error:
                self.note(error)
            except BaseException:
                remove()
                raise
