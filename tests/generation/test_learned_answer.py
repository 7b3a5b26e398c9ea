"""The tokens of a taught answer: with each adapter in turn, whatever they repeat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.generation.assistant import Assistant
from app.generation.learned_answer import BEYOND, AnswerHead, ids_of_learned, longest_learned
from app.protocol import Done
from py_core.adapters.head import NeighbourAdapter
from py_core.engine.engine import Engine, Timings
from py_core.loading import Model

PROMPT = [5, 9, 200, 31, 7, 7, 100, 3, 44, 250]
WORD, OTHER = 50, 60


@pytest.fixture
async def model(tiny_path: Path, open_model) -> Model:
    return await open_model(tiny_path)


async def put(engine: Engine, token: int, width: int) -> int:
    """An adapter that says this token, whatever the state."""
    adapter = NeighbourAdapter(np.ones((1, width), np.float32), np.array([token]), lambda_=0.98, tau=-1)
    return await engine.put_head_adapter(adapter)


async def test_each_adapter_gives_its_tokens_and_the_last_all_others(model: Model) -> None:
    engine, width = model.engine, model.graph.head_input.width
    first, second = await put(engine, WORD, width), await put(engine, OTHER, width)
    sequence, timings = engine.new_sequence(), Timings()
    engine.use_head_adapter(sequence, first)
    await engine.prefill(sequence, PROMPT, timings)
    heads = [AnswerHead(first, 3), AnswerHead(second, 2)]
    assert longest_learned(heads) == 5 + BEYOND
    batches = [ids async for ids in ids_of_learned(engine, sequence, heads, 9, timings)]
    said = [token for ids in batches for token in ids]
    assert said == [WORD] * 3 + [OTHER] * 6
    assert (timings.reason, timings.new_tokens) == ("length", 9)
    assert timings.decode_seconds > 0
    assert sequence.tokens == [*PROMPT, *said]
    assert sequence.head_adapter == 0


async def test_an_answer_may_repeat_itself_for_as_long_as_it_was_taught(model: Model) -> None:
    head = AnswerHead(await put(model.engine, WORD, model.graph.head_input.width), 200)
    assistant = Assistant(model)
    (done,) = [event async for event in assistant.respond("Hello", heads=[head]) if isinstance(event, Done)]
    assert (done.reason, done.new_tokens) == ("length", 200 + BEYOND)
    assert done.text == model.tokenizer.decode([WORD]) * (200 + BEYOND)


async def test_an_answer_ends_with_its_end_token_in_any_part(model: Model) -> None:
    engine, width = model.engine, model.graph.head_input.width
    end = await put(engine, min(model.tokenizer.eos_ids), width)
    assistant = Assistant(model)
    heads = [AnswerHead(await put(engine, WORD, width), 4), AnswerHead(end, 4), AnswerHead(end, 4)]
    (done,) = [event async for event in assistant.respond("Hello", heads=heads) if isinstance(event, Done)]
    assert (done.reason, done.text) == ("end", model.tokenizer.decode([WORD]) * 4)
