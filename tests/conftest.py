"""Fixtures shared by all tests: the model, the oracles, the site on a real server, the browser."""

from __future__ import annotations

import os

# Before numpy is imported: a second thread spins while it waits for work, and with a test on each core that wastes the
# core. The oracle p0 on numpy took 18 s of CPU time, and takes 3.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import is_hypothesis_test, settings

from app.building import kernels, node, python_env
from app.building.common import ROOT, BuildError, one_build_at_a_time
from app.building.download import Downloader
from app.building.embedder.files import WEIGHTS
from app.building.site.dist import DIST, build_site
from app.building.site.dist import made_files as make_files
from app.building.system import find_chromium
from app.models import build_outputs
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from app.native_runtime import native_router_parts
from app.paths import cache_dir
from py_core.backends.numpy.backend import NumpyBackend, load_numpy, load_weights
from py_core.backends.protocols import Backend, Progress
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine
from py_core.formats.gguf import GGUFHeader, read_header
from py_core.formats.source import FileSource, WeightSource
from py_core.loading import BackendLoader, Model
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from py_core.tokenizers.chat_template import ChatTemplate
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.budgets import Times
from tests.routing.few_examples import few_parts, use_few_examples
from tests.tiny.llama import TinyLlama

pytest_plugins = ["tests.every_backend", "tests.runtime_fixtures"]

PAGE = Path(__file__).parent / "page"
ORACLES = Path(__file__).parent / "oracle"

# Shaders that Mesa's software GPU compiled earlier are cached there: each costs a second otherwise.
os.environ.setdefault("MESA_SHADER_CACHE_DIR", str(cache_dir() / "shaders"))

# No test reads or changes the memory of the developer who runs it.
_HOME = tempfile.TemporaryDirectory(prefix="sonata-home-")
os.environ["SONATA_MEMORY"] = str(Path(_HOME.name) / "memory.sqlite")

# "same" draws the same examples each time, as CI should; `--hypothesis-profile=random` looks for new ones.
settings.register_profile("random", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("same" if os.environ.get("CI") else "random")

# The gate draws fewer: see tests/random_examples.py.
GATE, GATE_EXAMPLES = "not all and not long", 25

# A shell that runs the tests in the background makes them ignore Ctrl-C, and every process that they start, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == GATE:
        settings.register_profile("gate", settings.default, max_examples=GATE_EXAMPLES)
        settings.load_profile("gate")
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers report to this process
        config.pluginmanager.register(Times())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Coverage doubles a test's time. It is not measured if no more lines can be found: in tests with examples by
    hypothesis, in tests of Python in a browser, and in the kernels' tests after the first case of each.
    """
    seen: set[tuple[str, str]] = set()
    for item in items:
        folder, case = item.path.parent.name, (str(item.path), getattr(item, "originalname", item.name))
        again = folder in ("webgpu", "wasm") and case in seen
        seen.add(case)
        if again or PAGE in item.path.parents or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("no_cover")


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The real chat model, SmolLM2-135M-Instruct in Q4_1."""
    try:
        return default_model_path()
    except FileNotFoundError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def minilm() -> tuple[Path, Path]:
    """The sentence embedder as published: all-MiniLM-L6-v2's safetensors and tokenizer.json."""
    folder = cache_dir() / "embedder"
    for path in (folder / WEIGHTS, folder / build_outputs.EMBEDDER_TOKENIZER):
        if not path.is_file():
            pytest.fail(f"{path} is not there: run `python build.py site` once to download it.")
    return folder / WEIGHTS, folder / build_outputs.EMBEDDER_TOKENIZER


@dataclass(frozen=True)
class Oracle:
    """The results of llama.cpp with weights dequantized to f32 and f32 activations.

    `logits` are those after the last prompt token, float32 (vocab_size,). `greedy_ids` are the next 128 tokens, each
    with the lead of its logit over the second best in `top2_margin`.
    """

    prompt: str
    prompt_ids: list[int]
    greedy_ids: list[int]
    top2_margin: list[float]
    text: str
    logits: np.ndarray

    def first_certain(self, margin: float = 0.02) -> int:
        """The number of greedy tokens before the first that leads by `margin`: rounding decides them (p1, p3: one)."""
        return next(step for step, lead in enumerate(self.top2_margin) if lead >= margin)

    def certain_ids(self, margin: float = 0.02, first: int = 0) -> list[int]:
        """The greedy tokens from number `first` on, up to one that rounding could flip. Fails if there is none."""
        steps = range(first, len(self.greedy_ids))
        end = next((step for step in steps if self.top2_margin[step] < margin), len(self.greedy_ids))
        if end <= first:
            pytest.fail(f"Token {first} leads by less than {margin}: nothing would be compared; see `first_certain`.")
        return self.greedy_ids[first:end]


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], Oracle]:
    """oracle("p0"), oracle("p1"), oracle("p3")"""

    def load(name: str) -> Oracle:
        recorded = json.loads((ORACLES / f"f32_{name}.json").read_text(encoding="utf-8"))
        logits = np.load(ORACLES / f"f32_{name}_logits.npy")
        keys = ("prompt", "prompt_ids", "greedy_ids", "top2_margin", "text")
        return Oracle(**{key: recorded[key] for key in keys}, logits=logits)

    return load


@pytest.fixture(scope="session")
def made_files() -> dict[str, Path]:
    """Files that are downloaded, compiled and made for the site, in the cache: kernels, embedder, the router's data."""
    cache = cache_dir()
    try:
        with one_build_at_a_time(cache):
            downloader = Downloader(cache, python_env.pypi_address)
            node.ensure_node_modules(cache, downloader, dev=True)  # a merge may have brought a package
            return make_files(cache, downloader)
    except BuildError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def dist(made_files: dict[str, Path]) -> Path:
    """dist/, up to date with the sources."""
    try:
        with one_build_at_a_time(cache_dir()):
            build_site(made_files)
    except BuildError as error:
        pytest.fail(str(error))
    return DIST


@pytest.fixture(scope="session")
def kernel_wasm() -> Callable[..., Path]:
    """kernel_wasm(build) -> one of the builds of web/kernels, by default the native one"""

    @cache  # checking that it is up to date waits for a running build
    def compiled(build: str = build_outputs.MODEL_BUILDS[0]) -> Path:
        try:
            return kernels.kernel_path(build)
        except BuildError as error:
            pytest.fail(str(error))

    return compiled


@pytest.fixture(scope="module")
def fast_routing(made_files: dict[str, Path]) -> Iterator[None]:
    """Routers of this process get few examples, and share one embedder: they work the same."""
    with pytest.MonkeyPatch.context() as patch:
        use_few_examples(patch, few_parts(native_router_parts()))
        yield


StartServer = Callable[[Path], tuple[subprocess.Popen[str], str]]


@pytest.fixture(params=["numpy", "webgpu", "wasm"])
def load_backend(request: pytest.FixtureRequest, kernel_wasm: Callable[..., Path]) -> Iterator[BackendLoader]:
    """Opens a model on each backend in turn. Opened models are closed after the test."""
    load: BackendLoader = load_numpy
    if request.param == "webgpu":
        load = partial(load_webgpu, WgpuHost())
    elif request.param == "wasm":
        load = partial(load_wasm, WasmtimeHost(kernel_wasm()))
    opened: list[Backend] = []

    async def opening(
        source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph, progress: Progress | None
    ) -> Backend:
        opened.append(await load(source, header, config, graph, progress))
        return opened[-1]

    yield opening
    for backend in opened:
        backend.close()


def _start_server(dist: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "app.server.site", "--no-open", "--port", "0", "--dist", str(dist)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    words = server.stdout.readline().split()
    address = next((word for word in words if word.startswith("http://")), "")
    if not address:
        _, said = server.communicate(timeout=10)
        pytest.fail(f"the server did not start: {said}")
    return server, address


@pytest.fixture(scope="session")
def start_server() -> StartServer:
    """start_server(dist) -> the real server in a process of its own, on a free port, and its address"""
    return _start_server


@pytest.fixture(scope="session", name="site")
def site_address(dist: Path) -> Iterator[str]:
    """The site on a free port: "http://localhost:PORT"."""
    server, address = _start_server(dist)
    yield address
    server.terminate()
    server.communicate(timeout=10)


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """A Chromium for Playwright's executable_path."""
    found = find_chromium()
    if found is None:
        pytest.fail("There is no Chromium for this test: run `python build.py test` once, it installs one.")
    return found


WriteModel = Callable[..., Path]
OpenModel = Callable[..., Awaitable[Model]]


@pytest.fixture(scope="session")
def write_model(tmp_path_factory: pytest.TempPathFactory) -> WriteModel:
    """write_model({key: value or None}, **TinyLlama's fields) -> a new file's path"""

    def write(changes: Mapping[str, Any] | None = None, **options: Any) -> Path:
        path = tmp_path_factory.mktemp("model") / "tiny.gguf"
        return TinyLlama(**options).write(path, changes)

    return write


@pytest.fixture(scope="session")
def tiny_path(write_model: WriteModel) -> Path:
    """A TinyLlama with a context of 512 tokens. With its own output matrix it does not just repeat itself."""
    return write_model(tied=False)


@pytest.fixture(scope="session")
def open_model() -> OpenModel:
    """await open_model(path, a subclass of NumpyBackend, context, end_tokens) -> Model"""

    async def open_on(
        path: Path,
        backend: type[NumpyBackend] = NumpyBackend,
        context: int | None = None,
        end_tokens: Collection[int] | None = None,
    ) -> Model:
        source = FileSource(path)
        header = await read_header(source)
        config, graph = describe_model(header, context)
        tokenizer = tokenizer_from_gguf(header.metadata)
        weights = await load_weights(source, header, graph)
        ends = tokenizer.eos_ids if end_tokens is None else end_tokens
        engine = Engine(backend(config, graph, weights), ends)
        template = ChatTemplate.from_gguf(header.metadata, tokenizer, native_renderer())
        return Model(config, tokenizer, template, engine, graph)

    return open_on


@pytest.fixture(scope="session")
def real_parts(model_path: Path) -> tuple[ModelConfig, Graph, dict[str, np.ndarray]]:
    """SmolLM2-135M-Instruct: the arguments of a NumpyBackend."""
    source = FileSource(model_path)
    header = asyncio.run(read_header(source))
    config, graph = describe_model(header)
    return config, graph, asyncio.run(load_weights(source, header, graph))


@pytest.fixture(scope="session")
def real_model(model_path: Path, real_parts: tuple) -> Model:
    """SmolLM2-135M-Instruct on numpy. Tests share it; each takes a session of its own."""
    header = asyncio.run(read_header(FileSource(model_path)))
    tokenizer = tokenizer_from_gguf(header.metadata)
    engine = Engine(NumpyBackend(*real_parts), tokenizer.eos_ids)
    template = ChatTemplate.from_gguf(header.metadata, tokenizer, native_renderer())
    return Model(real_parts[0], tokenizer, template, engine, real_parts[1])
