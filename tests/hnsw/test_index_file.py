"""An index as bytes: it comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.building.kernels import hnsw_kernel_path
from py_core.hnsw.hnsw_graph import METRICS
from py_core.hnsw.index import HnswIndex, HnswSettings
from py_core.hnsw.index_file import MAGIC, IndexFileError, load, load_or_rebuild, rebuild, save
from py_core.hnsw.numpy_kernel import NumpyHnswKernel
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel

few = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SMALL = HnswSettings(3, m=3, ef_construction=8, brute_force_below=0)


@pytest.fixture(scope="module")
def wasm() -> WasmtimeHnswKernel:
    return WasmtimeHnswKernel(hnsw_kernel_path())


def vectors(count: int, dimension: int = 3) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, dimension)).astype(np.float32)


def small(kernel: WasmtimeHnswKernel, count: int = 40) -> HnswIndex:
    """With dead rows and twins."""
    index = rebuild(SMALL, enumerate(vectors(count)), kernel)
    for id in (7, 11, 12):
        index.delete(id)
    for id in range(100, 104):
        index.insert(id, vectors(count)[3])
    return index


def signed(data: bytes) -> bytes:
    """With a checksum that is right."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


@given(
    count=st.integers(0, 80),
    metric=st.sampled_from(METRICS),
    dimension=st.integers(1, 20),
    below=st.sampled_from([0, 30, 1000]),
    gone=st.sets(st.integers(0, 79)),
)
@few
def test_it_comes_back_and_goes_on(wasm, count, metric, dimension, below, gone) -> None:
    given_settings = HnswSettings(dimension, metric, m=4, ef_construction=20, brute_force_below=below, seed=3)
    data = vectors(count + 30, dimension)
    index = rebuild(given_settings, enumerate(data[:count]), wasm)
    for id in gone:
        index.delete(id)
    saved = save(index)
    for kernel in (wasm, NumpyHnswKernel()):
        again = load(saved, kernel)
        assert again.settings == given_settings
        assert set(again) == set(index)
        assert save(again) == saved
        for query in data[-3:]:
            assert again.search(query, 7) == index.search(query, 7)
    again = load(saved, wasm)
    for id, vector in enumerate(data[count:], count):
        index.insert(id, vector)
        again.insert(id, vector)
    index.compact()
    again.compact()
    assert save(again) == save(index)


def test_every_truncation_is_refused(wasm) -> None:
    saved = save(small(wasm))
    for length in range(len(saved)):
        with pytest.raises(IndexFileError, match="built again from the stored vectors"):
            load(saved[:length], wasm)
    with pytest.raises(IndexFileError, match="damaged or incomplete"):
        load(saved + b"\0", wasm)


def test_every_flipped_byte_is_refused(wasm) -> None:
    saved = save(small(wasm))
    for place in range(len(saved)):
        damaged = bytearray(saved)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(IndexFileError, match="built again from the stored vectors"):
            load(bytes(damaged), wasm)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no index of Sonata's"),
        (b"GGUF" + bytes(500), "no index of Sonata's"),
        (MAGIC + (2).to_bytes(4, "little") + bytes(60), "version 2, and this Sonata reads version 1"),
        (signed(MAGIC + (1).to_bytes(4, "little") + bytes(4) + bytes(32)), "contradicts itself"),
    ],
)
def test_foreign_bytes_are_a_sentence(wasm, data, said) -> None:
    with pytest.raises(IndexFileError, match=said):
        load(data, wasm)


@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), seed=st.integers(0, 9))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wrong_content_with_a_right_checksum_harms_nothing(wasm, place, value, seed) -> None:
    """It is refused, or it is an index: no link leads out of it, no chain goes round."""
    saved = bytearray(save(small(wasm)))
    saved[int(place * (len(saved) - 32))] = value
    try:
        index = load(signed(bytes(saved)), wasm)
    except IndexFileError:
        return
    for query in vectors(5):
        assert len(index.search(query, 10)) == 10
    index.delete(next(iter(index)))
    index.compact()
    index.insert(1000, vectors(1)[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": -1}, "its counts"),
        ({"rows": 10**12, "inserted": 10**12}, "contradicts itself"),
        ({"bridged": -1}, "its counts"),
        ({"linked": 10**6}, "its counts"),
        ({"entry": 10**6}, "its entry point"),
        ({"top": 5}, "its entry point"),
        ({"slots": 0}, "contradicts itself"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(wasm, change, said) -> None:
    saved = save(small(wasm))
    start = len(MAGIC) + 8
    end = start + int.from_bytes(saved[start - 4 : start], "little")
    head = json.dumps(json.loads(saved[start:end]) | change).encode()
    changed = saved[: start - 4] + len(head).to_bytes(4, "little") + head + saved[end:]
    with pytest.raises(IndexFileError, match=said):
        load(signed(changed), wasm)


def test_what_cannot_be_read_is_made_of_the_stored_vectors(wasm) -> None:
    stored = list(enumerate(vectors(50)))
    fresh = rebuild(SMALL, stored, wasm)
    saved = save(fresh)

    taken = load_or_rebuild(saved, SMALL, iter(()), wasm)  # the vectors are not asked for
    assert taken.problem is None
    assert save(taken.index) == saved

    made = load_or_rebuild(saved[:-1], SMALL, stored, wasm)
    assert "damaged or incomplete" in (made.problem or "")
    assert save(made.index) == saved

    other = HnswSettings(3, "l2", m=3, ef_construction=8, brute_force_below=0)
    assert "other settings" in (load_or_rebuild(saved, other, stored, wasm).problem or "")


def test_a_link_to_a_row_that_is_not_at_its_level_is_refused(wasm) -> None:
    """A kernel would read that row's links from where there are none."""
    index = small(wasm)
    graph = index.graph
    assert graph.slots > 1
    slot = int(np.flatnonzero(graph.upper_links()[:, 0])[0])
    graph.uppers[0][slot, 1] = int(np.flatnonzero(graph.column("level") == 0)[0])
    with pytest.raises(IndexFileError, match="its links"):
        load(save(index), wasm)
