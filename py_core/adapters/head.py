"""Adapters at the head's input: what a lesson changes between the final norm and the logits.

They are small, so that each lesson can keep its own, and each row of a pass may have a different one or none. Nothing
in the KV cache's pages depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from py_core.adapters.lora import AdapterError

MAX_NEIGHBOURS = 64
"""The number of states that a slot has room for."""


@dataclass(frozen=True, eq=False)
class NeighbourAdapter:
    """Pulls the next token towards tokens that followed similar states (kNN-LM, arXiv 1911.00172), behind a gate.

    states (n, hidden) float32: earlier values of h, after the final norm; tokens (n,): the token that followed each.
    For a row's h, s_i = cosine(h, states[i]). If the largest s_i is below `tau`, the row's logits stay exactly as they
    are. Otherwise w = softmax(s / temperature), p' = (1 - lambda_) p + lambda_ (sum of w over a token's states).

    So tau gates each row by its distance to the nearest state. Whether a text belongs to the pattern at all is another
    question (`HasAdapters.use_head_adapter`), which is answered before the adapter runs.

    Only few logits change, l' = log(exp(l) + lambda_ / (1 - lambda_) w exp(logsumexp(l))), after a model's soft-cap if
    it has one. Penalties, temperature and sampling rules come afterwards and work as usual.
    """

    states: np.ndarray
    tokens: np.ndarray
    lambda_: float = 0.98
    tau: float = 0.35
    temperature: float = 0.03

    @property
    def unit_states(self) -> np.ndarray:
        """The states, normalized to length 1: (n, hidden)."""
        return self.states / np.linalg.norm(self.states, axis=1, keepdims=True)

    @property
    def odds(self) -> float:
        """The value of a weight of 1 beside the model's own probabilities, which sum to 1."""
        return self.lambda_ / (1 - self.lambda_)

    def weights(self, h: np.ndarray) -> np.ndarray:
        """w for rows h (M, hidden): (M, n), zeros in rows whose gate is shut."""
        length = np.linalg.norm(h, axis=1, keepdims=True)
        cosines = h @ self.unit_states.T / np.where(length > 0, length, 1)
        largest = cosines.max(axis=1, keepdims=True)
        w = np.exp((cosines - largest) / np.float32(self.temperature))
        w /= w.sum(axis=1, keepdims=True)
        return np.where(largest >= self.tau, w, 0).astype(np.float32)

    def changed(self, h: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """l' for rows h (M, hidden) and their logits (M, vocab_size)."""
        out = logits.copy()
        for row, w in enumerate(self.weights(h)):
            if w.any():
                tokens, each = np.unique(self.tokens, return_inverse=True)
                added = self.odds * np.bincount(each, w)
                # A weight may underflow to 0: log would fail if exp is 0, too.
                tokens, added = tokens[added > 0], added[added > 0]
                total = logsumexp(logits[row])
                out[row, tokens] = total + np.log(np.exp(logits[row, tokens] - total) + added)
        return out


def logsumexp(logits: np.ndarray) -> np.ndarray:
    """log(sum(exp(logits))) of each row: (..., vocab_size) -> (...), float64."""
    largest = logits.max(axis=-1, keepdims=True)
    return largest[..., 0] + np.log(np.exp(logits - largest).sum(axis=-1, dtype=np.float64))


def check_head_adapter(adapter: NeighbourAdapter, hidden_size: int, vocab_size: int) -> None:
    """Raises AdapterError if it does not fit a model of this size, or has numbers that are not finite."""
    n = len(adapter.states)
    if adapter.states.shape != (n, hidden_size) or adapter.tokens.shape != (n,):
        raise AdapterError(
            "adapter.neighbours-shapes",
            "An adapter of neighbours has states of {states} and tokens of {tokens}; this model needs (n, "
            "{size}) and (n,). It was made for another model: choose that one.",
            states=adapter.states.shape,
            tokens=adapter.tokens.shape,
            size=hidden_size,
        )
    if not 1 <= n <= MAX_NEIGHBOURS:
        raise AdapterError(
            "adapter.neighbours-many",
            "An adapter of neighbours has {count} states; it may have 1 to {most}. Keep fewer.",
            count=n,
            most=MAX_NEIGHBOURS,
        )
    if not np.isfinite(adapter.states).all():
        raise AdapterError(
            "adapter.head-not-finite", "An adapter at the head's input has numbers that are not finite. Make it again."
        )
    if not np.linalg.norm(adapter.states, axis=1).all():
        raise AdapterError(
            "adapter.neighbours-zero",
            "An adapter of neighbours has a state of zeros, which is similar to nothing. Leave it out.",
        )
    if not (
        np.issubdtype(adapter.tokens.dtype, np.integer)
        and ((adapter.tokens >= 0) & (adapter.tokens < vocab_size)).all()
    ):
        raise AdapterError(
            "adapter.neighbours-token",
            "A token of an adapter of neighbours is outside 0..{last}. Make the adapter again.",
            last=vocab_size - 1,
        )
    if not 0 < adapter.lambda_ < 1:
        raise AdapterError(
            "adapter.neighbours-lambda",
            "lambda_, the neighbours' share, is {value}, but must be between 0 and 1.",
            value=adapter.lambda_,
        )
    if not -1 <= adapter.tau <= 1:
        raise AdapterError(
            "adapter.neighbours-tau",
            "tau, a cosine, is {value}, but must be from -1 (always open) to 1.",
            value=adapter.tau,
        )
    if not 1e-3 <= adapter.temperature <= 1e3:
        raise AdapterError(
            "adapter.neighbours-temperature",
            "temperature is {value}, but must be from 0.001 to 1000.",
            value=adapter.temperature,
        )
