"""`sonata ask --tools FILE --calls`, with a random model: what it prints are valid calls all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.command_line import assert_sentence, printed, sonata

CITY = {"type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}, "days": {"type": "integer", "maximum": 9}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    {"name": "now"},
]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(write_model) -> list[str]:
    return ["--model", str(write_model(tied=False, context=2048)), "--backend", "numpy", "--max-tokens", "120"]


def test_each_question_gets_its_calls(model: list[str], tools: Path) -> None:
    own = [{"name": "pick", "parameters": {"properties": {"one": {"enum": ["a"]}}, "required": ["one"]}}]
    asked = ["Is it warm?", {"question": "Which?", "tools": own}]
    args = ["ask", "--tools", tools, "--calls", *model]
    first, second = json.loads(printed(sonata(*args, "--tool-choice", "required", stdin=json.dumps(asked))))
    for call in first:
        assert call["name"] in ("weather", "now")
        jsonschema.validate(call["arguments"], CITY if call["name"] == "weather" else {"maxProperties": 0})
    assert second[0] == {"name": "pick", "arguments": {"one": "a"}}
    (named,) = json.loads(printed(sonata(*args, "--tool-choice", "now", "Is it warm?")))
    assert named[0] == {"name": "now", "arguments": {}}
    assert json.loads(printed(sonata(*args, "--tool-choice", "none", "Is it warm?"))) == [[]]


def test_what_cannot_be_is_told_before_the_model_is_loaded(tools: Path, tmp_path: Path) -> None:
    broken, code = tmp_path / "broken.json", tmp_path / "tools.py"
    broken.write_text('[{"name": "a b"}]', encoding="utf-8")
    code.write_text("", encoding="utf-8")
    for args, said in (
        (["--calls"], "Question 1 has no tools"),
        (["--tools", tools], "has no functions to run: give --calls"),
        (["--tools", tools, "--calls", "--tool-choice", "rain"], "No tool is called 'rain'"),
        (["--tools", broken, "--calls"], "A tool is called 'a b'"),
        (["--tools", code, "--calls"], "has no tools"),
        (["--tools", code], "has no tools"),
        (["--tool-choice", "none"], "give --tools, --python or --mcp"),
        (["--tools", tools, "--calls", "--choice", "a"], "Calls have the shape of the tools"),
    ):
        assert_sentence(sonata("ask", "Hi", *args, "--model", "none.gguf"), said)


def test_calls_are_executed_and_told(model: list[str], tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from app.tools import tool\n\n@tool\ndef weather() -> str:\n    '''Get the weather'''\n    return 'Sunny.'\n",
        encoding="utf-8",
    )
    args = ["ask", "--tools", code, "--tool-choice", "weather", *model, "--no-memory", "--max-tokens", "200"]
    (told,) = json.loads(printed(sonata(*args, "--json", "Is it warm?")))
    assert told["calls"][0] == {"name": "weather", "arguments": {}, "result": "Sunny.", "failed": False}
