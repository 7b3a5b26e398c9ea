"""The adapters with which a model answers, for all conversations with it: what it learned in pauses, and that
joined with the adapter that a conversation chose.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from app.generation.resident_adapters import ResidentAdapters
from py_core.adapters.joining import joined
from py_core.adapters.lora import LoraAdapter
from py_core.engine.engine import Engine


class AnswerAdapters(ResidentAdapters):
    """One for each model: an adapter has one name and one number, whichever conversations answer with it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.learned: LoraAdapter | None = None
        self._opened = WeakValueDictionary[str, LoraAdapter]()
        """The adapters that conversations chose. A second conversation gets the same object, even if it had to leave
        the device."""
        self._joined: dict[str, tuple[LoraAdapter, LoraAdapter | None]] = {}
        """By the chosen adapter's name: that adapter, and the one joined from it and `learned`, None if there is no
        room for both."""

    def opened(self, name: str) -> LoraAdapter | None:
        """Return the adapter of this name if a conversation chose it and it was not forgotten since."""
        return self._opened.get(name)

    async def open(self, adapter: LoraAdapter) -> None:
        """Open an adapter that a conversation chooses. Raises AdapterError if it does not fit the model,
        BackendError."""
        await self.number(adapter)
        self._opened[adapter.name] = adapter

    def with_learned(self, chosen: LoraAdapter | None) -> LoraAdapter | None:
        """Return the chosen and the learned adapter together; the chosen one alone if there is no room for both."""
        if chosen is None or self.learned is None:
            return chosen or self.learned
        if self._joined.get(chosen.name, (None,))[0] is not chosen:
            self._joined[chosen.name] = chosen, joined(chosen, self.learned)
        return self._joined[chosen.name][1] or chosen

    async def use_learned(self, adapter: LoraAdapter | None) -> None:
        """Answer also with what the background loop learned (ConsolidationService), from the next message on.

        What was learned before leaves the device: answers that use it end.
        """
        if adapter is self.learned:
            return
        before = [self.learned, *(both for _, both in self._joined.values())]
        self.learned, self._joined = adapter, {}
        for one in before:
            if one is not None:
                await super().forget(one.name)

    async def forget(self, name: str) -> None:
        """Do the same as ResidentAdapters, also if the adapter is joined with what was learned."""
        self._opened.pop(name, None)
        _, both = self._joined.pop(name, (None, None))
        await super().forget(name)
        if both is not None:
            await super().forget(both.name)
