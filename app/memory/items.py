"""The memory as other programs see it: lessons, conversations and files, each with an address.

items = MemoryItems(runtime)
await items.search("dentist")       # {"lessons": [{"uri": "sonata://lesson/0f3a...", ...}], ...}
await items.text("sonata://lesson/0f3a...")
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from app.chat.history.api import ConversationApi
from app.chat.history.export import UNTITLED
from app.lessons.vectors import LessonVectors
from app.lessons.without_model import note, with_older, with_words
from app.records import files, lessons, sessions
from app.records.files import PASSAGE
from app.records.lessons import Lesson, lesson_of
from app.records.memory import Memory
from py_core.display import is_blank, one_line, shown, whole_end
from py_core.routing.embedder import Embedder
from py_core.store.records import Record
from py_core.text_search import has_all, snippet, terms_of

if TYPE_CHECKING:
    from app.chat.history.views import StoredConversation
    from app.lessons.service import Learned
    from app.runtime import Runtime

KINDS = ("lessons", "conversations", "files")
_NAMES = {"lesson": lessons.KIND, "conversation": sessions.KIND, "file": files.KIND}
_ADDRESS = re.compile(rf"sonata://({'|'.join(_NAMES)})/(.+)", re.DOTALL)
LEAST_SIMILARITY = 0.35
"""The least cosine of what a search by meaning finds: unrelated questions come to 0.1 to 0.3."""
LONGEST_EXCERPT = 400
"""Characters of a passage of a file."""


class MemoryItems:
    """The lessons, conversations and files of a runtime that is open. What other programs changed in the same memory is
    read first. Methods may raise StoreError, EmbedderError."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._chats = ConversationApi(runtime)

    # ---- finding ----

    async def search(self, text: str, kinds: Sequence[str] = KINDS, limit: int = 10) -> dict[str, Any]:
        """Return for each kind at most `limit` entries: those that have all words, then those of a similar meaning."""
        await self._memory.store.poll()
        found: dict[str, Any] = {}
        if "lessons" in kinds:
            found["lessons"] = (await self._lessons_about(text, limit))[:limit]
        if "conversations" in kinds:
            found["conversations"] = (await self._conversations_about(text, limit))[:limit]
        if "files" in kinds:
            found["files"] = (await self._files_about(text, limit))[:limit]
        if self._embedder is None:
            found["note"] = f"Only words were searched for, not meaning. {self._runtime.problem or ''}".strip()
        return found

    async def listed(self, kind: str, offset: int = 0, limit: int = 50) -> dict[str, Any]:
        """Return the number of items of a kind, and the entries from `offset` on, the newest first."""
        await self._memory.store.poll()
        if kind == "conversations":
            page = await self._chats.conversations("", offset, limit)
            return {"total": page["total"], "items": [_conversation_entry(one) for one in page["items"]]}
        every = await (self._current_lessons() if kind == "lessons" else self._files())
        entry: Any = _lesson_entry if kind == "lessons" else _file_entry
        return {"total": len(every), "items": [entry(one) for one in every[offset : offset + limit]]}

    async def text(self, uri: str) -> str:
        """Return an item as text: a conversation as Markdown. Raises ValueError if there is none."""
        kind, record = await self._item(uri)
        if kind == sessions.KIND:
            return await self._chats.export_conversation(record.id, "markdown")
        if kind == files.KIND:
            return await self._runtime.files.text(record.id)
        lesson = lesson_of(record)
        return f"{lesson.question}\n\n{lesson.answer}\n"

    # ---- changing ----

    async def remember(self, question: str, answer: str) -> dict[str, Any]:
        """Store an answer, which Sonata gives from now on. Raises LessonError, BackendError."""
        await self._memory.store.poll()
        learning = self._runtime.learning
        learned: Learned
        if learning is not None:  # the model is there, and learns it at once
            learned = await learning.teach(question, answer)
        else:
            learned = await note(self._memory, question, answer)
        old = learned.replaced
        return {
            **_lesson_entry(learned.lesson),
            "new": learned.is_new,
            "replaced": {"uri": address("lesson", old.id), "answer": old.answer} if old else None,
        }

    async def forget(self, uri: str) -> dict[str, Any]:
        """Delete the item with exactly this address: a lesson with the older answers to its question, a conversation
        with its messages and files. Raises ValueError if there is none."""
        kind, record = await self._item(uri)
        if kind == sessions.KIND:
            await self._memory.sessions.delete(record.id)
        elif kind == files.KIND:
            await self._runtime.files.detach(record.id)
        else:
            every = await self._memory.lessons.all()
            gone = [one.id for one in with_older(every, [lesson_of(record)])]
            learning = self._runtime.learning
            await (learning.forget(*gone) if learning is not None else self._memory.lessons.delete(*gone))
            return {"forgotten": uri, "older_answers": len(gone) - 1}
        return {"forgotten": uri}

    # ---- helpers ----

    @property
    def _memory(self) -> Memory:
        return self._runtime.memory

    @property
    def _embedder(self) -> Embedder | None:
        return self._runtime.embedder()

    async def _item(self, uri: str) -> tuple[str, Record]:
        await self._memory.store.poll()
        parts = _ADDRESS.fullmatch(uri)
        if parts is None:
            raise ValueError(
                f"{shown(uri)} is not an address of this memory. They look like sonata://lesson/ID: list_memory "
                "and search_memory tell them."
            )
        kind = _NAMES[parts[1]]
        record = await self._memory.store.get(kind, unquote(parts[2]))
        if record is None:
            raise ValueError(f"There is no {parts[1]} {shown(uri)}: it was deleted, or the address is not whole.")
        return kind, record

    async def _current_lessons(self) -> list[Lesson]:
        return [one for one in reversed(await self._memory.lessons.all()) if not one.replaced_by]

    async def _files(self) -> list[Record]:
        return await self._memory.store.query(files.KIND, newest_first=True)

    async def _lessons_about(self, text: str, limit: int) -> list[dict[str, Any]]:
        every = await self._current_lessons()
        found = with_words(every, text)
        if every and (embedder := self._embedder) is not None:
            await LessonVectors(self._memory, embedder).renew(await self._memory.lessons.all())
            (meaning,) = await embedder.meanings([text])
            near = await self._memory.search.search(lessons.KIND, meaning.vector, 2 * limit)
            found += [lesson_of(record) for record, similarity in near if similarity >= LEAST_SIMILARITY]
        return [_lesson_entry(one) for one in {one.id: one for one in found if not one.replaced_by}.values()]

    async def _conversations_about(self, text: str, limit: int) -> list[dict[str, Any]]:
        found = {one["id"]: one for one in (await self._chats.conversations(text, 0, limit))["items"]}
        for similar in await self._chats.similar_conversations(text):
            found.setdefault(similar["id"], similar)
        return [_conversation_entry(one) for one in found.values()]

    async def _files_about(self, text: str, limit: int) -> list[dict[str, Any]]:
        every = {record.id: record for record in await self._files()}
        terms = terms_of(text)
        found = {
            id: {"excerpt": "".join(piece for piece, _ in snippet(record.body["text"], terms))}
            for id, record in every.items()
            if has_all(terms, f"{record.body['name']} {record.body['text']}")
        }
        if every and (embedder := self._embedder) is not None:
            (meaning,) = await embedder.meanings([text])
            for passage, similarity in await self._memory.search.search(PASSAGE, meaning.vector, limit):
                body, is_ours = passage.body, passage.body["made_by"] == embedder.meaning_fingerprint
                if is_ours and similarity >= LEAST_SIMILARITY and body["file"] in every:
                    said = every[body["file"]].body["text"][body["start"] : body["end"]]
                    said = " ".join(said[: whole_end(said, min(LONGEST_EXCERPT, len(said)))].split())
                    found.setdefault(body["file"], {"excerpt": said, "place": body["place"]})
        return [{**_file_entry(every[id]), **more} for id, more in found.items()]


def address(kind: str, id: str) -> str:
    """Return the address of an item. kind: lesson, conversation or file."""
    return f"sonata://{kind}/{quote(id)}"


def _lesson_entry(lesson: Lesson) -> dict[str, Any]:
    return {
        "uri": address("lesson", lesson.id), "question": lesson.question, "answer": lesson.answer,
        "taught": _time(lesson.created), "on": lesson.on,
    }  # fmt: skip


def _conversation_entry(chat: StoredConversation) -> dict[str, Any]:
    entry = {
        "uri": address("conversation", chat["id"]),
        "title": UNTITLED if is_blank(chat["title"]) else one_line(chat["title"]),
        "messages": chat["turns"], "last_message": _time(chat["said"]), "archived": chat["archived"],
    }  # fmt: skip
    if found := chat.get("snippet"):
        entry["excerpt"] = "".join(piece for piece, _ in found["parts"])
    return entry


def _file_entry(record: Record) -> dict[str, Any]:
    body = record.body
    return {
        "uri": address("file", record.id), "name": body["name"], "bytes": body["size"],
        "conversation": address("conversation", body["session"]), "attached": _time(record.created or 0.0),
    }  # fmt: skip


def _time(seconds: float) -> str:
    """The local time with its distance from UTC: 2026-11-28T09:30:00+0100."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
