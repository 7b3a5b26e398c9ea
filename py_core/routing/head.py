"""A linear head: agents' scores from a request's vector and words, fitted by ridge regression on the examples.

Neighbours are close in topic as well as in intent. A head that has seen all examples finds the directions that separate
the agents. Hashed words, word pairs and word pieces add what a sentence's vector loses.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

BUCKETS = 8192
"""The number of hash buckets for words and pieces."""
PIECE = 4
"""Characters of a piece, which may span several words."""
_LONGEST = 2000
"""The characters of a text that the head reads: about as many as the embedder."""
_WORD = re.compile(r"[a-z0-9_+#']+")


@dataclass(frozen=True)
class RoutingHead:
    """`rarity` float32 (BUCKETS,): the weight of each bucket. `words` float32 (BUCKETS, agents), `dense` float32
    (dimensions, agents). The fallback is one of the agents: it gets the requests that suit no other agent."""

    agents: tuple[str, ...]
    rarity: np.ndarray
    words: np.ndarray
    dense: np.ndarray

    def scores(self, text: str, vector: np.ndarray) -> np.ndarray:
        """float64 (agents,): about 1 for requests that surely belong to the agent, about 0 for those that do not."""
        found = buckets(text)
        values = self.rarity[found]
        length = float(np.sqrt(values @ values))
        scores = (vector @ self.dense).astype(np.float64)
        return scores + (values @ self.words[found]) / length if length else scores


def buckets(text: str) -> np.ndarray:
    """The buckets of a text, each once, ascending: int64."""
    words = _WORD.findall(text[:_LONGEST].lower())
    found = {f"w {word}" for word in words}
    found.update(f"p {first} {second}" for first, second in pairwise(words))
    line = " ".join(words)
    found.update(f"c {line[at : at + PIECE]}" for at in range(len(line) - PIECE + 1))
    found.add(f"n {min(6, len(words) // 4)}")
    if words:
        found.add(f"f {words[0]}")
    return np.array(sorted({zlib.crc32(feature.encode()) % BUCKETS for feature in found}), np.int64)


def word_matrix(texts: Sequence[str], rarity: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """float32 (texts, BUCKETS) with rows of length 1 (or 0), and the rarity, computed from these texts if not given."""
    matrix = np.zeros((len(texts), BUCKETS), np.float32)
    for row, text in enumerate(texts):
        matrix[row, buckets(text)] = 1
    if rarity is None:
        count = matrix.sum(0)
        # a word that occurs in only one text says nothing about others
        rarity = np.where(count >= 2, np.log(len(texts) / np.maximum(count, 1)), 0).astype(np.float32)
    matrix *= rarity
    matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
    return matrix, rarity


def fit_head(
    texts: Sequence[str], vectors: np.ndarray, labels: Sequence[str], *, words: float, ridge: float
) -> RoutingHead:
    """Fit a head to requests, their vectors float32 (requests, dimensions), and their agents. Thousands take seconds.

    words: the words' part of the input, 0 to 1. ridge: the penalty of large weights.
    """
    agents = tuple(sorted(set(labels)))
    wanted = np.array([[label == agent for agent in agents] for label in labels], np.float64) - 1 / len(agents)
    matrix, rarity = word_matrix(texts)
    gram = words * (matrix @ matrix.T) + (1 - words) * (vectors @ vectors.T)
    # dual form: there are fewer requests than inputs
    alpha = np.linalg.solve(gram.astype(np.float64) + ridge * np.eye(len(gram)), wanted)
    return RoutingHead(
        agents,
        rarity,
        (words * (matrix.T @ alpha)).astype(np.float32),
        ((1 - words) * (vectors.T @ alpha)).astype(np.float32),
    )
