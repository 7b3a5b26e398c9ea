"""The titles that a model makes of conversations' first messages (app/chat/titles.py), and the time for a title.

    python -m tests.bench titles [--model FILE] [--json FILE]

The messages are in tests/bench/data/first_messages.toml. If the model makes no good title, "-" is shown: the title is
then the first words of the message.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import tomllib
from functools import partial
from pathlib import Path

from app.chat.titles import make_title
from app.models.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.bench.reporting import options_of, write_figures

MESSAGES = tomllib.loads((Path(__file__).parents[1] / "data" / "first_messages.toml").read_text("utf-8"))["messages"]


async def measure(path: Path) -> list[dict[str, object]]:
    backend = partial(load_wasm, WasmtimeHost(kernel_path()), precision="precise")
    model = await load_model(FileSource(path), backend, native_renderer())
    rows = []
    for message in MESSAGES:
        begin = time.perf_counter()
        title = await make_title(model, message, "")
        rows.append({"message": message, "title": title, "seconds": time.perf_counter() - begin})
        print(f"{title or '-':<62}{message[:90]}", flush=True)
    return rows


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--model", type=Path, default=None)
    given = parser.parse_args()
    rows = asyncio.run(measure(given.model or default_model_path()))
    made = sum(bool(row["title"]) for row in rows)
    median = statistics.median(float(str(row["seconds"])) for row in rows)
    print(f"{made} of {len(rows)} have a title; {median:.2f} s each (median)")
    write_figures(given, rows)
