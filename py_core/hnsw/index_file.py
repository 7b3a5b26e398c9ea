"""Serializes the graph of an index, so that it need not be built again.

The vectors are not in the file, as the store holds them; `load` takes them as an argument. So the file has a tenth of
their size. A file that is older than the vectors can cost only links, never data: vectors that the store no longer has
are removed from the graph, and vectors that the file does not know are reported.

Layout, little-endian: the magic, uint32 version, uint32 length of a JSON head (settings, counts and the names of the
rows), the head; then for the rows in order: level, slot and twin int32, a checksum of the vector uint32, the number of
links uint8 or uint16; then the links of the rows int32, row after row; then for the slots the number of links, and the
links, in the same way; finally the SHA-256 of everything before it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from py_core.hnsw.hnsw_graph import CHUNK, LARGEST
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import HnswIndex, HnswSettings
from py_core.hnsw.numpy_kernel import unit_rows

MAGIC = b"SONATA-HNSW\n"
VERSION = 2
MOST_CHANGED = 0.25
"""If a larger share of the rows was deleted or has a new vector, a new graph is better."""
_COUNTS = ("rows", "slots", "inserted", "entry", "top")
_REBUILD = "The index has to be built again from the stored vectors."


class IndexFileError(Exception):
    """The bytes are no index, or an unusable one; the message says why."""


@dataclass(frozen=True)
class Loaded:
    """A loaded index. Its ids are indices into `names`. `lacking`: names of vectors that are not in the index yet."""

    index: HnswIndex
    names: list[str]
    lacking: list[str]


def save(index: HnswIndex, names: Mapping[int, str]) -> bytes:
    """names: by id. Dead rows are removed from the index first; all others must be in its graph."""
    index.compact()
    if index.behind or index.linked != index.graph.rows:
        raise ValueError("Only an index whose rows are all in the graph can be saved.")
    graph = index.graph
    head = {
        "settings": asdict(index.settings),
        "rows": graph.rows,
        "slots": graph.slots,
        "inserted": index.inserted,
        "entry": int(graph.header["entry"]),
        "top": int(graph.header["top"]),
        "names": [names[id] for id in graph.column("id").tolist()],
    }
    line = json.dumps(head, sort_keys=True).encode()
    parts = [MAGIC, VERSION.to_bytes(4, "little"), len(line).to_bytes(4, "little"), line]
    parts += [graph.column(name).astype("<i4").tobytes() for name in ("level", "slot", "twin")]
    dimension, left = index.settings.dimension, graph.rows
    for chunk in graph.chunks:
        sums = [zlib.crc32(vector) for vector in chunk.vector[:left, :dimension].copy()]
        parts.append(np.array(sums, "<u4").tobytes())
        left -= len(sums)
    for links in (graph.column("links"), graph.upper_links()):
        used = np.arange(1, links.shape[1]) <= links[:, :1]
        parts += [links[:, 0].astype("<u2").tobytes(), links[:, 1:][used].astype("<i4").tobytes()]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def load(
    data: bytes, settings: HnswSettings, vectors: Mapping[str, np.ndarray], kernel: HnswKernel | None = None
) -> Loaded:
    """The saved index with the current vectors, float32 (dimension,) by name.

    Raises IndexFileError, also if it was made with other settings, or if too much has changed.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise IndexFileError(f"These bytes are no index of Sonata's. {_REBUILD}")
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
    if len(data) >= len(MAGIC) + 4 and version != VERSION:
        raise IndexFileError(f"The index is of version {version}, and this Sonata reads version {VERSION}. {_REBUILD}")
    body, checksum = memoryview(data)[:-32], data[-32:]
    if len(data) < len(MAGIC) + 40 or hashlib.sha256(body).digest() != checksum:
        raise IndexFileError(f"The index is damaged or incomplete: its checksum is not right. {_REBUILD}")
    try:
        return _read(body, settings, vectors, kernel)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexFileError(f"The index contradicts itself ({error}). {_REBUILD}") from error


def _read(
    body: memoryview, settings: HnswSettings, vectors: Mapping[str, np.ndarray], kernel: HnswKernel | None
) -> Loaded:
    at = len(MAGIC) + 4
    head_bytes = int.from_bytes(body[at : at + 4], "little")
    at += 4
    head = json.loads(bytes(body[at : at + head_bytes]))
    at += head_bytes
    if head["settings"] != asdict(settings):
        raise IndexFileError(f"The index was made with other settings. {_REBUILD}")
    rows, slots, inserted, entry, top = (int(head[name]) for name in _COUNTS)
    names: list[str] = head["names"]
    if not 0 <= rows <= inserted or slots < 0 or len(set(names)) != rows:
        raise ValueError("its counts")

    def take(dtype: str, count: int) -> np.ndarray:
        nonlocal at
        array = np.frombuffer(body, dtype, count, at)
        at += array.nbytes
        return array

    def take_links(count: int, most: int) -> np.ndarray:
        """(count, 1 + most), the layout in memory."""
        numbers = take("<u2", count).astype(np.int32)
        if (numbers > most).any():
            raise ValueError("its links")
        links = np.zeros((count, 1 + most), np.int32)
        links[:, 0] = numbers
        used = np.arange(1, 1 + most) <= numbers[:, None]
        links[:, 1:][used] = take("<i4", int(numbers.sum()))
        return links

    columns = {name: take("<i4", rows) for name in ("level", "slot", "twin")}
    checksums = take("<u4", rows)
    columns["links"] = take_links(rows, settings.m0)
    uppers = take_links(slots, settings.m)
    if at != len(body):
        raise ValueError("its length")
    _check(columns, uppers, entry, top)

    index = HnswIndex(settings, kernel)
    graph = index.graph
    graph.reserve(rows, slots)
    graph.header["rows"], graph.header["entry"], graph.header["top"] = rows, entry, top
    graph.alive[:rows] = 1
    graph.set_column("id", np.arange(rows))
    for name, values in columns.items():
        graph.set_column(name, values)
    graph.set_upper_links(uppers)
    index.linked, index.inserted = rows, inserted
    gone = _set_vectors(index, names, checksums, vectors)
    if len(gone) > MOST_CHANGED * rows:
        raise IndexFileError(f"Most of the index is about other vectors. {_REBUILD}")
    index.find_rows()
    _take_out(index, gone)
    left_out = {names[row] for row in gone}
    known = set(names) - left_out
    return Loaded(index, names, [name for name in vectors if name not in known])


def _set_vectors(
    index: HnswIndex, names: Sequence[str], checksums: np.ndarray, vectors: Mapping[str, np.ndarray]
) -> list[int]:
    """Returns the rows whose vector is missing or has changed; it stays zero."""
    dimension = index.settings.dimension
    gone = []
    for number, chunk in enumerate(index.graph.chunks):
        start = number * CHUNK
        part = names[start : start + CHUNK]
        given = np.zeros((len(part), index.graph.size), np.float32)
        for i, name in enumerate(part):
            vector = vectors.get(name)
            if vector is not None and vector.shape == (dimension,):
                given[i, :dimension] = vector
        if not (np.abs(given) <= LARGEST).all():  # also true for NaN
            raise ValueError("its vectors")
        if index.settings.metric == "cosine":
            unit_rows(given)
        for i, row in enumerate(given[:, :dimension].copy()):
            if part[i] not in vectors or zlib.crc32(row) != checksums[start + i]:
                given[i] = 0
                gone.append(start + i)
        chunk.vector[: len(part)] = given
    return gone


def _take_out(index: HnswIndex, gone: Sequence[int]) -> None:
    """Delete rows whose vectors are unknown. Links are made past them, without distances."""
    lost = set(gone)
    for row in gone:
        # A twin with the same vector takes its place in the graph.
        heir = next((twin for twin in index.graph.twins(row)[1:] if twin not in lost), None)
        if heir is not None:
            index.graph.vector(row)[:] = index.graph.vector(heir)
    for row in gone:
        index.delete(row)
    index.compact()


def _check(columns: Mapping[str, np.ndarray], uppers: np.ndarray, entry: int, top: int) -> None:
    """Check that all links lead to existing rows, as a kernel follows them without checks. Raises ValueError."""
    rows, slots = len(columns["level"]), len(uppers)
    level, slot, twin = columns["level"], columns["slot"], columns["twin"]
    above = np.maximum(level, 0)
    if (level < -1).any() or (slot < 0).any() or (slot.astype(np.int64) + above > slots).any():
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
        if (to < 0).any() or (to >= rows).any():
            raise ValueError("its links")
        if (level[to] < np.repeat(least, count[:, 0])).any():
            raise ValueError("its links")
    # A chain leads from a row of the graph to rows outside of it, and from there only to lower ones: it ends.
    followed = np.flatnonzero(twin != -1)
    to = twin[followed]
    if (
        (to < 0).any()
        or (to >= rows).any()
        or (level[to] != -1).any()
        or ((level[followed] < 0) & (to >= followed)).any()
    ):
        raise ValueError("its twins")
