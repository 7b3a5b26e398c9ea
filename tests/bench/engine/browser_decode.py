"""Sonata's WASM backend against its peers, in headless Chromium on the CPU.

    python -m tests.bench browser_decode [--model qwen2.5-coder-0.5b] [--rounds 3] [--tokens 128] [--only 'wllama-*']
        [--json FILE]

Each round opens one page after the other, so that all of them see the same noise of the machine: Sonata with 1 and 2
workers, precise and fast, and wllama with 1 and 2 threads, on the same GGUF file, the same prompt of some 94 tokens and
as many new ones, greedy, the end token ignored. A page's first two prompts warm it up and are not counted. Figures
are medians over the rounds; ratios are medians of each round's ratio. On a busy machine wllama with as many threads as
there are cores collapses (7 tok/s instead of 25): trust only figures from a quiet machine, or with --preferred;
see `load_average`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from fnmatch import fnmatch
from statistics import median
from typing import Any

from playwright.sync_api import Browser
from rich.table import Table

from app.models.cache import ModelCache
from app.models.downloads import model_files
from tests.bench.in_browser import (
    SonataTab,
    chromium,
    evaluate,
    local_server,
    machine,
    oracle_prompt,
    preferred,
    wait_for_quiet,
)
from tests.bench.reporting import options_of, print_tables, write_figures

PEERS = ["wllama-1", "wllama-2"]
SONATA = ["sonata-precise-1", "sonata-precise-2", "sonata-fast-1", "sonata-fast-2"]
WARMUPS = 2  # so that the browser has compiled the hot code
METRICS = {  # heading -> figure
    "decode": "decode_tok_s",
    "prefill": "prefill_tok_s",
    "first": "first_token_ms",
    "load": "load_ms",
    "load*": "load_after_python_ms",
    "busy": "load_average",
}
LEGEND = (
    "decode, prefill: tok/s; first: ms from the prompt's tokens to the first new one; load: ms from bytes that are "
    "here to a first token (load*: without Python's start); busy: load average; x: times wllama. Wanted: decode 3x "
    "(precise) and 6x (fast) of wllama, prefill 10x (fast), first under 300 on one worker, load under 1500."
)
NOT_MEASURED = {"transformers.js": "its model, in ONNX, comes only from a hub that this project does not depend on"}

Figures = dict[str, float]


def main() -> None:
    assert __doc__
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=model_files()[0].id, help="the name of a kept model")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of each answer")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"of {', '.join(PEERS + SONATA)}; * is allowed")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait so long for other programs to be quiet"
    )
    parser.add_argument("--preferred", action="store_true", help="get the cores before other programs (Linux, as root)")
    options = parser.parse_args()
    patterns = options.only or ["*"]
    engines = [name for name in PEERS + SONATA if any(fnmatch(name, pattern) for pattern in patterns)]
    if not engines:
        parser.error(f"--only: there are {', '.join(PEERS + SONATA)}")
    before_others = preferred() if options.preferred else contextlib.nullcontext()
    with before_others, local_server(with_peers=True) as address, chromium() as browser:
        result = measure(browser, address, engines, options)
    write_figures(options, result)
    show(result)


def measure(browser: Browser, address: str, engines: list[str], options: Namespace) -> dict[str, Any]:
    model = f"/kept/{ModelCache().path_of(options.model).name}"
    result: dict[str, Any] = {
        "machine": machine(browser),
        "model": options.model,
        "tokens": options.tokens,
        "rounds": [],
        "not_measured": dict(NOT_MEASURED),
    }
    for number in range(options.rounds):
        figures: dict[str, Figures] = {}
        for name in engines:
            if name in result["not_measured"]:
                continue
            wait_for_quiet(options.wait)
            engine, threads = name.rsplit("-", 1)
            visit: Callable[..., Figures] = visit_wllama if engine == "wllama" else visit_sonata
            try:
                figures[name] = visit(browser, address, model, engine, int(threads), options.tokens)
            except Exception as error:  # of a page: the others are measured all the same
                result["not_measured"][name] = str(error).strip().splitlines()[0]
            said = {key: round(value) for key, value in figures.get(name, {}).items()}
            print(f"round {number + 1}, {name}: {said or result['not_measured'][name]}", file=sys.stderr)
        result["rounds"].append(figures)
    return result | summary(result["rounds"])


def visit_wllama(browser: Browser, address: str, model: str, engine: str, threads: int, tokens: int) -> Figures:
    prompt = oracle_prompt()
    page = browser.new_page(bypass_csp=True)  # the peers' pages are not the site's
    try:
        page.goto(f"{address}/peers/wllama.html?threads={threads}&model={model}")
        page.wait_for_function("() => globalThis.peer")
        load_ms = evaluate(page, "() => peer.load()")
        assert page.evaluate("peer.threads()") == threads
        generate = """async ([prompt, tokens]) => {
            const start = performance.now();
            const made = await peer.generate(prompt, tokens);
            return { ...made, wall_ms: performance.now() - start };
        }"""
        for _ in range(WARMUPS):
            evaluate(page, generate, [prompt, 8])
        first = evaluate(page, generate, [prompt, 1])
        answer = evaluate(page, generate, [prompt, tokens])
    finally:
        page.close()
    assert answer["new_tokens"] == tokens, answer
    return {
        "prompt_tokens": answer["prompt_tokens"],
        "decode_tok_s": answer["decode_tok_s"],
        "prefill_tok_s": answer["prefill_tok_s"],
        "first_token_ms": first["wall_ms"],
        "load_ms": load_ms,
        "load_average": os.getloadavg()[0],
    }


def visit_sonata(browser: Browser, address: str, model: str, engine: str, threads: int, tokens: int) -> Figures:
    prompt = oracle_prompt()
    tab = SonataTab(browser, address, threads, engine.removeprefix("sonata-"), f"&model={address}{model}")
    try:
        load = tab.load_again()
        for _ in range(WARMUPS):
            tab.generate(prompt, 8)
        first = tab.generate(prompt, 1)
        answer = tab.generate(prompt, tokens)
    finally:
        tab.close()
    assert len(answer["tokens"]) == tokens, answer
    return {
        "prompt_tokens": len(answer["promptTokens"]),
        "decode_tok_s": answer["decodeTokS"],
        "prefill_tok_s": answer["prefillTokS"],
        "first_token_ms": first["wall_ms"],
        **load,
        "load_average": os.getloadavg()[0],
    }


def summary(rounds: list[dict[str, Figures]]) -> dict[str, Any]:
    """Return medians over the rounds, and the speed as a multiple of wllama's with the same number of threads."""
    medians: dict[str, Figures] = {}
    ratios: dict[str, Figures] = {}
    for name in dict.fromkeys(name for figures in rounds for name in figures):
        of_name = [figures[name] for figures in rounds if name in figures]
        medians[name] = {key: median(figures[key] for figures in of_name) for key in of_name[0]}
        peer = f"wllama-{name[-1]}"
        both = [figures for figures in rounds if name in figures and peer in figures]
        if both and name != peer:
            ratios[name] = {
                key: median(figures[name][key] / figures[peer][key] for figures in both)
                for key in ("decode_tok_s", "prefill_tok_s")
            }
    return {"medians": medians, "times_wllama": ratios}


def show(result: dict[str, Any]) -> None:
    on = result["machine"]
    title = f"{result['model']} on {on['cpu']}, {on['cores']} cores, Chromium {on['chromium']}; "
    title += f"medians of {len(result['rounds'])} rounds"
    table = Table(title=title, caption=LEGEND)
    table.add_column("engine-threads", no_wrap=True)
    for heading in METRICS:
        table.add_column(heading, justify="right")
    table.add_column("x decode", justify="right")
    table.add_column("x prefill", justify="right")
    for name, figures in result["medians"].items():
        ratios = result["times_wllama"].get(name, {})
        cells = [f"{figures[key]:.0f}" if key in figures else "" for key in METRICS.values()]
        times = [f"{ratios[key]:.2f}" if key in ratios else "" for key in ("decode_tok_s", "prefill_tok_s")]
        table.add_row(name, *cells, *times)
    print_tables(table)
    for name, why in result["not_measured"].items():
        print(f"{name} was not measured: {why}")
