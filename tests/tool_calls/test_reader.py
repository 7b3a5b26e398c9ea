"""Calls in answers: a corpus of all families, at every cut, and answers that are hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.tool_calls.forms import FORMS
from py_core.tool_calls.reader import BadCall, CallReader, ToolCall, read_calls
from tests.random_examples import examples

NAMES = ("weather", "time")
DIGITS = "9" * 5000
CORPUS: list[dict[str, Any]] = [
    json.loads(line.replace("@DIGITS@", DIGITS))
    for line in (Path(__file__).parent / "corpus.jsonl").read_text("utf-8").splitlines()
]


def read_in_pieces(form: str, pieces: list[str]) -> tuple[str, list[ToolCall], list[BadCall]]:
    reader = CallReader(FORMS[form], NAMES)
    parts = [part for piece in pieces for part in reader.push(piece)] + reader.flush()
    text = "".join(part.text for part in parts if not isinstance(part, ToolCall))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return text, calls, [part for part in parts if isinstance(part, BadCall)]


@pytest.mark.parametrize("row", CORPUS, ids=[f"{row['form']}-{row['about']}" for row in CORPUS])
def test_an_answer_is_read_the_same_at_every_cut(row: dict[str, Any]) -> None:
    form, answer = row["form"], row["answer"]
    text, calls, bad = whole = read_calls(FORMS[form], NAMES, answer)
    assert [call.entry() for call in calls] == row["calls"]
    assert text == row["text"]
    assert len(bad) == len(row["bad"])
    for one, why in zip(bad, row["bad"], strict=True):
        assert why in str(one.why)
    assert len({call.id for call in calls}) == len(calls)
    assert read_in_pieces(form, list(answer)) == whole
    for at in range(1, len(answer), max(1, len(answer) // 100)):
        assert read_in_pieces(form, [answer[:at], answer[at:]]) == whole, at


PIECES = ["<tool_call>", "</tool_call>", "```json\n", "```", "\n", " ", "text", "{", "}", "[", "]", '"', "\\", ",", ":"]
PIECES += [
    '{"name": "time", "arguments": {}}',
    "time",
    "(",
    ")",
    "a=1",
    '<|"|>',
    "call:",
    "<|tool_call>",
    "[TOOL_CALLS]",
]
PIECES += ["<function=time>", "</function>", "<parameter=a>", "</parameter>", "[ARGS]", "<tool_", "\ud800", "ä"]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from(sorted(FORMS)))
@examples(300)
def test_no_text_raises_an_error_and_cuts_change_nothing(pieces: list[str], form: str) -> None:
    answer = "".join(pieces)
    assert read_in_pieces(form, pieces) == read_in_pieces(form, list(answer)) == read_calls(FORMS[form], NAMES, answer)


@pytest.mark.parametrize("opened", ["[", "{", '{"a":', "<tool_call>[", "<tool_call>", "```json\n[", "(", "'"])
def test_ten_thousand_brackets_are_text(opened: str) -> None:
    answer = opened * 10_000
    text, calls, _ = read_in_pieces("gemma4", [answer[at : at + 100] for at in range(0, len(answer), 100)])
    assert not calls
    assert text == answer


def test_calls_come_as_soon_as_they_are_closed() -> None:
    reader = CallReader(FORMS["hermes"], NAMES, first=7)
    assert reader.push('<tool_call>\n{"name": "time", "arguments": {}') == []
    (call,) = reader.push("}")
    assert call == ToolCall("time", {}, '<tool_call>\n{"name": "time", "arguments": {}}', "call00007")
    assert reader.push("\n</tool_call>") == reader.flush() == []


def test_a_shaped_answer_has_only_the_calls_of_its_shape() -> None:
    call = '{"name": "time", "arguments": {}}'
    for form, answer, found in (("hermes", call, 0), ("json", call, 1), ("llama", call, 1),
                                ("phi", f"<tool_call>{call}</tool_call>", 0)):  # fmt: skip
        reader = CallReader(FORMS[form], NAMES, is_shaped=True)
        parts = [*reader.push(answer), *reader.flush()]
        assert sum(isinstance(part, ToolCall) for part in parts) == found, form


def test_xml_is_read_by_the_schemas_of_arguments() -> None:
    schemas = {"f": {"properties": {"a": {"type": "string"}, "b": {"type": "string", "minLength": 1}, "c": {}}}}
    values = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in zip("abc", ("12", '"x"', "3"), strict=True)
    )
    _, (call,), _ = read_calls(FORMS["xml"], schemas, f"<tool_call>\n<function=f>\n{values}</function>\n</tool_call>")
    assert call.arguments == {"a": "12", "b": "x", "c": 3}
