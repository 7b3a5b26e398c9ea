"""`sonata route` and `sonata bench routing`."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from app.bench.patterns import measure_patterns
from app.bench.routing import (
    TEST_SET,
    measure_everyday,
    measure_follow_ups,
    measure_routing,
    read_everyday,
    read_follow_ups,
    read_test_set,
)
from app.bench.routing_habits import measure_habits, read_habits
from app.cli.terminal import console
from app.native_runtime import native_router_parts, open_router
from py_core.routing.router import Decision

SHOWN_AGENTS, SHOWN_NEIGHBOURS = 3, 1


def route(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...", help="The requests. Without any, each line of standard input is one request."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list with an entry for each text.")] = False,
) -> None:
    """Show which agent each text goes to, and why."""
    asked = texts or [line for line in sys.stdin.read().splitlines() if line.strip()]
    if not asked:
        raise ValueError('There is nothing to route: give texts, as in `sonata route "why does it crash"`.')

    async def run() -> list[Decision]:
        router = await open_router()
        await router.route(asked[0] + ".")  # costs of the first call do not count as its time
        return [await router.route(text) for text in asked]

    decisions = asyncio.run(run())
    if as_json:
        print(json.dumps([decision_entry(text, made) for text, made in zip(asked, decisions, strict=True)]))
        return
    console().print(route_table(asked, decisions))


def decision_entry(text: str, decision: Decision) -> dict[str, Any]:
    """The form in the JSON of `sonata route`."""
    return {
        "text": text,
        "agent": decision.agent,
        "reason": decision.reason,
        "confidence": decision.confidence,
        "threshold": decision.threshold,
        "ranked": [{"agent": agent, "likelihood": likelihood} for agent, likelihood in decision.ranked],
        "neighbours": [asdict(neighbour) for neighbour in decision.neighbours],
        "milliseconds": dict(decision.milliseconds),
    }


def route_table(texts: list[str], decisions: list[Decision]) -> Table:
    table = Table()
    for column in ("text", "agent", "why", "most likely", "nearest"):
        table.add_column(column, overflow="fold")
    table.add_column("ms", justify="right")
    for text, decision in zip(texts, decisions, strict=True):
        likely = ", ".join(f"{agent} {likelihood:.0%}" for agent, likelihood in decision.ranked[:SHOWN_AGENTS])
        nearest = "\n".join(
            f"{one.similarity:.2f} {one.agent}: {one.text}" for one in decision.neighbours[:SHOWN_NEIGHBOURS]
        )
        taken = sum(decision.milliseconds.values())
        table.add_row(escape(text), decision.agent, decision.reason, likely, escape(nearest), f"{taken:.1f}")
    return table


def bench_routing(
    data: Annotated[Path, typer.Option(help="Requests with their agents, in TOML.")] = TEST_SET,
    patterns: Annotated[
        int, typer.Option(min=0, help="Also measure searching and opening this many learned patterns.")
    ] = 0,
    habits: Annotated[bool, typer.Option("--habits", help="Also measure what corrections of routes teach.")] = False,
    multilingual: Annotated[bool, typer.Option("--multilingual", help="With the multilingual embedder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure how often the router is right on unseen requests, and how long it takes. For developers."""
    rows = read_test_set(data)

    async def run() -> dict[str, Any]:
        router = await open_router(multilingual=multilingual)
        report = await measure_routing(router, rows)
        report["everyday"] = await measure_everyday(router, read_everyday())
        report["conversations"] = await measure_follow_ups(router, read_follow_ups())
        if patterns:
            report["learned"] = await measure_patterns(native_router_parts(multilingual), patterns)
        if habits:
            report["habits"] = await measure_habits(read_habits(), multilingual)
        return report

    report = asyncio.run(run())
    if as_json:
        print(json.dumps(report))
        return
    console().print(routing_tables(report))


def routing_tables(report: dict[str, Any]) -> Group:
    times, halves = report["milliseconds"], report["conversations"]
    learned = [_patterns_table(report["learned"])] if "learned" in report else []
    habits = [_habits_table(report["habits"])] if "habits" in report else []
    return Group(
        _accuracy_table(report),
        _everyday_table(report["everyday"]),
        _time_table(times),
        _conversation_table(halves),
        *learned,
        *habits,
        *_sentences(report),
    )


def _accuracy_table(report: dict[str, Any]) -> Table:
    table = Table(title=f"Routing of {report['requests']} requests")
    table.add_column("")
    for heading in ("requests", "top 1", "top 3", "with fallback", "keywords, top 1", "keywords, top 3"):
        table.add_column(heading, justify="right")
    groups = {"all": report["all"], **report["difficulty"], **report["agents"]}
    for name, found in groups.items():
        figures = (found[key] for key in ("top1", "top3", "decided", "keywords_top1", "keywords_top3"))
        table.add_row(
            name, str(found["requests"]), *(f"{figure:.1%}" for figure in figures), end_section=name in ("all", "hard")
        )
    return table


def _everyday_table(groups: list[dict[str, Any]]) -> Table:
    table = Table(title="Everyday requests (half a was tuned on, half b was not)")
    table.add_column("language, half")
    for heading in ("requests", "stay with the assistant", "go to an agent that suits them", "go elsewhere"):
        table.add_column(heading, justify="right")
    for one in groups:
        shares = (one["assistant"], one["suits"], len(one["elsewhere"]) / one["requests"])
        table.add_row(f"{one['language']}, {one['half']}", str(one["requests"]), *(f"{share:.1%}" for share in shares))
    return table


def _time_table(milliseconds: dict[str, dict[str, float]]) -> Table:
    table = Table(title="Milliseconds")
    table.add_column("step")
    for heading in ("median", "p95", "p99"):
        table.add_column(heading, justify="right")
    for step, found in milliseconds.items():
        table.add_row(step, *(f"{found[key]:.3f}" for key in ("p50", "p95", "p99")))
    return table


def _conversation_table(halves: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="In a conversation (half a was tuned on, half b was not)")
    table.add_column("half")
    for heading in ("follow-ups", "stay", "alone would stay", "changes of topic followed"):
        table.add_column(heading, justify="right")
    for half, found in halves.items():
        shares = (found[key] for key in ("follow_ups", "follow_ups_without", "topic_changes"))
        table.add_row(half, str(found["rows"]), *(f"{share:.1%}" for share in shares))
    return table


def _habits_table(found: dict[str, Any]) -> Table:
    count = found["requests"]
    table = Table(title=f"A person who corrects {count['told']} routes")
    table.add_column("")
    headings = {"told": "corrected", "other": "in other words", "test": "the test set", "assistant": "its fallback"}
    for name, heading in headings.items():
        table.add_column(f"{heading} ({count[name]})", justify="right")
    rows = {"shipped": "as shipped", "corrected": "with the corrections"}
    for name, said in rows.items():
        table.add_row(said, *(f"{found[name][key]:.1%}" for key in headings))
    return table


def _patterns_table(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['patterns']:,} learned patterns")
    for column in ("", "scan", "HNSW"):
        table.add_column(column, justify="right" if column else "left")
    searches = [found["search_milliseconds"][way] for way in ("scan", "hnsw")]
    table.add_row("search, median ms", *(f"{times['p50']:.3f}" for times in searches))
    table.add_row("search, p95 ms", *(f"{times['p95']:.3f}" for times in searches))
    table.add_row(f"found of the {found['k']} nearest", "100%", f"{found['recall']:.1%}")
    opening = found["open_seconds"]
    table.add_row("opening, graph built again, s", f"{opening['ready']:.2f}", f"{opening['rebuilt']:.2f}")
    table.add_row("opening, graph read, s", "", f"{opening['read']:.2f}")
    table.add_row("writing the graph, s", "", f"{found['save_seconds']:.2f}")
    table.add_row("size of the graph, MB", "", f"{found['file_bytes'] / 1e6:.1f}")
    return table


def _sentences(report: dict[str, Any]) -> tuple[str, str]:
    return (
        f"Calibration error over 10 bins: {report['calibration_error']:.3f}.",
        f"Of {report['assistant_requests']} requests that suit no agent {report['assistant_to_fallback']:.1%} get the "
        f"fallback; of the others {report['agents_to_fallback']:.1%} do.",
    )
