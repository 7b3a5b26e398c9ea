"""The results of the background loop on facts: recall without lessons, paraphrases, perplexity, tokens and time.

    python -m tests.bench consolidation [--backend wasm|webgpu] [--split held] [--facts 24] [--more 20] [--seed 0]
        [--elastic 0] [--rate 0.001] [--looks 24 --plot FILE.svg] [--json FILE]
    python -m tests.bench consolidation --where browser [--split dev] [--facts 24] [--workers 2] [--json FILE]

A first task has --facts facts of app/facts, a second has --more (0: there is none). Answers are those of the plain
assistant, greedy: right is the whole answer, word by word. Perplexity is of paragraphs that are not trained on. With
--looks the first training's checkpoints, one every --looks steps, are asked, too: in the plot, and in the JSON. In the
browser it runs as in a pause of the page, and what is printed is the time of what it does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from app.bench.learning_plots import SHARE, loss_plot, write_plots
from app.bench.perplexity import MeasuredText, joined, score_texts
from app.bench.plots import Line, Plot
from app.chat.asker import GREEDY
from app.consolidation.desk import WorkDesk
from app.consolidation.service import RECIPE, ConsolidationService
from app.generation.assistant import Assistant
from app.lessons.facts import InventedFact, facts, paragraphs
from app.lessons.service import LearningService
from app.lessons.shipped_gate import shipped_gate
from app.models.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from app.native_runtime import open_embedder
from app.protocol import Done
from app.runtime import Runtime, RuntimeConfig
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.engine.scheduler import Priority
from py_core.formats.safetensors import read_safetensors
from py_core.formats.source import open_source
from py_core.learning.consolidation import layout_of
from py_core.learning.probe import perplexity as perplexity_of_probe
from py_core.loading import BackendLoader, Model, load_model
from py_core.store.sqlite import SQLiteRows
from py_core.tokenizers.prompts import encode_text
from tests.bench.learning.consolidation_browser import browser_table, measure_in_browser
from tests.bench.reporting import options_of, print_tables, write_figures


async def open_model(path: Path, backend: str) -> Model:
    load: BackendLoader
    if backend == "webgpu":
        from py_core.backends.webgpu.host_wgpu import WgpuHost

        load = partial(load_webgpu, WgpuHost())
    else:
        load = partial(load_wasm, WasmtimeHost(kernel_path()), precision="precise")
    return await load_model(open_source(path), load, native_renderer())


async def right(assistant: Assistant, asked: Sequence[tuple[str, str]]) -> float:
    """The share of the questions that get their answer, each in a conversation of its own."""
    found = 0
    for question, answer in asked:
        assistant.messages = []
        async for event in assistant.respond(question):
            if isinstance(event, Done):
                found += event.text.strip() == answer
    return found / len(asked) if asked else 0.0


async def recall(assistant: Assistant, of: Sequence[InventedFact]) -> dict[str, float]:
    others = [(text, fact.answer) for fact in of for text in fact.paraphrases]
    return {
        "taught": await right(assistant, [(fact.question, fact.answer) for fact in of]),
        "paraphrases": await right(assistant, others),
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    model = await open_model(options.model or default_model_path(), options.backend)
    all_facts = facts(options.split)
    tasks = [all_facts[: options.facts], all_facts[options.facts : options.facts + options.more]]
    texts = [MeasuredText(line, text) for split in ("dev", "held") for line, text in enumerate(paragraphs(split), 1)]
    assistant = Assistant(model, GREEDY, 64)
    recipe = replace(RECIPE, elastic=options.elastic)
    if options.rate:
        recipe = replace(recipe, rate=options.rate, rate_again=0.6 * options.rate, width=model.config.hidden_size)

    async def perplexity() -> float:
        adapter = await assistant.adapters.number(service.adapter) if service.adapter else 0
        return joined(await score_texts(model, texts, adapter)).perplexity

    kept: dict[int, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder, keeping_checkpoints(kept, options.looks):
        runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(Path(folder) / "memory.sqlite")))
        learning = await LearningService.open(model, "0" * 64, open_embedder(), runtime.memory, shipped_gate())
        service = await ConsolidationService.open(learning, assistant.adapters, assistant.adapters.use_learned, recipe)
        before = await perplexity()
        report: dict[str, Any] = {"backend": options.backend, "split": options.split, "tasks": [], "perplexity": before}
        for number, task in enumerate(tasks):
            if not task:
                continue
            for fact in task:
                await learning.teach(fact.question, fact.answer)
            begin = time.perf_counter()
            run = await service.consolidate(seed=options.seed, priority=Priority.BACKGROUND)
            seconds = time.perf_counter() - begin
            assert run is not None
            report["tasks"].append(
                {
                    "facts": len(task), "verdict": run.verdict, "why": str(run.why), "tokens": run.tokens,
                    "seconds": run.seconds, "with_imprints_seconds": seconds, "norm": run.norm,
                    "probe": dict(run.probe), "perplexity_change": await perplexity() / before - 1,
                    "new": await recall(assistant, task),
                    "old": await recall(assistant, tasks[0]) if number else None,
                }
            )  # fmt: skip
            print(json.dumps(report["tasks"][-1]), file=sys.stderr, flush=True)
            if kept:
                report["steps"] = {name: list(values) for name, values in run.steps.items()}
                report["looks"] = await looks(model, assistant, service, kept, task)
                kept.clear()
        service.close()
        learning.close()
        await runtime.close()
    model.close()
    return report


@contextmanager
def keeping_checkpoints(kept: dict[int, np.ndarray], every: int) -> Iterator[None]:
    """Keep the parameters every `every` steps, and at the end."""
    write = WorkDesk.write

    async def noted(self: WorkDesk, name: str, data: bytes) -> None:
        await write(self, name, data)
        if name == "checkpoint":
            arrays, _ = read_safetensors(data)
            step = int(arrays["numbers"][0])
            for other in [other for other in kept if other % every]:
                del kept[other]  # the last one stays
            kept[step] = arrays["parameters"].copy()

    if every:
        WorkDesk.write = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        WorkDesk.write = write  # type: ignore[method-assign]


async def looks(
    model: Model,
    assistant: Assistant,
    service: ConsolidationService,
    kept: dict[int, np.ndarray],
    of: Sequence[InventedFact],
) -> list[dict[str, float]]:
    """Measure the adapter at each checkpoint: perplexity of the probe, and recall."""
    layout, found = layout_of(model.graph, service.recipe), []
    probe = [encode_text(model.tokenizer, text, bos=model.bos) for text in service.texts.probe]
    last = service.adapter
    for step, parameters in sorted({0: np.zeros(layout.size, np.float32), **kept}.items()):
        adapter = layout.adapter(parameters, "look", service.learning.base_sha256)
        await assistant.adapters.use_learned(adapter)
        number = await assistant.adapters.number(adapter)
        found.append(
            {
                "step": step, "perplexity": await perplexity_of_probe(model.engine, probe, number, Priority.BACKGROUND),
                **await recall(assistant, of),
            }
        )  # fmt: skip
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        await assistant.adapters.use_learned(last)
        await assistant.adapters.forget("look")
    return found


def training_plots(
    steps: Mapping[str, Sequence[float]], looks: Sequence[Mapping[str, float]], base: float
) -> list[Plot]:
    """Plots of a training, and of the looks at its checkpoints: "step", "perplexity" of the probe, shares "taught" and
    "paraphrases". base: the plain model's perplexity."""
    at = [look["step"] for look in looks]

    def line(words: str, name: str) -> Line:
        return Line(words, [(look["step"], look[name]) for look in looks])

    return [
        loss_plot(steps),
        Plot(
            "Perplexity of texts never trained on", "step", "perplexity",
            (line("with the adapter", "perplexity"), Line("plain model", [(step, base) for step in at])),
        ),
        Plot(
            "Answered word by word, without lessons", "step", SHARE,
            (line("taught question", "taught"), line("other words", "paraphrases")), 0, 1,
        ),
    ]  # fmt: skip


def table_of(report: dict[str, Any]) -> Table:
    table = Table(title=f"Background loop on {report['backend']}, {report['split']}; without lessons")
    for name in ("facts", "verdict", "taught", "paraphrases", "old facts", "perplexity", "tokens", "seconds"):
        table.add_column(name, justify="right")
    for one in report["tasks"]:
        new, old = one["new"], one["old"]
        earlier = f"{old['taught']:.2f} / {old['paraphrases']:.2f}" if old else ""
        table.add_row(
            str(one["facts"]), one["verdict"], f"{new['taught']:.2f}", f"{new['paraphrases']:.2f}", earlier,
            f"{one['perplexity_change']:+.1%}", f"{one['tokens']:,}", f"{one['seconds']:.0f}",
        )  # fmt: skip
    return table


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--where", choices=["native", "browser"], default="native")
    parser.add_argument("--workers", type=int, default=2, help="of the page")
    parser.add_argument("--backend", choices=["wasm", "webgpu"], default="wasm")
    parser.add_argument("--split", choices=["train", "dev", "held"], default="held")
    parser.add_argument("--facts", type=int, default=24)
    parser.add_argument("--more", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--elastic", type=float, default=RECIPE.elastic)
    parser.add_argument("--rate", type=float, help="the highest learning rate")
    parser.add_argument("--looks", type=int, default=0, metavar="STEPS", help="a multiple of 8")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    report = measure_in_browser(options) if options.where == "browser" else asyncio.run(measure(options))
    if options.plot and "steps" in report:
        base = report["looks"][0]["perplexity"]
        write_plots(options.plot, training_plots(report["steps"], report["looks"], base))
    write_figures(options, report)
    print_tables((browser_table if options.where == "browser" else table_of)(report))
