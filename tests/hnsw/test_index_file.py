"""The graph of an index as bytes: it is restored unchanged, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.building.kernels import hnsw_kernel_path
from py_core.hnsw.hnsw_graph import METRICS
from py_core.hnsw.index import HnswIndex, HnswSettings
from py_core.hnsw.index_file import MAGIC, VERSION, IndexFileError, load, save
from py_core.hnsw.numpy_kernel import NumpyHnswKernel
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from tests.hnsw.graph_bytes import graph_bytes

few = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SMALL = HnswSettings(3, m=3, ef_construction=8, brute_force_below=0)


@pytest.fixture(scope="module")
def wasm() -> WasmtimeHnswKernel:
    return WasmtimeHnswKernel(hnsw_kernel_path())


def numbers(count: int, dimension: int = 3) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, dimension)).astype(np.float32)


def built(given_settings: HnswSettings, vectors: Mapping[str, np.ndarray], kernel) -> HnswIndex:
    """All of them in the graph; their ids are their places."""
    index = HnswIndex(given_settings, kernel)
    for id, vector in enumerate(vectors.values()):
        index.insert(id, vector)
    index.link(len(vectors))
    return index


def named(vectors: np.ndarray) -> dict[str, np.ndarray]:
    return {f"v{place}": vector for place, vector in enumerate(vectors)}


def saved_of(index: HnswIndex) -> bytes:
    return save(index, {id: f"v{id}" for id in index})


def small(kernel) -> tuple[bytes, dict[str, np.ndarray]]:
    """A file, with twins in it, and its vectors."""
    vectors = named(numbers(40))
    vectors |= {f"v{place}": vectors["v3"] for place in range(40, 44)}
    return saved_of(built(SMALL, vectors, kernel)), vectors


def signed(data: bytes) -> bytes:
    """With a correct checksum."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


@given(count=st.integers(0, 80), metric=st.sampled_from(METRICS), dimension=st.integers(1, 20))
@few
def test_it_comes_back_and_goes_on(wasm, count, metric, dimension) -> None:
    given_settings = HnswSettings(dimension, metric, m=4, ef_construction=20, brute_force_below=0, seed=3)
    data = numbers(count + 30, dimension)
    vectors = named(data[:count])
    index = built(given_settings, vectors, wasm)
    saved = saved_of(index)
    for kernel in (wasm, NumpyHnswKernel()):
        loaded = load(saved, given_settings, vectors, kernel)
        assert loaded.names == list(vectors)
        assert loaded.lacking == []
        assert graph_bytes(loaded.index) == graph_bytes(index)
    again = load(saved, given_settings, vectors, wasm).index
    for id, vector in enumerate(data[count:], count):
        index.insert(id, vector)
        again.insert(id, vector)
    assert graph_bytes(again) == graph_bytes(index)


@given(
    gone=st.sets(st.integers(0, 79), max_size=18),
    changed=st.sets(st.integers(0, 79), max_size=2),
    new=st.integers(0, 5),
    copies=st.dictionaries(st.integers(0, 79), st.integers(0, 79), max_size=10),
)
@few
def test_what_the_store_has_by_now_is_what_is_found(wasm, gone, changed, new, copies) -> None:
    """Vectors that were deleted, changed or added since the file was written; several are equal."""
    data = numbers(100, 6)
    before = {f"v{place}": data[copies.get(place, place)] for place in range(80)}
    given_settings = HnswSettings(6, m=4, ef_construction=40, brute_force_below=0)
    saved = saved_of(built(given_settings, before, wasm))
    now = {name: vector for place, (name, vector) in enumerate(before.items()) if place not in gone}
    now |= {f"v{place}": data[90 + place % 10] for place in changed}
    now |= {f"new {number}": data[80 + number] for number in range(new)}

    loaded = load(saved, given_settings, now, wasm)

    assert set(loaded.lacking) == {name for name, vector in now.items() if before.get(name) is not vector}
    ids = {name: id for id, name in enumerate(loaded.names)}
    for number, name in enumerate(loaded.lacking, 1000):
        loaded.index.insert(number, now[name])
        ids[name] = number
    names = {id: name for name, id in ids.items()}
    assert {names[id] for id in loaded.index} == set(now)
    for query in data[:5]:
        found = loaded.index.search(query, 10, ef=200)
        unit = {name: vector / np.linalg.norm(vector) for name, vector in now.items()}
        true = sorted(1 - float(vector @ query) / np.linalg.norm(query) for vector in unit.values())[:10]
        assert [distance for _, distance in found] == pytest.approx(true, abs=1e-5)
        for id, distance in found:
            assert distance == pytest.approx(1 - float(unit[names[id]] @ query) / np.linalg.norm(query), abs=1e-5)


def test_a_file_about_other_vectors_is_refused(wasm) -> None:
    saved, vectors = small(wasm)
    others = {name: -vector for name, vector in vectors.items()}
    with pytest.raises(IndexFileError, match="about other vectors"):
        load(saved, SMALL, others, wasm)
    with pytest.raises(IndexFileError, match="other settings"):
        load(saved, HnswSettings(3, m=3, ef_construction=9, brute_force_below=0), vectors, wasm)


def test_the_vectors_are_not_in_the_file(wasm) -> None:
    vectors = named(numbers(300, 384))
    saved = saved_of(built(HnswSettings(384, brute_force_below=0), vectors, wasm))
    assert len(saved) < 300 * 384 * 4 / 5
    assert not any(vector[:4].tobytes() in saved for vector in vectors.values())


def test_an_index_that_is_not_all_in_the_graph_is_not_saved(wasm) -> None:
    index = HnswIndex(SMALL, wasm)
    index.insert_many(range(20), list(numbers(20)))
    with pytest.raises(ValueError, match="all in the graph"):
        saved_of(index)


def test_every_truncation_is_refused(wasm) -> None:
    saved, vectors = small(wasm)
    for length in range(len(saved)):
        with pytest.raises(IndexFileError, match="built again from the stored vectors"):
            load(saved[:length], SMALL, vectors, wasm)
    with pytest.raises(IndexFileError, match="damaged or incomplete"):
        load(saved + b"\0", SMALL, vectors, wasm)


def test_every_flipped_byte_is_refused(wasm) -> None:
    saved, vectors = small(wasm)
    for place in range(len(saved)):
        damaged = bytearray(saved)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(IndexFileError, match="built again from the stored vectors"):
            load(bytes(damaged), SMALL, vectors, wasm)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no index of Sonata's"),
        (b"GGUF" + bytes(500), "no index of Sonata's"),
        (MAGIC + (1).to_bytes(4, "little") + bytes(60), "version 1, and this Sonata reads version 2"),
        (signed(MAGIC + VERSION.to_bytes(4, "little") + bytes(4) + bytes(32)), "contradicts itself"),
    ],
)
def test_foreign_bytes_are_a_sentence(wasm, data, said) -> None:
    with pytest.raises(IndexFileError, match=said):
        load(data, SMALL, {}, wasm)


@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wrong_content_with_a_right_checksum_harms_nothing(wasm, place, value) -> None:
    """Asserts that it is refused, or is a valid index: no link leads out of it, and no chain is circular."""
    file, vectors = small(wasm)
    saved = bytearray(file)
    saved[int(place * (len(saved) - 32))] = value
    try:
        index = load(signed(bytes(saved)), SMALL, vectors, wasm).index
    except IndexFileError:
        return
    for query in numbers(5):
        assert len(index.search(query, 10)) == 10
    index.delete(next(iter(index)))
    index.compact()
    index.insert(1000, numbers(1)[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": -1}, "its counts"),
        ({"rows": 10**12, "inserted": 10**12}, "its counts"),
        ({"inserted": 1}, "its counts"),
        ({"names": ["v1"] * 44}, "its counts"),
        ({"names": None}, "contradicts itself"),
        ({"entry": 10**6}, "its entry point"),
        ({"top": 5}, "its entry point"),
        ({"slots": 0}, "contradicts itself"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(wasm, change, said) -> None:
    saved, vectors = small(wasm)
    start = len(MAGIC) + 8
    end = start + int.from_bytes(saved[start - 4 : start], "little")
    head = json.dumps(json.loads(saved[start:end]) | change).encode()
    changed = saved[: start - 4] + len(head).to_bytes(4, "little") + head + saved[end:]
    with pytest.raises(IndexFileError, match=said):
        load(signed(changed), SMALL, vectors, wasm)


def test_a_link_to_a_row_that_is_not_at_its_level_is_refused(wasm) -> None:
    """A kernel would read that row's links from a place without links."""
    vectors = named(numbers(40))
    index = built(SMALL, vectors, wasm)
    graph = index.graph
    assert graph.slots > 1
    slot = int(np.flatnonzero(graph.upper_links()[:, 0])[0])
    graph.uppers[0][slot, 1] = int(np.flatnonzero(graph.column("level") == 0)[0])
    with pytest.raises(IndexFileError, match="its links"):
        load(saved_of(index), SMALL, vectors, wasm)
