"""The desk of a consolidation: blobs of the memory, the embedder, and the adapters on the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from app.consolidation.idle_work import Report
from app.generation.assistant import SYSTEM_PROMPT
from app.generation.resident_adapters import ResidentAdapters
from app.lessons.service import LearningService
from app.records.revisions import WORK
from py_core.adapters.lora import LoraAdapter
from py_core.learning.consolidation_job import TrainingStage
from py_core.learning.known_base import KNOWN
from py_core.learning.lesson_examples import TaughtAnswer
from py_core.messages import Message
from py_core.training.trainer import StepReport

SIMILAR = 0.55
"""The least cosine of a question in the model's own words to the one that was taught."""
KNOWING = Message("training.knowing-once", "gets to know this model (once)")
"""The step if lessons came from elsewhere, e.g. by an import, and this model has made no imprint yet."""
BRINGING = Message("training.bringing", "brings what it was taught up to date")
"""The last step, imprints for the new revision, in the words of `Stage`."""
_IMPRINT_TOKENS = 100
"""The approximate number of tokens that it takes to make a lesson's imprint again."""


class WorkDesk:
    """The desk of one run. See `Desk` for the contract of each method."""

    def __init__(
        self, learning: LearningService, adapters: ResidentAdapters, report: Report,
        stepped: Callable[[StepReport], None], trouble: Callable[[Message], None],
    ) -> None:  # fmt: skip
        self._learning, self._adapters, self._report = learning, adapters, report
        self.stepped, self.trouble = stepped, trouble
        self._later = self._total = 0

    def will_imprint(self, lessons: int) -> None:
        """Plan for the imprints of `lessons` lessons after the training; `follow` reports their progress."""
        self._later = _IMPRINT_TOKENS * lessons

    def report(self, done: int, total: int, stage: TrainingStage) -> None:
        self._total = total
        self._report(done, total + self._later, stage.value)

    def get_to_know(self, read: int, texts: int) -> None:
        """Report that `read` of `texts` texts are read, before the first imprint of this model."""
        self._report(self._total, self._total + self._later, KNOWING)

    def follow(self, done: int, lessons: int) -> None:
        """Report that `done` of `lessons` imprints are made."""
        made = self._later * done // max(lessons, 1)
        self._report(self._total + made, self._total + self._later, BRINGING)

    async def prompt(self, question: str) -> list[int]:
        system, asked = {"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}
        return await self._learning.model.encode_chat([system, asked])

    async def fitting(self, question: TaughtAnswer, wordings: Sequence[str]) -> list[str]:
        """Return the wordings whose nearest lesson is this one."""
        taught = [one for one in await self._learning.memory.lessons.all() if one.answers]
        embedder = self._learning.embedder
        meanings = await embedder.meanings([*(one.question for one in taught), *wordings])
        known = np.stack([one.vector for one in meanings[: len(taught)]])
        cosines = np.stack([one.vector for one in meanings[len(taught) :]]) @ known.T
        own = next((at for at, one in enumerate(taught) if one.id == question.id), -1)
        return [
            text for text, row in zip(wordings, cosines, strict=True) if int(row.argmax()) == own and row[own] > SIMILAR
        ]

    async def read(self, name: str) -> bytes | None:
        return await self._learning.memory.store.get_blob(self._blob(name))

    async def write(self, name: str, data: bytes) -> None:
        await self._learning.memory.store.put_blob(self._blob(name), data)

    async def use(self, adapter: LoraAdapter) -> int:
        return await self._adapters.number(adapter)

    async def forget(self, name: str) -> None:
        await self._adapters.forget(name)

    def _blob(self, name: str) -> str:
        return f"known/{_place(self._learning)}" if name == KNOWN else work_blob(self._learning, name)


def work_blob(learning: LearningService, name: str) -> str:
    """Return the name of a blob of an unfinished run: it is deleted with any lesson, and when the run is done."""
    return f"{WORK}{_place(learning)}/{name}"


def _place(learning: LearningService) -> str:
    return learning.base_sha256[:16] or "model"
