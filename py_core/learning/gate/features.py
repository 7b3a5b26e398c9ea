"""The gate's features: numbers about a message and each candidate lesson, computed for all candidates at once.

Words are WordPiece tokens with a state of 384 numbers each. A "best match" is the largest cosine to a token of the
other text. words.py adds features from spelling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_core.learning.gate.words import WORD_FEATURES, word_features
from py_core.routing.embedder import Meaning

Taught = tuple[str, Meaning]
"""A text and its MiniLM states."""

FIRST_WORD = 1996
"""Smaller ids of the vocabulary are signs, single letters and unused ones. Words begin here, frequent ones first."""
_VOCABULARY = 30522
_STANDING_OUT = (0, 1, 2, 7, 8, 10, 11, 16, 17, 19, 22)
"""Columns of the cosines and matches whose margin over the best other candidate is a feature, too."""
_OF_OTHERS = (0.112, 0.094, 0.143, 1.167, 0.059, 1.261, 0.12, 1.323, 0.042, 1.414, 0.129)
"""The average of these columns for the second best of four lessons in the training data. The margin of an only lesson
is taken over these. Without them, 0.77 of the other wordings of an only lesson opened (dev), with them 0.99."""
FEATURES = 29 + WORD_FEATURES + len(_STANDING_OUT)


def has_words(taught: Taught) -> bool:
    """True if there is a word, or a part of one, to compare."""
    return bool((taught[1].ids >= FIRST_WORD).any())


def pair_features(asked: Taught, candidates: Sequence[tuple[Taught, Taught]]) -> np.ndarray:
    """float32 (candidates, FEATURES). Each text has at least one word, see has_words."""
    a = _Words([asked])
    q = _Words([question for question, _ in candidates])
    qa = _Words([both for _, both in candidates])
    ids, weights, states = a.ids[0], a.weights[0], a.states[0]
    vector = asked[1].vector
    here = (ids[:, None, None] == qa.ids).any(2).astype(np.float32)  # (asked tokens, candidates)
    back_here = (q.ids[:, :, None] == ids).any(2).astype(np.float32)  # (candidates, tokens)
    in_both = _best(states, qa)
    in_question = _best(states, q)
    back = np.where(q.there, (q.states @ states.T).max(2), 1)
    w = np.broadcast_to(weights, in_both.T.shape)
    columns = [
        np.array([[vector @ question[1].vector, vector @ both[1].vector] for question, both in candidates]),
        _matches(in_both.T, w, here.T),
        _matches(back, q.weights, back_here),
        np.full((len(candidates), 1), min(len(ids), 60) / 10),
        np.minimum(q.there.sum(1, keepdims=True), 60) / 10,
        _misses(in_question.T, in_both.T, w, back, q.weights),
    ]
    found = np.concatenate(columns, 1, dtype=np.float32)
    worded = word_features(asked[0], [(question[0], both[0]) for question, both in candidates])
    return np.concatenate([found, worded, _standing_out(found[:, _STANDING_OUT])], 1)


class _Words:
    """The words of several texts, padded to rows of equal length. Padding is not `there`, and weighs nothing.

    ids int (texts, words), states float32 (texts, words, 384) of length 1, weights float32 (texts, words): how rare.
    """

    def __init__(self, texts: Sequence[Taught]) -> None:
        kept = [meaning.ids >= FIRST_WORD for _, meaning in texts]
        counts = [int(keep.sum()) for keep in kept]
        shape = len(texts), max(counts)
        self.ids = np.full(shape, -1, np.int32)
        self.states = np.zeros((*shape, len(texts[0][1].vector)), np.float32)
        for row, ((_, meaning), keep, count) in enumerate(zip(texts, kept, counts, strict=True)):
            self.ids[row, :count] = meaning.ids[keep]
            self.states[row, :count] = meaning.states[keep]
        self.there = self.ids >= 0
        self.states /= np.sqrt(np.einsum("twd,twd->tw", self.states, self.states) + 1e-12)[..., None]
        rare = np.log(np.maximum(self.ids, FIRST_WORD) / FIRST_WORD) / np.log(_VOCABULARY / FIRST_WORD)
        self.weights = np.where(self.there, rare + 0.05, 0).astype(np.float32)


def _best(states: np.ndarray, texts: _Words) -> np.ndarray:
    """(words, texts): the best match of each word in each text. states: (words, 384)."""
    count, words, size = texts.states.shape
    similar = (states @ texts.states.reshape(-1, size).T).reshape(-1, count, words)
    return np.where(texts.there, similar, -1).max(2)


def _matches(best: np.ndarray, weights: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """(candidates, 9) from (candidates, words) each. From the best matches: the mean, the smallest, the smallest of
    rare words, the weight of bad matches, the worst miss, and the sum of squared misses. From exact matches: their
    share, the rarest missing word, and the sum of what is missing. Padding has weight 0 and matches fully."""
    share = weights / weights.sum(1, keepdims=True)
    heavy = weights >= 0.5 * weights.max(1, keepdims=True)
    miss = 1 - best
    there = weights > 0
    absent = weights * (1 - exact)
    return np.stack(
        [
            (best * share).sum(1), np.where(there, best, 1).min(1), np.where(heavy, best, 1).min(1),
            (share * (best < 0.5)).sum(1), (weights * miss).max(1), (weights * miss * miss).sum(1),
            (share * exact).sum(1), absent.max(1), (absent * miss).sum(1),
        ], 1,
    )  # fmt: skip


def _misses(
    in_question: np.ndarray, in_both: np.ndarray, weights: np.ndarray, back: np.ndarray, back_weights: np.ndarray
) -> np.ndarray:
    """(candidates, 7): matches in the question alone, what the answer adds, and the misses after the worst."""
    share = weights / weights.sum(1, keepdims=True)
    question = _three_largest(weights * (1 - in_question))
    other = _three_largest(back_weights * (1 - back))
    means = np.stack([(share * in_question).sum(1), (share * (in_both - in_question)).sum(1)], 1)
    return np.concatenate([means, question, other[:, 1:]], 1)


def _standing_out(values: np.ndarray) -> np.ndarray:
    """(candidates, columns): how much larger each value is than the largest of the other candidates."""
    if len(values) < 2:
        return values - np.array(_OF_OTHERS, np.float32)
    second, largest = np.sort(values, 0)[-2:]
    return values - np.where(values == largest, second, largest)


def _three_largest(values: np.ndarray) -> np.ndarray:
    """(rows, 3), largest first; 0 if a row has fewer."""
    padded = np.pad(values, ((0, 0), (0, max(0, 3 - values.shape[1]))))
    return -np.sort(-padded, 1)[:, :3]
