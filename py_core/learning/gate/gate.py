"""The gate of lessons: decides whether a message asks for what a lesson taught.

A sentence's vector alone cannot tell: "What is my name?" is close to many questions about somebody's name. So the gate
compares word by word, by MiniLM's token states: how well each word of the message matches the lesson's question and
answer, how well each word of the lesson's question matches the message, and which words match nothing. Rare words count
more. Question words (who, when, my ...) are compared as well. A small network turns these features into a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from py_core.formats.safetensors import SafetensorsError, read_safetensors
from py_core.learning.gate.features import FEATURES, Taught, has_words, pair_features
from py_core.learning.gate.words import asks_of_you, is_latin, same_words

CANDIDATES = 8
"""The most lessons that are compared with a message: those with the nearest vectors."""
SHUT = -20.0
"""The score of what cannot be compared: a text without words, or in an alphabet that MiniLM does not know. It is also
the score of a question about "your" if "my" was taught, as the two are alike in all else."""
SAME = 6.0
"""The score of such a text if the lesson's question has the same words."""
_NAMES = ("mean", "scale", "w1", "b1", "w2", "b2", "threshold")


class GateError(ValueError):
    """The gate's file cannot be used. The message says what to do."""


@dataclass(frozen=True, eq=False)
class Gate:
    """Networks with one hidden layer. The score is the mean of theirs.

    mean, scale: float32 (features,). w1 (networks, features, hidden), b1 (networks, hidden), w2 (networks, hidden),
    b2 (networks,). threshold: a lesson whose score is above it answers the message.
    """

    mean: np.ndarray
    scale: np.ndarray
    w1: np.ndarray
    b1: np.ndarray
    w2: np.ndarray
    b2: np.ndarray
    threshold: float

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Gate:
        """Load a safetensors file that app/training/gate.py wrote. Raises GateError."""
        try:
            arrays, _ = read_safetensors(data)
        except SafetensorsError as error:
            raise GateError(f"The gate's file is damaged ({error}): take it from the repository again.") from error
        shapes = {name: arrays[name].shape for name in _NAMES if name in arrays}
        networks, features, hidden = shapes["w1"] if len(shapes.get("w1", ())) == 3 else (0, 0, 0)
        wanted = {
            "mean": (FEATURES,), "scale": (FEATURES,), "w1": (networks, FEATURES, hidden), "b1": (networks, hidden),
            "w2": (networks, hidden), "b2": (networks,), "threshold": (1,),
        }  # fmt: skip
        if features != FEATURES or shapes != wanted:
            raise GateError("The gate's file is of another version of Sonata: run `python -m app.training.gate`.")
        mean, scale, w1, b1, w2, b2, threshold = (arrays[name].astype(np.float32) for name in _NAMES)
        return cls(mean, scale, w1, b1, w2, b2, float(threshold[0]))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that from_bytes reads."""
        return {name: np.atleast_1d(np.asarray(getattr(self, name), np.float32)) for name in _NAMES}

    def scores(self, asked: Taught, candidates: Sequence[tuple[Taught, Taught]]) -> np.ndarray:
        """float32 (candidates,) of logits: the sigmoid is the probability that the lesson answers the message.

        asked: the message. A candidate: a lesson's question, and its question and answer joined by a space. A score
        also depends on the other candidates: if two fit alike, the gate is sure of neither.
        """
        scores = np.full(len(candidates), SHUT, np.float32)
        if not _comparable(asked):
            scores[[same_words(asked[0], question[0]) for question, _ in candidates]] = SAME
            return scores
        known = [at for at, (question, _) in enumerate(candidates) if _comparable(question)]
        if known:
            features = pair_features(asked, [candidates[at] for at in known])
            scores[known] = self.of_features(features)
        scores[[asks_of_you(asked[0], question[0]) for question, _ in candidates]] = SHUT
        return scores

    def of_features(self, features: np.ndarray) -> np.ndarray:
        """Scores, float32 (pairs,), of features (pairs, FEATURES)."""
        inner = np.tanh(((features - self.mean) / self.scale) @ self.w1 + self.b1[:, None])
        return ((inner * self.w2[:, None]).sum(-1) + self.b2[:, None]).mean(0)


def _comparable(taught: Taught) -> bool:
    """True if the text is in Latin script. Of other alphabets MiniLM knows letters, not words."""
    return has_words(taught) and is_latin(taught[0])
