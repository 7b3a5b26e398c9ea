"""Shared by the commands that run a model: the choice of the backend, and opening the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress

from app.cli.model_file import ModelOption
from app.cli.option_groups import Command, option_group
from app.cli.terminal import console
from app.generation.grammars import VocabularyGrammars
from app.models.autotune_cache import AutotuneCache
from app.models.build_outputs import grammar_kernel_path, kernel_path
from app.models.cache import model_path, title_at
from app.models.fit_check import available_memory, fit_check, keep_within
from app.models.template_renderer import native_renderer
from py_core.backend_errors import BackendError
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu.backend import load_webgpu
from py_core.draft_loading import check_draft, load_draft, read_draft
from py_core.engine.diffusion import USUAL, Unmasking
from py_core.engine.turns import Priority
from py_core.fit import Need, Room, cost
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import open_source
from py_core.loading import Model, load_model
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.tiers import TierPolicy

if TYPE_CHECKING:
    from py_core.grammar.kernel import KernelHost

notes = console(stderr=True)


class Precision(StrEnum):
    precise = "precise"
    fast = "fast"


class BackendChoice(StrEnum):
    auto = "auto"
    webgpu = "webgpu"
    wasm = "wasm"
    numpy = "numpy"


@dataclass(frozen=True)
class ModelOptions:
    """How a command loads its model. `model_options` makes them options of the command."""

    model: ModelOption = None
    backend: Annotated[BackendChoice, typer.Option(help="auto uses webgpu if there is a real GPU, otherwise wasm.")] = (
        BackendChoice.auto
    )
    precision: Annotated[
        Precision,
        typer.Option(help="For wasm: precise gives the same tokens as float32, fast is faster."),
    ] = Precision.precise
    autotune: Annotated[
        bool,
        typer.Option(
            help="Measure once which kernel shapes are fastest on this GPU, and remember the result.", show_default=True
        ),
    ] = True
    context: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The longest conversation, in tokens. More than the model was trained for stretches its positions.",
        ),
    ] = None
    tiers: Annotated[
        bool, typer.Option("--tiers", help="Store older keys and values of long conversations with fewer bits.")
    ] = False
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft",
            help="A smaller model with the same vocabulary (named as for --model): it guesses tokens, which the model "
            "then checks together. The answers stay the same.",
        ),
    ] = None
    max_memory: Annotated[
        int | None,
        typer.Option(
            "--max-memory", min=1, metavar="MB",
            help="How much memory weights and conversations may take together. The default is what the machine has "
            "free.",
        ),
    ] = None  # fmt: skip

    async def load(self) -> Model:
        """Open the model with a progress bar on stderr while that is a terminal, and a draft for it."""
        return await _load(self)


DEFAULTS = ModelOptions()


def model_options(*names: str) -> Callable[[Command], Command]:
    """Give a command the options of a model, in the place of its parameter `options`: model, backend, precision, and
    those with these names."""
    return option_group("options", ModelOptions, ("model", "backend", "precision", *names))


async def _load(options: ModelOptions) -> Model:
    source, renderer, context = open_source(model_path(options.model)), native_renderer(), options.context
    load_backend = _loader(options)
    drafted = None
    if options.draft is not None:
        if load_backend.func is load_numpy:
            raise BackendError(
                "cli.draft-on-numpy",
                "The numpy backend runs one token at a time, so a draft does not help it: leave --draft out, or use "
                "--backend wasm or webgpu.",
            )
        drafted = await read_draft(open_source(model_path(options.draft)), context)
    told: list[tuple[Need, Room]] = []

    def tell(need: Need, room: Room) -> None:
        told.append((need, room))
        if context is not None:
            notes.print(escape(str(cost(need, context))), soft_wrap=True)

    chosen = options.max_memory and options.max_memory * 1_000_000
    fits = fit_check(load_backend, available_memory(), tell, chosen)

    def check(header: GGUFHeader, config: ModelConfig, graph: Graph) -> None:
        if drafted is not None:
            check_draft(header, config, drafted)
        fits(header, config, graph)

    with _progress_of("Loading the model") as on_bytes:
        model = await load_model(source, load_backend, renderer, on_bytes, context, check)
    model.engine.constraint_of = VocabularyGrammars(
        model.tokenizer, model.config.vocab_size, native_grammar_host
    ).constraint
    need, room = told[0]
    needs = [need]
    if drafted is not None:
        try:
            of_draft = _loader(options)
            left = chosen and max(0, chosen - need.at(model.config.context_length).total)
            fits_beside = fit_check(of_draft, available_memory(), lambda need, room: needs.append(need), left)
            fits_beside(drafted.header, drafted.config, drafted.graph)
            with _progress_of("Loading the draft") as on_bytes:
                await load_draft(model.engine, drafted, of_draft, on_bytes)
        except BaseException:
            model.close()
            raise
    await keep_within(model, room, *needs)
    with notes.status("Measuring which kernels are the fastest, once"):
        await model.engine.tune(Priority.INTERACTIVE)
    model.config = replace(model.config, name=title_at(model_path(options.model), model.config.name))
    return model


def unmask_as(model: Model, unmasking: Unmasking) -> None:
    """Say how masks become tokens. Raises ValueError, and closes the model, if it has no masks and more is asked for
    than the usual."""
    if unmasking != USUAL and model.config.diffusion is None:
        model.close()
        raise ValueError("This model writes from left to right: leave --sure, --passes and --remask out.")
    model.engine.unmasking = unmasking


async def native_grammar_host() -> KernelHost:
    """Return an instance of the grammars' kernel in wasmtime. Raises FileNotFoundError, as grammar_kernel_path does."""
    from py_core.grammar.wasmtime_kernel import WasmtimeGrammarHost  # late: few answers have a shape

    return WasmtimeGrammarHost(grammar_kernel_path())


@contextmanager
def _progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    with Progress(
        what, BarColumn(), DownloadColumn(), console=notes, transient=True, disable=not notes.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _loader(options: ModelOptions) -> partial[Any]:
    """A BackendLoader, with its own host."""
    backend, tiers = options.backend, TierPolicy() if options.tiers else None
    on_gpu = _gpu(backend, options.autotune, tiers)
    return on_gpu or _kernels(backend, options.precision, tiers) or partial(load_numpy, tiers=tiers)


def _gpu(backend: BackendChoice, autotune: bool, tiers: TierPolicy | None) -> partial[Any] | None:
    if backend not in (BackendChoice.webgpu, BackendChoice.auto):
        return None
    # Imported late: the CPU's backends must work if wgpu's library does not load.
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


def _kernels(backend: BackendChoice, precision: Precision, tiers: TierPolicy | None) -> partial[Any] | None:
    if backend not in (BackendChoice.wasm, BackendChoice.auto):
        return None
    from py_core.backends.wasm.host_wasmtime import WasmtimeHost, default_workers

    try:
        host = WasmtimeHost(kernel_path(), default_workers())
        return partial(load_wasm, host, precision=precision, tiers=tiers)
    except FileNotFoundError:
        if backend is BackendChoice.wasm:
            raise
        return None  # never compiled here: numpy needs nothing
