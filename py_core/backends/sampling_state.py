"""The block of memory that tells kernels what to run: rows of tokens and sampling rules, the same on every backend.

wgsl_shaders/snippets/state.wgsl and web/kernels/kernels.h declare it. Kernels advance it after sampling, so that a
step that follows another writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_core.sampling import MOST_BIASES, SamplingParams

RING = 1024
"""Tokens in a sequence's history ring: at least the penalty window and the steps in flight."""

STATE_HEADER = 16
"""Bytes before the rows: the number of rows, how many of the last ones need logits, and the linears' adapter."""

ROW_BYTES = 68
"""A row: token, position, slot, how the token after it is sampled, the adapter at the head's input, and the number of
its grammar's state. The word behind that is 1 if the row waits for the host to go on with the grammar, 2 if it stays in
this state. Then come the number of its biases, and how many positions behind its own it sees."""

BIAS_BYTES = 8 * MOST_BIASES
"""The room for a slot's biases: a token and a float each."""

WAITS = 0xFFFFFFFF
"""In a ring, behind the last token of a row that waits for the host."""

_STAYS = 2

GREEDY = SamplingParams()


def state_bytes(
    rows: Sequence[tuple[int, int, int]], sampling: SamplingParams | Sequence[SamplingParams] = GREEDY,
    logit_rows: int = 1, adapter: int = 0, head_adapters: int | Sequence[int] = 0,
    grammar_states: Sequence[int] = (), follows: bool = True, ahead: Sequence[int] = (),
) -> bytes:  # fmt: skip
    """Pack the state for rows of (token, position, slot), of which the last `logit_rows` get logits.

    `sampling` applies to every row, or has one entry for each. A step over several rows samples for each of them.
    `adapter`: the number of the set of LoRA matrices that all rows run with. `head_adapters`: the number of the adapter
    at the head's input, of every row or of each; 0 for none. `grammar_states`: the number of each row's, 0 for none.
    `follows`: False if the rows stay in these states after sampling. `ahead`: how many positions behind its own each
    row sees; none for 0.
    """
    header = np.zeros(STATE_HEADER // 4, np.uint32)
    header[:3] = len(rows), logit_rows, adapter
    table = np.zeros((len(rows), ROW_BYTES // 4), np.uint32)
    table[:, :3] = rows
    table[:, 12] = head_adapters
    table[:, 13] = grammar_states or 0
    table[:, 14] = 0 if follows else _STAYS
    table[:, 16] = ahead or 0
    # One entry for all is broadcast: a pass of a prefill has hundreds of rows.
    each = [sampling] if isinstance(sampling, SamplingParams) else sampling
    reals = table.view(np.float32)
    # A row without penalties may stand beside a row with some: no part of its text is penalized.
    table[:, [3, 5, 11, 15]] = [
        (one.seed, one.top_k, one.penalty_window if one.penalizes else 0, len(one.biases)) for one in each
    ]
    reals[:, [4, 6, 7, 8, 9, 10]] = [
        (one.temperature, one.top_p, one.min_p, one.repetition_penalty, one.presence_penalty, one.frequency_penalty)
        for one in each
    ]
    return header.tobytes() + table.tobytes()


def bias_bytes(sampling: SamplingParams) -> bytes:
    """Pack the biases of a slot, each as a token and a float."""
    return np.array(list(sampling.biases), np.dtype([("token", np.uint32), ("bias", np.float32)])).tobytes()


def adapter_of(state: bytes) -> int:
    """Return the number of the set of LoRA matrices that a state's rows run with."""
    return int(np.frombuffer(state, np.uint32, 3)[2])


def head_adapters_of(state: bytes) -> np.ndarray:
    """Return the numbers of the adapters at the head's input of a state's rows, 0 for none: uint32 (rows,)."""
    return np.frombuffer(state, np.uint32)[STATE_HEADER // 4 + 12 :: ROW_BYTES // 4]


def has_grammars(state: bytes) -> bool:
    """Return True if a row of a state follows a grammar."""
    return bool(np.frombuffer(state, np.uint32)[STATE_HEADER // 4 + 13 :: ROW_BYTES // 4].any())


def rings_span(places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the range of the history rings of these (slot, position) among all slots: offset and length in bytes."""
    slots = [slot for slot, _ in places]
    return min(slots) * RING * 4, (max(slots) - min(slots) + 1) * RING * 4


def sampled_in(rings: bytes, places: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """Return `count` tokens from each (slot, position) on, from the rings of the range of `rings_span`. If a row has
    begun to wait, its tokens end with WAITS."""
    table = np.frombuffer(rings, np.uint32).reshape(-1, RING)
    first = min(slot for slot, _ in places)
    found = [table[slot - first, np.arange(position, position + count) % RING].tolist() for slot, position in places]
    return [ids[: ids.index(WAITS) + 1] if WAITS in ids else ids for ids in found]


def ring_of(tokens: Sequence[int]) -> np.ndarray:
    """Return the history ring of a sequence: token i at i % RING, uint32 (RING,)."""
    ring = np.zeros(RING, np.uint32)
    first = max(0, len(tokens) - RING)
    ring[np.arange(first, len(tokens)) % RING] = tokens[first:]
    return ring
