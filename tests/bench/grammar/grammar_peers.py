"""Tokens with a schema beside tokens without one: Sonata, wllama and transformers.js in one page, in turns.

    python -m tests.bench grammar_peers [--rounds N] [--tokens N] [--backend webgpu] [--workers N] [--engines NAMES]
        [--json FILE]
    python -m tests.bench grammar_peers --site OUT            the page beside the site, for a machine with a GPU
    python -m tests.bench grammar_peers --table RESULT.json   the table of what that page sent to /result

All answer the same question with SmolLM2-135M, greedy, in the usual GGUF file; transformers.js in ONNX made of it, in 8
bits on the CPU and 4 on WebGPU. Each answers with the schema until the answer ends, and then without it with as many
tokens. Milliseconds a token are those behind the first one: a call for one token is subtracted. Figures are medians.
Sonata's answers are compact, those of the others have spaces and lines. On a busy machine wllama with as many threads
as there are cores takes a second a token: --workers 1 is safe.
"""

from __future__ import annotations

import json
import mimetypes
import re
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from app.models.downloads import model_files
from tests.bench.engine.gpu_browser import PAGES, WAIT, lay_out
from tests.bench.in_browser import chromium, evaluate, install_peers, local_server, machine
from tests.bench.peers.onnx_model import onnx_folder
from tests.bench.reporting import options_of, print_tables, write_figures

PAGE = "grammar_peers.html"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 20},
        "age": {"type": "integer", "minimum": 18, "maximum": 90},
        "city": {"enum": ["Bristol", "Plymouth", "Exeter", "Bath", "Cardiff"]},
        "member": {"type": "boolean"},
    },
    "required": ["name", "age", "city", "member"],
    "additionalProperties": False,
}
TASK = {
    "question": "Invent six people who live in Bristol, Plymouth, Exeter, Bath or Cardiff. Answer in JSON.",
    "schema": {
        "type": "object",
        "properties": {"people": {"type": "array", "items": PERSON, "minItems": 6, "maxItems": 6}},
        "required": ["people"],
        "additionalProperties": False,
    },
}
"""Keywords that all three take."""
PACKAGES = (
    "@wllama/wllama/esm", "@huggingface/transformers/dist", "@huggingface/transformers-structured-output/dist",
    "onnxruntime-web/dist",
)  # fmt: skip


def lay_out_with_peers(folder: Path) -> None:
    """The built site, the page, the peers' modules and the model in ONNX, without that in GGUF."""
    lay_out(folder)
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("*.map", "*.cjs", "*webgl*", "*.node.*")
        shutil.copytree(install_peers() / package, folder / "npm" / package, dirs_exist_ok=True, ignore=ignored)
    shutil.copytree(onnx_folder(), folder / "onnx", dirs_exist_ok=True)
    (folder / "grammar_task.json").write_text(json.dumps(TASK), "utf-8")


def run_here(query: str) -> dict[str, Any]:
    """Open the page in this machine's Chromium, and return the data that it sends to /result."""
    isolated = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
    with local_server(with_peers=True, more={"/onnx": onnx_folder()}) as address, chromium() as browser:
        page = browser.new_page()
        page.on("console", lambda said: print(said.text[:300], file=sys.stderr))
        for path in (PAGES / PAGE, PAGES / "own_engine.js"):
            page.route(re.compile(rf"/{re.escape(path.name)}\b"), lambda route, _, path=path: route.fulfill(
                path=path, headers={"Content-Type": mimetypes.guess_type(path)[0] or "", **isolated}
            ))  # fmt: skip
        page.route(f"{address}/grammar_task.json", lambda route: route.fulfill(json=TASK))
        page.route(f"{address}/result", lambda route: route.fulfill(status=204))
        page.goto(f"{address}/{PAGE}?model=/models/{model_files()[0].file}&{query}")
        return dict(evaluate(page, WAIT)) | {"machine": machine(browser)}


def summary_of(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By engine: medians of milliseconds a token, and of the differences between both in the same round."""
    found = {}
    for name in dict.fromkeys(name for figures in result["rounds"] for name in figures):
        rounds = [figures[name] for figures in result["rounds"] if name in figures]
        pairs = [(one["shaped"]["token"], one["free"]["token"]) for one in rounds]
        found[name] = {
            "tokens": median(one["shaped"]["count"] for one in rounds),
            "free_ms": median(free for _, free in pairs),
            "shaped_ms": median(shaped for shaped, _ in pairs),
            "more_ms": median(shaped - free for shaped, free in pairs),
            "more_percent": median(100 * (shaped / free - 1) for shaped, free in pairs),
            "first_more_ms": median(one["shaped"]["first"] - one["free"]["first"] for one in rounds),
        }
    return found


def table_of(result: dict[str, Any]) -> Table:
    on = result.get("machine", {})
    title = f"ms a token, {len(result['rounds'])} rounds; {on.get('cpu', '')} {result['user_agent'].split()[-2]}"
    table = Table("engine", "tokens", "without", "with the schema", "more", "more, %", "first token, more", title=title)
    for name, one in result["summary"].items():
        cells = (f"{one[key]:.2f}" for key in ("free_ms", "shaped_ms", "more_ms"))
        table.add_row(
            name, f"{one['tokens']:.0f}", *cells, f"{one['more_percent']:+.1f}", f"{one['first_more_ms']:.0f}"
        )
    for name, error in result["errors"].items():
        table.add_row(name, "", error)
    return table


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--site", type=Path, metavar="OUT", help="only lay the page out, in this folder")
    parser.add_argument("--table", type=Path, metavar="RESULT", help="only show these figures")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300, help="the most tokens of an answer")
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise", help="of Sonata, for wasm")
    parser.add_argument("--engines", default="sonata,wllama,transformers")
    options = parser.parse_args()
    if options.site:
        lay_out_with_peers(options.site)
        return 0
    names = ("rounds", "tokens", "backend", "workers", "precision", "engines")
    result = (
        json.loads(options.table.read_text("utf-8"))
        if options.table
        else run_here("&".join(f"{name}={getattr(options, name)}" for name in names))
    )
    result["summary"] = summary_of(result)
    write_figures(options, result)
    print_tables(table_of(result))
    return int(bool(result["errors"]))
