"""The memory of an index: rows of vectors with their links, laid out for web/kernels/hnsw/hnsw.c.

A row is its vector (padded with zeros to a multiple of 16 floats), followed directly by its fields and links in the
graph. Rows are stored in chunks, so that growing copies nothing and needs no room for a second copy. Links of the
levels above 0, which one row in m has, are in separate slots. Among rows with the same vector, one is in the graph; the
others are in its chain of twins, so that many of them do not form an island.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

CHUNK = 256
"""The number of rows, or slots, in a chunk."""
LANES = 16
LARGEST = 1e16
"""The largest component that a vector may have: its sums of squares still fit float32."""

Metric = Literal["cosine", "dot", "l2"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "l2")

_HEADER = (
    [(name, "<u4") for name in ("size", "row_bytes", "metric", "m", "m0", "ef_construction", "expansion", "rows")]
    + [(name, "<i4") for name in ("entry", "top")]
    + [(name, "<u4") for name in ("chunks", "uppers", "alive", "visited", "todo", "found", "query", "ids", "distances")]
    + [("batch", "<u4")]
)


@dataclass(frozen=True)
class HnswParameters:
    """The parameters of a graph. Raises ValueError, with a sentence, for invalid ones."""

    dimension: int
    metric: Metric = "cosine"
    m: int = 16
    """Links of a new row at each level; level 0 keeps twice as many."""
    ef_construction: int = 200
    """Candidates that are considered for the links of a new row."""
    expansion: int = 4
    """Candidates per step of a search: the vectors of all their links are compared in one batch."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"There is no metric {self.metric!r}: choose one of {', '.join(METRICS)}.")
        for name, least, most in (
            ("dimension", 1, 65_536),
            ("m", 2, 256),
            ("ef_construction", 1, 100_000),
            ("expansion", 1, 64),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}: it must be from {least} to {most}.")

    @property
    def m0(self) -> int:
        """The most links of a row at level 0."""
        return 2 * self.m


class KernelBlock(NamedTuple):
    """Memory from a kernel: zeroed bytes at a multiple of 16, and their address in the kernel."""

    address: int
    bytes: np.ndarray


Allocate = Callable[[int], KernelBlock]


class RowChunk(NamedTuple):
    """A chunk of rows, as views of one block. `links` (CHUNK, 1 + m0) begin with their count."""

    vector: np.ndarray
    id: np.ndarray
    level: np.ndarray
    slot: np.ndarray
    twin: np.ndarray
    links: np.ndarray


class HnswGraph:
    """Rows in the order of insertion. `header` is the C kernel's argument; its fields are those of hnsw.c."""

    def __init__(self, parameters: HnswParameters, allocate: Allocate) -> None:
        self.parameters = parameters
        self._allocate = allocate
        self.size = _round_up(parameters.dimension, LANES)
        links_at = self.size * 4 + 20
        self._row = np.dtype(
            {
                "names": list(RowChunk._fields),
                "formats": [("<f4", self.size), "<i8", "<i4", "<i4", "<i4", ("<i4", 1 + parameters.m0)],
                "offsets": [0, *(self.size * 4 + offset for offset in (0, 8, 12, 16)), links_at],
                "itemsize": _round_up(links_at + 4 * (1 + parameters.m0), 16),
            }
        )
        self.slots = 0
        self.records: list[np.ndarray] = []
        self.chunks: list[RowChunk] = []
        self.uppers: list[np.ndarray] = []
        self._blocks: list[KernelBlock] = []
        self._upper_blocks: list[KernelBlock] = []
        self._fixed: dict[str, KernelBlock] = {"header": allocate(np.dtype(_HEADER).itemsize)}
        self.address = self._fixed["header"].address
        self.header: Any = self._fixed["header"].bytes.view(np.dtype(_HEADER))[0]
        for name in ("m", "m0", "ef_construction", "expansion"):
            self.header[name] = getattr(parameters, name)
        self.header["size"], self.header["row_bytes"] = self.size, self._row.itemsize
        self.header["metric"] = METRICS.index(parameters.metric)
        self.header["entry"] = self.header["top"] = -1
        self.query: np.ndarray = self._take("query", self.size * 4).view(np.float32)
        self._take("batch", parameters.expansion * parameters.m0 * 4)
        self._room = self._result_room = self._chunks_listed = self._uppers_listed = 0
        self._grow(CHUNK)
        self.reserve_results(CHUNK)

    # ---- contents ----

    @property
    def rows(self) -> int:
        return int(self.header["rows"])

    @property
    def nbytes(self) -> int:
        """All memory in use, in bytes."""
        blocks = [*self._fixed.values(), *self._blocks, *self._upper_blocks]
        return sum(block.bytes.nbytes for block in blocks)

    def at(self, row: int) -> tuple[RowChunk, int]:
        """The chunk of a row, and its index in the chunk."""
        return self.chunks[row // CHUNK], row % CHUNK

    def id_of(self, row: int) -> int:
        return int(self.chunks[row // CHUNK].id[row % CHUNK])

    def vector(self, row: int) -> np.ndarray:
        """(size,), a view."""
        return self.chunks[row // CHUNK].vector[row % CHUNK]

    def vectors(self, rows: list[int]) -> np.ndarray:
        """(len(rows), size), a copy."""
        out = np.empty((len(rows), self.size), np.float32)
        for i, row in enumerate(rows):
            out[i] = self.vector(row)
        return out

    def links(self, row: int, level: int) -> np.ndarray:
        """A view: the number of links, then the rows; behind them is room up to the level's maximum."""
        rows, i = self.at(row)
        if level == 0:
            return rows.links[i]
        slot = int(rows.slot[i]) + level - 1
        return self.uppers[slot // CHUNK][slot % CHUNK]

    def twins(self, row: int) -> list[int]:
        """A row and the rows behind it on its chain."""
        chain = []
        while row >= 0:
            chain.append(row)
            rows, i = self.at(row)
            row = int(rows.twin[i])
        return chain

    def column(self, name: str) -> np.ndarray:
        """One field of all rows, a copy: (rows,); `vector` is (rows, size), `links` (rows, 1 + m0)."""
        empty = np.empty((0, *self._row[name].shape), self._row[name].base)
        return np.concatenate([empty, *(getattr(chunk, name) for chunk in self.chunks)])[: self.rows]

    def set_column(self, name: str, values: np.ndarray) -> None:
        """Set one field of the first rows."""
        for chunk, start in zip(self.chunks, range(0, len(values), CHUNK), strict=False):
            part = values[start : start + CHUNK]
            getattr(chunk, name)[: len(part)] = part

    def upper_links(self) -> np.ndarray:
        """The links above level 0, a copy: (slots, 1 + m)."""
        empty = np.empty((0, 1 + self.parameters.m), np.int32)
        return np.concatenate([empty, *self.uppers])[: self.slots]

    def set_upper_links(self, links: np.ndarray) -> None:
        """Set all of them; there must be room for them."""
        for upper, start in zip(self.uppers, range(0, len(links), CHUNK), strict=False):
            part = links[start : start + CHUNK]
            upper[: len(part)] = part
        self.slots = len(links)

    def keep_rows(self, kept: np.ndarray) -> None:
        """Keep only these rows, in ascending order; all of them are alive. Their links still have the old numbers."""
        for start in range(0, len(kept), CHUNK):
            wanted = kept[start : start + CHUNK]
            chunks = np.unique(wanted // CHUNK)
            # Each row is read before it is overwritten: rows move only to lower numbers.
            parts = [self.records[chunk][wanted[wanted // CHUNK == chunk] % CHUNK] for chunk in chunks]
            self.records[start // CHUNK][: len(wanted)] = np.concatenate(parts)
        self.header["rows"] = len(kept)
        self.alive[:] = 0
        self.alive[: len(kept)] = 1

    # ---- growing ----

    def append(self, id: int, level: int) -> int:
        """Append the vector in `query` as a living row, not in the graph yet. Returns its number."""
        row = self.rows
        self.reserve(row + 1, self.slots + level)
        rows, i = self.at(row)
        rows.vector[i] = self.query
        rows.id[i], rows.level[i], rows.slot[i], rows.twin[i] = id, level, self.slots, -1
        rows.links[i, 0] = 0
        for slot in range(self.slots, self.slots + level):
            self.uppers[slot // CHUNK][slot % CHUNK, 0] = 0
        self.slots += level
        self.alive[row] = 1
        self.header["rows"] = row + 1
        return row

    def set_aside(self, row: int) -> None:
        """Mark a row as dead that was never in the graph."""
        rows, i = self.at(row)
        rows.level[i] = -1

    def reserve(self, rows: int, slots: int) -> None:
        """Make room for this many rows and slots."""
        while len(self.chunks) * CHUNK < rows:
            self._add_chunk()
        while len(self.uppers) * CHUNK < slots:
            self._add_upper_chunk()
        if rows > self._room:
            self._grow(max(rows, 2 * self._room))

    def reserve_results(self, count: int) -> None:
        """Make room for `count` results: a kernel writes them to `ids` and `distances`, nearest first."""
        if count > self._result_room:
            self.ids: np.ndarray = self._take("ids", count * 8).view(np.int64)
            self.distances: np.ndarray = self._take("distances", count * 4).view(np.float32)
            self._result_room = count

    def release_unused(self) -> None:
        """Free the chunks behind the last row and the last slot."""
        used, used_uppers = -(-self.rows // CHUNK), -(-self.slots // CHUNK)
        del self.records[used:], self.chunks[used:], self._blocks[used:]
        del self.uppers[used_uppers:], self._upper_blocks[used_uppers:]

    def _add_chunk(self) -> None:
        block = self._allocate(CHUNK * self._row.itemsize)
        records = block.bytes.view(self._row)
        self.records.append(records)
        self.chunks.append(RowChunk(*(records[name] for name in RowChunk._fields)))
        self._blocks.append(block)
        self._chunks_listed = self._list("chunks", self._blocks, self._chunks_listed)

    def _add_upper_chunk(self) -> None:
        width = 1 + self.parameters.m
        block = self._allocate(CHUNK * width * 4)
        self.uppers.append(block.bytes.view(np.int32).reshape(CHUNK, width))
        self._upper_blocks.append(block)
        self._uppers_listed = self._list("uppers", self._upper_blocks, self._uppers_listed)

    def _list(self, name: str, blocks: list[KernelBlock], room: int) -> int:
        """Update the table of the blocks' addresses; returns its capacity."""
        if len(blocks) > room:
            room = max(16, 2 * room)
            self._take(name, room * 4)
        self._fixed[name].bytes.view(np.uint32)[: len(blocks)] = [block.address for block in blocks]
        return room

    def _grow(self, room: int) -> None:
        room = _round_up(room, CHUNK)
        before = self.alive[: self.rows] if self._room else np.empty(0, np.uint8)
        self.alive: np.ndarray = self._take("alive", room)
        self.alive[: len(before)] = before
        self.mask: np.ndarray = self._take("mask", room)
        """One byte per row: nonzero if a filtered search may find it."""
        self._take("visited", room // 8)
        self._take("todo", (room + 1) * 8)
        self._take("found", (room + 1) * 8)
        self._room = room

    def address_of(self, name: str) -> int:
        """The address of the header, the alive bytes or the mask."""
        return self._fixed[name].address

    def _take(self, name: str, nbytes: int) -> np.ndarray:
        """Allocate a new block for the array `name` instead of the old one, and put its address into the header."""
        block = self._fixed[name] = self._allocate(_round_up(nbytes, 16))
        if name in dict(_HEADER):
            self.header[name] = block.address
        return block.bytes


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
