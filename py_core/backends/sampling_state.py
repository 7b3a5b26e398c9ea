"""The block of memory that tells kernels what to run: rows of tokens and sampling rules, the same on every backend.

wgsl_shaders/snippets/state.wgsl and web/kernels/kernels.h declare it. Kernels advance it after sampling, so that a
step that follows another writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_core.sampling import SamplingParams

RING = 1024
"""Tokens a sequence's history ring holds: at least the penalty window and what is in flight."""

STATE_HEADER = 48
"""Bytes before the rows."""

ROW_BYTES = 16

GREEDY = SamplingParams()


def state_bytes(rows: Sequence[tuple[int, int, int]], sampling: SamplingParams = GREEDY, logit_rows: int = 1) -> bytes:
    """The state's start for rows of (token, position, slot), of which the last `logit_rows` get logits."""
    header = np.zeros(STATE_HEADER // 4, np.uint32)
    reals = header.view(np.float32)
    header[[0, 1, 3, 9, 10]] = len(rows), sampling.seed, sampling.top_k, sampling.penalty_window, logit_rows
    reals[[2, 4, 5, 6]] = sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty
    reals[[7, 8]] = sampling.presence_penalty, sampling.frequency_penalty
    table = np.zeros((len(rows), ROW_BYTES // 4), np.uint32)
    table[:, :3] = rows
    return header.tobytes() + table.tobytes()


def ring_of(tokens: Sequence[int]) -> np.ndarray:
    """The history ring of a sequence: token i at i % RING, uint32 (RING,)."""
    ring = np.zeros(RING, np.uint32)
    first = max(0, len(tokens) - RING)
    ring[np.arange(first, len(tokens)) % RING] = tokens[first:]
    return ring
