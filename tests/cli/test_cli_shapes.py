"""`sonata generate` with the shape of an answer, and `sonata grammar test`. A tiny model, whose tokens are bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command_line import assert_sentence, printed, sonata

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
MANY = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
CALENDAR = """root ::= day (", " day)?
day ::= "Mon" | "Tue"  # of a short week
"""


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "person.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def test_an_answer_has_the_shape_that_is_named(tiny: list[str], schema: Path, tmp_path: Path) -> None:
    def said(*shape: str | Path) -> str:
        return printed(sonata("generate", "hello", *tiny, "--temperature", "1", "--quiet", *shape)).rstrip("\n")

    person = json.loads(said("--schema", schema))
    assert isinstance(person["name"], str)
    assert 0 <= person["age"] <= 99
    (tmp_path / "week.gbnf").write_text(CALENDAR)
    assert said("--grammar", tmp_path / "week.gbnf") in (
        "Mon",
        "Tue",
        *(f"{a}, {b}" for a in ("Mon", "Tue") for b in ("Mon", "Tue")),
    )
    assert re.fullmatch("[a-f]{3}-[0-9]+x", said("--regex", "[a-f]{3}-[0-9]+x"))
    assert said("--choice", "yes", "--choice", "no") in ("yes", "no")


def test_an_answer_without_room_says_so(tiny: list[str], schema: Path) -> None:
    result = sonata("generate", "hello", *tiny, "--schema", schema, "--max-tokens", "5", "--quiet")
    assert result.stdout == '{"nam\n'
    assert "may end before its shape does: give a larger --max-tokens" in result.stderr
    result = sonata("generate", "hello", *tiny, "--schema", schema, "--max-tokens", "5", "--quiet", "--close")
    assert result.stdout == '{"name":"","age":0}\n'
    assert "ended in the shortest way that its shape has: give a larger --max-tokens" in result.stderr


@pytest.mark.usefixtures("fast_routing")
def test_each_question_gets_an_answer_of_the_shape_and_a_lesson_answers_in_it(tiny: list[str], home: list[str]) -> None:
    printed(sonata("teach", "Who is my dentist?", "Dr. Quill.", *home, *tiny))
    asked = ["Who is my dentist?", *(f"Is it {number}?" for number in range(7))]

    def said(*shape: str) -> list[str]:
        return json.loads(printed(sonata("ask", *home, *tiny, *shape, stdin=json.dumps(asked))))

    answers = said("--choice", "yes", "--choice", "no", "--choice", "perhaps")
    assert len(answers) == 8
    assert set(answers) <= {"yes", "no", "perhaps"}
    dentist, *others = said("--regex", r"Dr\. Quill\.|[a-f]{4}")
    assert dentist == "Dr. Quill."
    assert all(re.fullmatch(r"Dr\. Quill\.|[a-f]{4}", one) for one in others)
    cut = sonata("ask", "Is it?", "--no-memory", *tiny, "--regex", "[a-f]{40}", "--max-tokens", "4")
    assert re.fullmatch("[a-f]{4}", json.loads(cut.stdout)[0])
    assert "give a larger --max-tokens" in cut.stderr


def test_each_message_of_a_chat_gets_an_answer_of_the_shape(tiny: list[str]) -> None:
    said = printed(
        sonata("chat", "--plain", *tiny, "--choice", "north", "--choice", "south", stdin="Where?\nAnd now?\n")
    )
    answers = re.findall(r"> (\w+)", said)
    assert len(answers) == 2
    assert set(answers) <= {"north", "south"}


def test_what_cannot_be_kept_is_refused_with_its_path(tiny: list[str], tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"properties": {"a": {"type": "string", "pattern": r"(a+)\1"}}}))
    assert_sentence(sonata("generate", "hello", *tiny, "--schema", path), "#/properties/a/pattern", "not supported")
    path.write_text("{")
    assert_sentence(sonata("generate", "hello", *tiny, "--schema", path), "the schema is not JSON")
    assert_sentence(sonata("generate", "hello", *tiny, "--schema", path, "--regex", "a"), "Give one shape")
    assert_sentence(sonata("generate", "hello", *tiny, "--after", "<is>"), "Give the shape that the tag begins, too")
    path.write_text("")
    assert_sentence(sonata("generate", "hello", *tiny, "--schema", path), "the schema is not JSON")
    path.write_text("{}", "utf-16")
    not_text = f"{path} is not text in UTF-8: save it as UTF-8."
    assert_sentence(sonata("generate", "hello", *tiny, "--schema", path), not_text)
    assert_sentence(sonata("grammar", "test", "--regex", "a", *tiny[:2], path), not_text)
    assert_sentence(sonata("grammar", "test", "--cases", path, *tiny[:2]), not_text)


def test_instances_are_let_through_or_stopped(tiny: list[str], schema: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{ "age": 3, "name": "Ada" }')
    bad.write_text('{"name": "Ada", "age": 300}')
    result = sonata("grammar", "test", "--schema", schema, *tiny[:2], good, bad, "--json")
    assert result.returncode == 1
    told = json.loads(result.stdout)
    assert [one["passes"] for one in told] == [True, False]
    assert told[1]["characters"] == len('{"name":"Ada","age":30')
    good.write_text("name: Ada")
    assert_sentence(sonata("grammar", "test", "--schema", schema, *tiny[:2], good), "good.json is not JSON")
    good.write_text('So: <is>{"name":"Ada","age":3} and <is>{"name":"","age":0}')
    bad.write_text('So: <is>{"age":3}')
    result = sonata("grammar", "test", "--schema", schema, "--after", "<is>", *tiny[:2], good, bad, "--json")
    assert [one["characters"] for one in json.loads(result.stdout)] == [len(good.read_text()), len('So: <is>{"')]
    cases = tmp_path / "cases.jsonl"
    for line, problem in (("[1]", "is no row"), ("{", "is not JSON")):
        cases.write_text(f"\n{line}\n")
        assert_sentence(sonata("grammar", "test", "--cases", cases, *tiny[:2]), f"{cases}, line 2, {problem}")
    tests = [{"valid": True, "data": {"name": "A", "age": 1}}, {"valid": False, "data": {"name": "A"}}]
    rows = [
        {"name": "person", "schema": SCHEMA, "tests": tests},
        {"name": "odd", "schema": MANY, "tests": []},
    ]
    cases.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = json.loads(printed(sonata("grammar", "test", "--cases", cases, *tiny[:2], "--json")))
    assert {name: report[name] for name in ("schemas", "refused", "handled", "wrong_accepted", "wrong_refused")} == {
        "schemas": 2, "refused": 1, "handled": 1, "wrong_accepted": 0, "wrong_refused": 0,
    }  # fmt: skip
    assert report["names"]["refused"][0].startswith("odd: #/uniqueItems")
