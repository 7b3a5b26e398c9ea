"""The adapters that lie where the model runs. Changing to one of them costs nothing but reading the chat again."""

from __future__ import annotations

import asyncio

from py_core.adapters.lora import LoraAdapter
from py_core.backends.checks import MAX_ADAPTERS
from py_core.engine.engine import Engine


class ResidentAdapters:
    """Brings adapters there at their first use. They replace the adapters that were not used for longest.

    An adapter with which a sequence runs is replaced last.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._there: dict[str, tuple[LoraAdapter, int]] = {}
        """By their names, the most recently used last."""
        self._changing = asyncio.Lock()

    def find(self, name: str) -> LoraAdapter | None:
        """Return an adapter that is there."""
        return self._there[name][0] if name in self._there else None

    async def number(self, adapter: LoraAdapter) -> int:
        """Return its number, for `Engine.use_adapter`. It replaces another adapter of its name.

        Raises AdapterError if it does not fit the model, BackendError.
        """
        async with self._changing:
            if self.find(adapter.name) is adapter:
                self._there[adapter.name] = self._there.pop(adapter.name)
                return self._there[adapter.name][1]
            await self._remove(adapter.name)
            if len(self._there) == MAX_ADAPTERS:
                in_use = self._engine.adapters_in_use
                unused = (name for name, (_, number) in self._there.items() if number not in in_use)
                await self._remove(next(unused, next(iter(self._there))))
            number = await self._engine.add_adapter(adapter)
            self._there[adapter.name] = adapter, number
            return number

    async def forget(self, name: str) -> None:
        """Remove an adapter; nothing happens if it is not there. An answer that it gives ends."""
        async with self._changing:
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        if name in self._there:
            await self._engine.remove_adapter(self._there.pop(name)[1])
