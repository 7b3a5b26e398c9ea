"""Finds conversations by the words of their titles and messages.

The folded text of each conversation is in memory from the first search on. It is kept beside the conversation in the
store (py_core/memory/blobs.py), sealed as the conversation is and deleted with it, so that a later start reads one row
a conversation, not one a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from py_core.memory.background import Background
from py_core.memory.blobs import blob_name
from py_core.memory.conversation_list import ConversationList
from py_core.memory.errors import StoreError
from py_core.memory.records import Record
from py_core.memory.rows import Change
from py_core.memory.sessions import KIND, TURN
from py_core.memory.store import Store
from py_core.memory.text_search import find, fold, terms_of

BETWEEN = "\0"
"""Between two messages of a conversation's text: no term contains it."""
PART = "text"
SCANNED = 50
"""Where the text of more conversations is to be made, all messages are read, in large pieces."""


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A conversation that has all terms. in_title: all of them in its title."""

    session: str
    in_title: bool


@dataclass(frozen=True, slots=True)
class _Text:
    """version: of the conversation's record. turns: the ids of its messages. folded: their texts."""

    version: int
    turns: Sequence[str]
    folded: str

    @classmethod
    def of(cls, version: int, turns: Mapping[str, str]) -> _Text:
        """turns: what messages say, by their ids."""
        return cls(version, list(turns), BETWEEN.join(fold(text).replace(BETWEEN, " ") for text in turns.values()))

    def dump(self) -> bytes:
        head = json.dumps([self.version, [turn.rpartition("/")[2] for turn in self.turns]])
        return f"{head}\n{self.folded}".encode("utf-8", "surrogatepass")

    @classmethod
    def read(cls, id: str, data: bytes) -> _Text | None:
        """None where it is not what `dump` makes."""
        try:
            head, _, folded = data.decode("utf-8", "surrogatepass").partition("\n")
            version, numbers = json.loads(head)
            return cls(int(version), [f"{id}/{number}" for number in numbers], folded)
        except (ValueError, TypeError):
            return None


class ConversationText:
    """The folded titles and messages of a store's conversations. Follows every change, also of other tabs.

    Whoever changes a conversation's turns writes its record, too: by its version it is known whether a text is of now.
    """

    def __init__(self, store: Store, conversations: ConversationList, background: Background) -> None:
        self._store, self._conversations, self._background = store, conversations, background
        self._texts: dict[str, _Text] = {}
        self._titles: dict[str, tuple[str, str]] = {}  # of a conversation: as it is, and folded
        self._is_read = False
        self._unkept: set[str] = set()
        self._keeping = False
        self._last_changed = ""
        self._refreshing = asyncio.Lock()
        store.on_change(self._note)

    async def search(self, query: str) -> list[TextMatch]:
        """Conversations that have all words of a query in title and messages; those with all in the title first, then
        those in which something was said last."""
        records = await self.refresh()
        terms = terms_of(query)
        if not terms:
            return []
        in_title, in_turns = list[TextMatch](), list[TextMatch]()
        for id, record in records.items():
            title, text = self._title(record), self._texts[id].folded if id in self._texts else ""
            missing = [term for term in terms if find(term, title) < 0]
            if not missing:
                in_title.append(TextMatch(id, True))
            elif all(find(term, text) >= 0 for term in missing):
                in_turns.append(TextMatch(id, False))
        return in_title + in_turns

    def best_turn(self, id: str, query: str) -> str | None:
        """The id of the message of a found conversation that has most terms of the query, if one has any."""
        text, terms = self._texts.get(id), terms_of(query)
        best, most = None, 0
        for turn, folded in zip(text.turns, text.folded.split(BETWEEN), strict=False) if text else ():
            has = sum(find(term, folded) >= 0 for term in terms)
            if has > most:
                best, most = turn, has
        return best

    async def refresh(self) -> dict[str, Record]:
        """Read what changed since the last time. Returns the conversations, as ConversationList.newest_first."""
        async with self._refreshing:
            records = await self._conversations.newest_first()
            for id in self._texts.keys() - records.keys():
                self._texts.pop(id)
                self._titles.pop(id, None)
            if not self._is_read:
                await self._read_kept(records)
                self._is_read = True
            stale = {id: record.version for id, record in records.items() if not self._is_current(id, record)}
            self._texts |= await self._made(stale)
            self._unkept.update(stale)
            self._keep_soon()
            return records

    async def _read_kept(self, records: Collection[str]) -> None:
        kept = await self._store.get_blobs([blob_name(KIND, id, PART) for id in records])
        for id in records:
            data = kept.get(blob_name(KIND, id, PART))
            if data is not None and (text := _Text.read(id, data)) is not None:
                self._texts[id] = text

    async def _made(self, versions: dict[str, int]) -> dict[str, _Text]:
        """The texts of conversations whose records have these versions, from their messages."""
        turns: dict[str, dict[str, str]] = {id: {} for id in versions}
        if len(versions) > SCANNED:
            async for record in self._store.scan(TURN):
                if record.body["session"] in turns:
                    turns[record.body["session"]][record.id] = record.body["content"]
        else:
            for id in versions:
                found = await self._store.starting_with(TURN, f"{id}/")
                turns[id] = {record.id: record.body["content"] for record in found}
        return {id: _Text.of(version, turns[id]) for id, version in versions.items()}

    def _is_current(self, id: str, record: Record) -> bool:
        return id in self._texts and self._texts[id].version == record.version

    def _title(self, record: Record) -> str:
        title, (known, folded) = record.body["title"], self._titles.get(record.id, ("", ""))
        if title != known:
            folded = fold(title)
            self._titles[record.id] = title, folded
        return folded

    def _note(self, change: Change) -> None:
        """A conversation that was left for another is complete for now: its text is kept before anybody searches."""
        for kind, id in () if change.elsewhere else change.puts:
            if kind == KIND and id != self._last_changed:
                if self._last_changed:
                    self._unkept.add(self._last_changed)
                    self._keep_soon()
                self._last_changed = id

    def _keep_soon(self) -> None:
        if self._unkept and not self._keeping:
            self._keeping = True
            self._background.start(self._keep)

    async def _keep(self) -> None:
        """What cannot be kept is made again when it is needed."""
        try:
            while self._unkept:
                async with self._background.step():
                    with contextlib.suppress(StoreError):
                        await self._keep_one(self._unkept.pop())
        finally:
            self._keeping = False

    async def _keep_one(self, id: str) -> None:
        record = await self._store.get(KIND, id)
        if record is None:
            return
        text = self._texts.get(id)
        if text is None or text.version != record.version:
            text = (await self._made({id: record.version}))[id]
        # Not beside a conversation that was deleted or changed meanwhile.
        await self._store.put_blob(blob_name(KIND, id, PART), text.dump(), {record.key: record.version})
