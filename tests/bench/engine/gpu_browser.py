"""Sonata's page on WebGPU beside wllama's, on the same file and prompts, in turns.

python -m tests.bench gpu_browser site OUT           the site with the page and its peer, for a machine with a GPU
python -m tests.bench gpu_browser here [--page P] [--query Q]   in this machine's Chromium (SwiftShader: slow)
python -m tests.bench gpu_browser table RESULT.json  the table of what the page sent to /result
python -m tests.bench gpu_browser adapters RESULT.json  what a set of LoRA matrices costs: of adapters.html
python -m tests.bench gpu_browser shapes RESULT.json ...   the same of several models, and each kernel of a token
python -m tests.bench gpu_browser together RESULT.json  guessed tokens and conversations at once: of together.html
python -m tests.bench gpu_browser schemas RESULT.json  what a schema costs and brings: of schemas.html
python -m tests.bench gpu_browser diffusion RESULT.json  what passes over masks cost, and if tiny models write what
                                                     numpy writes: of diffusion.html

P is bench.html, together.html or schemas.html of tests/bench/gpu_page, Q its query:
"rounds=1&peer=0&prompts=20&tokens=8" for the first, "backend=wasm&workers=2&precision=fast" for the others. On an
NVIDIA GPU llama.cpp needs Chromium's flag
--enable-dawn-features=vulkan_enable_f16_on_nvidia,allow_unsafe_apis; Sonata does not.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from app.building.common import ROOT
from app.building.site.dist import DIST
from app.models.downloads import model_files
from tests.bench.engine.adapters import MEASURE_IN_PAGE, show, summary_of
from tests.bench.engine.diffusion_passes import MEASURE_IN_PAGE as DIFFUSION_IN_PAGE
from tests.bench.engine.diffusion_passes import TINY_ANSWER, lay_out_tiny
from tests.bench.engine.diffusion_passes import table_of as diffusion_table
from tests.bench.engine.speculation import TASKS, by_kind_of
from tests.bench.engine.speculation import table_of as guesses_table
from tests.bench.in_browser import chromium, evaluate, install_peers, local_server
from tests.bench.reporting import options_of, print_tables, write_figures

WAIT = """async () => {
    while (!globalThis.result) await new Promise((resolve) => setTimeout(resolve, 200));
    return globalThis.result;
}"""
HERE = Path(__file__).parent
PAGES = HERE.parent / "gpu_page"
EXTRACTION = HERE.parent / "data" / "extraction.json"


def lay_out(folder: Path) -> None:
    """The built site, the pages, and the peer's modules, without models."""
    subprocess.run([sys.executable, "build.py", "site"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    shutil.copytree(DIST, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.gguf"))
    page = ROOT / "tests" / "page"
    measures = (HERE / "adapters_measure.py", HERE / "diffusion_measure.py")
    beside = (page / "python_worker.js", page / "run_python.js", *measures)
    for path in (*PAGES.iterdir(), *beside):
        shutil.copyfile(path, folder / path.name)
    (folder / "tasks.json").write_text(json.dumps(tomllib.loads(TASKS.read_text("utf-8"))["task"]), encoding="utf-8")
    shutil.copyfile(EXTRACTION, folder / EXTRACTION.name)
    (folder / "adapters_in_page.py").write_text(MEASURE_IN_PAGE, encoding="utf-8")
    (folder / "diffusion_in_page.py").write_text(DIFFUSION_IN_PAGE, encoding="utf-8")
    answers = {"count": TINY_ANSWER, "answers": asyncio.run(lay_out_tiny(folder))}
    (folder / "tiny_answers.json").write_text(json.dumps(answers), encoding="utf-8")
    shutil.copytree(install_peers() / "@wllama" / "wllama" / "esm", folder / "wllama", dirs_exist_ok=True)


def run_here(name: str, query: str) -> dict[str, Any]:
    """Open a page in this machine's Chromium, and return the data that it sends to /result."""
    tasks = json.dumps(tomllib.loads(TASKS.read_text("utf-8"))["task"])
    isolated = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
    with local_server() as address, chromium() as browser:
        page = browser.new_page()
        for path in (PAGES / name, PAGES / "own_engine.js"):
            page.route(re.compile(rf"/{re.escape(path.name)}\b"), lambda route, _, path=path: route.fulfill(
                path=path, headers={"Content-Type": mimetypes.guess_type(path)[0] or "", **isolated}
            ))  # fmt: skip
        page.route(f"{address}/tasks.json", lambda route: route.fulfill(body=tasks, content_type="application/json"))
        page.route(f"{address}/{EXTRACTION.name}", lambda route: route.fulfill(path=EXTRACTION))
        page.route(f"{address}/result", lambda route: route.fulfill(status=204))
        page.goto(f"{address}/{name}?model=/models/{model_files()[0].file}&{query}")
        return dict(evaluate(page, WAIT))


def table_of(result: dict[str, Any]) -> Table:
    """Medians over the rounds, a row a prompt."""
    table = Table(title="tok/s; medians of rounds; first: ms to the first token")
    names = ["prompt", "prefill", "decode", "first", "wllama prefill", "wllama decode", "x prefill", "x decode"]
    for name in names:
        table.add_column(name, justify="right")
    for at, run in enumerate(result["rounds"][0]["sonata"]["runs"]):
        ours = {key: median(one["sonata"]["runs"][at][key] for one in result["rounds"])
                for key in ("prefill_tok_s", "decode_tok_s", "first_token_ms")}  # fmt: skip
        peers = [
            one["wllama"]["runs"][at] for one in result["rounds"] if len(one.get("wllama", {}).get("runs", [])) > at
        ]
        row = [run["prompt_tokens"], *(f"{value:.0f}" for value in ours.values())]
        for key in ("prefill_tok_s", "decode_tok_s"):
            row.append(f"{median(peer[key] for peer in peers):.0f}" if peers else "")
        for key in ("prefill_tok_s", "decode_tok_s"):
            row.append(f"{ours[key] / median(peer[key] for peer in peers):.1f}" if peers else "")
        table.add_row(*map(str, row))
    return table


def shapes_report(paths: list[Path]) -> tuple[dict[str, Any], Table, Table]:
    """Speeds of several models, named as their results, and the kernels of a token: for JSON, and two tables."""
    report: dict[str, Any] = {}
    speeds, kernels = Table(title="tok/s; first: ms to the first token"), Table(title="kernels of a token")
    for name in ("model", "prompt", "prefill", "decode", "first"):
        speeds.add_column(name, justify="right")
    for name in ("model", "kernel", "times", "us each", "of the bandwidth"):
        kernels.add_column(name, justify="right")
    for path in paths:
        ours = json.loads(path.read_text())["rounds"][0]["sonata"]
        profiles = ours["profile"]["passes"]
        report[path.stem] = {"load_ms": ours["load_ms"], "runs": ours["runs"], "passes": profiles}
        for run in ours["runs"]:
            figures = [run[key] for key in ("prefill_tok_s", "decode_tok_s", "first_token_ms")]
            speeds.add_row(path.stem, str(run["prompt_tokens"]), *(f"{value:.0f}" for value in figures))
        for kernel in [kernel for one in profiles for kernel in one["kernels"]]:
            share = kernel["gb_s"] / ours["profile"]["limits"]["gb_s"]
            times = [str(kernel["count"]), f"{kernel['us_each']:.1f}", f"{share:.0%}"]
            kernels.add_row(path.stem, kernel["kernel"], *times)
    return report, speeds, kernels


def show_adapters(result: dict[str, Any]) -> None:
    """A table for each prompt."""
    for run in result["runs"]:
        figures = summary_of(run["milliseconds"], run["prompt"], result["tokens"])
        show(
            {
                "rank": result["rank"],
                "prompt": run["prompt"],
                "engines": {run["device"]: {**figures, "load_average": 0}},
            }
        )
    if "error" in result:
        raise SystemExit(result["error"])


def show_together(result: dict[str, Any]) -> None:
    """A table of guesses, and one of conversations at once."""
    if "error" in result:
        raise SystemExit(result["error"])
    by_kind = by_kind_of(result["guesses"])
    counts = dict.fromkeys(one["count"] for one in result["parallel"])
    speeds = {count: median(one["tok_s"] for one in result["parallel"] if one["count"] == count) for count in counts}
    same = {count: min(one["same"] for one in result["parallel"] if one["count"] == count) for count in counts}
    ninth = {key: median(one[key] for one in result["ninth"]) for key in result["ninth"][0]}
    table = Table(title="Conversations at once; the first token of a ninth, ms: " + str(ninth))
    for name in ("conversations", "tok/s together", "answers as alone"):
        table.add_column(name, justify="right")
    for count in counts:
        table.add_row(str(count), f"{speeds[count]:,.0f}", str(same[count]))
    print_tables(guesses_table(by_kind, "Decoding, tok/s"), table)


def show_schemas(result: dict[str, Any]) -> None:
    """The speeds of each kind of answer, beside free text of the same task and round: with the same setting, and
    without guesses."""
    if "error" in result:
        raise SystemExit(result["error"])
    runs = result["runs"]
    free = {(one["task"], one["round"], one["guesses"]): one["tok_s"] for one in runs if one["kind"] == "free"}
    table = Table("answer", "guesses", "states", title="Decoding with a schema; medians")
    for name in ("tokens", "tok/s", "times free text", "times free text without guesses"):
        table.add_column(name, justify="right")
    for kind, guesses, is_cold in dict.fromkeys((one["kind"], one["guesses"], one["round"] < 0) for one in runs):
        mine = [one for one in runs if (one["kind"], one["guesses"], one["round"] < 0) == (kind, guesses, is_cold)]
        beside = [
            median(one["tok_s"] / free[one["task"], one["round"], setting] for one in mine)
            for setting in (guesses, False)
        ]
        speed, tokens = (median(one[name] for one in mine) for name in ("tok_s", "tokens"))
        states, on = "cold" if is_cold else "known", "on" if guesses else "off"
        table.add_row(kind, on, states, f"{tokens:.0f}", f"{speed:.0f}", *(f"{times:.2f}" for times in beside))
    print_tables(table)


def show_diffusion(result: dict[str, Any]) -> None:
    if "error" in result:
        raise SystemExit(result["error"])
    print_tables(diffusion_table({"model": "the model of the page", **result}))
    print("Tiny models write what numpy writes:", ", ".join(f"{name}: {same}" for name, same in result["same"].items()))


SHOWS = {"together.html": show_together, "schemas.html": show_schemas}


def main() -> None:
    parser = options_of(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("site").add_argument("out", type=Path)
    here = commands.add_parser("here")
    here.add_argument("--page", choices=("bench.html", *SHOWS), default="bench.html")
    here.add_argument("--query", default="rounds=1&peer=0&prompts=16&tokens=6&profile=0")
    commands.add_parser("table").add_argument("result", type=Path)
    commands.add_parser("adapters").add_argument("result", type=Path)
    for name in SHOWS:
        commands.add_parser(Path(name).stem).add_argument("result", type=Path)
    commands.add_parser("diffusion").add_argument("result", type=Path)
    commands.add_parser("shapes").add_argument("results", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "shapes":
        figures, *tables = shapes_report(options.results)
        write_figures(options, figures)
        print_tables(*tables)
        return
    if options.command == "here":
        result = run_here(options.page, options.query)
    elif options.command == "site":
        lay_out(options.out)
        return
    else:
        result = json.loads(options.result.read_text())
    write_figures(options, result)
    page = options.page if options.command == "here" else f"{options.command}.html"
    if page in SHOWS:
        SHOWS[page](result)
        return
    if options.command in (shows := {"adapters": show_adapters, "diffusion": show_diffusion}):
        shows[options.command](result)
        return
    if "error" in result:
        raise SystemExit(result["error"])
    print_tables(table_of(result))
