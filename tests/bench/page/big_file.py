"""A model file of 3 GB in the page: how fast it is copied and read, and how much memory the page takes meanwhile.

    python -m tests.bench big_file [--layers 63] [--context 1024] [--json FILE]

The file has random weights (random_gguf.py) and is kept in the cache. The page runs on the CPU, in a browser with a
profile on disk. Reading is measured in a worker of the page that throws the bytes away: through Sonata's store, which
checks every piece, and beside it in the browser's plainest ways. Then the page itself copies the file into its store
and loads it, three times. The heaps are the largest sum over the page and its workers that was seen, with garbage.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, sync_playwright
from rich.table import Table

from app.building.system import CHROMIUM_FLAGS, find_chromium
from app.paths import ROOT, cache_dir
from tests.bench.in_browser import LIMIT_MS, STATE, browsers_cpu_seconds, evaluate, local_server, until_ready
from tests.bench.page.heaps import Heaps
from tests.bench.reporting import options_of, print_tables, write_figures

# Reads the kept model, or the user's file; MB/s of each way.
READER = """
import { ModelSource } from '/storage/model_source.js';
import { broughtModels, findModel } from '/storage/model_store.js';
import { WeightStream } from '/backends/weight_stream.js';
import { createSHA256, createXXHash64 } from '/vendor/hash-wasm.mjs';

const PIECE = 4 << 20;

onmessage = ({ data }) => read(data).then(postMessage, (error) => postMessage({ error: String(error.stack) }));

async function read({ given, way }) {
  const [model] = given ? [{ blobs: [given] }] : await broughtModels();
  const file = given ?? await findModel(model);
  const room = new ArrayBuffer(PIECE), piece = new Uint8Array(room);
  const sha256 = await createSHA256(), xxh64 = await createXXHash64();
  const pieces = async (use) => {
    for (let at = 0; at < file.size; at += PIECE) await use(at, Math.min(PIECE, file.size - at));
  };
  const ways = {
    Sonata: async () => {
      const stream = await WeightStream.open(new ModelSource(model));
      await pieces((at, nbytes) => stream.read(at, nbytes, room));
    },
    stream: async () => {
      for (const reader = file.stream().getReader(); !(await reader.read()).done;);
    },
    slices: () => pieces((at, nbytes) => file.slice(at, at + nbytes).arrayBuffer()),
    sha256: () => pieces(() => crypto.subtle.digest('SHA-256', piece)),
    'sha256 hash-wasm': () => pieces(() => sha256.update(piece)),
    xxh64: () => pieces(() => xxh64.init().update(piece).digest()),
  };
  const begin = performance.now();
  await ways[way]();
  return { speed: file.size / 1e3 / (performance.now() - begin) };
}
"""
READS = ("Sonata", "stream", "slices")
SUMS = ("sha256", "sha256 hash-wasm", "xxh64")
READ = """async ([source, selector, way]) => {
  const script = source.replaceAll("'/", `'${location.origin}/`);
  const url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
  const worker = new Worker(url, { type: 'module' });
  worker.postMessage({ way, given: selector ? document.querySelector(selector).files[0] : null });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => data.error ? reject(new Error(data.error)) : resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message));
  }).finally(() => worker.terminate());
}"""
# From when Python is there until the last byte of the model was read, and until the page is ready.
NOTE_TIMES = """async () => {
  const { prototype } = sonata.engine.constructor;  // that of the bundle: engine.js by itself has another
  const { start } = prototype;
  prototype.start = async function (options, onProgress, ...rest) {
    const times = (globalThis.loadTimes = {});
    const info = await start.call(this, options, (progress) => {
      if (progress.complete) times[progress.stage] ??= performance.now();
      onProgress(progress);
    }, ...rest);
    times.ready = performance.now();
    return info;
  };
}"""


def the_file(layers: int) -> Path:
    """Return the file's path; the file is made once."""
    path = cache_dir() / "bench" / f"random-{layers}-layers.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        options = ["--layers", str(layers), "--format", "Q4_K"]
        subprocess.run([sys.executable, "-m", "tests.bench", "random_gguf", part, *options], cwd=ROOT, check=True)
        part.rename(path)
    return path


def check_room(path: Path) -> None:
    needed, free = 2.2 * path.stat().st_size, shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        raise SystemExit(f"{needed / 1e9:.1f} GB are needed in {tempfile.gettempdir()}, {free / 1e9:.1f} GB are free.")


def copy_mb_s(path: Path, folder: str) -> float:
    """Return the MB/s of a plain copy, until it is on the disk."""
    copy = Path(folder, "copy")
    began = time.monotonic()
    shutil.copyfile(path, copy)
    with open(copy, "rb") as file:
        os.fsync(file.fileno())
    took = time.monotonic() - began
    copy.unlink()
    return path.stat().st_size / 1e6 / took


def read_all(page: Page, selector: str | None, ways: tuple[str, ...], size: int) -> dict[str, dict[str, float]]:
    """MB/s of each way, and seconds of CPU time that all of the browser took for a GB."""
    found = {}
    for way in ways:
        cpu = browsers_cpu_seconds()
        speed = evaluate(page, READ, [READER, selector, way])["speed"]
        found[way] = {"speed": speed, "cpu": (browsers_cpu_seconds() - cpu) / size * 1e9}
    return found


def measure(context: BrowserContext, address: str, path: Path, tokens: int) -> dict[str, Any]:
    """Everything in one tab. Speeds in MB/s, sizes in bytes, times in seconds."""
    size = path.stat().st_size
    page = context.new_page()
    page.goto(f"{address}/?backend=wasm&routing=off&context={tokens}")
    until_ready(page, 4 * LIMIT_MS)
    page.evaluate("document.body.append(Object.assign(document.createElement('input'), { type: 'file', id: 'plain' }))")
    page.set_input_files("#plain", path)
    found: dict[str, Any] = {"disk": read_all(page, "#plain", READS, size)}

    page.evaluate(NOTE_TIMES)
    heaps = Heaps(page)
    page.click("#model-chip")
    page.click("#models-button")
    page.wait_for_selector("#models .models-open")
    began = time.monotonic()
    page.set_input_files("#models input[type=file]", path)
    heaps.sample_while(f"{STATE} === 'ready' && !document.querySelector('#models [role=alert]:not([hidden])')")
    if said := page.locator("#models [role=alert]:visible").all_inner_texts():
        raise RuntimeError(said[0])
    found["copied"] = size / 1e6 / (time.monotonic() - began)
    found["heap_copying"], found["loads"] = heaps.take_peak(), []
    for again in range(3):
        if again:
            page.evaluate("void sonata.load()")
        cpu = browsers_cpu_seconds()
        heaps.sample_while(f"{STATE} === 'loading'")
        until_ready(page, 4 * LIMIT_MS)
        times = page.evaluate("globalThis.loadTimes")
        found["loads"].append({
            "read": size / 1e3 / (times["model"] - times["python"]),
            "ready_s": (times["ready"] - times["python"]) / 1000,
            "cpu_s": browsers_cpu_seconds() - cpu,
        })  # fmt: skip
    found["heap_loading"] = heaps.take_peak()
    answer = evaluate(page, "() => sonata.engine.developer.generate({ prompt: 'Hello', raw: true, maxTokens: 4 })")
    found |= {"tokens": answer["tokens"], "decode_tok_s": answer["decodeTokS"]}
    found["python_heap"] = page.evaluate("sonata.engine.pythonHeapBytes()")
    page.evaluate("sonata.engine.dispose()")  # the kernels' memory is free again
    found["store"] = read_all(page, None, READS + SUMS, size)
    return found


def said(way: dict[str, float]) -> str:
    return f"{way['speed']:.0f} ({way['cpu']:.1f})"


def report(found: dict[str, Any]) -> None:
    table = Table(
        "MB/s",
        "Sonata",
        "a stream",
        "slices of 4 MiB",
        title="Reading, and throwing the bytes away (seconds of CPU time a GB)",
    )
    for place, name in (("store", "the browser's store"), ("disk", "the user's disk")):
        table.add_row(name, *(said(found[place][way]) for way in READS))
    reads = ", ".join(
        f"{load['read']:.0f} MB/s, ready after {load['ready_s']:.1f} s, {load['cpu_s']:.1f} s of CPU time"
        for load in found["loads"]
    )
    copying, loading, python = (found[f"{heap}"] / 1e6 for heap in ("heap_copying", "heap_loading", "python_heap"))
    store = found["store"]
    print_tables(
        table,
        f"Checksums, MB/s: SHA-256 {said(store['sha256'])} by the browser, "
        f"{said(store['sha256 hash-wasm'])} by hash-wasm; "
        f"XXH64 {said(store['xxh64'])}.\n"
        f"Copied into the store at {found['copied']:.0f} MB/s; a plain copy on this disk: {found['cp']:.0f}.\n"
        f"Loaded, from when Python was there (CPU time of all of the browser, Python's start included): {reads}.\n"
        f"JavaScript's heaps while copying: {copying:.0f} MB, while loading: {loading:.0f}; Python's: {python:.0f}.\n"
        f"It answers: {len(found['tokens'])} tokens, {found['decode_tok_s']:.2f} a second.",
    )


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--layers", type=int, default=63, help="of the shape of Qwen2.5-3B, whose other sizes it has")
    parser.add_argument("--context", type=int, default=1024, help="the most tokens of a conversation")
    options = parser.parse_args()
    path = the_file(options.layers)
    check_room(path)
    with local_server() as address, tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        cp = copy_mb_s(path, folder)
        context = playwright.chromium.launch_persistent_context(
            folder, executable_path=find_chromium(), args=CHROMIUM_FLAGS, bypass_csp=True
        )
        try:
            measured = measure(context, address, path, options.context)
        finally:
            context.close()
    found = {"gigabytes": path.stat().st_size / 1e9, "cp": cp, "load": os.getloadavg()[0], **measured}
    report(found)
    write_figures(options, found)
