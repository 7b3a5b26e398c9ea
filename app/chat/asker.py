"""Answers single questions with what was learned. Each question is a conversation of its own; nothing of it is
stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.chat.file_lookup import counting, room_for_files, whole_room
from app.files.material import Material
from app.files.service import FileService
from app.generation.answer_adapters import AnswerAdapters
from app.generation.assistant import Assistant
from app.lessons.match import Candidate, LessonMatch, UnsureMatch
from app.lessons.reader import read_facts
from app.lessons.service import LearningService
from app.protocol import Citation, Done, ToolCalled, ToolReturned
from app.records.lessons import Lesson
from py_core.loading import Model
from py_core.sampling import SamplingParams

if TYPE_CHECKING:
    from app.generation.tool_loop import ToolUse

GREEDY = SamplingParams(temperature=0.0)
"""Always the most likely token, with no penalty: the same question gets the same answer."""

ASKED_TOKENS = 256
"""The default limit of an answer's length: small models sometimes do not find an end."""


@dataclass(frozen=True)
class SingleAnswer:
    """lesson: the lesson that gave the answer, or None. read: the lessons that the model read to give this lesson's
    answer, if the gate was not sure. nearest: the lesson that came first, with the gate's score, also if the gate
    stayed shut; None if nothing was compared. reason: as in Done. cited: what was read of files.
    calls: of tools, {name, arguments, result, failed} each."""

    text: str
    reason: str
    lesson: Lesson | None = None
    read: tuple[Lesson, ...] = ()
    nearest: Candidate | None = None
    cited: tuple[Citation, ...] = ()
    calls: tuple[dict[str, Any], ...] = ()

    def entry(self) -> dict[str, Any]:
        """Return the entry of the JSON that `sonata ask --why` writes."""
        nearest = self.nearest
        return {
            "answer": self.text,
            "reason": self.reason,
            "lesson": {"id": self.lesson.id, "question": self.lesson.question} if self.lesson else None,
            "read": [lesson.question for lesson in self.read],
            "score": nearest.score if nearest else None,
            "confidence": nearest.confidence if nearest else None,
            "nearest": nearest.lesson.question if nearest else None,
            "calls": list(self.calls),
            "passages": [{"name": one.name, "place": one.place, "text": one.text} for one in self.cited],
        }


class Asker:
    """The plain assistant. All questions share the beginning of their prompts, which is read only once."""

    def __init__(
        self, model: Model, learning: LearningService | None, max_tokens: int, reads: bool = True,
        adapters: AnswerAdapters | None = None, sampling: SamplingParams = GREEDY,
    ) -> None:  # fmt: skip
        """learning: None for answers without lessons. reads: lessons are read if it is not sure that a lesson answers.
        adapters: what answers come with. sampling: of each answer; if it has a grammar, a lesson answers if its
        answer is a text of it."""
        self._reads = reads
        self.assistant = Assistant(model, sampling, max_tokens, adapters)
        self._learning = learning
        self._files: tuple[FileService, str] | None = None
        self.tools: ToolUse | None = None
        """The tools that answers may call if no lesson answers."""

    def read_files(self, files: FileService, session: str) -> None:
        """Answer from the files of a conversation if no lesson answers."""
        self._files = files, session

    async def answer(self, question: str) -> SingleAnswer:
        """Raises what Assistant.respond and LearningService.recall raise."""
        if (learned := await self.learned(question)) is not None:
            return learned
        considered, material = await self._considered(question), await self._found(question)
        return await self._said(question, considered, material=material, tools=self.tools)

    async def learned(self, question: str) -> SingleAnswer | None:
        """Return the answer of the lesson that answers; None if none does. Raises as `answer`."""
        # Not reset(): the system's message, with which all prompts begin, stays read.
        self.assistant.messages = []
        recalled = await self._recall(question)
        if recalled is None or not await self.assistant.is_shaped(recalled.lesson.answer):
            return None
        if (done := recalled.done) is not None:
            nearest = recalled.considered[0] if recalled.considered else None
            return SingleAnswer(done.text, done.reason, recalled.lesson, recalled.read, nearest)
        said = await self._said(question, recalled.considered, heads=recalled.heads, taught=recalled.lesson.answer)
        return replace(said, lesson=recalled.lesson, read=recalled.read)

    async def _said(
        self, question: str, considered: Sequence[Candidate], material: Material | None = None, **how: Any
    ) -> SingleAnswer:
        """how: as in Assistant.respond."""
        done, calls = None, dict[str, dict[str, Any]]()
        async for event in self.assistant.respond(question, material=material, **how):
            if isinstance(event, ToolCalled):
                calls[event.id] = {"name": event.name, "arguments": event.arguments}
            elif isinstance(event, ToolReturned):
                calls[event.id] |= {"result": event.result, "failed": event.failed}
            elif isinstance(event, Done):
                done = event
        assert done is not None
        return SingleAnswer(
            done.text, done.reason, nearest=considered[0] if considered else None,
            cited=material.cited if material else (), calls=tuple(calls.values()),
        )  # fmt: skip

    async def _found(self, question: str) -> Material | None:
        if self._files is None:
            return None
        files, session = self._files
        model = self.assistant.model
        room = room_for_files(model, question)
        return await files.material(session, question, "", counting(model), room, whole_room(model, room))

    async def _recall(self, question: str) -> LessonMatch | None:
        if self._learning is None:
            return None
        if not self._reads:
            return await self._learning.recall(question)
        found = await self._learning.recall_or_read(question)
        if isinstance(found, UnsureMatch):
            return await read_facts(self.assistant, self._learning.memory, question, found)
        return found

    async def _considered(self, question: str) -> Sequence[Candidate]:
        return await self._learning.look(question) if self._learning else ()


def head_of_lesson(learning: LearningService) -> Callable[[str], Awaitable[int]]:
    """Return what `score_texts` needs: if the gate opens for a text, the text is read with the lesson's imprint."""

    async def head_of(text: str) -> int:
        recalled = await learning.recall(text)
        return recalled.heads[0].number if recalled else 0

    return head_of
