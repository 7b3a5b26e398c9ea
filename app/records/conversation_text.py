"""Finds conversations by the words of their titles and messages.

The folded text of each conversation is in memory from the first search on, and kept beside the conversation
(conversation_parts.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from app.records.conversation_list import ConversationList
from app.records.conversation_parts import ConversationParts
from py_core.store.background import Background
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.text_search import FOLDING, find, fold, terms_of

BETWEEN = "\0"
"""Separates two messages of a conversation's text: no term contains it."""


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A conversation that has all terms. in_title: True if its title has all of them."""

    session: str
    in_title: bool


@dataclass(frozen=True, slots=True)
class FoldedText:
    """version: of the conversation's record. turns: the ids of its messages. folded: their texts."""

    version: int
    turns: Sequence[str]
    folded: str

    def dump(self) -> bytes:
        head = json.dumps([FOLDING, self.version, [turn.rpartition("/")[2] for turn in self.turns]])
        return f"{head}\n{self.folded}".encode("utf-8", "surrogatepass")


class ConversationText(ConversationParts[FoldedText]):
    """The folded titles and messages of a store's conversations."""

    name = "text"

    def __init__(self, store: Store, conversations: ConversationList, background: Background) -> None:
        super().__init__(store, conversations, background)
        self._titles: dict[str, tuple[str, str]] = {}  # of each conversation: the title as it is, and folded

    async def search(self, query: str) -> list[TextMatch]:
        """Conversations that have all words of a query in title and messages. Those with all words in the title come
        first, then the most recently continued."""
        records = await self.refresh()
        terms = terms_of(query)
        if not terms:
            return []
        in_title, in_turns = list[TextMatch](), list[TextMatch]()
        for id, record in records.items():
            title, text = self._title(record), self._parts[id].folded if id in self._parts else ""
            missing = [term for term in terms if find(term, title) < 0]
            if not missing:
                in_title.append(TextMatch(id, True))
            elif all(find(term, text) >= 0 for term in missing):
                in_turns.append(TextMatch(id, False))
        return in_title + in_turns

    def best_turn(self, id: str, query: str) -> str | None:
        """The id of the message with the most terms of the query in a found conversation; None if no message has
        any."""
        text, terms = self._parts.get(id), terms_of(query)
        best, most = None, 0
        for turn, folded in zip(text.turns, text.folded.split(BETWEEN), strict=False) if text else ():
            has = sum(find(term, folded) >= 0 for term in terms)
            if has > most:
                best, most = turn, has
        return best

    def _make(self, version: int, turns: Sequence[Record]) -> FoldedText:
        texts = (fold(turn.body["content"]).replace(BETWEEN, " ") for turn in turns)
        return FoldedText(version, [turn.id for turn in turns], BETWEEN.join(texts))

    def _read(self, id: str, data: bytes) -> FoldedText | None:
        try:
            head, _, folded = data.decode("utf-8", "surrogatepass").partition("\n")
            folding, version, numbers = json.loads(head)
            if folding != FOLDING:
                return None
            return FoldedText(int(version), [f"{id}/{number}" for number in numbers], folded)
        except (ValueError, TypeError):
            return None

    def _drop(self, id: str) -> None:
        super()._drop(id)
        self._titles.pop(id, None)

    def _title(self, record: Record) -> str:
        title, (known, folded) = record.body["title"], self._titles.get(record.id, ("", ""))
        if title != known:
            folded = fold(title)
            self._titles[record.id] = title, folded
        return folded
