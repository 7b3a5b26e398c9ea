"""The adapter that a conversation answers with."""

from __future__ import annotations

from abc import ABC, abstractmethod

from app.generation.answer_adapters import AnswerAdapters
from py_core.adapters.lora import LoraAdapter
from py_core.messages import Message, Words


class WithAdapters(ABC):
    """What an assistant has of adapters. They are for its next message on."""

    def __init__(self, adapters: AnswerAdapters) -> None:
        """adapters: of the model."""
        self.adapters = adapters
        self.adapter: LoraAdapter | None = None
        """What the model answers with from the next message on (`use_adapter`)."""
        self._answers_with = ""  # the name of the one of the last answer

    @abstractmethod
    def stop(self) -> None:
        """End the running answer."""

    async def use_adapter(self, adapter: LoraAdapter | None) -> None:
        """Answer with an adapter from the next message on, or without one. The conversation stays.

        Raises AdapterError where it does not fit the model, BackendError; then the one before stays, too.
        """
        if adapter is not None:
            await self.adapters.open(adapter)
        self.adapter = adapter

    async def adapter_number(self, *, lesson: bool = False) -> int:
        """The set of matrices that the next answer comes with (`Engine.use_adapter`): the chosen adapter's, and those
        that the background loop learned, which a lesson's answer has alone. Raises BackendError."""
        adapter = self.adapters.learned if lesson else self.adapters.with_learned(self.adapter)
        return await self.adapters.number(adapter) if adapter else 0

    @property
    def leaves_out(self) -> Words:
        """A sentence where the model answers without what it learned in pauses, for the chosen adapter's sake: their
        ranks add up to more than adapters may have. "" where nothing is left out."""
        if self.adapters.learned is None or self.adapter is None:
            return ""
        if self.adapters.with_learned(self.adapter) is not self.adapter:
            return ""
        return Message(
            "learning.adapter-too-large",
            "The adapter {name} is too large to be used together with what was trained in "
            "pauses, which waits while you use it. The facts that you taught are answered as "
            "before.",
            name=self.adapter.name,
        )

    def leave_adapter(self, name: str) -> None:
        """It is about to be forgotten: the next answer comes without it, and a running one that it gives ends."""
        if self.adapter is not None and self.adapter.name == name:
            self.adapter = None
        if self._answers_with == name:
            self.stop()
