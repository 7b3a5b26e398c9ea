"""Opens a model in the Pyodide of any page: on numpy with nothing but the wheel, or on the kernels of a site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import js
from pyodide.code import run_js
from pyodide.ffi import create_proxy, to_js
from pyodide.http import pyfetch

from app.generation.grammars import VocabularyGrammars
from app.models.build_outputs import TEMPLATE_WORKER, grammar_kernel_path, jinja_kernel_path
from py_core.backend_errors import BackendError
from py_core.backends.browser_source import BrowserSource
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_browser import BrowserHost
from py_core.formats.source import BytesSource, WeightSource
from py_core.loading import BackendLoader, Model, load_model
from py_core.tokenizers.template_renderer import COSTLY, TemplateError, error_of, too_slow

if TYPE_CHECKING:
    from py_core.grammar.kernel import KernelHost

_STARTS = 30.0
"""Seconds that the templates' worker may take to start."""


async def open_model(
    model: str | bytes, backend: str, context: int | None, files: str | None, on_progress: Callable[[int, int], None]
) -> Model:
    """Open a model: see `Sonata.load`. Raises BackendError, GGUFError."""
    source, loader = await _opened(model, backend, files, on_progress)
    renderer = WorkerTemplateRenderer(TEMPLATE_WORKER.read_text("utf-8"), jinja_kernel_path().read_bytes())
    loaded = await load_model(source, loader, renderer, on_progress, context)
    loaded.engine.constraint_of = VocabularyGrammars(
        loaded.tokenizer, loaded.config.vocab_size, open_grammar_kernel
    ).constraint
    return loaded


async def _opened(
    model: str | bytes, backend: str, files: str | None, on_progress: Callable[[int, int], None]
) -> tuple[WeightSource, BackendLoader]:
    model = _read(model)
    if files is None and backend in ("auto", "numpy"):
        return BytesSource(await _fetched(model) if isinstance(model, str) else model), load_numpy
    if files is None:
        raise BackendError(
            f"The backend {backend} needs the kernels of a site: give `files`, the address of a folder with Sonata's "
            "site or npm package."
        )
    imported = run_js("(address) => import(address)")
    site = files.rstrip("/") + "/"

    async def module(path: str) -> Any:
        return await imported(f"{site}{path}")

    device = None
    if backend in ("auto", "webgpu"):
        device = await (await module("backends/webgpu/executor.js")).createExecutor()
        if not device and backend == "webgpu":
            raise BackendError("This browser has no WebGPU: leave `backend` out.")
    if not device:
        pools = (await module("backends/wasm/kernel_pool.js")).KernelPool
        device = await pools.create(_object(folder=f"{site}kernels/"))
    wanted = (
        _object(url=model) if isinstance(model, str) else _object(blobs=[js.File.new([to_js(model)], "model.gguf")])
    )
    model_source = (await module("storage/model_source.js")).ModelSource.new(wanted)
    told = create_proxy(lambda done, total: on_progress(done, total or done))
    stream = await (await module("backends/weight_stream.js")).WeightStream.open(model_source, _object(onProgress=told))
    on_gpu = not hasattr(device, "setWorkers")
    loader = partial(load_webgpu, BrowserHost(device)) if on_gpu else partial(load_wasm, BrowserKernelHost(device))
    return BrowserSource(stream), loader


def _read(model: str | bytes) -> str | bytes:
    """The bytes of a file of Pyodide's file system; else the address."""
    return Path(model).read_bytes() if isinstance(model, str) and Path(model).is_file() else model


async def _fetched(address: str) -> bytes:
    answer = await pyfetch(address)
    if not answer.ok:
        raise BackendError(f"The model could not be fetched: {address} answered with {answer.status}.")
    content: bytes = await answer.bytes()
    return content


async def open_grammar_kernel() -> KernelHost:
    """Return the kernel of grammars, of the wheel."""
    from py_core.grammar.browser_kernel import BrowserGrammarHost  # late: few answers have a shape

    made = await js.WebAssembly.instantiate(to_js(grammar_kernel_path().read_bytes()))
    exports = made.instance.exports

    def write(address: int, data: Any) -> None:
        js.Uint8Array.new(exports.memory.buffer).set(data, address)

    def read(address: int, nbytes: int) -> Any:
        return js.Uint8Array.new(exports.memory.buffer, address, nbytes)

    return BrowserGrammarHost(SimpleNamespace(exports=exports, write=write, read=read))


class WorkerTemplateRenderer:
    """A TemplateRenderer: web/tokenizers/template_worker.js, which is ended if a template takes too long."""

    def __init__(self, script: str, module: bytes) -> None:
        self.spent = 0.0
        self._script, self._module = script, module
        self._worker: Any = None
        self._turn = asyncio.Lock()

    async def run(self, request: bytes, check: bool, seconds: float) -> bytes:
        async with self._turn:
            loop = asyncio.get_running_loop()
            began, told = loop.create_future(), loop.create_future()

            def hear(event: Any) -> None:
                heard = began if hasattr(event.data, "begins") else told
                if not heard.done():
                    heard.set_result(event.data)

            def fail(event: Any) -> None:
                event.preventDefault()
                for one in (began, told):
                    if not one.done():
                        one.set_result(None)

            heard = create_proxy(hear), create_proxy(fail)
            worker = self._worker = self._worker or await self._started()
            worker.onmessage, worker.onerror = heard
            try:
                worker.postMessage(_object(request=to_js(request), check=check))
                await asyncio.wait_for(began, _STARTS)
                begin = loop.time()
                answer = await asyncio.wait_for(told, seconds)
                self.spent = loop.time() - begin
            except TimeoutError:
                self.spent = seconds
                self._end()
                raise too_slow() from None
            finally:
                worker.onmessage = worker.onerror = None
                for proxy in heard:
                    proxy.destroy()
            return self._read(answer)

    def _read(self, answer: Any) -> bytes:
        if answer is None:
            self._end()
            raise error_of(COSTLY, "it takes too much memory")
        if hasattr(answer, "text"):
            text: bytes = answer.text.to_bytes()
            return text
        raise self._error(answer)

    def _error(self, answer: Any) -> TemplateError:
        return error_of(answer.kind, answer.words)

    async def _started(self) -> Any:
        address = js.URL.createObjectURL(js.Blob.new(to_js([self._script]), _object(type="text/javascript")))
        worker = js.Worker.new(address, _object(name="sonata-templates"))
        worker.postMessage(_object(module=await js.WebAssembly.compile(to_js(self._module))))
        return worker

    def _end(self) -> None:
        self._worker.terminate()
        self._worker = None


def _object(**fields: Any) -> Any:
    return to_js(fields, dict_converter=js.Object.fromEntries)
