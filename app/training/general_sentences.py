"""General sentences, whose similarities the adapter must not change."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

SENTENCES = Path(__file__).with_name("general_sentences.txt")
GRADED_PAIRS = Path(__file__).with_name("similar_sentences.json")


class GeneralSentences:
    """The lines of general_sentences.txt: whole sentences, and patterns like "A {man|woman} reads." for several."""

    def __init__(self, path: Path = SENTENCES) -> None:
        self._lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]

    def sample(self, count: int, rng: random.Random) -> list[str]:
        """`count` sentences, some of which are variants of one line: similar, but not equal."""
        lines = rng.sample(self._lines, count // 2)
        return [_filled(line, rng) for line in lines + lines]


def _filled(line: str, rng: random.Random) -> str:
    """The line with one of the choices in each pair of braces."""
    out = ""
    for piece in line.split("{"):
        choices, closed, rest = piece.partition("}")
        out += rng.choice(choices.split("|")) + rest if closed else piece
    return out


def graded_pairs() -> list[tuple[float, str, str]]:
    """(grade from 0 to 5, sentence, sentence): for measuring only."""
    return [(grade, first, second) for grade, first, second in json.loads(GRADED_PAIRS.read_text(encoding="utf-8"))]


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of the ranks; ties share a rank."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[inverse]
