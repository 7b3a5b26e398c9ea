"""Shared by the browser benchmarks: the site and its peers on a local server, Chromium, and Sonata's page in a tab."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, Route, sync_playwright
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from app.building.common import ROOT, one_build_at_a_time
from app.building.download import Downloader
from app.building.node import npm_ci
from app.building.python_env import pypi_address
from app.building.site.dist import DIST
from app.building.system import CHROMIUM_FLAGS, WEBGPU_FLAG, find_chromium
from app.checksums import sha256_of
from app.models.cache import ModelCache
from app.paths import cache_dir
from app.server.site import create_app, listen, server_config

PEERS = Path(__file__).parent / "peers"
LIMIT_MS = 900_000
"""The time limit of one measurement."""
STATE = "document.documentElement.dataset.state"


def oracle_prompt() -> str:
    """94 tokens: a system message and a question, in the model's chat template."""
    recorded = json.loads((ROOT / "tests" / "oracle" / "f32_p3.json").read_text(encoding="utf-8"))
    return str(recorded["prompt"])


def install_peers() -> Path:
    """node_modules of tests/bench/peers, in the cache."""
    cache = cache_dir()
    folder = cache / "bench" / f"peers-{sha256_of(PEERS / 'package-lock.json')[:12]}"
    done = folder / "installed"
    with one_build_at_a_time(cache):
        if not done.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copyfile(PEERS / name, folder / name)
            npm_ci(folder, cache, Downloader(cache, pypi_address))
            done.touch()
    return folder / "node_modules"


@contextlib.contextmanager
def local_server(with_peers: bool = False, more: Mapping[str, Path] | None = None) -> Iterator[str]:
    """The site as it is in this checkout now, cross-origin isolated; /peers/, /npm/ and /kept/ (the models here)
    beside it, and more folders by their paths. Gives its address."""
    subprocess.run([sys.executable, "build.py", "site"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    routes = [Mount(path, StaticFiles(directory=folder)) for path, folder in (more or {}).items()]
    if with_peers:
        routes += [
            Mount("/kept", StaticFiles(directory=ModelCache().folder)),
            Mount("/peers", StaticFiles(directory=PEERS)),
            Mount("/npm", StaticFiles(directory=install_peers())),
        ]
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(create_app(DIST, routes)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://localhost:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=5)
        listener.close()


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*CHROMIUM_FLAGS, WEBGPU_FLAG])
        try:
            yield browser
        finally:
            browser.close()


def evaluate(page: Page, expression: str, argument: Any = None) -> Any:
    """`expression`: an async JavaScript function of one argument. TimeoutError instead of waiting for ever."""
    limited = f"""(argument) => Promise.race([
        ({expression})(argument),
        new Promise((_, reject) => setTimeout(() => reject(new Error('no answer in time')), {LIMIT_MS})),
    ])"""
    return page.evaluate(limited, argument)


@contextlib.contextmanager
def python_page(browser: Browser, address: str, module: Path) -> Iterator[Page]:
    """A page whose `runPython(source)` runs Sonata's Python in a worker (python_worker.js), after a file of Python."""
    worker = ROOT / "tests" / "page" / "python_worker.js"
    headers = {"Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin"}
    page = browser.new_page(bypass_csp=True)

    def fulfill(route: Route) -> None:
        route.fulfill(body=worker.read_text("utf-8"), content_type="text/javascript", headers=headers)

    try:
        page.route("**/python_worker.js", fulfill)
        page.goto(f"{address}/THIRD_PARTY.txt")
        page.evaluate(worker.with_name("run_python.js").read_text("utf-8"))
        run_python(page, module.read_text("utf-8"))
        yield page
    finally:
        page.close()


def run_python(page: Page, source: str) -> Any:
    """Run source in a page of `python_page`, and return the value of its last line."""
    return evaluate(page, "(source) => runPython(source)", source)


def until_ready(page: Page, limit_ms: int = LIMIT_MS) -> None:
    """Wait until Sonata's page is ready. Raises RuntimeError with what it says if it fails."""
    page.wait_for_function(f"() => ['ready', 'failed'].includes({STATE})", timeout=limit_ms)
    if page.evaluate(STATE) == "failed":
        raise RuntimeError(page.inner_text("#banner"))


class SonataTab:
    """Sonata's page on the WASM backend. Raises RuntimeError when the page says that another backend runs."""

    def __init__(self, browser: Browser, address: str, workers: int, precision: str, more: str = "") -> None:
        self.page = browser.new_page()
        self.page.goto(f"{address}/?backend=wasm&workers={workers}&precision={precision}{more}")
        self._ready()
        self.info: dict[str, Any] = self.page.evaluate("sonata.info")
        if self.info["backend"] != "wasm":
            self.close()
            raise RuntimeError(f"the page runs {self.info['backend']}, not wasm")

    def _ready(self) -> None:
        try:
            until_ready(self.page)
        except RuntimeError as error:
            self.close()
            raise RuntimeError(f"the page did not start: {error}") from error

    def load_again(self) -> dict[str, float]:
        """Replace the first engine by a second, its files in the browser's cache. Returns ms from its start.

        `load_ms`: to a first token, including Python's start. `load_after_python_ms`: the same without Python's start.
        """
        self.page.evaluate("""async () => {
            const { prototype } = sonata.engine.constructor;  // that of the bundle: engine.js by itself has another
            const { start } = prototype;
            prototype.start = function (options, onProgress, ...rest) {
                prototype.start = start;
                globalThis.loadTimes = { start: performance.now() };
                const noted = (progress) => {
                    if (progress.stage === 'python') globalThis.loadTimes.python = performance.now();
                    onProgress(progress);
                };
                return start.call(this, options, noted, ...rest);
            };
            sonata.load();
        }""")
        self._ready()
        times = evaluate(
            self.page,
            "async () => { await sonata.engine.developer.generate({ prompt: 'Hello', raw: true, maxTokens: 1 });"
            " return { ...globalThis.loadTimes, end: performance.now() }; }",
        )
        return {"load_ms": times["end"] - times["start"], "load_after_python_ms": times["end"] - times["python"]}

    def generate(self, prompt: str, tokens: int) -> dict[str, Any]:
        """Return the result of `sonata.engine.developer.generate`, and `wall_ms`."""
        return evaluate(
            self.page,
            """async ({ prompt, tokens }) => {
                const start = performance.now();
                const made = await sonata.engine.developer.generate({ prompt, raw: true, maxTokens: tokens });
                return { ...made, wall_ms: performance.now() - start };
            }""",
            {"prompt": prompt, "tokens": tokens},
        )

    def close(self) -> None:
        self.page.close()


def wait_for_quiet(seconds: float) -> None:
    """Wait until other programs leave the processor alone, `seconds` at most. Linux; elsewhere not at all."""

    def ticks() -> tuple[int, int]:
        values = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(values), values[3] + values[4]  # all, idle

    end = time.monotonic() + seconds
    while time.monotonic() < end and Path("/proc/stat").exists():
        total, idle = ticks()
        time.sleep(2)
        total_after, idle_after = ticks()
        if idle_after - idle > 0.9 * (total_after - total):
            return


@contextlib.contextmanager
def preferred() -> Iterator[None]:
    """This process and what it starts get the cores before all others: Linux, as root, with control groups."""
    root = Path("/sys/fs/cgroup/cpu")
    group, most = root / "sonata-bench", ("cpu.shares", "262144")
    if not root.is_dir():  # version 2
        root = root.parent
        group, most = root / "sonata-bench", ("cpu.weight", "10000")
    group.mkdir(exist_ok=True)
    try:
        (group / most[0]).write_text(most[1])
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has ended
                (root / "cgroup.procs").write_text(pid)
        group.rmdir()


def browser_processes() -> dict[int, int]:
    """All processes of the browsers that this process started, by number: their ticks of CPU time, with those of
    their children that ended. Linux; elsewhere none."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, fields = path.read_text().split("(", 1)[1].rsplit(")", 1)
            parent, *rest = (int(field) for field in fields.split()[1:])
            children.setdefault(parent, []).append(int(path.parent.name))
            if name.startswith("chrom"):
                ticks[int(path.parent.name)] = sum(rest[9:13])
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return {pid: ticks[pid] for pid in found if pid in ticks}


def browsers_cpu_seconds() -> float:
    """CPU time so far of all browsers that this process started, with all of their processes. Linux; elsewhere nan."""
    ticks = browser_processes()
    return sum(ticks.values()) / os.sysconf("SC_CLK_TCK") if ticks else float("nan")


def browsers_memory_mb() -> float:
    """The memory of the tabs of all browsers that this process started, and of what draws for them, in MB; of shared
    pages each has its share. Linux; elsewhere nan."""
    held = 0
    for pid in (found := browser_processes()):
        with contextlib.suppress(OSError):
            folder = Path("/proc", str(pid))
            if re.search(r"--type=(renderer|gpu-process)", (folder / "cmdline").read_text()):
                held += int(re.findall(r"\nPss:\s+(\d+)", (folder / "smaps_rollup").read_text())[0])
    return held / 1024 if found else float("nan")


def processor() -> str:
    """Return the name of the processor."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor()


def machine(browser: Browser) -> dict[str, Any]:
    """Return a description of the machine that the figures were measured on."""
    cores = len(os.sched_getaffinity(0))
    return {"cpu": processor(), "cores": cores, "chromium": browser.version, "load": os.getloadavg()[0]}
