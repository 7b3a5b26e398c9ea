"""Answers with calls of the real model, and what the benchmark takes for right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.cli.loading import native_grammar_host
from app.generation.call_answer import CallStream, answer_with_calls, asked_with_tools, form_of_model
from app.generation.grammars import VocabularyGrammars
from app.models.cache import model_path as path_of
from app.models.template_renderer import native_renderer
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.source import FileSource
from py_core.loading import Model, load_model
from py_core.tool_calls.definitions import AUTO, ToolChoice, choice_from, tools_from
from tests.bench.tool_calls.bfcl import Question, Verdict, verdict

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = tools_from([{"name": "weather", "description": "Get the weather of a city", "parameters": CITY}])


async def opened(path: Path, kernel: Path) -> Model:
    model = await load_model(FileSource(path), partial(load_wasm, WasmtimeHost(kernel)), native_renderer())
    grammars = VocabularyGrammars(model.tokenizer, model.config.vocab_size, native_grammar_host)
    model.engine.constraint_of = grammars.constraint
    return model


async def calls(model: Model, question: str, chosen: ToolChoice = AUTO) -> list[dict[str, Any]]:
    stream = CallStream(model, TOOLS, chosen, max_tokens=40)
    answer = await answer_with_calls(stream, asked_with_tools("You are a helpful AI assistant.", question, chosen))
    assert not answer.bad
    return [call.entry() for call in answer.calls]


@pytest.mark.long
async def test_a_small_coder_calls_what_fits_and_answers_in_words_otherwise(kernel_wasm: Callable[..., Path]) -> None:
    model = await opened(path_of(Path("qwen2.5-coder-0.5b")), kernel_wasm())
    try:
        assert form_of_model(model).name == "json"
        assert await calls(model, "How is the weather in Bern?") == [{"name": "weather", "arguments": {"city": "Bern"}}]
        assert await calls(model, "Who wrote Hamlet?") == []
        (call,) = await calls(model, "Who wrote Hamlet?", choice_from("required", TOOLS))
        assert call["name"] == "weather"
    finally:
        model.close()


@pytest.mark.all
async def test_a_model_whose_template_knows_no_tools_can_be_made_to_call(
    model_path: Path, kernel_wasm: Callable[..., Path]
) -> None:
    model = await opened(model_path, kernel_wasm())
    try:
        (call,) = await calls(model, "How is the weather in Bern?", choice_from("weather", TOOLS))
        assert call == {"name": "weather", "arguments": {"city": "Bern"}}
    finally:
        model.close()


@pytest.mark.parametrize(
    ("given", "name", "right"),
    [
        ([("book", {"to": "new york", "seats": 2})], True, True),
        ([("book", {"to": "New-York", "seats": 2, "price": 3})], True, True),
        ([("book", {"to": "New York", "seats": 3})], True, False),
        ([("book", {"to": "New York", "seats": 2.0})], True, False),
        ([("book", {"to": "New York"})], True, False),
        ([("book", {"to": "New York", "seats": 2, "day": "x"})], True, False),
        ([("book", {"to": "New York", "seats": 2, "days": ["May 1", "may 2"]})], True, True),
        ([("book", {"to": "New York", "seats": 2, "days": ["May 2", "May 1"]})], True, False),
        ([("book", {"to": "New York", "seats": 2, "who": {"name": "ann"}})], True, True),
        ([("book", {"to": "New York", "seats": 2, "who": {"age": 5}})], True, False),
        ([("fly", {"to": "New York", "seats": 2})], False, False),
        ([("book", {"to": "New York", "seats": 2})] * 2, False, False),
        ([], False, False),
    ],
)
def test_calls_are_compared_as_the_leaderboard_does(given: list[Any], name: bool, right: bool) -> None:
    kinds = {"to": "string", "seats": "integer", "price": "number", "days": "array", "who": "object"}
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    tool = {"name": "book", "parameters": {"properties": properties, "required": ["to", "seats"]}}
    possible = {
        "to": ["New York", "NYC"], "seats": [2], "price": [3.0, ""], "days": [["May 1", "May 2"], ""],
        "who": [{"name": ["Ann"], "age": [5, ""]}, ""],
    }  # fmt: skip
    question = Question("", "", [], [{"function": tool}], [{"book": possible}])
    assert verdict(question, [{"name": one, "arguments": arguments} for one, arguments in given]) == Verdict(
        name, right
    )


def test_parallel_calls_have_no_order_and_no_call_is_right_if_none_fits() -> None:
    tool = {"function": {"name": "add", "parameters": {"properties": {"n": {"type": "integer"}}}}}
    both = Question("", "", [], [tool], [{"add": {"n": [1]}}, {"add": {"n": [2]}}])
    one, two = ({"name": "add", "arguments": {"n": n}} for n in (1, 2))
    assert verdict(both, [two, one]) == Verdict(True, True)
    assert verdict(both, [one, one]) == Verdict(True, False)
    none = Question("", "", [], [tool], [])
    assert verdict(none, []) == Verdict(True, True)
    assert verdict(none, [one]) == Verdict(False, False)
