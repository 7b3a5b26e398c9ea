"""`sonata route` and `sonata bench routing`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_line import assert_sentence, printed, sonata

pytestmark = pytest.mark.usefixtures("fast_routing")

AGENTS = {
    *("coder", "researcher", "reviewer", "tester", "architect", "security-architect", "debugger", "documenter"),
    *("refactorer", "optimizer", "devops", "api-docs", "planner"),
    *("writer", "translator", "summarizer", "explainer", "extractor"),
}


@pytest.fixture(scope="module")
def entries(made_files: dict[str, Path]) -> list[dict]:
    return json.loads(printed(sonata("route", "write unit tests for my parser", "hello", "--json")))


def test_route_prints_an_entry_for_each_text_with_the_documented_keys(entries: list[dict]) -> None:
    assert [entry["text"] for entry in entries] == ["write unit tests for my parser", "hello"]
    for entry in entries:
        assert set(entry) == {
            *("text", "agent", "reason", "confidence", "threshold", "ranked", "neighbours", "milliseconds")
        }
        assert 0 <= entry["confidence"] <= 1
        assert {one["agent"] for one in entry["ranked"]} == AGENTS
        assert entry["ranked"][0]["likelihood"] == entry["confidence"]
        assert sum(one["likelihood"] for one in entry["ranked"]) <= 1 + 1e-9
        assert {"text", "agent", "similarity"} <= set(entry["neighbours"][0])
        assert set(entry["milliseconds"]) == {"embed", "search", "decide"}
    assert [(entry["agent"], entry["reason"]) for entry in entries] == [("tester", "examples"), ("assistant", "unsure")]


def test_route_reads_standard_input(made_files: dict[str, Path], entries: list[dict]) -> None:
    found = json.loads(printed(sonata("route", "--json", stdin="write unit tests for my parser\n\nhello\n")))
    assert [(entry["text"], entry["agent"]) for entry in found] == [(e["text"], e["agent"]) for e in entries]


def test_route_prints_a_table(made_files: dict[str, Path]) -> None:
    said = printed(sonata("route", "write unit tests [/red] for my parser"))
    assert "tester" in said
    assert "[/red]" in "".join(said.split())


def test_nothing_to_route_is_said_in_a_sentence() -> None:
    assert_sentence(sonata("route", stdin="\n"), "nothing to route")


@pytest.mark.all
def test_bench_routing_reports_each_agent_and_step(made_files: dict[str, Path], tmp_path: Path) -> None:
    rows = "".join(
        f'[[request]]\ntext = "{text}"\nagent = "{agent}"\ndifficulty = "easy"\n'
        for agent, text in (
            ("tester", "write unit tests for my parser"),
            ("coder", "write a function that adds"),
            ("assistant", "hello"),
        )
    )
    (tmp_path / "set.toml").write_text(rows, encoding="utf-8")
    report = json.loads(printed(sonata("bench", "routing", "--data", tmp_path / "set.toml", "--json")))
    assert report["requests"] == 3
    assert (report["all"]["requests"], report["assistant_requests"]) == (2, 1)
    assert set(report["agents"]) == {"tester", "coder"}
    assert report["all"]["top1"] == 1.0
    assert report["assistant_to_fallback"] == 1.0
    assert [half["rows"] for half in report["conversations"].values()] == [30, 30]
    assert set(report["milliseconds"]) == {"embed", "search", "decide", "routing proper", "all"}
    assert "tester" in printed(sonata("bench", "routing", "--data", tmp_path / "set.toml"))


def test_bench_routing_without_its_data_says_so(tmp_path: Path) -> None:
    assert_sentence(sonata("bench", "routing", "--data", tmp_path / "no.toml"), "no.toml does not exist")
