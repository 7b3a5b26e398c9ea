"""The imprints that lie where the model runs: an answer begins with such an imprint without waiting for a transfer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.generation.learned_answer import AnswerHead
from py_core.backends.checks import HEAD_SLOTS
from py_core.engine.engine import Engine
from py_core.engine.scheduler import Priority
from py_core.learning.imprint import Imprint

KEPT_SLOTS = HEAD_SLOTS - 8
"""Slots for imprints. The device's other slots are for other needs: an imprint that is being made, or is tested."""


class ImprintShelf:
    """Brings imprints to the device when they are needed. They replace the imprints that were not needed for
    longest."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._there: dict[str, tuple[Imprint, tuple[AnswerHead, ...]]] = {}
        """By their names, the most recently used last."""
        self._changing = asyncio.Lock()

    def __contains__(self, name: object) -> bool:
        return name in self._there

    async def heads(
        self, name: str, imprint: Imprint, priority: Priority = Priority.INTERACTIVE
    ) -> tuple[AnswerHead, ...]:
        """Return the imprint's adapters, one after the other. It replaces another imprint of its name.

        Raises AdapterError if it does not fit the model or has more parts than there is room for; BackendError.
        """
        async with self._changing:
            known = self._there.pop(name, None)
            if known is not None:
                if known[0] is imprint:
                    self._there[name] = known
                    return known[1]
                self._take_away(known[1])
            parts = imprint.parts()
            while self._there and sum(len(heads) for _, heads in self._there.values()) + len(parts) > KEPT_SLOTS:
                self._take_away(self._there.pop(next(iter(self._there)))[1])
            heads = list[AnswerHead]()
            try:
                for part in parts:
                    number = await self._engine.put_head_adapter(part.adapter, priority)
                    heads.append(AnswerHead(number, part.tokens))
            except BaseException:
                self._take_away(heads)
                raise
            self._there[name] = imprint, tuple(heads)
            return tuple(heads)

    def forget(self, name: str) -> None:
        """Remove an imprint; nothing happens if it is not there. An answer that it gives continues without it."""
        if name in self._there:
            self._take_away(self._there.pop(name)[1])

    def clear(self) -> None:
        """Remove all imprints."""
        for name in tuple(self._there):
            self.forget(name)

    def _take_away(self, heads: Sequence[AnswerHead]) -> None:
        for head in heads:
            self._engine.remove_head_adapter(head.number)
