"""The measurements of tests/bench/learning/training.py: the same code natively and in the page."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from py_core.adapters.parameters import parameter_layout
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.protocols import Backend
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu.backend import load_webgpu
from py_core.loading import BackendLoader, read_description
from py_core.models.graph import Graph
from py_core.training.packing import WeightSums, answer_example, base_example, compared_pack, in_groups, packed
from py_core.training.session import AdamW, Pack, TrainingState

DEFAULTS = {"rounds": 5, "sequences": 4, "tokens": 100, "rank": 8, "divergence": 0}
"""The second half of each sequence's tokens has a loss; with a divergence, also the divergence from the base."""


class DeviceMemory:
    """Bytes that a host has taken: of a GPU's buffers, or of the kernels' memory."""

    def __init__(self, host: Any) -> None:
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}
        if hasattr(host, "create_buffer"):
            self._create, self._destroy = host.create_buffer, host.destroy_buffer
            host.create_buffer, host.destroy_buffer = self._created, self._destroyed
        elif hasattr(host, "reserve"):
            self._reserve = host.reserve
            host.reserve = self._reserved

    def _created(self, size: int, label: str) -> int:
        buffer = int(self._create(size, label))
        self._sizes[buffer] = size
        self._set(self.now + size)
        return buffer

    def _destroyed(self, buffer: int) -> None:
        self._destroy(buffer)
        self.now -= self._sizes.pop(buffer, 0)

    async def _reserved(self, nbytes: int) -> None:
        await self._reserve(nbytes)
        self._set(max(self.now, nbytes))

    def _set(self, size: int) -> None:
        self.now, self.peak = size, max(self.peak, size)


async def measure(
    backend: Backend, graph: Graph, device: DeviceMemory, host_bytes: Callable[[], int], options: dict[str, Any]
) -> dict[str, Any]:
    """Medians over the rounds, after one that does not count. A step is all sequences, forward and back, and AdamW."""
    o = {**DEFAULTS, **options}
    rng = np.random.default_rng(0)
    vocabulary = graph.output.width
    before, host_before = device.now, host_bytes()
    device.peak = before
    layout = parameter_layout(graph, o["rank"], 2.0)
    training = await backend.open_training(layout)
    # b is not 0, so that no gradient is trivial.
    flat = layout.fresh(0)
    for _, b in layout.views(flat).values():
        b[:] = 0.01 * rng.uniform(-1, 1, b.shape)
    await training.restore(TrainingState.of(flat))
    half = o["tokens"] // 2
    texts = [rng.integers(0, vocabulary, o["tokens"] + 1).tolist() for _ in range(o["sequences"])]
    examples = [answer_example(text[: half + 1], text[half + 1 :]) for text in texts]
    states = {}
    if o["divergence"]:
        compared = [base_example(text[: half + 1], text[half + 1 :]) for text in texts]
        examples = [
            type(one)(one.tokens, one.weights, other.kl_weights) for one, other in zip(examples, compared, strict=True)
        ]
        states = {one: await training.states(compared_pack(one)) for one in examples}
    sums = WeightSums.of(examples)
    groups = in_groups(examples, training.max_rows)
    packs = [packed(group, sums, float(o["divergence"]), states) for group in groups]
    alone = [packed(group, sums, 0.0, {}) for group in groups]

    pieces: list[float] = []
    last = 0.0

    async def after_piece() -> None:
        nonlocal last
        now = time.perf_counter()
        pieces.append(now - last)
        last = now

    async def timed(work: Callable[[Pack], Awaitable[object]], of: list[Pack]) -> float:
        nonlocal last
        begin = last = time.perf_counter()
        for pack in of:
            await work(pack)
        return time.perf_counter() - begin

    figures: dict[str, list[float]] = {"forward_s": [], "accumulate_s": [], "step_s": []}
    losses = []
    for _ in range(o["rounds"] + 1):
        pieces.clear()
        begin = time.perf_counter()
        forward = await timed(lambda pack: training.states(pack, after_piece), alone)
        found = []

        async def accumulate(pack: Pack, found: list[float] = found) -> None:
            found.append((await training.accumulate(pack, after_piece)).total)

        both = await timed(accumulate, packs)
        losses.append(sum(found))
        begin = time.perf_counter()
        await training.step(AdamW(1e-3))
        for key, seconds in zip(figures, (forward, both, time.perf_counter() - begin), strict=True):
            figures[key].append(seconds)
    forward, both, step = (median(seconds[1:]) for seconds in figures.values())
    tokens = sum(pack.rows for pack in packs)
    training.close()
    return {
        "backend": backend.capabilities.backend,
        "adapter": backend.capabilities.adapter,
        **{key: o[key] for key in DEFAULTS},
        "packs": len(packs),
        "step_tokens": tokens,
        "trained_tok_s": tokens / (both + step),
        "forward_share": forward / (both + step),
        "backward_share": (both - forward) / (both + step),
        "optimizer_share": step / (both + step),
        "longest_piece_ms": 1000 * max(pieces),
        "device_bytes_over_model": device.peak - before,
        "host_bytes_over_model": host_bytes() - host_before,
        "losses": losses,
        "rounds_s": figures,
    }


async def load_and_measure(
    load: BackendLoader, host: Any, source: Any, host_bytes: Callable[[], int], options: dict[str, Any]
) -> dict[str, Any]:
    device = DeviceMemory(host)
    header, config, graph = await read_description(source, None, lambda header, config, graph: None)
    backend = await load(source, header, config, graph, None)
    try:
        return await measure(backend, graph, device, host_bytes, options)
    finally:
        backend.close()


async def in_page(device: Any, stream: Any, options: str, heap_bytes: Callable[[], int]) -> str:
    """Called by gpu_page/training_worker.js. JSON in and out."""
    from py_core.backends.browser_source import BrowserSource
    from py_core.backends.wasm.host_browser import BrowserKernelHost
    from py_core.backends.webgpu.host_browser import BrowserHost

    given = json.loads(options)
    host: Any = None
    load: BackendLoader = load_numpy
    if given["backend"] == "wasm":
        host = BrowserKernelHost(device)
        load = partial(load_wasm, host, precision=given.get("precision", "precise"))
    elif given["backend"] == "webgpu":
        host = BrowserHost(device)
        load = partial(load_webgpu, host)
    numbers = {key: type(default)(given.get(key, default)) for key, default in DEFAULTS.items()}
    found = await load_and_measure(load, host, BrowserSource(stream), heap_bytes, numbers)
    return json.dumps({**found, **{key: given[key] for key in ("workers", "precision") if key in given}})
