"""The scaling of the WASM backend in headless Chromium: with workers, with one core less, with the context's length.

    python -m tests.bench wasm_scaling [--rounds 3] [--tokens 64] [--precision fast] [--json FILE]

Decode tok/s, the end token ignored. One page for each number of workers and precision, all open at the same time; each
round asks one after the other, so that all of them see the same noise of the machine. "busy": a process of this
benchmark spins on the last core meanwhile. Figures are medians over the rounds; ratios medians of each round's ratio.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from playwright.sync_api import Browser
from rich.table import Table

from tests.bench.in_browser import SonataTab, chromium, local_server, machine, oracle_prompt, wait_for_quiet
from tests.bench.reporting import options_of, print_tables, write_figures

WORKERS = (1, 2)
LONG = 4000
BUSY_SECONDS = 120
"""The spinning process ends itself after this time, whatever happens to this process."""

SPIN = f"""
import os, time
os.sched_setaffinity(0, {{max(os.sched_getaffinity(0))}})
print("spinning", flush=True)
end = time.monotonic() + {BUSY_SECONDS}
while time.monotonic() < end:
    pass
"""

Figures = dict[str, float]


def main() -> None:
    assert __doc__
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each answer")
    parser.add_argument("--long", type=int, default=LONG, help="tokens of the long prompt")
    parser.add_argument("--precision", action="append", choices=["precise", "fast"], help="default: both")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait so long for other programs to be quiet"
    )
    options = parser.parse_args()
    precisions = options.precision or ["precise", "fast"]
    with local_server() as address, chromium() as browser:
        result = measure(browser, address, precisions, options.rounds, options.tokens, options.long, options.wait)
    write_figures(options, result)
    show(result)


@contextlib.contextmanager
def one_core_taken() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield
        assert process.poll() is None, f"the answers took longer than the {BUSY_SECONDS} s that a core was taken for"
    finally:
        process.terminate()
        process.communicate()


def measure(
    browser: Browser, address: str, precisions: list[str], rounds: int, tokens: int, long: int, wait: float
) -> dict[str, Any]:
    tabs = {
        f"{precision}-{workers}": SonataTab(browser, address, workers, precision)
        for precision in precisions
        for workers in WORKERS
    }
    prompt = oracle_prompt()
    long_prompt = " the" * long  # the text does not matter to attention
    for tab in tabs.values():
        for _ in range(2):  # so that the browser has compiled the hot code
            tab.generate(prompt, tokens)
    result: dict[str, Any] = {"machine": machine(browser), "tokens": tokens, "rounds": []}
    for number in range(rounds):
        figures: dict[str, Figures] = {name: {} for name in tabs}
        wait_for_quiet(wait)
        for name, tab in tabs.items():
            figures[name]["idle"] = tab.generate(prompt, tokens)["decodeTokS"]
        with one_core_taken():
            for name, tab in tabs.items():
                figures[name]["busy"] = tab.generate(prompt, tokens)["decodeTokS"]
        wait_for_quiet(wait)
        for name, tab in tabs.items():
            figures[name]["idle again"] = tab.generate(prompt, tokens)["decodeTokS"]
            answer = tab.generate(long_prompt, tokens)
            assert len(answer["promptTokens"]) == long
            figures[name]["at 4000"] = answer["decodeTokS"]
            figures[name]["prefill of 4000"] = answer["prefillTokS"]
            figures[name]["load average"] = os.getloadavg()[0]
            said = {key: round(value) for key, value in figures[name].items()}
            print(f"round {number + 1}, {name}: {said}", file=sys.stderr)
        result["rounds"].append(figures)
    return result | summary(result["rounds"], precisions)


def summary(rounds: list[dict[str, Figures]], precisions: list[str]) -> dict[str, Any]:
    """Medians, and for each precision the ratios that the issue asks for."""
    medians = {
        name: {key: median(figures[name][key] for figures in rounds) for key in of_name}
        for name, of_name in rounds[0].items()
    }
    ratios: dict[str, Figures] = {}
    for precision in precisions:
        one, two = f"{precision}-1", f"{precision}-2"
        # name -> (numerator, denominator): engine and figure
        pairs = {
            "2 workers / 1, idle (wanted 1.5)": ((two, "idle"), (one, "idle")),
            "2 workers busy / 1 idle (wanted 0.8)": ((two, "busy"), (one, "idle")),
            "2 workers busy / 1 busy": ((two, "busy"), (one, "busy")),
            "2 workers idle again / idle": ((two, "idle again"), (two, "idle")),
            "at 4000 / at 100, 1 worker (wanted 0.5)": ((one, "at 4000"), (one, "idle again")),
            "at 4000 / at 100, 2 workers (wanted 0.5)": ((two, "at 4000"), (two, "idle again")),
        }
        ratios[precision] = {
            label: median(figures[a][key_a] / figures[b][key_b] for figures in rounds)
            for label, ((a, key_a), (b, key_b)) in pairs.items()
        }
    return {"medians": medians, "ratios": ratios}


def show(result: dict[str, Any]) -> None:
    on = result["machine"]
    title = f"{on['cpu']}, {on['cores']} cores, Chromium {on['chromium']}; medians of {len(result['rounds'])} rounds"
    table = Table(title=f"tok/s; {title}")
    table.add_column("precision-workers", no_wrap=True)
    columns = list(next(iter(result["medians"].values())))
    for column in columns:
        table.add_column(column, justify="right")
    for name, figures in result["medians"].items():
        table.add_row(name, *(f"{figures[column]:.0f}" for column in columns))
    ratios = Table(title="ratios")
    ratios.add_column("of", no_wrap=True)
    for precision in result["ratios"]:
        ratios.add_column(precision, justify="right")
    for label in next(iter(result["ratios"].values())):
        ratios.add_row(label, *(f"{figures[label]:.2f}" for figures in result["ratios"].values()))
    print_tables(table, ratios)
