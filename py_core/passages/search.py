"""Finds the passages that a question is about: by meaning, and by shared words.

Meaning finds "cut off from the land" in a text that says that the boat could not come, but it does not know names and
numbers. Words know only these. The sum finds what either finds: tests/bench/memory/passages.py, docs/decisions/0066.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from py_core.passages.words import WordIndex

LEAST_SCORE = 0.25
"""A passage with a lower score is related to the question only by chance: "Thanks!" and "Tell me a joke." are below."""
LEAST_SHARE = 0.1
"""The same limit for words alone."""


class Found(NamedTuple):
    """number: of the passage. score: the sum of cosine and share of words, -1 to 2."""

    number: int
    score: float


class PassageIndex:
    """Passages in order. Vectors may come later, one by one; until all are there, only words decide."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """texts: as for `add`."""
        self._words = WordIndex()
        self._vectors: list[np.ndarray | None] = []
        self._rows: np.ndarray | None = None
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a passage with its place and the name of its file, whose words count, too."""
        self._words.add(text)
        self._vectors.append(None)
        self._rows = None

    def __len__(self) -> int:
        return len(self._vectors)

    def put(self, number: int, vector: np.ndarray) -> None:
        """vector: float32 (dimensions,), of length 1."""
        self._vectors[number] = vector
        self._rows = None

    def has_vector(self, number: int) -> bool:
        return self._vectors[number] is not None

    def lacking(self) -> list[int]:
        """The passages without a vector."""
        return [number for number, vector in enumerate(self._vectors) if vector is None]

    @property
    def is_complete(self) -> bool:
        return not self.lacking()

    def search(self, question: str, vector: np.ndarray | None) -> list[Found]:
        """All passages related to the question, the best first. vector: the question's; None searches by words."""
        scores, least = self._words.shares(question), LEAST_SHARE
        if vector is not None and self.is_complete and len(self):
            if self._rows is None:
                self._rows = np.stack([one for one in self._vectors if one is not None])
            scores, least = scores + self._rows @ vector, LEAST_SCORE
        order = np.argsort(-scores, kind="stable")
        return [Found(int(number), float(scores[number])) for number in order if scores[number] > least]
