"""An index as bytes, so that its graph need not be built again.

Layout, little-endian: the magic, uint32 version, uint32 length of a JSON head (settings and counts), the head; then of
the rows in their order id int64, alive uint8, level, slot and twin int32, links int32 (rows, 1 + m0); links of the
slots int32 (slots, 1 + m); vectors float32 (rows, dimension); at last the SHA-256 of all before it.

The vectors' true home is the store: whatever a file is refused for, `load_or_rebuild` makes the index anew from them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from py_core.hnsw.hnsw_graph import LARGEST, HnswGraph
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import HnswIndex, HnswSettings

MAGIC = b"SONATA-HNSW\n"
VERSION = 1
_COUNTS = ("rows", "slots", "linked", "bridged", "inserted", "entry", "top")
_REBUILD = "The index has to be built again from the stored vectors."


class IndexFileError(Exception):
    """Bytes that are no index, or not one that can be used; the message says why."""


def save(index: HnswIndex) -> bytes:
    """The index as it is, dead rows included."""
    digest = hashlib.sha256()
    parts = []
    for part in _parts(index):
        digest.update(part)
        parts.append(part)
    return b"".join([*parts, digest.digest()])


def load(data: bytes, kernel: HnswKernel | None = None) -> HnswIndex:
    """The index that was saved: it goes on as if it had never been away. Raises IndexFileError."""
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise IndexFileError(f"These bytes are no index of Sonata's. {_REBUILD}")
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
    if len(data) >= len(MAGIC) + 4 and version != VERSION:
        raise IndexFileError(f"The index is of version {version}, and this Sonata reads version {VERSION}. {_REBUILD}")
    body, checksum = memoryview(data)[:-32], data[-32:]
    if len(data) < len(MAGIC) + 40 or hashlib.sha256(body).digest() != checksum:
        raise IndexFileError(f"The index is damaged or incomplete: its checksum is not right. {_REBUILD}")
    try:
        return _read(body, kernel)
    except (ValueError, KeyError, TypeError) as error:
        raise IndexFileError(f"The index contradicts itself ({error}). {_REBUILD}") from error


def rebuild(
    settings: HnswSettings, vectors: Iterable[tuple[int, np.ndarray]], kernel: HnswKernel | None = None
) -> HnswIndex:
    """An index of (id, vector) pairs; the same pairs in the same order give the same index."""
    index = HnswIndex(settings, kernel)
    for id, vector in vectors:
        index.insert(id, vector)
    return index


@dataclass(frozen=True)
class Loaded:
    """`problem`: why the file could not be used, None when it was; the index was rebuilt then."""

    index: HnswIndex
    problem: str | None


def load_or_rebuild(
    data: bytes, settings: HnswSettings, vectors: Iterable[tuple[int, np.ndarray]], kernel: HnswKernel | None = None
) -> Loaded:
    """The saved index, or one made of the stored vectors, which are asked for only then, with these settings.

    An index that was saved with other settings is made anew too. Whether it holds what the store holds is for the
    caller to compare, by the ids.
    """
    try:
        index = load(data, kernel)
        if index.settings != settings:
            raise IndexFileError(f"The index was made with other settings. {_REBUILD}")
        return Loaded(index, None)
    except IndexFileError as error:
        return Loaded(rebuild(settings, vectors, kernel), str(error))


def _parts(index: HnswIndex) -> Iterator[bytes]:
    graph = index.graph
    counts = {
        "rows": graph.rows,
        "slots": graph.slots,
        "linked": index.linked,
        "bridged": index.bridged,
        "inserted": index.inserted,
        "entry": int(graph.header["entry"]),
        "top": int(graph.header["top"]),
    }
    head = json.dumps({"settings": asdict(index.settings), **counts}, sort_keys=True).encode()
    yield MAGIC + VERSION.to_bytes(4, "little") + len(head).to_bytes(4, "little") + head
    yield graph.column("id").astype("<i8").tobytes()
    yield graph.alive[: graph.rows].tobytes()
    for name in ("level", "slot", "twin"):
        yield graph.column(name).astype("<i4").tobytes()
    for links in (graph.column("links"), graph.upper_links()):
        # Behind the links that there are, memory holds links of before.
        used = np.arange(links.shape[1]) <= links[:, :1]
        yield np.where(used, links, 0).astype("<i4").tobytes()
    left = graph.rows
    for chunk in graph.chunks:
        yield chunk.vector[:left, : index.settings.dimension].astype("<f4").tobytes()
        left -= len(chunk.vector)
        if left <= 0:
            break


def _read(body: memoryview, kernel: HnswKernel | None) -> HnswIndex:
    at = len(MAGIC) + 4
    head_bytes = int.from_bytes(body[at : at + 4], "little")
    at += 4
    head = json.loads(bytes(body[at : at + head_bytes]))
    at += head_bytes
    settings = HnswSettings(**head["settings"])
    rows, slots, linked, bridged, inserted, entry, top = (int(head[name]) for name in _COUNTS)
    if not 0 <= linked <= rows <= inserted or not 0 <= bridged <= rows or slots < 0:
        raise ValueError("its counts")

    def take(dtype: str, *shape: int) -> np.ndarray:
        nonlocal at
        count = int(np.prod(shape, dtype=object))
        array = np.frombuffer(body, dtype, count, at)
        at += array.nbytes
        return array.reshape(shape)

    columns = {"id": take("<i8", rows)}
    alive = take("u1", rows)
    columns |= {name: take("<i4", rows) for name in ("level", "slot", "twin")}
    columns["links"] = take("<i4", rows, 1 + settings.m0)
    uppers = take("<i4", slots, 1 + settings.m)
    vectors = take("<f4", rows, settings.dimension)
    if at != len(body):
        raise ValueError("its length")
    _check(columns, alive, uppers, vectors, entry, top)

    index = HnswIndex(settings, kernel)
    graph = index.graph
    graph.reserve(rows, slots)
    graph.header["rows"], graph.header["entry"], graph.header["top"] = rows, entry, top
    graph.alive[:rows] = alive
    for name, values in columns.items():
        graph.set_column(name, values)
    graph.set_upper_links(uppers)
    _set_vectors(graph, vectors)
    index.linked, index.bridged, index.inserted = linked, bridged, inserted
    index.find_rows()
    if len(index) != alive.sum():
        raise ValueError("an id twice")
    return index


def _set_vectors(graph: HnswGraph, vectors: np.ndarray) -> None:
    start = 0
    for chunk in graph.chunks:
        part = vectors[start : start + len(chunk.vector)]
        chunk.vector[: len(part), : vectors.shape[1]] = part
        start += len(part)


def _check(
    columns: dict[str, np.ndarray],
    alive: np.ndarray,
    uppers: np.ndarray,
    vectors: np.ndarray,
    entry: int,
    top: int,
) -> None:
    """A kernel follows links without looking: what it would meet has to be there. Raises ValueError."""
    rows, slots = len(alive), len(uppers)
    level, slot, twin = columns["level"], columns["slot"], columns["twin"]
    above = np.maximum(level, 0)
    if (alive > 1).any() or (level < -1).any() or (slot < 0).any() or (slot.astype(np.int64) + above > slots).any():
        raise ValueError("its levels")
    if (entry, top) != (-1, -1) and not (0 <= entry < rows and level[entry] == top >= 0):
        raise ValueError("its entry point")
    level_of_slot = np.zeros(slots, np.int32)
    for step in range(int(above.max(initial=0))):
        reaching = above > step
        level_of_slot[slot[reaching] + step] = step + 1
    for links, least in ((columns["links"], np.zeros(rows, np.int32)), (uppers, level_of_slot)):
        count = links[:, :1]
        used = np.arange(1, links.shape[1]) <= count
        to = links[:, 1:][used]
        if (count < 0).any() or (count >= links.shape[1]).any() or (to < 0).any() or (to >= rows).any():
            raise ValueError("its links")
        if (level[to] < np.repeat(least, count[:, 0])).any():
            raise ValueError("its links")
    # A chain goes from a row of the graph to rows that are not in it, and there to lower ones only: it ends.
    followed = np.flatnonzero(twin != -1)
    to = twin[followed]
    if (
        (to < 0).any()
        or (to >= rows).any()
        or (level[to] != -1).any()
        or ((level[followed] < 0) & (to >= followed)).any()
    ):
        raise ValueError("its twins")
    if not (np.abs(vectors) <= LARGEST).all():  # nor when there is NaN
        raise ValueError("its vectors")
