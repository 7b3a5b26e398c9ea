"""The map of patterns: places that are bounded, repeatable, and separate agents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.routing.agent_catalog import shipped_examples
from py_core.formats.safetensors import read_safetensors
from py_core.routing.projection import LARGEST_SAMPLE, project

AGENTS = ("coder", "tester", "cook", "gardener")


@st.composite
def labelled_vectors(draw: st.DrawFn) -> tuple[np.ndarray, list[str]]:
    count, dimensions = draw(st.integers(0, 30)), draw(st.integers(1, 8))
    numbers = st.floats(-1e3, 1e3, width=32)
    vectors = draw(arrays(np.float32, (count, dimensions), elements=numbers))
    return vectors, draw(st.lists(st.sampled_from(AGENTS), min_size=count, max_size=count))


def clusters(agents: int, each: int, noise: float, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Vectors of length 1 around `agents` centres in 64 dimensions."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(agents, 64))
    vectors = np.repeat(centres, each, axis=0) + noise * random.normal(size=(agents * each, 64))
    labels = [f"agent {agent:02}" for agent in range(agents) for _ in range(each)]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), labels


def share_beside_their_own(places: np.ndarray, labels: list[str], count: int = 15) -> float:
    """The share of places whose `count` nearest others mostly belong to the same agent."""
    _, agent_of = np.unique(labels, return_inverse=True)
    distances = ((places[:, None] - places[None]) ** 2).sum(2)
    np.fill_diagonal(distances, np.inf)
    nearest = agent_of[np.argsort(distances, axis=1)[:, :count]]
    most = np.array([np.bincount(row).argmax() for row in nearest])
    return float((most == agent_of).mean())


def on_two_principal_directions_of_the_centres(vectors: np.ndarray, labels: list[str]) -> np.ndarray:
    names, agent_of = np.unique(labels, return_inverse=True)
    centres = np.stack([vectors[agent_of == agent].mean(0) for agent in range(len(names))])
    _, _, directions = np.linalg.svd(centres - centres.mean(0), full_matrices=False)
    return vectors @ directions[:2].T


@given(labelled_vectors())
def test_places_fill_the_square_or_are_all_in_its_middle(given_: tuple[np.ndarray, list[str]]) -> None:
    vectors, labels = given_
    before = vectors.copy()

    places = project(vectors, labels)

    assert places.dtype == np.float32
    assert places.shape == (len(vectors), 2)
    assert np.isfinite(places).all()
    extent = np.abs(places).max(initial=0)
    assert extent == 0 or extent == pytest.approx(1, abs=1e-6)
    assert np.array_equal(vectors, before), "it changed what it was given"


@given(labelled_vectors())
def test_the_same_vectors_have_the_same_places(given_: tuple[np.ndarray, list[str]]) -> None:
    vectors, labels = given_
    assert np.array_equal(project(vectors, labels), project(vectors.copy(), list(labels)))


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_rows_and_their_length_do_not_matter(seed: int) -> None:
    vectors, labels = clusters(5, 6, noise=0.5, seed=seed)
    order = np.random.default_rng(seed).permutation(len(vectors))

    shuffled = project(1e-6 * vectors[order], [labels[row] for row in order])

    assert shuffled == pytest.approx(project(vectors, labels)[order], abs=1e-3)


@pytest.mark.parametrize("count", [1, 2, 30])
def test_vectors_that_are_equal_but_for_rounding_lie_in_the_middle(count: int) -> None:
    vectors = np.full((count, 384), 384**-0.5, np.float32)
    vectors += np.random.default_rng(0).uniform(0, 1e-8, vectors.shape).astype(np.float32)  # rounding
    assert not project(vectors, ["coder"] * count).any()
    assert not project(vectors, (["coder", "tester"] * count)[:count]).any()


@pytest.mark.parametrize("labels", [["coder", "coder"], ["coder", "tester"]])
def test_two_vectors_lie_opposite(labels: list[str]) -> None:
    first, second = project(np.eye(2, 384, dtype=np.float32), labels)
    assert first == pytest.approx(-second, abs=1e-5)
    assert np.abs(first).max() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_a_new_agent_does_not_turn_the_map_over(seed: int) -> None:
    vectors, labels = clusters(13, 20, noise=1.0, seed=seed)
    before = project(vectors, labels)

    after = project(np.vstack([vectors, vectors[:1]]), [*labels, "another agent"])[:-1]

    assert np.median(np.hypot(*(after - before).T)) < 0.4


def test_requests_of_one_agent_lie_where_they_are_alike() -> None:
    vectors, kinds = clusters(2, 20, noise=0.3)
    places = project(vectors, ["coder"] * len(vectors))
    assert share_beside_their_own(places, kinds) == 1


def test_more_vectors_than_the_sample_are_all_placed() -> None:
    vectors, labels = clusters(4, LARGEST_SAMPLE // 2, noise=0.5)
    places = project(vectors, labels)
    few = slice(0, len(vectors), 20)
    assert share_beside_their_own(places[few], labels[few]) == 1
    assert len(np.unique(places, axis=0)) > 0.99 * len(places)


def test_thirteen_agents_lie_apart() -> None:
    """Two principal directions of the centres cannot show that many."""
    vectors, labels = clusters(13, 40, noise=1.0)
    assert share_beside_their_own(project(vectors, labels), labels) > 0.95
    assert share_beside_their_own(on_two_principal_directions_of_the_centres(vectors, labels), labels) < 0.75


def test_the_shipped_examples_lie_beside_those_of_their_agent(made_files: dict[str, Path]) -> None:
    arrays_, _ = read_safetensors(made_files["routing.safetensors"].read_bytes())
    vectors, labels = arrays_["vectors"].astype(np.float32), [example.agent for example in shipped_examples()]

    beside = share_beside_their_own(project(vectors, labels), labels)

    assert beside > 0.55
    assert beside > 1.3 * share_beside_their_own(on_two_principal_directions_of_the_centres(vectors, labels), labels)


def test_a_missing_label_is_said() -> None:
    with pytest.raises(ValueError, match=r"a label for each vector.* 1 for \(2, 4\)"):
        project(np.zeros((2, 4), np.float32), ["coder"])
