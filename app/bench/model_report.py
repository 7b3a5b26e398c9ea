"""A model file's memory needs on each backend of this machine, and its expected speed, measured with another model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from app.generation.speed import measure_speed
from app.models.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.fit_check import available_memory, need_of, room_of
from app.models.template_renderer import native_renderer
from py_core.backend_errors import BackendError
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu.backend import load_webgpu
from py_core.fit import SpeedSample, problem, tokens_per_second
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, load_model
from py_core.models.config import read_rope_factors
from py_core.models.registry import describe_model

_PROMPT, _TOKENS = 32, 32
"""Tokens of the measurement."""


async def model_report(path: Path, context: int | None, measure: bool) -> dict[str, Any]:
    """Fit for JSON: {title, context, memory, backends: {name: {context, total, weights, pages, scratch, problem,
    tok_s}}}. `problem` is None if it fits; `tok_s` is None if nothing was measured.

    Raises GGUFError, BackendError.
    """
    source = FileSource(path)
    header = await read_header(source)
    config, graph = describe_model(header, context, await read_rope_factors(source, header))
    memory = available_memory()
    backends = {}
    for name, loader in _loaders().items():
        need = need_of(loader, header, config, graph)
        parts, words = need.at(config.context_length), problem(need, config.context_length, room_of(loader, memory))
        tok_s = None
        if measure and not words:
            operations = len(graph.ops)
            tok_s = tokens_per_second(need.read_at(_PROMPT + _TOKENS), operations, *await _measured(loader))
        backends[name] = {
            "context": parts.context, "total": parts.total, "weights": parts.weights, "pages": parts.pages,
            "scratch": parts.scratch, "problem": words and str(words), "tok_s": tok_s,
        }  # fmt: skip
    return {"title": config.name, "context": config.context_length, "memory": memory, "backends": backends}


async def _measured(loader: BackendLoader) -> tuple[SpeedSample, float | None]:
    """The speed of the shipped model on this machine, and the bandwidth of the GPU's memory if known."""
    source = FileSource(default_model_path())
    header = await read_header(source)
    config, graph = describe_model(header)
    need = need_of(loader, header, config, graph)
    model = await load_model(source, loader, native_renderer())
    try:
        speed = await measure_speed(model, _PROMPT, _TOKENS, _PROMPT, 3)
        try:
            bandwidth = (await model.engine.limits()).bytes_per_second
        except BackendError:
            bandwidth = None
    finally:
        model.close()
    return SpeedSample(speed.decode_tok_s, need.read_at(_PROMPT + _TOKENS), len(graph.ops)), bandwidth


def _loaders() -> dict[str, BackendLoader]:
    """The backends of this machine: a GPU (not a software adapter), and the CPU's kernels, or else numpy."""
    loaders: dict[str, BackendLoader] = {}
    try:
        from py_core.backends.webgpu.host_wgpu import WgpuHost

        host = WgpuHost()
        if host.adapter.software:
            host.close()
        else:
            loaders["webgpu"] = partial(load_webgpu, host)
    except (BackendError, ImportError, OSError):
        pass  # no GPU
    try:
        from py_core.backends.wasm.host_wasmtime import WasmtimeHost, default_workers

        loaders["wasm"] = partial(load_wasm, WasmtimeHost(kernel_path(), default_workers()))
    except FileNotFoundError:
        loaders["numpy"] = load_numpy  # the kernels were never compiled here
    return loaders
