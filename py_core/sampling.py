"""Chooses the next token: parameters, and the reference sampler that the GPU's is tested against.

The order is that of transformers: penalties, temperature, top-k, top-p, min-p. Each rule is a small pure function
on one row of logits, float32 (vocab_size,). A rule keeps every token at or above a threshold, so ties stay together
and the result does not depend on the order of a sort.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from py_core.grammar.expressions import Grammar
from py_core.messages import Message, UserError

MAX_PENALTY_WINDOW = 256
MOST_BIASES = 1024
"""The most tokens of which an answer has biases: the kernels have room for this many a sequence."""
_NUMBER = Message("sampling.number", "a number (0 is off)")
_ALLOWED = {
    "temperature": Message("sampling.temperature", "0 (always the likeliest token) or more"),
    "top_k": Message("sampling.top-k", "0 (off) or more"),
    "top_p": Message("sampling.top-p", "above 0 and at most 1 (off)"),
    "min_p": Message("sampling.min-p", "from 0 (off) to 1"),
    "repetition_penalty": Message("sampling.repetition", "above 0 (1 is off)"),
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "penalty_window": Message("sampling.range", "from {least} to {most}", least=0, most=MAX_PENALTY_WINDOW),
    "seed": Message("sampling.range", "from {least} to {most}", least=0, most=2**32 - 1),
}


class Unmasked(NamedTuple):
    """Tokens for some masks, int (n,), and log p of each by the model, float32 (n,)."""

    ids: np.ndarray
    scores: np.ndarray


class SamplingError(UserError, ValueError):
    """A parameter has an invalid value."""


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 is greedy. top_k 0, top_p 1, min_p 0 and penalties 1/0/0 turn that rule off.

    Penalties look at the last `penalty_window` tokens, including the prompt. With a grammar the answer is one of its
    texts, or the beginning of one if it has no more room; if it `closes`, the shortest rest is then appended. biases:
    tokens, each once, and what is added to their logits before any other rule; a grammar still wins. likeliest: if
    given, each token's probability is noted, and those of this many of the likeliest (`TokenProbability`). Raises
    SamplingError, naming the field.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    seed: int = 0
    grammar: Grammar | None = None
    closes: bool = False
    biases: tuple[tuple[int, float], ...] = ()
    likeliest: int | None = None

    def __post_init__(self) -> None:
        def check(name: str, valid: bool) -> None:
            if not valid:
                value = getattr(self, name)
                raise SamplingError(
                    "sampling.not-allowed",
                    "{name} is {value}, but must be {allowed}.",
                    name=name,
                    value=value,
                    allowed=_ALLOWED[name],
                )

        check("temperature", 0 <= self.temperature < math.inf)
        check("top_k", self.top_k >= 0)
        check("top_p", 0 < self.top_p <= 1)
        check("min_p", 0 <= self.min_p <= 1)
        check("repetition_penalty", 0 < self.repetition_penalty < math.inf)
        check("presence_penalty", math.isfinite(self.presence_penalty))
        check("frequency_penalty", math.isfinite(self.frequency_penalty))
        check("penalty_window", 0 <= self.penalty_window <= MAX_PENALTY_WINDOW)
        check("seed", 0 <= self.seed < 2**32)

    @property
    def penalizes(self) -> bool:
        rules = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return self.penalty_window > 0 and rules != (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class TokenProbability:
    """A token, log p of it, and the likeliest tokens with theirs, by what the model says: before any rule of sampling,
    bias or grammar."""

    token: int
    logprob: float
    likeliest: tuple[tuple[int, float], ...]


def probability_of(logits: np.ndarray, token: int, likeliest: int) -> TokenProbability:
    """Return a token's probability and those of the likeliest tokens; of equals the first come first."""
    scores = logits.astype(np.float64)
    scores -= scores.max()
    scores -= np.log(np.exp(scores).sum())
    least = np.partition(scores, scores.size - likeliest)[scores.size - likeliest] if likeliest else math.inf
    found = np.flatnonzero(scores >= least)
    found = found[np.argsort(-scores[found], kind="stable")][:likeliest]
    best = zip(found.tolist(), scores[found].tolist(), strict=True)
    return TokenProbability(token, float(scores[token]), tuple(best))


def biased(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Return logits with the biases added to those of their tokens."""
    if not params.biases:
        return logits
    out = logits.copy()
    for token, bias in params.biases:
        out[token] += np.float32(bias)
    return out


def mask_words(vocab_size: int) -> int:
    """The words of a mask, which has a bit for each token that may follow, the first token in the lowest bit."""
    return (vocab_size + 31) // 32


def masked(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return logits of which only the tokens of a mask are left."""
    allowed = np.unpackbits(mask.view(np.uint8), count=logits.size, bitorder="little")
    return np.where(allowed, logits, np.float32(-1e30))


def sample(logits: np.ndarray, history: Sequence[int], position: int, params: SamplingParams) -> int:
    """The id of the token for `position`, given the tokens before it.

    The random number depends on the seed and the position alone, so an answer can be repeated on any backend.
    """
    if params.penalizes:
        logits = apply_penalties(logits, history[-params.penalty_window :], params)
    if params.temperature == 0:
        return int(np.argmax(logits))
    scaled = (logits.astype(np.float64) - logits.max()) / params.temperature
    weights = np.exp(scaled)
    weights /= weights.sum()
    keep = keep_top_k(scaled, params.top_k)
    keep &= keep_top_p(np.where(keep, weights, 0.0), params.top_p)
    keep &= weights >= params.min_p * weights.max()
    kept = np.where(keep, weights, 0.0)
    cumulative = np.cumsum(kept)
    index = int(np.searchsorted(cumulative, uniform(params.seed, position) * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(keep)[-1]))


def unmasked(
    logits: np.ndarray, first: int, params: SamplingParams, mask: int, allowed: tuple[int, np.ndarray] | None = None
) -> Unmasked:
    """Draw a token for each of some masks.

    logits: float32 (n, vocab_size), of the positions from `first` on. The token is never `mask`. allowed: a row, and
    the tokens that it may get, as `TokenGrammar.mask`. With a temperature it is the likeliest of logits / temperature
    with Gumbel noise, which depends on the seed, the position and the token: that draws from their softmax (arXiv
    1611.01144). Each log p is that among all tokens.
    """
    scores = logits.astype(np.float32, copy=True)
    if params.temperature > 0:
        numbers = np.arange(logits.shape[1], dtype=np.uint32)
        for row, scored in enumerate(scores):
            places = np.uint32(_pcg(_pcg(params.seed) ^ (first + row)))
            noise = (_pcgs(places ^ numbers) >> np.uint32(9)).astype(np.float32)
            noise = (noise + np.float32(0.5)) / np.float32(1 << 23)
            scored -= np.float32(params.temperature) * np.log(-np.log(noise))
    scores[:, mask] = -np.inf
    if allowed is not None:
        row, tokens = allowed
        scores[row] = masked(scores[row], tokens)
    ids = scores.argmax(axis=1)
    most = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - most).sum(axis=1)) + most[:, 0]
    return Unmasked(ids, (logits[np.arange(len(ids)), ids] - total).astype(np.float32))


def apply_penalties(logits: np.ndarray, recent: Sequence[int], params: SamplingParams) -> np.ndarray:
    """Repetition penalty of CTRL (arXiv 1909.05858), then OpenAI's presence and frequency penalties."""
    out = logits.copy()
    for token, count in Counter(recent).items():
        value = out[token]
        value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        out[token] = value - params.presence_penalty - count * params.frequency_penalty
    return out


def keep_top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Mask of the k highest scores and those equal to the k-th; all for k = 0."""
    if k == 0 or k >= scores.size:
        return np.ones(scores.shape, bool)
    return scores >= np.partition(scores, scores.size - k)[scores.size - k]


def keep_top_p(weights: np.ndarray, p: float) -> np.ndarray:
    """Mask of the fewest highest weights that together reach the share p of all (arXiv 1904.09751), ties included."""
    if p >= 1:
        return np.ones(weights.shape, bool)
    descending = np.sort(weights)[::-1]
    cumulative = np.cumsum(descending)
    last = int(np.searchsorted(cumulative, p * cumulative[-1]))
    return weights >= descending[min(last, weights.size - 1)]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from the PCG hash (jcgt.org/published/0009/03/02), the same as the shader's."""
    return (_pcg(_pcg(seed) ^ (position & 0xFFFFFFFF)) >> 8) / float(1 << 24)


def _pcgs(values: np.ndarray) -> np.ndarray:
    """`_pcg` of each of some uint32."""
    state = values * np.uint32(747796405) + np.uint32(2891336453)
    word = ((state >> ((state >> np.uint32(28)) + np.uint32(4))) ^ state) * np.uint32(277803737)
    return (word >> np.uint32(22)) ^ word


def _pcg(value: int) -> int:
    state = (value * 747796405 + 2891336453) & 0xFFFFFFFF
    word = (((state >> ((state >> 28) + 4)) ^ state) * 277803737) & 0xFFFFFFFF
    return (word >> 22) ^ word
