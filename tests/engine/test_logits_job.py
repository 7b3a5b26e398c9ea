"""Logits after given positions of given ids: they equal those of a whole pass, and a wrong job gets a sentence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.logits import LogitsJob, logits_of, read_job
from py_core.backend_errors import ContextFullError
from py_core.engine.engine import Engine, Timings

IDS = [5, 9, 200, 31, 7, 7, 100, 3, 44, 250, 18, 61, 90, 12, 33, 8, 150, 149, 99, 2]


@pytest.fixture(scope="module")
def engine(tiny_path: Path, open_model) -> Engine:
    return asyncio.run(open_model(tiny_path)).engine


@pytest.fixture(scope="module")
def one_by_one(engine: Engine) -> np.ndarray:
    """float32 (ids, vocab_size), each after a separate prefill."""

    async def read() -> np.ndarray:
        rows = []
        for end in range(1, len(IDS) + 1):
            sequence = engine.new_sequence()
            await engine.prefill(sequence, IDS[:end], Timings())
            rows.append(await engine.logits(sequence))
            engine.free(sequence)
        return np.stack(rows)

    return asyncio.run(read())


@given(st.lists(st.integers(0, len(IDS) - 1), min_size=1, max_size=30))
def test_each_position_has_its_logits_in_the_order_of_the_job(engine: Engine, one_by_one, positions) -> None:
    found = asyncio.run(logits_of(engine, LogitsJob(IDS, positions)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, one_by_one[positions], rtol=0, atol=2e-4)


def test_ids_that_do_not_fit_are_a_sentence(engine: Engine) -> None:
    with pytest.raises(ContextFullError, match="513 tokens long, but the model reads at most 512"):
        asyncio.run(logits_of(engine, LogitsJob([1] * 513, [0])))


def test_without_positions_all_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"ids": IDS}))
    assert read_job(path, 259) == LogitsJob(IDS, list(range(len(IDS))))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "should hold JSON like"),
        ("[1, 2]", "should hold JSON like"),
        ('{"ids": [1], "position": [0]}', "should hold JSON like"),
        ('{"positions": [0]}', "ids must be a list of whole numbers"),
        ('{"ids": []}', "ids must be a list of whole numbers"),
        ('{"ids": [1, 2.5]}', "ids must be a list of whole numbers"),
        ('{"ids": [1, true]}', "ids must be a list of whole numbers"),
        ('{"ids": [1, 259]}', "ids outside of 0 to 258"),
        ('{"ids": [1, 2], "positions": []}', "positions must be a list of whole numbers"),
        ('{"ids": [1, 2], "positions": [2]}', "positions outside of 0 to 1"),
        ('{"ids": [1, 2], "positions": [-1]}', "positions outside of 0 to 1"),
        ("[" * 100_000, "should hold JSON like"),
    ],
)
def test_a_wrong_job_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_job(path, 259)
