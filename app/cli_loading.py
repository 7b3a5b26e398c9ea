"""What the commands that run a model share: on which backend, and how it is opened."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress

from app.autotune_cache import AutotuneCache
from app.build_outputs import kernel_path
from app.cli_model_file import chosen_path
from app.fit_check import available_memory, fit_check
from app.template_renderer import native_renderer
from app.terminal import console
from py_core.backends.base import BackendError
from py_core.backends.numpy import load_numpy
from py_core.backends.tiers import TierPolicy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu.backend import load_webgpu
from py_core.fit import Need, Room, cost
from py_core.formats.source import open_source
from py_core.loading import BackendLoader, Model, load_model

notes = console(stderr=True)


class Precision(StrEnum):
    precise = "precise"
    fast = "fast"


class BackendChoice(StrEnum):
    auto = "auto"
    webgpu = "webgpu"
    wasm = "wasm"
    numpy = "numpy"


BackendOption = Annotated[BackendChoice, typer.Option(help="auto uses webgpu on a real GPU, and wasm on the CPU.")]
AutotuneOption = Annotated[
    bool,
    typer.Option(
        help="Measure once which kernel shapes are fastest on this GPU, and keep the result.",
        show_default=True,
    ),
]
PrecisionOption = Annotated[
    Precision, typer.Option(help="Of activations on wasm: precise gives the same tokens as float32, fast is faster.")
]
ContextOption = Annotated[
    int | None,
    typer.Option(min=1, help="The most tokens of a conversation. More than the model was trained for stretches it."),
]


TiersOption = Annotated[
    bool,
    typer.Option(
        "--tiers", help="Keys and values of long conversations take fewer bits as they grow old: on wasm and numpy."
    ),
]


async def load(
    path: Path | None, backend: BackendChoice, precision: Precision, autotune: bool = True,
    context: int | None = None, tiers: bool = False,
) -> Model:  # fmt: skip
    """Open the model with a progress bar on stderr while that is a terminal."""
    source, renderer = open_source(chosen_path(path)), native_renderer()
    policy = TierPolicy() if tiers else None
    load_backend = (
        _gpu(backend, autotune, policy) or _kernels(backend, precision, policy) or partial(load_numpy, tiers=policy)
    )
    columns = ("Loading the model", BarColumn(), DownloadColumn())
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def on_bytes(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        told: list[tuple[Need, Room]] = []

        def tell(need: Need, room: Room) -> None:
            told.append((need, room))
            if context is not None:
                notes.print(escape(cost(need, context)), soft_wrap=True)

        check = fit_check(load_backend, available_memory(), tell)
        model = await load_model(source, load_backend, renderer, on_bytes, context, check)
    await model.engine.limit_memory(told[0][1].memory)
    return model


def _gpu(backend: BackendChoice, autotune: bool, tiers: TierPolicy | None) -> BackendLoader | None:
    if backend not in (BackendChoice.webgpu, BackendChoice.auto):
        return None
    # Imported late: the CPU's backends must work where wgpu's library does not load.
    from py_core.backends.webgpu.host_wgpu import WgpuHost

    try:
        host = WgpuHost()
    except BackendError:
        if backend is BackendChoice.webgpu:
            raise
        return None
    if backend is BackendChoice.auto and host.adapter.software:
        host.close()
        return None
    return partial(load_webgpu, host, tuning=AutotuneCache() if autotune else None, tiers=tiers)


def _kernels(backend: BackendChoice, precision: Precision, tiers: TierPolicy | None) -> BackendLoader | None:
    if backend not in (BackendChoice.wasm, BackendChoice.auto):
        return None
    from py_core.backends.wasm.host_wasmtime import WasmtimeHost

    try:
        return partial(load_wasm, WasmtimeHost(kernel_path()), precision=precision, tiers=tiers)
    except FileNotFoundError:
        if backend is BackendChoice.wasm:
            raise
        return None  # never compiled here: numpy needs nothing
