"""The index against an exhaustive search, with each kernel; and the kernels against each other."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.building.kernels import hnsw_kernel_path
from py_core.hnsw.hnsw_graph import METRICS
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import BRIDGED_A_DELETE, FEW_DEAD, HnswIndex, HnswSettings, VectorError
from py_core.hnsw.numpy_kernel import NumpyHnswKernel
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from tests.hnsw.graph_bytes import graph_bytes

few = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
GRAPH_ONLY = HnswSettings(dimension=8, brute_force_below=0, m=8, ef_construction=40)
METRIC = st.sampled_from(METRICS)


@pytest.fixture(scope="module")
def wasm() -> WasmtimeHnswKernel:
    return WasmtimeHnswKernel(hnsw_kernel_path())


@pytest.fixture(scope="module", params=["wasm", "numpy"])
def kernel(request: pytest.FixtureRequest, wasm: WasmtimeHnswKernel) -> HnswKernel:
    return wasm if request.param == "wasm" else NumpyHnswKernel()


numpy_in_all = pytest.mark.parametrize("kernel", ["wasm", pytest.param("numpy", marks=pytest.mark.all)], indirect=True)
"""For tests that take seconds with numpy: other tests compare its graphs with those of WASM, bit for bit."""


def clustered(count: int, dimension: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(2, count // 40), dimension))
    spread = 0.5 * rng.standard_normal((count, dimension))
    return (centres[rng.integers(0, len(centres), count)] + spread).astype(np.float32)


def filled(index_settings: HnswSettings, kernel: HnswKernel, vectors: np.ndarray) -> HnswIndex:
    index = HnswIndex(index_settings, kernel)
    for id, vector in enumerate(vectors):
        index.insert(id, vector)
    return index


def distances(metric: str, query: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Distances in float64, which the kernels' should approximate."""
    query, vectors = query.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return ((vectors - query) ** 2).sum(axis=1)
    if metric == "dot":
        return -(vectors @ query)
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    return 1 - np.divide(vectors @ query, lengths, out=np.zeros(len(vectors)), where=lengths > 0)


def recall(index: HnswIndex, queries: np.ndarray, live: dict[int, np.ndarray], k: int = 10) -> float:
    ids, vectors = np.array(list(live)), np.array(list(live.values()))
    found = 0
    for query in queries:
        order = np.argsort(distances(index.settings.metric, query, vectors), kind="stable")[:k]
        found += len({id for id, _ in index.search(query, k)} & set(ids[order].tolist()))
    return found / (len(queries) * min(k, len(live)))


# --- exact while the vectors are few ---


@given(
    metric=METRIC,
    count=st.integers(1, 60),
    dimension=st.integers(1, 70),
    k=st.integers(1, 80),
    seed=st.integers(0, 999),
)
@few
def test_few_vectors_are_compared_one_by_one(kernel, metric, count, dimension, k, seed) -> None:
    vectors = clustered(count, dimension, seed)
    query = clustered(1, dimension, seed + 1)[0]
    index = filled(HnswSettings(dimension, metric), kernel, vectors)
    expected = distances(metric, query, vectors)
    found = index.search(query, k)
    assert len(found) == min(k, count)
    assert len({id for id, _ in found}) == len(found)
    assert [d for _, d in found] == sorted(d for _, d in found)
    tolerance = float(1e-5 * (1 + np.abs(vectors).max() * np.abs(query).max() * dimension * 4))
    for (id, distance), best in zip(found, np.sort(expected), strict=False):
        assert distance == pytest.approx(expected[id], abs=tolerance)
        assert expected[id] == pytest.approx(best, abs=2 * tolerance)


def test_equally_near_ones_come_by_id(kernel) -> None:
    index = HnswIndex(HnswSettings(3), kernel)
    for id in (9, 4, 7, -2, 5):
        index.insert(id, np.array([1, 2, 3]))
    assert [id for id, _ in index.search(np.array([1, 2, 3]), 3)] == [-2, 4, 5]


def test_an_empty_index_finds_nothing(kernel) -> None:
    index = HnswIndex(HnswSettings(4), kernel)
    assert index.search(np.ones(4)) == []
    assert len(index) == 0
    assert not index.delete(1)
    index.compact()
    index.insert(1, np.ones(4))
    assert index.delete(1)
    assert index.search(np.ones(4)) == []


def test_no_neighbours_are_asked_for(kernel) -> None:
    index = filled(HnswSettings(4), kernel, np.eye(4))
    assert index.search(np.ones(4), 0) == []
    assert index.search(np.ones(4), where=set()) == []


# --- the graph ---


@pytest.mark.parametrize("metric", METRICS)
def test_the_graph_finds_the_true_neighbours(wasm, metric) -> None:
    """numpy builds the same graph, only slower; see `test_the_same_calls_give_the_same_index_with_each_kernel`."""
    vectors = clustered(750, 24, 1)
    if metric == "dot":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = filled(HnswSettings(24, metric, brute_force_below=0), wasm, vectors[:700])
    assert recall(index, vectors[700:], dict(enumerate(vectors[:700]))) > 0.99


@pytest.mark.no_cover
@pytest.mark.parametrize("examples", [pytest.param(8, id="gate"), pytest.param(100, id="all", marks=pytest.mark.all)])
def test_after_any_inserts_and_deletes_what_is_stored_is_found(wasm, examples) -> None:
    """Ids are replaced, vectors occur many times, dead rows are removed: both kernels agree throughout."""

    @settings(few, max_examples=examples)
    @given(
        metric=METRIC,
        steps=st.lists(st.tuples(st.sampled_from("iiiiddr"), st.integers(0, 40), st.integers(0, 25)), max_size=120),
        below=st.sampled_from([0, 0, 10]),
        seed=st.integers(0, 99),
        lattice=st.booleans(),
    )
    def check(metric, steps, below, seed, lattice) -> None:
        check_steps(wasm, metric, steps, below, seed, lattice)

    check()


def check_steps(wasm, metric, steps, below, seed, lattice) -> None:
    vectors = clustered(26, 8, seed)
    if lattice:  # with distances that are equal
        vectors = np.random.default_rng(seed).integers(0, 2, (26, 8)).astype(np.float32)
    vectors[0] = 0
    given_settings = replace(GRAPH_ONLY, metric=metric, brute_force_below=below, seed=seed, ef_search=8)
    both = [HnswIndex(given_settings, kernel) for kernel in (wasm, NumpyHnswKernel())]
    stored: dict[int, np.ndarray] = {}
    for step, id, which in steps:
        for index in both:
            if step == "i":
                index.insert(id, vectors[which])
            elif step == "d":
                assert index.delete(id) == (id in stored)
            else:
                index.compact()
        if step == "i":
            stored[id] = vectors[which]
        elif step == "d":
            stored.pop(id, None)
    index = both[0]
    assert set(index) == set(stored)
    assert graph_bytes(index) == graph_bytes(both[1])
    for query in clustered(3, 8, seed + 1):
        assert {id for id, _ in index.search(query, 50)} == set(stored)
        assert index.search(query, 3) == both[1].search(query, 3)
    for id, vector in stored.items():
        assert index.search(vector, 1, where={id})[0][0] == id
        equal = {other for other, its in stored.items() if (its == vector).all()}
        # By the graph if there are more than ef: all connected ones, unless others are nearer or equally near.
        if metric == "l2":
            assert {other for other, _ in index.search(vector, min(8, len(equal)))} <= equal


@numpy_in_all
def test_many_twins_are_no_island(kernel) -> None:
    """With their own links, hundreds of equal vectors would link to each other only."""
    others = clustered(300, 8, 5)
    index = HnswIndex(GRAPH_ONLY, kernel)
    for id in range(300):
        index.insert(id, np.full(8, 0.5))
    for id, vector in enumerate(others, 300):
        index.insert(id, vector)
    assert [id for id, _ in index.search(np.full(8, 0.5), 20)] == list(range(20))
    assert recall(index, others[:30], dict(enumerate(others, 300))) > 0.98
    for id in range(10):  # the first of them is the one in the graph
        index.delete(id)
    assert [id for id, _ in index.search(np.full(8, 0.5), 20)] == list(range(10, 30))
    assert {id for id, _ in index.search(np.full(8, 0.5), 290)} == set(range(10, 300))
    index.compact()
    assert [id for id, _ in index.search(np.full(8, 0.5), 20)] == list(range(10, 30))


@pytest.mark.no_cover
@pytest.mark.parametrize("count", [100, pytest.param(350, marks=pytest.mark.all)])
def test_the_same_calls_give_the_same_index_with_each_kernel(wasm, count) -> None:
    vectors = clustered(count, 24, 7)
    for metric in METRICS:
        built = [
            filled(HnswSettings(24, metric, m=6, brute_force_below=0), k, vectors)
            for k in (wasm, wasm, NumpyHnswKernel())
        ]
        first, *others = [graph_bytes(index) for index in built]
        assert others == [first, first]
        assert graph_bytes(filled(HnswSettings(24, metric, m=6, brute_force_below=0, seed=1), wasm, vectors)) != first
        for query in clustered(20, 24, 8):
            for where in (None, range(0, count, 3)):
                found = [index.search(query, 7, ef=20, where=where) for index in built]
                assert found[0] == found[1] == found[2]
                assert len(found[0]) == 7


@numpy_in_all
def test_the_graph_is_built_while_vectors_come(kernel) -> None:
    """An insert links only a few; until all are linked, each vector is compared."""
    vectors = clustered(200, 8, 3)
    index = HnswIndex(replace(GRAPH_ONLY, brute_force_below=100), kernel)
    linked = []
    for id, vector in enumerate(vectors):
        index.insert(id, vector)
        linked.append(index.linked)
    assert linked[99] == 0
    assert max(np.diff(linked)) == 4
    assert linked[-1] == 200
    assert recall(index, clustered(20, 8, 4), dict(enumerate(vectors))) > 0.95


# --- deleting ---


@numpy_in_all
def test_deleted_and_replaced_ones_are_not_found(kernel) -> None:
    vectors = clustered(400, 16, 9)
    index = filled(replace(GRAPH_ONLY, dimension=16), kernel, vectors)
    for id in range(0, 400, 2):
        assert index.delete(id)
        assert not index.delete(id)
    for id in range(1, 400, 4):
        index.insert(id, vectors[id - 1])
    live = {id: vectors[id - 1 if id % 4 == 1 else id] for id in range(1, 400, 2)}
    assert set(index) == set(live)
    assert 2 not in index
    assert 3 in index
    assert len(index) == 200
    queries = clustered(30, 16, 9)
    assert recall(index, queries, live) > 0.95
    before = [index.search(query, 5) for query in queries]
    index.compact()
    assert index.graph.rows == 200
    assert recall(index, queries, live) > 0.95
    assert (
        np.mean([a[0] == b[0] for a, b in zip(before, [index.search(query, 5) for query in queries], strict=True)])
        > 0.9
    )


def test_dead_rows_are_taken_out_when_they_are_many(wasm) -> None:
    vectors = clustered(4 * FEW_DEAD, 8, 11)
    index = filled(GRAPH_ONLY, wasm, vectors)
    memory = index.nbytes
    rows = []
    for id in range(len(vectors) - 10):
        index.delete(id)
        rows.append(index.graph.rows)
    assert rows[0] == len(vectors)
    most_at_once = len(vectors) / BRIDGED_A_DELETE
    assert all(row <= (len(vectors) - gone) * 1.5 + FEW_DEAD + most_at_once for gone, row in enumerate(rows))
    assert index.nbytes < memory
    assert {id for id, _ in index.search(vectors[-1], 100)} == set(range(len(vectors) - 10, len(vectors)))


@pytest.mark.all
def test_recall_survives_the_loss_of_most_vectors(wasm) -> None:
    """Against a new index of the remaining vectors, with few candidates and unstructured vectors, which make it
    hard."""
    hard = HnswSettings(48, brute_force_below=0, ef_search=20, expansion=1)
    lost = []
    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        vectors, queries = np.split(rng.standard_normal((3100, 48)).astype(np.float32), [3000])
        index = filled(hard, wasm, vectors)
        gone = set(rng.permutation(3000)[:2400].tolist())
        for id in gone:
            index.delete(id)
        index.compact()
        live = {id: vectors[id] for id in range(3000) if id not in gone}
        assert set(index) == set(live)
        fresh = HnswIndex(hard, wasm)
        for id, vector in live.items():
            fresh.insert(id, vector)
        lost.append(recall(fresh, queries, live) - recall(index, queries, live))
    assert np.mean(lost) < 0.047, lost


@pytest.mark.all
def test_an_index_gives_its_memory_back(wasm) -> None:
    vectors = clustered(2000, 64, 1)
    filled(HnswSettings(64), wasm, vectors)
    size = wasm.memory_bytes
    for _ in range(5):
        filled(HnswSettings(64), wasm, vectors)
    assert wasm.memory_bytes == size


# --- filters ---


@given(keep=st.integers(1, 50), seed=st.integers(0, 99))
@few
def test_filters_as_a_set_and_as_a_function(wasm, keep, seed) -> None:
    vectors = clustered(300, 8, 21)
    index = filled(replace(GRAPH_ONLY, brute_force_below=20), wasm, vectors)
    wanted = {id for id in range(300) if id % keep == 0} | {5000}
    query = clustered(1, 8, seed)[0]
    found = index.search(query, 10, where=wanted, ef=100)
    assert found == index.search(query, 10, where=lambda id: id in wanted, ef=100)
    assert {id for id, _ in found} <= wanted
    eligible = sorted(wanted - {5000})
    expected = np.sort(distances("cosine", query, vectors[eligible]))[:10]
    assert len(found) == min(10, len(eligible))
    assert np.mean(np.abs(np.array([d for _, d in found]) - expected) < 1e-5) > 0.85


@numpy_in_all
def test_a_filter_that_leaves_few_is_exact(kernel) -> None:
    vectors = clustered(400, 8, 22)
    index = filled(replace(GRAPH_ONLY, brute_force_below=50), kernel, vectors)
    for query in clustered(10, 8, 23):
        found = index.search(query, 5, where=range(0, 400, 10))
        expected = np.argsort(distances("cosine", query, vectors[::10]), kind="stable")[:5] * 10
        assert [id for id, _ in found] == expected.tolist()


# --- allowed vectors ---


def test_zero_vectors_are_as_far_as_perpendicular_ones(kernel) -> None:
    index = HnswIndex(HnswSettings(3), kernel)
    index.insert(1, np.zeros(3))
    index.insert(2, np.array([0, 1, 0]))
    index.insert(3, np.array([-1, 0, 0]))
    assert index.search(np.array([1.0, 0, 0])) == [(1, 1.0), (2, 1.0), (3, 2.0)]
    assert index.search(np.zeros(3)) == [(1, 1.0), (2, 1.0), (3, 1.0)]


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 1e15])
def test_cosine_does_not_depend_on_length(kernel, scale) -> None:
    vectors = clustered(40, 5, 2)
    index = filled(HnswSettings(5), kernel, vectors)
    scaled = filled(HnswSettings(5), kernel, vectors * np.float32(scale))
    query = clustered(1, 5, 3)[0]
    assert [id for id, _ in index.search(query)] == [id for id, _ in scaled.search(query * np.float32(scale))]
    assert np.linalg.norm(scaled.vector(3)) == pytest.approx(1)


def test_what_cannot_be_compared_is_refused(kernel) -> None:
    taken = []
    for metric in METRICS:
        index = filled(HnswSettings(5, metric), kernel, np.eye(5))
        for bad, place in product((np.nan, np.inf, -np.inf, 1e17, 1e300), (0, 4)):
            vector = np.ones(5)
            vector[place] = bad
            for use in (partial(index.insert, 2), index.search):
                try:
                    use(vector)
                    taken.append((metric, bad, place, use))
                except VectorError as error:
                    assert "components that are not numbers" in str(error)  # noqa: PT017
        assert index.vector(2).tolist() == [0, 0, 1, 0, 0]  # stored vectors stay
        assert index.graph.rows == 5
    assert taken == []


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        (np.ones(4), r"has the shape \(4,\): this index holds vectors of 5 numbers"),
        (np.ones((1, 5)), "has the shape"),
        (np.array(list("abcde")), "give it as numbers"),
        (np.ones(5) * 1j, "give it as numbers"),
    ],
)
def test_other_shapes_and_types_are_refused(kernel, vector, said) -> None:
    index = HnswIndex(HnswSettings(5), kernel)
    with pytest.raises(VectorError, match=said):
        index.insert(1, vector)
    with pytest.raises(VectorError, match=said):
        index.search(vector)
    assert len(index) == 0


def test_ids_have_64_bits(kernel) -> None:
    index = HnswIndex(HnswSettings(2), kernel)
    for id in (-(1 << 63), (1 << 63) - 1, np.int32(7)):
        index.insert(id, np.ones(2))
    assert [id for id, _ in index.search(np.ones(2))] == [-(1 << 63), 7, (1 << 63) - 1]
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        index.insert(1 << 63, np.ones(2))
    with pytest.raises(TypeError):
        index.insert(1.5, np.ones(2))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"metric": "hamming"}, "There is no metric 'hamming'"),
        ({"dimension": 0}, "dimension is 0: it must be from 1 to 65536"),
        ({"m": 1}, "m is 1"),
        ({"ef_construction": 0}, "ef_construction is 0"),
        ({"ef_search": 0}, "ef_search is 0"),
        ({"expansion": 0}, "expansion is 0"),
    ],
)
def test_settings_that_cannot_be_are_a_sentence(wrong, said) -> None:
    with pytest.raises(ValueError, match=said):
        HnswSettings(**({"dimension": 4} | wrong))


def test_50_000_patterns_take_less_than_120_mb(wasm) -> None:
    """Measured on fewer, of the embedder's size: chunks make it proportional."""
    index = HnswIndex(HnswSettings(384, brute_force_below=100_000), wasm)
    rng = np.random.default_rng(0)
    for id in range(2560):
        index.insert(id, rng.standard_normal(384))
    assert index.nbytes * 50_000 / 2560 < 95e6  # Python's dict of ids takes some 6 MB more
