"""The time to turn a text into a vector, and to find the agent of a request: in Chromium and natively.

    python -m tests.bench embedder [--embedder multilingual] [--rounds 200] [--json FILE]

In Chromium Python runs in the page's engine worker, as in the product: `embed` is what Python waits for (tokens, the
message to the worker, the model, the message back), `tokens` the tokenizer alone, `meaning` what Python waits for when
it asks for a meaning. Each round has a text that is in no cache. Wanted: a short message under 10 ms.

`route` is the whole of it: the router as the page has it (and with 1,000 corrections) on the requests of the test set,
each for the first time. Wanted: embed, search and decide under 12 ms, search and decide under 1.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import numpy as np
from playwright.sync_api import Page
from rich.table import Table

from app.bench.routing import TEST_SET, read_test_set
from app.native_runtime import open_embedder
from app.server.headers import HEADERS
from py_core.routing.embedder import SentenceEmbedder
from tests.bench.in_browser import chromium, evaluate, local_server, machine, wait_for_quiet
from tests.bench.reporting import options_of, print_tables, write_figures

TEXTS = {
    "3 words": "write unit tests",
    "question": "what is the name of our cat",
    "short message": "can you fix the login bug before friday",
    "sentence": "please look over my pull request before I merge it, I am worried about the part with the sessions",
    "question and answer": "where is the key of the shed behind my house? it hangs on the third nail from the left,"
    " under the old blue rain jacket",
    "page": "the nightly job crashes since tuesday and I do not know why, here is what it says: " * 20,
}
CORRECTIONS = 1000
MEASURE = """
import json, time
from js import performance
from py_core.routing.embedder_browser import browser_embedder

async def measure(embedder, texts, rounds):
    made = browser_embedder(embedder)
    figures = {}
    for name, text in json.loads(texts).items():
        # a fresh text each time, of the same words: numbers of one token
        fresh = [f"{text} {index}" for index in range(rounds)]
        tokens, embed, meaning = [], [], []
        for one in fresh[:5]:
            await made.embed([one])
            await made.meanings([one])
        for one in fresh[5:]:
            begin = performance.now()
            ids = made.tokenizer.encode(one)
            tokens.append(performance.now() - begin)
            begin = performance.now()
            await made.embed([one])
            embed.append(performance.now() - begin)
            begin = performance.now()
            await made.meanings([one])
            meaning.append(performance.now() - begin)
        begin = performance.now()
        await made.embed(fresh[5:])
        cached = (performance.now() - begin) / len(fresh[5:])
        taken = {"tokens": tokens, "embed": embed, "meaning": meaning}
        figures[name] = {"count": len(ids), "cached": cached} | taken
    return json.dumps(figures)

async def measure_routes(embedder, exports, data, requests, corrections):
    import numpy as np
    from app.routing.factory import build_router
    from py_core.hnsw.wasm_kernel import PyodideHnswKernel
    from py_core.routing.patterns import Pattern

    begin = performance.now()
    router = await build_router(browser_embedder(embedder), data.to_bytes(), PyodideHnswKernel(exports))
    figures = {"assemble": performance.now() - begin}
    noise = np.random.default_rng(7)
    for count in (0, corrections):
        for number in range(count):
            vector = noise.standard_normal(384).astype(np.float32)
            router.put(Pattern(f"user-{number}", "", vector / np.linalg.norm(vector), "coder"))
        steps = {"embed": [], "search": [], "decide": [], "whole": []}
        asked = [request + " now" * bool(count) for request in json.loads(requests)]
        for text in asked[:10]:
            await router.route(text)
        for text in asked[10:]:
            begin = performance.now()
            decision = await router.route(text)
            steps["whole"].append(performance.now() - begin)
            for step, taken in decision.milliseconds.items():
                steps[step].append(taken)
        figures[f"{count} corrections"] = steps
    return json.dumps(figures)
"""
IN_WORKER = """
import { bootPython } from './engine/python_runtime.js';
import { Embedder } from './routing/embedder.js';
import { loadHnswKernel } from './routing/hnsw_kernel.js';
self.onmessage = async ({ data: { folder, code, texts, rounds, requests, corrections } }) => {
  try {
    const python = await bootPython();
    const begin = performance.now();
    const embedder = await Embedder.open(new URL(`./${folder || 'embedder/'}`, location.href).href);
    const load = performance.now() - begin;
    python.runPython(code);
    const figures = await python.globals.get('measure')(embedder, texts, rounds);
    const data = new Uint8Array(await (await fetch(`./${folder}routing.safetensors`)).arrayBuffer());
    const measureRoutes = python.globals.get('measure_routes');
    const routes = await measureRoutes(embedder, await loadHnswKernel(python), data, requests, corrections);
    self.postMessage({ load, isolated: crossOriginIsolated, figures: JSON.parse(figures), routes: JSON.parse(routes) });
  } catch (error) {
    self.postMessage({ error: String(error.stack || error) });
  }
};
"""


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--embedder", choices=["minilm", "multilingual"], default="minilm")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    multilingual = options.embedder == "multilingual"
    native = summary(natively(options.rounds, multilingual))
    with local_server() as address, chromium() as browser:
        wait_for_quiet(options.patience)
        page = browser.new_page(bypass_csp=True)
        script = {"body": IN_WORKER, "headers": {**HEADERS, "Content-Type": "text/javascript"}}
        page.route("**/bench_embedder.js", lambda route: route.fulfill(**script))
        page.goto(f"{address}/THIRD_PARTY.txt")
        in_page = in_chromium(page, options.rounds, "multilingual/" if multilingual else "")
        figures = {
            "machine": machine(browser),
            "load_ms": in_page["load"],
            "chromium": summary(in_page["figures"]),
            "native": native,
            "assemble_ms": in_page["routes"].pop("assemble"),
            "routes": route_summary(in_page["routes"]),
        }
    write_figures(options, figures)
    show(figures)


def in_chromium(page: Page, rounds: int, folder: str) -> dict[str, Any]:
    """folder: of the multilingual embedder in the site, "" for MiniLM."""
    answer = evaluate(
        page,
        """(order) => new Promise((resolve, reject) => {
            const worker = new Worker('./bench_embedder.js', { type: 'module' });
            worker.onmessage = ({ data }) => resolve(data);
            worker.onerror = (event) => reject(new Error(event.message));
            worker.postMessage(order);
        })""",
        {
            "folder": folder,
            "code": MEASURE,
            "texts": json.dumps(TEXTS),
            "rounds": rounds,
            "corrections": CORRECTIONS,
            "requests": json.dumps([row["text"] for row in read_test_set(TEST_SET)]),
        },
    )
    if "error" in answer:
        raise SystemExit(answer["error"])
    return answer


def natively(rounds: int, multilingual: bool) -> dict[str, Any]:
    async def measure(embedder: SentenceEmbedder) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        for name, text in TEXTS.items():
            fresh = [f"{text} {index}" for index in range(rounds)]
            times: dict[str, list[float]] = {"tokens": [], "embed": [], "meaning": []}
            for one in fresh:
                begin = time.perf_counter()
                ids = embedder.tokenizer.encode(one)
                between = time.perf_counter()
                await embedder.embed([one])
                times["tokens"].append(1000 * (between - begin))
                times["embed"].append(1000 * (time.perf_counter() - between))
                begin = time.perf_counter()
                await embedder.meanings([one])
                times["meaning"].append(1000 * (time.perf_counter() - begin))
            begin = time.perf_counter()
            await embedder.embed(fresh)
            cached = 1000 * (time.perf_counter() - begin) / rounds
            figures[name] = {"count": len(ids), "cached": cached} | {key: value[5:] for key, value in times.items()}
        return figures

    return asyncio.run(measure(open_embedder(multilingual=multilingual)))


def summary(figures: dict[str, Any]) -> dict[str, Any]:
    """ms: median and 95th percentile of each text's rounds."""

    def of(name: str) -> dict[str, float]:
        found = figures[name]
        out = {"tokens": found["count"], "cached_ms": found["cached"]}
        for key in ("tokens", "embed", "meaning"):
            out[f"{key}_median_ms"] = float(np.median(found[key]))
            out[f"{key}_p95_ms"] = float(np.percentile(found[key], 95))
        return out

    return {name: of(name) for name in figures}


def route_summary(routes: dict[str, Any]) -> dict[str, Any]:
    """ms: median and 95th percentile of each step, by how many corrections there are."""
    return {
        name: {
            step: {"median_ms": float(np.median(taken)), "p95_ms": float(np.percentile(taken, 95))}
            for step, taken in steps.items()
        }
        for name, steps in routes.items()
    }


def show(figures: dict[str, Any]) -> None:
    table = Table(title=f"A text into a vector, ms (loading in Chromium: {figures['load_ms']:.0f} ms)")
    columns = ("embed, median", "embed, p95", "meaning, median", "meaning, p95", "tokenizer", "cached")
    for column in ("where", "text", "tokens", *columns):
        table.add_column(column, justify="left" if column in ("where", "text") else "right")
    for where in ("chromium", "native"):
        for name, found in figures[where].items():
            table.add_row(
                where, name, str(found["tokens"]), f"{found['embed_median_ms']:.2f}", f"{found['embed_p95_ms']:.2f}",
                f"{found['meaning_median_ms']:.2f}", f"{found['meaning_p95_ms']:.2f}",
                f"{found['tokens_median_ms']:.3f}", f"{found['cached_ms']:.4f}",
            )  # fmt: skip
    print_tables(table)
    table = Table(title=f"To its agent in Chromium, ms (the router is made in {figures['assemble_ms']:.0f} ms)")
    for column in ("router", "step", "median", "p95"):
        table.add_column(column, justify="left" if column in ("router", "step") else "right")
    for name, steps in figures["routes"].items():
        for step, found in steps.items():
            table.add_row(name, step, f"{found['median_ms']:.2f}", f"{found['p95_ms']:.2f}")
    print_tables(table)
