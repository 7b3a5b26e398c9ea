"""Finds conversations by the meaning of their messages.

From the first search on, the vectors of all messages are one block of 8-bit numbers in memory; they are kept beside
their conversations (conversation_parts.py). A search compares every vector: in the page, 50,000 of 384 numbers take
about 45 ms. The found messages are compared again by the vectors in their records, so that the reported cosines are
exact.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.records.conversation_list import ConversationList
from app.records.conversation_parts import ConversationParts, session_of
from app.records.sessions import KIND, TURN
from py_core.store.background import Background
from py_core.store.records import Record, Vector
from py_core.store.rows import Change
from py_core.store.store import Store

MOST_CODE = 127
AT_ONCE = 1024
"""Rows of the block that are converted to floats at a time: 1.5 MB for 384 numbers each."""
CANDIDATES = 2
"""Conversations that are compared by their records for each wanted one: 8 bits may change their order."""
CODE_ERROR = 0.01
"""Larger than the error of a cosine from 8-bit numbers."""


@dataclass(frozen=True, slots=True)
class MessageVectors:
    """The vectors of a conversation's messages, of length 1.

    version: of the conversation's record. turns: the ids of messages with a vector of the same length as the newest
    one's. bare: the ids of messages that have text and no vector. codes: int8 (turns, dimensions). scales: float32
    (turns,), the value of a code of 1.
    """

    version: int
    turns: Sequence[str]
    bare: Sequence[str]
    codes: np.ndarray
    scales: np.ndarray

    def dump(self) -> bytes:
        numbers = ([turn.rpartition("/")[2] for turn in turns] for turns in (self.turns, self.bare))
        head = json.dumps([self.version, *numbers, self.codes.shape[1]], separators=(",", ":"))
        return head.encode() + b"\n" + self.scales.astype("<f4").tobytes() + self.codes.tobytes()


class ConversationVectors(ConversationParts[MessageVectors]):
    """The vectors of a store's messages. turn_indexer.py makes them."""

    name = "vectors"
    made_of = frozenset({KIND, TURN})

    def __init__(self, store: Store, conversations: ConversationList, background: Background) -> None:
        super().__init__(store, conversations, background)
        self._touched = set[str]()  # conversations with messages that were written since they were read
        self._blocks: dict[int, _Block] | None = None  # by their dimensions

    async def search(self, vector: Vector, most: int, least: float) -> list[tuple[Record, float]]:
        """Return the most similar message of each of the most similar conversations, with its cosine, best first.

        most: the largest number of conversations. least: the lowest cosine. Raises StoreError.
        """
        await self.refresh()
        wanted = np.asarray(vector, np.float32)
        length = float(np.linalg.norm(wanted))
        block = self._block_of(len(wanted))
        if block is None or not length:
            return []
        wanted = wanted / length
        turns = block.nearest(wanted, most * CANDIDATES, least - CODE_ERROR)
        records = await self._store.get_many([(TURN, turn) for turn in turns])
        compared = [(record, _cosine(record.vector, wanted)) for record in records]
        found = [(record, cosine) for record, cosine in compared if cosine >= least]
        return sorted(found, key=lambda pair: -pair[1])[:most]

    async def bare(self) -> dict[str, None]:
        """The ids of messages that cannot be found by their meaning yet, those of the newest conversation last."""
        records = await self.refresh()
        newest_last = reversed(list(records))
        return {turn: None for id in newest_last if id in self._parts for turn in self._parts[id].bare}

    async def forget(self) -> None:
        """Delete the vectors that are kept: they are of an earlier embedder."""
        await self._delete_kept(await self._conversations.newest_first())

    def _make(self, version: int, turns: Sequence[Record]) -> MessageVectors:
        said = [turn for turn in turns if turn.vector is not None]
        dimensions = len(said[-1].vector) if said and said[-1].vector is not None else 0
        rows = {turn.id: turn.vector for turn in said if turn.vector is not None and len(turn.vector) == dimensions}
        bare = [turn.id for turn in turns if turn.vector is None and turn.body["content"].strip()]
        vectors = np.array(list(rows.values()), np.float32).reshape(len(rows), dimensions)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        scales = (np.abs(vectors).max(axis=1, initial=0) / MOST_CODE).astype(np.float32)
        codes = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
        return MessageVectors(version, list(rows), bare, codes, scales)

    def _read(self, id: str, data: bytes) -> MessageVectors | None:
        head, _, numbers = data.partition(b"\n")
        try:
            version, turns, bare, dimensions = json.loads(head)
            split = 4 * len(turns)
            scales = np.array(np.frombuffer(numbers[:split], "<f4"), np.float32)
            codes = np.frombuffer(numbers[split:], np.int8).reshape(len(turns), dimensions)
            if len(scales) != len(turns) or not np.isfinite(scales).all():
                return None
            with_vector, bare_ids = ([f"{id}/{number}" for number in names] for names in (turns, bare))
            return MessageVectors(int(version), with_vector, bare_ids, codes, scales)
        except (ValueError, TypeError):
            return None

    def _take(self, id: str, part: MessageVectors) -> None:
        super()._take(id, part)
        self._blocks = None

    def _drop(self, id: str) -> None:
        super()._drop(id)
        self._touched.discard(id)
        self._blocks = None

    def _is_current(self, id: str, record: Record) -> bool:
        return id not in self._touched and super()._is_current(id, record)

    async def _read_kept(self, records: Collection[str]) -> None:
        await super()._read_kept(records)
        # A vector is written without a new version of the conversation.
        self._touched.update(id for id, part in self._parts.items() if part.bare)

    def _note(self, change: Change) -> None:
        super()._note(change)
        self._touched.update(session_of(id) for kind, id in (*change.puts, *change.deletes) if kind == TURN)
        if change.everything:
            self._touched.update(id for id, part in self._parts.items() if part.bare)

    def _block_of(self, dimensions: int) -> _Block | None:
        if self._blocks is None:
            by_dimensions: dict[int, list[str]] = {}
            for id, part in self._parts.items():
                if part.turns:
                    by_dimensions.setdefault(part.codes.shape[1], []).append(id)
            self._blocks = {n: self._joined(ids) for n, ids in by_dimensions.items()}
        return self._blocks.get(dimensions)

    def _joined(self, ids: Sequence[str]) -> _Block:
        """Join the parts, which become views of the block, so that their numbers are in memory only once."""
        parts = [self._parts[id] for id in ids]
        codes = np.concatenate([part.codes for part in parts])
        starts = np.cumsum([0, *(len(part.turns) for part in parts)])
        for id, part, start, end in zip(ids, parts, starts, starts[1:], strict=False):
            self._parts[id] = replace(part, codes=codes[start:end])
        turns = [turn for part in parts for turn in part.turns]
        return _Block(turns, starts[:-1], codes, np.concatenate([part.scales for part in parts]))


@dataclass(frozen=True, slots=True)
class _Block:
    """turns: the ids of the turns. starts: the first row of each conversation, which has at least one. codes, scales:
    as in MessageVectors."""

    turns: Sequence[str]
    starts: np.ndarray
    codes: np.ndarray
    scales: np.ndarray

    def nearest(self, vector: Vector, most: int, least: float) -> list[str]:
        """The ids of the most similar message of each of the most similar conversations, in any order."""
        cosines = np.empty(len(self.codes), np.float32)
        floats = np.empty((min(AT_ONCE, len(self.codes)), len(vector)), np.float32)
        for start in range(0, len(self.codes), AT_ONCE):
            codes = self.codes[start : start + AT_ONCE]
            np.copyto(floats[: len(codes)], codes)
            np.dot(floats[: len(codes)], vector, out=cosines[start : start + len(codes)])
        cosines *= self.scales
        best = np.maximum.reduceat(cosines, self.starts)
        found = np.flatnonzero(best >= least)
        if len(found) > most:
            found = found[np.argpartition(best[found], -most)[-most:]]
        ends = [*self.starts[1:], len(cosines)]
        return [self.turns[s + int(cosines[s:e].argmax())] for s, e in ((self.starts[n], ends[n]) for n in found)]


def _cosine(vector: Vector | None, unit: Vector) -> float:
    """The cosine of the vectors; -1 if there is no vector to compare. unit: of length 1."""
    if vector is None or len(vector) != len(unit):
        return -1.0
    length = float(np.linalg.norm(vector))
    return float(vector @ unit) / length if length else -1.0
