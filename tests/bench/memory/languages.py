"""Routing, recall of facts and search in documents, in English and in German: the same test sets in both languages.

    python -m tests.bench languages [--embedder minilm|multilingual] [--json FILE]

Routing: 156 requests; "decided" counts a request that goes to the plain assistant as wrong. Beside them everyday
requests, which should stay there or go to an agent that suits them. Facts: 24 are stored; the share of the taught
questions, and of the questions in other words, that opens the right one, and the share of near misses and of generic
prompts that opens any. Documents: the share of questions whose passage is among the first, by meaning alone, and by
meaning and words. German questions are also asked over the English documents.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rich.table import Table

from app.bench.routing import GERMAN_TEST_SET, TEST_SET, measure_everyday, measure_routing, read_everyday, read_test_set
from app.lessons.facts import facts, generic_prompts
from app.lessons.shipped_gate import shipped_gate
from app.models.build_outputs import embedder_files, multilingual_files
from app.native_runtime import native_router_parts
from app.paths import cache_dir
from app.routing.factory import build_router
from app.training.gate_worlds import Compared, Decisions, open_world, prompts_of
from py_core.learning.gate.gate import SHUT, Gate
from py_core.routing.embedder import Embedder
from py_core.routing.router import Router
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.passages.asked import Languages, open_case

FACTS = 24
PLACES = (1, 3)


async def measured(multilingual: bool) -> dict[str, Any]:
    """Shares of 1, by language; and the processor's milliseconds for a request's vector and for its meaning."""
    parts = native_router_parts(multilingual)
    router, gate = await build_router(parts.embedder, parts.data, parts.kernel), shipped_gate(multilingual)
    files = multilingual_files(cache_dir()) if multilingual else embedder_files(cache_dir())
    sizes = {"model": files.model.stat().st_size, "tokenizer": files.tokenizer.stat().st_size}
    report: dict[str, Any] = {"embedder": files.model.name, "bytes": sizes | {"router": len(parts.data)}}
    for language in ("en", "de"):
        report[language] = {
            "routing": await _routing(router, language),
            "facts": await _recall(parts.embedder, gate, language),
            "documents": await _search(parts.embedder, "en" if language == "en" else "de"),
        }
    report["de"]["documents in English"] = await _search(parts.embedder, "de over en")
    report["milliseconds"] = await _milliseconds(parts.embedder)
    return report


async def _routing(router: Router, language: str) -> dict[str, float]:
    rows = read_test_set(GERMAN_TEST_SET)
    if language == "en":
        english = {row["text"]: row for row in read_test_set(TEST_SET)}
        rows = [english[row["english"]] for row in rows]
    found = await measure_routing(router, rows)
    everyday = [row for row in read_everyday() if row["language"] == language and row["half"] == "b"]
    (plain,) = await measure_everyday(router, everyday)
    return {
        "requests": found["requests"],
        **{name: found["all"][name] for name in ("top1", "top3", "decided")},
        "suits none, stays": found["assistant_to_fallback"],
        "everyday, right": plain["assistant"] + plain["suits"],
    }


async def _recall(embedder: Embedder, gate: Gate, language: str) -> dict[str, float]:
    own = facts("held" if language == "en" else "held_de")[:FACTS]
    world = await open_world(embedder, own, prompts_of(own, generic_prompts("held" if language == "en" else "held_de")))
    decisions = Decisions.of(Compared.of(world, world.stores(FACTS, 1)), gate.of_features, SHUT)
    shares = decisions.shares(gate.threshold)
    return {name: shares[name] for name in ("taught", "paraphrase", "near", "generic")}


async def _search(embedder: Embedder, languages: Languages) -> dict[str, float]:
    case = await open_case(embedder, languages)
    return {
        f"{way} at {most}": case.recall(way, most) / len(case.asked) for way in ("meaning", "both") for most in PLACES
    }


async def _milliseconds(embedder: Embedder) -> dict[str, float]:
    texts = [row["text"] for row in read_test_set(GERMAN_TEST_SET)]
    embedder.forget()
    taken = {}
    for name, run in (("vector", embedder.embed), ("meaning", embedder.meanings)):
        await run(["opens the graph"])
        begin = time.process_time()
        await run(texts)
        taken[name] = round(1000 * (time.process_time() - begin) / len(texts), 2)
    return taken


def table(report: dict[str, Any]) -> Table:
    """A row for each figure, a column for each language."""
    shown = Table(title=f"{report['embedder']}: the same requests, facts and questions")
    for name in ("", "", "English", "German"):
        shown.add_column(name)
    for part, figures in report["de"].items():
        for name, value in figures.items():
            english = report["en"].get(part, {}).get(name)
            shown.add_row(part, name, *("" if one is None else _written(one) for one in (english, value)))
    return shown


def _written(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1%}"


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--embedder", choices=["minilm", "multilingual"], default="minilm")
    options = parser.parse_args()
    report = asyncio.run(measured(options.embedder == "multilingual"))
    write_figures(options, report)
    print_tables(table(report))
    print("milliseconds of the processor for a German request:", report["milliseconds"])
    print("bytes:", report["bytes"])
