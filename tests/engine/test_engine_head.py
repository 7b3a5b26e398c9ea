"""Scores of tokens and adapters at the head's input, through the engine: beside answers, and with stored pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.head import NeighbourAdapter
from py_core.backend_errors import ContextFullError
from py_core.engine.engine import Timings
from py_core.sampling import SamplingParams

TOKENS = [5, 9, 200, 31, 7, 7, 100, 3, 44, 250]


async def test_a_sequence_holds_what_was_scored_and_shared_tokens_stay(tiny_path: Path, open_model) -> None:
    engine = (await open_model(tiny_path)).engine
    sequence, other = engine.new_sequence(), engine.new_sequence()
    await engine.prefill(sequence, [*TOKENS[:6], 1, 2, 3], Timings())
    told: list[tuple[int, int]] = []
    scores = await engine.token_logprobs(sequence, TOKENS, 7, lambda stored, of: told.append((stored, of)))
    assert sequence.tokens == TOKENS
    assert told == [(6, 10), (9, 10)]  # tokens before the first score have a separate pass
    np.testing.assert_allclose(scores, (await engine.token_logprobs(other, TOKENS))[6:], atol=1e-4)
    await engine.prefill(sequence, TOKENS, timings := Timings())
    assert timings.reused_tokens == 9
    with pytest.raises(ContextFullError, match="513 tokens long, but the model reads at most 512"):
        await engine.token_logprobs(sequence, [1] * 513)
    assert sequence.tokens == TOKENS


async def test_an_answer_takes_an_adapter_from_its_next_turn_on(tiny_path: Path, open_model) -> None:
    engine = (await open_model(tiny_path)).engine
    sequence = engine.new_sequence()
    await engine.prefill(sequence, TOKENS, Timings())
    states = await engine.hidden(sequence, ["final_norm"])
    adapter = NeighbourAdapter(states["final_norm"][-1:], np.array([50]), lambda_=0.999, tau=-1)
    number = await engine.put_head_adapter(adapter)

    async def said() -> list[int]:
        rules = SamplingParams()
        batches = [ids async for ids in engine.generate(sequence, 4, rules, Timings(), ignore_end=True)]
        return [token for ids in batches for token in ids]

    plain = await said()
    engine.truncate(sequence, len(TOKENS))
    engine.use_head_adapter(sequence, number)
    assert await said() == [50] * 4 != plain
    engine.truncate(sequence, len(TOKENS))
    engine.remove_head_adapter(number)
    assert await said() == plain
