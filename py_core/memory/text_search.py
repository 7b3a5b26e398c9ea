"""Full text search of conversations: the words of titles and messages, whatever their case and accents.

A term is found where a word begins ("cod" finds "Coding"); in writing without spaces, such as Chinese, anywhere. The
folded text is in memory only and is made at the first search: nothing on the disk tells what an encrypted memory says.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from py_core.memory import sessions
from py_core.memory.records import Record
from py_core.memory.rows import Change, Key
from py_core.memory.store import Store

_AROUND_WORDS = "\"'.,;:!?()[]\u2018\u2019\u201c\u201d"
SNIPPET = 160  # characters of a message that are shown around a match
BEFORE_MATCH = 40
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese have no spaces between words; so has what lies over 0x20000."""


class _Folding(dict[int, str]):
    """For str.translate: what becomes of each code point. Filled as characters are met."""

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code).casefold())
        self[code] = folded = "".join(part for part in parts if not unicodedata.combining(part))
        return folded


_FOLDING = _Folding()


def fold(text: str) -> str:
    """The text without case and accents: "Über" and "uber" are the same."""
    return text.lower() if text.isascii() else text.translate(_FOLDING)


def terms_of(query: str) -> list[str]:
    """The terms of a query: its folded words without punctuation around them."""
    folded = (fold(word) for word in query.split())
    return list(dict.fromkeys(word.strip(_AROUND_WORDS) or word for word in folded))


def find(term: str, folded: str, start: int = 0) -> int:
    """The place where a term begins a word of a folded text, or -1."""
    at = folded.find(term, start)
    while at > 0 and term[0].isalnum() and folded[at - 1].isalnum() and not _is_unspaced(folded[at]):
        at = folded.find(term, at + 1)
    return at


def has_all(terms: Sequence[str], text: str) -> bool:
    """Whether a text (not folded) has all terms."""
    folded = fold(text)
    return all(find(term, folded) >= 0 for term in terms)


def snippet(text: str, terms: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """A piece of a text around its first match, or its beginning: (piece, whether it is a match), in order."""
    folded = fold(text)
    found = [at for term in terms if (at := find(term, folded)) >= 0]
    ends = [0, *accumulate(len(fold(character)) for character in text)]  # of each character, in the folded text
    first = bisect_right(ends, min(found, default=0)) - 1
    start = max(first - BEFORE_MATCH, 0)
    if start:
        space = text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    end = min(start + SNIPPET, len(text))
    marks = [False] * (end - start)
    for term in terms:
        at = find(term, folded, ends[start])
        while 0 <= at < ends[end]:
            for place in range(bisect_right(ends, at) - 1, bisect_right(ends, at + len(term) - 1)):
                if start <= place < end:
                    marks[place - start] = True
            at = find(term, folded, at + len(term))
    pieces = list[tuple[str, bool]]()
    for character, mark in zip(text[start:end], marks, strict=True):
        if pieces and pieces[-1][1] == mark:
            pieces[-1] = (pieces[-1][0] + character, mark)
        else:
            pieces.append((character, mark))
    if start:
        pieces.insert(0, ("… ", False))
    if end < len(text):
        pieces.append((" …", False))
    return [(re.sub(r"\s+", " ", piece), mark) for piece, mark in pieces]


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A conversation that has all terms. turn: the id of the message with most of them; None: the title has all."""

    session: str
    turn: str | None


class ConversationText:
    """The folded titles and messages of a store's conversations. Follows every change, also of other tabs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._titles: dict[str, str] = {}
        self._turns: dict[str, dict[str, str]] = {}  # of a conversation -> of a message -> text
        self.without_vector: dict[str, None] = {}
        """Ids of messages that cannot be found by their meaning yet. Known from the first search on."""
        self._stale: set[Key] | None = None  # None: everything
        self._refreshing = asyncio.Lock()
        store.on_change(self._note)

    async def search(self, query: str) -> list[TextMatch]:
        """Conversations that have all words of a query in title and messages; those with all in the title first."""
        await self.refresh()
        terms = terms_of(query)
        if not terms:
            return []
        in_title, in_turns = list[TextMatch](), list[TextMatch]()
        for id, title in self._titles.items():
            missing = {term for term in terms if find(term, title) < 0}
            if not missing:
                in_title.append(TextMatch(id, None))
                continue
            best, most = None, 0
            for turn, text in self._turns.get(id, {}).items():
                has = [term for term in terms if term in text and find(term, text) >= 0]
                missing.difference_update(has)
                if len(has) > most:
                    best, most = turn, len(has)
            if not missing:
                in_turns.append(TextMatch(id, best))
        return in_title + in_turns

    async def refresh(self) -> None:
        """Read what changed since the last time."""
        await self._store.poll()
        async with self._refreshing:
            while self._stale is None or self._stale:
                stale, self._stale = self._stale, set()
                if stale is None:
                    self._titles, self._turns, self.without_vector = {}, {}, {}
                    for kind in (sessions.KIND, sessions.TURN):
                        async for record in self._store.scan(kind):
                            self._take(record)
                    continue
                records = {record.key: record for record in await self._store.get_many(sorted(stale))}
                for key in stale:
                    self._drop(key)
                    if key in records:
                        self._take(records[key])

    def _take(self, record: Record) -> None:
        if record.kind == sessions.KIND:
            self._titles[record.id] = fold(record.body["title"])
            return
        self._turns.setdefault(record.body["session"], {})[record.id] = fold(record.body["content"])
        if record.vector is None:
            self.without_vector[record.id] = None

    def _drop(self, key: Key) -> None:
        kind, id = key
        if kind == sessions.KIND:
            self._titles.pop(id, None)
            return
        self.without_vector.pop(id, None)
        self._turns.get(id.rpartition("/")[0], {}).pop(id, None)

    def _note(self, change: Change) -> None:
        if change.everything or change.cleared is not None:
            self._stale = None
        elif self._stale is not None:
            kinds = (sessions.KIND, sessions.TURN)
            self._stale.update(key for key in (*change.puts, *change.deletes) if key[0] in kinds)


def _is_unspaced(character: str) -> bool:
    code = ord(character)
    return code >= 0x20000 or any(first <= code <= last for first, last in _UNSPACED)
