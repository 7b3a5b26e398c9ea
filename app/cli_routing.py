"""`sonata route` and `sonata bench routing`."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from app.bench_routing import TEST_SET, measure_routing, read_test_set
from app.native_services import open_router
from py_core.routing.router import Decision

SHOWN_AGENTS, SHOWN_NEIGHBOURS = 3, 1


def route(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="The requests; without any, each line of standard input is one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list, an entry a text.")] = False,
) -> None:
    """Which agent each text goes to, and why."""
    asked = texts or [line for line in sys.stdin.read().splitlines() if line.strip()]
    if not asked:
        raise ValueError('There is nothing to route: give texts, as in `sonata route "why does it crash"`.')

    async def run() -> list[Decision]:
        router = await open_router()
        await router.route(asked[0] + ".")  # what only the first one pays is not told as its time
        return [await router.route(text) for text in asked]

    decisions = asyncio.run(run())
    if as_json:
        print(json.dumps([decision_entry(text, made) for text, made in zip(asked, decisions, strict=True)]))
        return
    Console().print(route_table(asked, decisions))


def decision_entry(text: str, decision: Decision) -> dict[str, Any]:
    """As in the JSON of `sonata route`."""
    return {
        "text": text,
        "agent": decision.agent,
        "confidence": decision.confidence,
        "ranked": [{"agent": agent, "share": share} for agent, share in decision.ranked],
        "neighbours": [asdict(neighbour) for neighbour in decision.neighbours],
        "milliseconds": dict(decision.milliseconds),
    }


def route_table(texts: list[str], decisions: list[Decision]) -> Table:
    table = Table()
    for column in ("text", "agent", "shares", "nearest"):
        table.add_column(column, overflow="fold")
    for column in ("sure", "ms"):
        table.add_column(column, justify="right")
    for text, decision in zip(texts, decisions, strict=True):
        shares = ", ".join(f"{agent} {share:.0%}" for agent, share in decision.ranked[:SHOWN_AGENTS])
        nearest = "\n".join(
            f"{one.similarity:.2f} {one.agent}: {one.text}" for one in decision.neighbours[:SHOWN_NEIGHBOURS]
        )
        taken = sum(decision.milliseconds.values())
        table.add_row(
            escape(text), decision.agent, shares, escape(nearest), f"{decision.confidence:.0%}", f"{taken:.1f}"
        )
    return table


def bench_routing(
    data: Annotated[Path, typer.Option(help="Requests with their agents, in TOML.")] = TEST_SET,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """How often the router is right on requests that nobody has seen, and how long it takes. For developers."""
    rows = read_test_set(data)

    async def run() -> dict[str, Any]:
        return await measure_routing(await open_router(), rows)

    report = asyncio.run(run())
    if as_json:
        print(json.dumps(report))
        return
    Console().print(routing_tables(report))


def routing_tables(report: dict[str, Any]) -> Group:
    return Group(_accuracy_table(report), _time_table(report["milliseconds"]), *_sentences(report))


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


def _time_table(milliseconds: dict[str, dict[str, float]]) -> Table:
    table = Table(title="Milliseconds")
    table.add_column("step")
    for heading in ("median", "p95", "p99"):
        table.add_column(heading, justify="right")
    for step, found in milliseconds.items():
        table.add_row(step, *(f"{found[key]:.3f}" for key in ("p50", "p95", "p99")))
    return table


def _sentences(report: dict[str, Any]) -> tuple[str, str]:
    return (
        f"Calibration error over 10 bins: {report['calibration_error']:.3f}.",
        f"Of {report['assistant_requests']} requests that suit no agent {report['assistant_to_fallback']:.1%} get the "
        f"fallback; of the others {report['agents_to_fallback']:.1%} do.",
    )
