"""Checks before a model is loaded that it fits into the memory of its backend. For the terminal and the page."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu.backend import load_webgpu
from py_core.fit import Need, Room, check_room, contexts, memory_need
from py_core.formats.gguf import GGUFHeader
from py_core.loading import BeforeLoading, Model
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

_BACKENDS = {load_webgpu: "webgpu", load_wasm: "wasm", load_numpy: "numpy"}


def fit_check(
    load_backend: Any, memory: int | None, tell: Callable[[Need, Room], None] = lambda need, room: None,
    chosen: int | None = None,
) -> BeforeLoading:  # fmt: skip
    """Returns the check that `load_model` calls before it loads: it raises DoesNotFitError, with what would fit.

    `load_backend` is a BackendLoader; `memory` is the number of bytes that the machine has for a model, None if
    unknown; `chosen` is the user's limit, None for no limit. `tell` gets the needs of a model that fits, and the memory
    available.
    """

    def check(header: GGUFHeader, config: ModelConfig, graph: Graph) -> None:
        need = need_of(load_backend, header, config, graph)
        room = room_of(load_backend, memory, chosen)
        check_room(need, config.context_length, room)
        tell(need, room)

    return check


@dataclass(frozen=True)
class Fitting:
    """The needs of a loaded model, and the memory available for it."""

    need: Need
    room: Room


def fit_facts(fitting: Fitting, context: int) -> dict[str, Any]:
    """Fit for JSON, sizes in bytes: {trained, weights, pages, scratch, contexts: [[tokens, bytes of everything], ...]}.
    weights, pages, scratch: with a context of `context` tokens. contexts: the lengths that fit, the shortest first."""
    need, parts = fitting.need, fitting.need.at(context)
    return {
        "trained": need.trained, "weights": parts.weights, "pages": parts.pages, "scratch": parts.scratch,
        "contexts": [[one.context, one.total] for one in contexts(need, fitting.room)],
    }  # fmt: skip


async def keep_within(model: Model, room: Room, need: Need, draft: Need | None = None) -> None:
    """Limit a model, and its draft, to the available memory; their pages share what the weights leave."""
    of_model = room.memory
    if room.memory is not None and draft is not None and model.engine.draft is not None:
        taken = [one.weights + one.scratch for one in (need, draft)]
        pages = [sum(one.layer_pages) for one in (need, draft)]  # both hold the same tokens
        left = max(0, room.memory - sum(taken))
        of_model = taken[0] + left * pages[0] // sum(pages)
        await model.engine.draft.limit_memory(taken[1] + left * pages[1] // sum(pages))
    await model.engine.limit_memory(of_model)


def need_of(load_backend: Any, header: GGUFHeader, config: ModelConfig, graph: Graph) -> Need:
    """The needs of a model on the backend that a BackendLoader opens."""
    given = load_backend if isinstance(load_backend, partial) else partial(load_backend)
    precision = given.keywords.get("precision", "precise")
    adapter = given.args[0].adapter if given.func is load_webgpu else None
    return memory_need(header.tensors, config, graph, _BACKENDS[given.func], precision, adapter)


def room_of(load_backend: Any, memory: int | None, chosen: int | None = None) -> Room:
    """The memory available for the model on that backend. No GPU reports its own memory. The user's limit takes
    precedence: browsers report 8 GB at most, and only the user knows what other programs need."""
    given = load_backend if isinstance(load_backend, partial) else partial(load_backend)
    binding = None
    if given.func is load_webgpu:
        adapter = given.args[0].adapter
        binding = adapter.max_binding_size
        memory = memory if adapter.software else None
    return Room(memory if chosen is None else chosen, binding, chosen is not None)


def available_memory() -> int | None:
    """Bytes of memory that are available on this machine, natively; None if unknown."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass  # not Linux
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
