"""The adapter with which a conversation answers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from app.generation.answer_adapters import AnswerAdapters
from py_core.adapters.lora import LoraAdapter
from py_core.messages import Message, Words


class WithAdapters(ABC):
    """The adapters of an assistant. A change counts from its next message on."""

    def __init__(self, adapters: AnswerAdapters) -> None:
        """adapters: of the model."""
        self.adapters = adapters
        self.adapter: LoraAdapter | None = None
        """The adapter with which the model answers from the next message on (`use_adapter`)."""
        self._answers_with = ""  # the adapter's name in the last answer

    @abstractmethod
    def stop(self) -> None:
        """End the running answer."""

    async def use_adapter(self, adapter: LoraAdapter | None) -> None:
        """Answer with an adapter from the next message on, or without one. The conversation stays.

        Raises AdapterError if it does not fit the model, BackendError; then the one before stays, too.
        """
        if adapter is not None:
            await self.adapters.open(adapter)
        self.adapter = adapter

    async def adapter_number(self, *, lesson: bool = False) -> int:
        """Return the number of the set of matrices for the next answer (`Engine.use_adapter`): those of the chosen
        adapter and those that the background loop learned. A lesson's answer has only the latter. Raises
        BackendError."""
        adapter = self.adapters.learned if lesson else self.adapters.with_learned(self.adapter)
        return await self.adapters.number(adapter) if adapter else 0

    @property
    def leaves_out(self) -> Words:
        """Return a sentence if the model answers without what it learned in pauses, because of the chosen adapter:
        their ranks add up to more than adapters may have. "" if nothing is left out."""
        if self.adapters.learned is None or self.adapter is None:
            return ""
        if self.adapters.with_learned(self.adapter) is not self.adapter:
            return ""
        return Message(
            "learning.adapter-too-large",
            "The adapter {name} is too large to be used together with what was trained in pauses, so that is left "
            "out while you use it. The facts that you taught are answered as before.",
            name=self.adapter.name,
        )

    def leave_adapter(self, name: str) -> None:
        """Prepare for the adapter to be forgotten: the next answer comes without it, and a running answer that it gives
        ends."""
        if self.adapter is not None and self.adapter.name == name:
            self.adapter = None
        if self._answers_with == name:
            self.stop()
