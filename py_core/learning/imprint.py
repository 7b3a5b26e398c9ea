"""A lesson's imprint on one model: the states from which the model is to give the lesson's answer, and its tokens.

It is a nearest-neighbour head (py_core/adapters/head.py). That recalled more than a matrix of the answer's rank, and
needs no gradient steps (docs/decisions/0037). Two things make it work for other wordings:

- The directions that the states of any text share are projected out of the stored states. All states lie near one of
  these directions, whatever the text says, so that raw cosines hardly differ. With P the projection,
  h . (P k) = (P h) . (P k): it is enough to project what is stored, and the kernels stay as they are.
- The answer is read twice: behind the question, and behind the question's words in reverse order. The second states
  stand for another wording.

A slot has room for MAX_NEIGHBOURS states. A longer answer is cut into consecutive parts, each an adapter of its own.
A part's states overlap both of its ends a little, so that an answer that leaves out or adds a word still finds its
place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from py_core.adapters.head import MAX_NEIGHBOURS, NeighbourAdapter
from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors

LAMBDA = 0.98
"""The weight of the neighbours' prediction. -log of it, 0.02, is the least that a taught token can cost."""
TAU = -1.0
"""No row is gated by its cosine: the gate (gate/gate.py) decided. After projection even correct cosines are small."""
TEMPERATURES = (0.03, 0.02, 0.01, 0.005, 0.002)
"""Temperatures of the softmax over cosines: the first, unless a model's states are too close together for it."""
WANTED_NLL = 0.08
"""The nats per token of its own answer that a temperature must reach."""

DIRECTIONS = 8
PASSES = 2
PART = 24
"""Tokens of the answer in each part, if there are several parts."""
OVERLAP = (MAX_NEIGHBOURS // PASSES - PART) // 2
"""Tokens before and behind the part whose states it also holds."""


class ImprintError(ValueError):
    """The bytes are no imprint, or one of another version."""


@dataclass(frozen=True, eq=False)
class ImprintPart:
    """An adapter, and how many of the answer's tokens it gives before the next part's; the last gives all others."""

    adapter: NeighbourAdapter
    tokens: int


@dataclass(frozen=True, eq=False)
class Imprint:
    """codes int8 (passes, tokens, hidden) times scales float32 (passes, tokens, 1) are the projected states.

    tokens int32 (tokens,): the answer's, its end included. `nll_before`, `nll_after`: nats per token of the answer
    behind its question, without and with the imprint. `made_of` names its source.
    """

    codes: np.ndarray
    scales: np.ndarray
    tokens: np.ndarray
    temperature: float
    made_of: str = ""
    nll_before: float = 0.0
    nll_after: float = 0.0

    @classmethod
    def of(cls, states: np.ndarray, tokens: Sequence[int], directions: np.ndarray, made_of: str = "") -> Imprint:
        """states float32 (passes, tokens, hidden): those before each token of the answer, after the final norm."""
        codes, scales = quantized(projected(states, directions))
        made = cls(codes, scales, np.array(tokens, np.int32), TEMPERATURES[0], made_of)
        return made.sharpened(states[0])

    @property
    def states(self) -> np.ndarray:
        """float32 (passes, tokens, hidden)."""
        return self.codes * self.scales

    def parts(self) -> list[ImprintPart]:
        """Adapters for the answer from its first token on, in order."""
        states, count = self.states, len(self.tokens)
        alone = count * len(states) <= MAX_NEIGHBOURS
        found = []
        for begin in [0] if alone else range(0, count, PART):
            at = slice(max(begin - OVERLAP, 0), count if alone else min(begin + PART + OVERLAP, count))
            near = states[:, at].reshape(-1, states.shape[-1])
            tokens = np.tile(self.tokens[at], len(states))
            adapter = NeighbourAdapter(near, tokens, LAMBDA, TAU, self.temperature)
            found.append(ImprintPart(adapter, count if alone else min(PART, count - begin)))
        return found

    def sharpened(self, states: np.ndarray) -> Imprint:
        """The imprint at the first of TEMPERATURES at which its own states (tokens, hidden) find their own tokens."""
        made = self
        for temperature in TEMPERATURES:
            made = Imprint(self.codes, self.scales, self.tokens, temperature, self.made_of)
            if made.least_nll(states) <= WANTED_NLL:
                break
        return made

    def least_nll(self, states: np.ndarray) -> float:
        """Nats per token of the answer from the states (tokens, hidden) before it, if the model itself expects none."""
        shares, begin = [], 0
        for part in self.parts():
            rows = slice(begin, begin + part.tokens)
            weights = part.adapter.weights(states[rows])
            right = part.adapter.tokens[None, :] == self.tokens[rows, None]
            shares.append((weights * right).sum(axis=1))
            begin += part.tokens
        return float(-np.log(np.maximum(LAMBDA * np.concatenate(shares), 1e-30)).mean())

    def to_bytes(self) -> bytes:
        numbers = {"temperature": self.temperature, "before": self.nll_before, "after": self.nll_after}
        arrays = {"codes": self.codes, "scales": self.scales, "tokens": self.tokens}
        return write_safetensors(arrays, {"made_of": self.made_of, "numbers": json.dumps(numbers)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Imprint:
        """Raises ImprintError."""
        try:
            arrays, texts = read_safetensors(data)
            codes, scales, tokens = (arrays[name] for name in ("codes", "scales", "tokens"))
            numbers = {name: float(value) for name, value in json.loads(texts["numbers"]).items()}
            if codes.dtype != np.int8 or codes.ndim != 3 or scales.shape != (*codes.shape[:2], 1):
                raise ImprintError("The states of an imprint have another form.")
            if tokens.shape != codes.shape[1:2]:
                raise ImprintError("An imprint has other tokens than states.")
            return cls(
                codes, scales, tokens, numbers["temperature"], texts["made_of"], numbers["before"], numbers["after"]
            )
        except (SafetensorsError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise ImprintError("The bytes are no imprint.") from error


def directions_of(states: np.ndarray, count: int = DIRECTIONS) -> np.ndarray:
    """The directions that states (n, hidden) of any text share most: float32 (count, hidden), of length 1.

    They are eigenvectors of the second moment. A narrow model gives up no more than an eighth of its width.
    """
    width = states.shape[1]
    moment = states.T.astype(np.float64) @ states.astype(np.float64)
    _, vectors = np.linalg.eigh(moment)
    return np.ascontiguousarray(vectors[:, ::-1].T[: min(count, max(width // 8, 1))], np.float32)


def projected(states: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """states (..., hidden) minus their part in the directions. A state with nothing else stays as it is."""
    rest = states - (states @ directions.T) @ directions
    kept = np.linalg.norm(rest, axis=-1, keepdims=True) > 1e-6 * np.linalg.norm(states, axis=-1, keepdims=True)
    return np.where(kept, rest, states).astype(np.float32)


def quantized(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes (..., width) and float32 scales (..., 1); their product approximates the rows."""
    scales = np.maximum(np.abs(rows).max(axis=-1, keepdims=True) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(rows / scales).astype(np.int8), scales
