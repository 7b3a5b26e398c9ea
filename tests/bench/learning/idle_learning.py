"""The delay of a message while Sonata learns in idle times: time to the first token, and tokens a second.

    python -m tests.bench idle_learning [--rounds 15] [--piece GFLOP] [--json FILE]             natively, WASM kernels
    python -m tests.bench idle_learning --where browser [--rounds 15] [--workers 2] [--json FILE]        in Chromium

Three cases take turns: `quiet`, nothing is learned; `learning`, a message is sent in the midst of a training without
any sign before; `typed`, a key was pressed 0.2 s before it was sent, as in the page. Medians, ratios to `quiet`, and
the training's own speed. SmolLM2, a training of invented facts, rank 8 on all linears; each message begins a chat.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from app.building.kernels import kernel_path
from app.consolidation.idle_learning import IdleLearning
from app.consolidation.idle_work import Loop, Report
from app.consolidation.one_learner import FileLock
from app.generation.assistant import Assistant
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from app.protocol import Delta, Done
from app.records.kinds import KINDS
from app.records.policies import Policies
from py_core.adapters.parameters import parameter_layout
from py_core.backends.wasm import training_lowering
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.source import FileSource
from py_core.loading import Model, load_model
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from py_core.training.batches import shuffled
from py_core.training.packing import answer_example
from py_core.training.schedule import Schedule
from py_core.training.session import Loss, Pack
from py_core.training.trainer import Trainer, TrainerSettings, fresh_start
from tests.bench.in_browser import SonataTab, chromium, evaluate, local_server, machine
from tests.bench.reporting import options_of, print_tables, write_figures

CASES = ("quiet", "learning", "typed")
TYPED_SECONDS = 0.2
TOKENS = 24
QUESTION = "What should I see in Lisbon in two days?"
FACTS = 24


class Training:
    """The work of a loop: a training without an end."""

    def __init__(self, model: Model) -> None:
        self.model, self.is_wanted = model, False
        self.pieces: list[float] = []
        self.started = asyncio.Event()

    async def waiting(self) -> int:
        return int(self.is_wanted)

    async def is_begun(self) -> bool:
        return self.is_wanted

    async def run(self, report: Report) -> None:
        layout = parameter_layout(self.model.graph, 8, 2.0)
        draw = np.random.default_rng(0)
        prompt = draw.integers(1000, 9000, 24).tolist()
        facts = [answer_example(prompt + row[:10], row[10:]) for row in draw.integers(1000, 9000, (FACTS, 18)).tolist()]

        training = await self.model.engine.open_training(layout)
        accumulate, last = training.accumulate, 0.0

        async def after_piece() -> None:
            nonlocal last
            now = time.perf_counter()
            self.pieces.append(1000 * (now - last))
            self.started.set()
            last = now

        async def timed(pack: Pack) -> Loss:
            nonlocal last
            last = time.perf_counter()
            return await accumulate(pack, after_piece)

        training.accumulate = timed  # type: ignore[method-assign, assignment]
        settings = TrainerSettings(Schedule(1e-6, 10**6), divergence=0.0, save_every=10**6)
        try:
            await Trainer(training, shuffled(facts, 8, 0), settings, fresh_start(layout, 0)).run()
        finally:
            training.close()


async def asked(assistant: Assistant, idle: IdleLearning, since: float) -> dict[str, float]:
    """since: when the message was sent."""
    first, found = 0.0, None
    with idle.busy():
        async for event in assistant.respond(QUESTION):
            if isinstance(event, Delta) and not first:
                first = time.perf_counter() - since
            found = event if isinstance(event, Done) else found
    assert found is not None
    return {"first_ms": 1000 * first, "tok_s": found.decode_tok_s}


async def sent_later(seconds: float) -> float:
    """Return the time at which another thread's clock fired: this thread may be busy with a piece of the training."""
    loop, rang = asyncio.get_running_loop(), asyncio.Event()
    when: list[float] = []

    def ring() -> None:
        time.sleep(seconds)
        when.append(time.perf_counter())
        loop.call_soon_threadsafe(rang.set)

    threading.Thread(target=ring).start()
    await rang.wait()
    return when[0]


async def natively(options: argparse.Namespace) -> dict[str, Any]:
    if options.piece:
        training_lowering.PIECE_FLOPS = options.piece * 1e9
    host = WasmtimeHost(kernel_path())

    async def load(source: Any, header: Any, config: Any, graph: Any, progress: Any) -> Any:
        return await load_wasm(host, source, header, config, graph, progress)

    model = await load_model(FileSource(default_model_path()), load, native_renderer())
    policies = await Policies.open(await Store.open(VolatileRows(), kinds=KINDS))
    work = Training(model)
    idle = IdleLearning(
        [Loop("background", work, 1, "facts")], lambda: policies, model.engine.idle_held,
        FileLock(Path("/tmp") / "sonata-bench.lock"), idle_seconds=0.5,
    )  # fmt: skip
    idle.start()
    found: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    draw = random.Random(0)
    assistant = Assistant(model, max_tokens=TOKENS)
    for number in range(options.rounds + 1):
        for case in CASES:
            assistant.reset()
            work.is_wanted = case != "quiet"
            (idle.pause if case == "quiet" else idle.resume)()
            if case == "quiet":
                await asyncio.sleep(0.6)
            else:
                work.started.clear()
                await work.started.wait()
            since = await sent_later(draw.uniform(0.3, 0.6))
            if case == "typed":
                idle.note_activity()
                since = await sent_later(TYPED_SECONDS)
            one = await asked(assistant, idle, since)
            if number:
                found[case].append(one)
            print(case, {key: round(value, 1) for key, value in one.items()}, file=sys.stderr, flush=True)
    await idle.close()
    model.close()
    pieces = {f"piece_ms_{share}": float(np.percentile(work.pieces, share)) for share in (50, 90, 100)}
    return {**summary(found), **pieces, "piece_gflop": training_lowering.PIECE_FLOPS / 1e9}


TEACH = """async (count) => {
    while (document.documentElement.dataset.learning !== 'ready') await new Promise((go) => setTimeout(go, 100));
    for (let number = 0; number < count; number++) {
        const question = `What is the name of boat ${number}?`, answer = `It is called Heron ${number}.`;
        await sonata.engine.learning.teach({ question, answer });
    }
}"""
ASK = """async ({ name, question, wait, typed }) => {
    const { engine } = sonata, sleep = (ms) => new Promise((go) => setTimeout(go, ms));
    await engine.conversation.begin();
    await (name === 'quiet' ? engine.learning.pause() : engine.learning.resume());
    const wanted = name === 'quiet' ? 'paused' : 'running';
    while ((await engine.learning.overview()).idle.state !== wanted) await sleep(50);
    const { done } = (await engine.learning.overview()).idle;
    await sleep(wait);
    if (name === 'typed') {
        engine.model.noteActivity();
        await sleep(typed);
    }
    const since = performance.now();
    let first = 0;
    for await (const event of await engine.conversation.respond({ text: question })) {
        if (event.type === 'delta' && !first) first = performance.now() - since;
        if (event.type === 'done') return { first_ms: first, tok_s: event.decodeTokS, learned: done };
    }
}"""


def in_browser(options: argparse.Namespace) -> dict[str, Any]:
    """Measure while lessons are taught and consolidated, including the preparation: any of its work may run then."""
    found: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    draw = random.Random(0)
    with local_server() as address, chromium() as browser:
        tab = SonataTab(browser, address, options.workers, "precise", f"&idle=0.5&routing=on&max_tokens={TOKENS}")
        evaluate(tab.page, TEACH, FACTS)
        for number in range(options.rounds + 1):
            for case in CASES:
                wait = draw.uniform(300, 900)
                given = {"name": case, "question": QUESTION, "wait": wait, "typed": 1000 * TYPED_SECONDS}
                one = evaluate(tab.page, ASK, given)
                print(case, {key: round(value, 1) for key, value in one.items()}, file=sys.stderr, flush=True)
                if number:
                    found[case].append({key: one[key] for key in ("first_ms", "tok_s")})
        return {**summary(found), "workers": options.workers, "machine": machine(browser)}


def summary(found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Ratios are of the rounds, each to its own quiet case: the machine's other work changes over time."""
    result: dict[str, Any] = {"rounds": found}
    for case, rounds in found.items():
        result[case] = {key: median(one[key] for one in rounds) for key in rounds[0]}
        for key in rounds[0]:
            pairs = zip(rounds, found["quiet"], strict=True)
            result[case][f"{key}_ratio"] = median(one[key] / quiet[key] for one, quiet in pairs)
    return result


def table_of(result: dict[str, Any]) -> Table:
    table = Table(title="A message while Sonata learns; ratios to quiet ones, medians of pairs")
    for name in ("case", "first token", "ratio", "tokens a second", "ratio"):
        table.add_column(name, justify="right")
    for case in CASES:
        one = result[case]
        table.add_row(
            case, f"{one['first_ms']:.0f} ms", f"{one['first_ms_ratio']:.3f}", f"{one['tok_s']:.1f}",
            f"{one['tok_s_ratio']:.3f}",
        )  # fmt: skip
    return table


def main() -> None:
    assert __doc__
    parser = options_of(__doc__)
    parser.add_argument("--where", choices=["native", "browser"], default="native")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2, help="of the page")
    parser.add_argument("--piece", type=float, metavar="GFLOP", help="of a piece of training, natively")
    options = parser.parse_args()
    result = in_browser(options) if options.where == "browser" else asyncio.run(natively(options))
    write_figures(options, result)
    print_tables(table_of(result))
