"""Projects vectors to a plane, so that a person sees which agent each request belongs to and which agents are close.

A linear projection cannot do that: thirteen agents are about equally far from each other, and two directions separate
only three of them. So agents get places on the plane, as far apart as their centres are in space, and a request lies
between the places of the agents that it is similar to. A small part of its position is linear: the two main directions
of what the agents do not explain, so that requests of one agent do not coincide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

AGENTS_OF_A_REQUEST = 2.0
"""The average number of agents between which a request lies (the perplexity of its shares)."""
OWN_PLACE = 0.06
"""The linear part's standard deviation; agents are a distance of 1 or a little more apart."""
LARGEST_SAMPLE = 4000
"""The most vectors from which these directions are computed; all vectors are placed."""
_STRESS_STEPS = 200
_POWER_STEPS = 8
_NOTHING = 1e-5
"""Relative to the vectors' length: anything smaller is rounding error, and is not shown."""


def project(vectors: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """A place for each vector: float32 (n, 2), from -1 to 1, with the largest extent filling it.

    vectors: (n, dimensions), of about the same length. labels: the agent of each. The same input gives the same places,
    and up to LARGEST_SAMPLE the order of the rows does not matter. float32 input is not copied. Raises ValueError if
    there are not as many labels as vectors.
    """
    if vectors.ndim != 2 or len(vectors) != len(labels):
        raise ValueError(f"There must be a label for each vector, but there are {len(labels)} for {vectors.shape}.")
    if not len(vectors):
        return np.zeros((0, 2), np.float32)
    names, agent_of = np.unique(np.asarray(labels), return_inverse=True)
    vectors = vectors.astype(np.float32, copy=False)
    length = float(max(vectors.max(), -vectors.min())) * math.sqrt(vectors.shape[1]) or 1.0
    centres = _centres(vectors, agent_of, len(names)) / length
    middle = centres.mean(0)
    to_agents = _rows_of_length_one(centres - middle)
    shares = _shares(vectors @ to_agents.T / length - to_agents @ middle)
    every = -(-len(vectors) // LARGEST_SAMPLE)
    beside = _main_directions(vectors[::every] / length - shares[::every] @ centres)
    own = _standardized(vectors @ beside / length - shares @ (centres @ beside))
    return _fill(shares @ _places_of_agents(to_agents) + OWN_PLACE * own)


def _centres(vectors: np.ndarray, agent_of: np.ndarray, agents: int) -> np.ndarray:
    return np.stack([vectors[agent_of == agent].mean(0) for agent in range(agents)])


def _rows_of_length_one(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1; rows of zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(lengths > _NOTHING, rows / np.maximum(lengths, _NOTHING), 0).astype(np.float32)


def _shares(similarities: np.ndarray) -> np.ndarray:
    """Turn similarities (n, agents) into shares that sum to 1: a softmax with a sharpness that gives
    AGENTS_OF_A_REQUEST.

    The sharpness is found by bisection: the entropy falls as it grows.
    """
    wanted = math.log(min(AGENTS_OF_A_REQUEST, math.sqrt(similarities.shape[1])))
    below_best = similarities - similarities.max(1, keepdims=True)
    below_best /= max(float(np.abs(below_best).max()), _NOTHING)
    low, high = 0.0, 12.0  # of the sharpness, as powers of 2
    shares = np.empty_like(below_best)
    for _ in range(20):
        sharpness = (low + high) / 2
        weights = np.exp(2**sharpness * below_best)
        shares = weights / weights.sum(1, keepdims=True)
        entropy = -float((shares * np.log(shares + 1e-12)).sum(1).mean())
        low, high = (sharpness, high) if entropy > wanted else (low, sharpness)
    return shares


def _places_of_agents(directions: np.ndarray) -> np.ndarray:
    """(agents, 2), with the distances of the directions: multidimensional scaling by SMACOF (de Leeuw 1977).

    It starts from the two principal directions of the agents.
    """
    rows = directions.astype(np.float64)
    left, singular, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    places = np.zeros((len(rows), 2))
    found = min(2, len(singular))
    places[:, :found] = left[:, :found] * singular[:found]
    wanted = _distances(rows)
    for _ in range(_STRESS_STEPS):
        pull = -wanted / np.maximum(_distances(places), 1e-9)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        places = pull @ places / len(places)
    return _turned(places)


def _turned(places: np.ndarray) -> np.ndarray:
    """Rotate and mirror the places: the first agent to the left, the second one above it.

    Distances leave that open, and without it the map would turn over with each new agent.
    """
    first = places[0]
    length = float(np.hypot(*first))
    if length > _NOTHING:
        across, up = -first / length
        places = places @ np.array([[across, -up], [up, across]])
    return places * [1, -1] if len(places) > 1 and places[1, 1] < 0 else places


def _distances(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows[:, None] - rows[None], axis=2)


def _main_directions(rows: np.ndarray) -> np.ndarray:
    """(dimensions, 2): the two principal directions of the rows, or one and zeros if there is only one dimension.

    By subspace iteration from a fixed start: they need not be exact, and a full decomposition takes seconds in Pyodide.
    """
    rows = rows - rows.mean(0)
    # any start will do; loading numpy.random takes Pyodide half a second
    directions = np.cos(np.outer(np.arange(1, rows.shape[1] + 1), [1, 2])).astype(np.float32)
    for _ in range(_POWER_STEPS):
        directions, _ = np.linalg.qr(rows.T @ (rows @ directions))
    return directions if directions.shape[1] == 2 else np.hstack([directions, np.zeros_like(directions)])


def _standardized(along: np.ndarray) -> np.ndarray:
    """Columns around 0 with a standard deviation of 1 on average; 0 if there is only rounding error."""
    along = _fixed_signs(along - along.mean(0))
    deviation = float(along.std(0).mean())
    return along / deviation if deviation > _NOTHING else np.zeros_like(along)


def _fixed_signs(columns: np.ndarray) -> np.ndarray:
    """Make the largest value of each column positive: a singular vector's sign is arbitrary."""
    largest = columns[np.abs(columns).argmax(0), np.arange(columns.shape[1])]
    return columns * np.where(largest < 0, -1, 1)


def _fill(places: np.ndarray) -> np.ndarray:
    middle = (places.max(0) + places.min(0)) / 2
    places = places - middle
    extent = float(np.abs(places).max())
    return (places / extent if extent > _NOTHING else np.zeros_like(places)).astype(np.float32)
