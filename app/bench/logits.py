"""Logits after given positions of given token ids: the output of `sonata logits --ids`, for comparison with other
engines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from py_core.backend_errors import ContextFullError, too_long
from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.engine.engine import Engine, Timings


@dataclass(frozen=True)
class LogitsJob:
    """Token ids, and the positions among them whose logits are wanted, in this order."""

    ids: list[int]
    positions: list[int]


def read_job(path: Path, vocab_size: int) -> LogitsJob:
    """A file {"ids": [...], "positions": [...]}; without positions all are wanted. Raises ValueError, OSError."""
    wanted = f'{path} should hold JSON like {{"ids": [1, 2, 3], "positions": [0, 2]}}'
    try:
        job = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{wanted}: {error}") from error
    if not isinstance(job, dict) or not set(job) <= {"ids", "positions"}:
        raise ValueError(f"{wanted}.")
    ids = _numbers(job.get("ids"), "ids", vocab_size, wanted)
    positions = job.get("positions", list(range(len(ids))))
    return LogitsJob(ids, _numbers(positions, "positions", len(ids), wanted))


def _numbers(given: object, name: str, limit: int, wanted: str) -> list[int]:
    """`given`, if it is a list of whole numbers from 0 to limit - 1."""
    if not isinstance(given, list) or not given or not all(type(number) is int for number in given):
        raise ValueError(f"{wanted}; {name} must be a list of whole numbers.")
    if not all(0 <= number < limit for number in given):
        raise ValueError(f"{wanted}; this one has {name} outside of 0 to {limit - 1}.")
    return given


async def logits_of(engine: Engine, job: LogitsJob, adapter: int = 0) -> np.ndarray:
    """float32 (positions, vocab_size). Raises ContextFullError if the ids do not fit.

    adapter: the number of the set of LoRA matrices to run with (`Engine.add_adapter`).
    """
    if len(job.ids) > engine.context_length:
        raise ContextFullError(too_long(len(job.ids), engine.context_length))
    found: dict[int, np.ndarray] = {}
    sequence = engine.new_sequence()
    engine.use_adapter(sequence, adapter)
    try:
        for first, last in _runs(sorted(set(job.positions))):
            await engine.prefill(sequence, job.ids[: last + 1], Timings())
            rows = await engine.last_logits(sequence, last + 1 - first)
            found |= {first + row: values for row, values in enumerate(rows)}
    finally:
        engine.free(sequence)
    return np.stack([found[position] for position in job.positions])


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """First and last positions of passes, each of which makes the logits of adjacent positions."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and position - runs[-1][0] < MAX_LOGIT_ROWS:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    return runs
