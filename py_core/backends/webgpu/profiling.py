"""Measures kernels by the GPU's own clock, and the limits of the adapter that they are compared with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

from py_core.backend_errors import BackendError
from py_core.backends.profiles import KernelCost, OnRound
from py_core.backends.webgpu.host import Binding, Dispatch, Host
from py_core.backends.webgpu.plan import Launch
from py_core.backends.webgpu.shaders import Constant, binding_access, compose

_BROWSER_QUANTUM = 1e-4  # Chromium rounds timestamps to this
_SHORTEST = 5e-5  # seconds of a pass: its beginning and end are small beside that
_BUDGET = 2.0  # seconds of one measurement, after which no round is added
_ROUNDS = 5
_WARM_UP = 0.4  # seconds
_MOST_REPEATS = 4096
_VEC4 = 16
MeasuringKernel = tuple[str, dict[str, Constant], int]
"""A shader, its constants, and its number of workgroups."""


async def measure_kernels(
    host: Host, launches: Sequence[Launch], position: int, rows: int, prepare: Callable[[], None],
    on_round: OnRound,
) -> tuple[list[KernelCost], float]:  # fmt: skip
    """Return the costs of a pass's kernels, summed by name, and the seconds of the whole pass in its own order.

    Kernels of one name run together in a compute pass: one alone is too short for the clock, and each reads its own
    weights as it does in the model. Their order is therefore not the model's, and their results are of no use.
    """
    groups: dict[str, list[Launch]] = {}
    for launch in launches:
        groups.setdefault(launch.kernel.name, []).append(launch)
    recorded = [host.record([launch.dispatch() for launch in group]) for group in (*groups.values(), launches)]
    try:
        seconds = await measure_lists(host, recorded, prepare, on_round)
    finally:
        for one in recorded:
            host.forget(one)
    costs = [
        KernelCost(
            name, len(group), of_group,
            bytes=sum(launch.kernel.cost.bytes(min(launch.m, rows), position) for launch in group),
            flops=sum(launch.kernel.cost.flops(min(launch.m, rows), position) for launch in group),
        )
        for (name, group), of_group in zip(groups.items(), seconds, strict=False)
    ]  # fmt: skip
    return costs, seconds[-1]


async def measure_lists(
    host: Host, recorded: Sequence[int], prepare: Callable[[], None] = lambda: None, on_round: OnRound = lambda: None
) -> list[float]:
    """Return the seconds of each recorded list: medians of rounds, each of which begins with `prepare`.

    A list too short for the clock is run several times in a row. Raises BackendError if the GPU has no clock.
    """
    times = [1] * len(recorded)
    # An idle GPU takes a third of a second to come to speed.
    warm = time.perf_counter() + (0 if host.adapter.software else _WARM_UP)
    while time.perf_counter() < warm:
        prepare()
        await host.profile(recorded, times)
    begin = time.perf_counter()
    rounds: list[list[float]] = []
    while len(rounds) < _ROUNDS and (not rounds or time.perf_counter() - begin < _BUDGET):
        prepare()
        seconds = await host.profile(recorded, times)
        on_round()
        wanted = [_repeats(of_pass, count, _shortest(seconds)) for of_pass, count in zip(seconds, times, strict=True)]
        if wanted != times:
            times, rounds = wanted, []
            continue
        rounds.append([of_pass / count for of_pass, count in zip(seconds, times, strict=True)])
    return [median(of_list) for of_list in zip(*rounds, strict=True)]


def _shortest(seconds: Sequence[float]) -> float:
    """Return the shortest pass that the clock behind these measurements can time."""
    rounded = all(abs(value / _BROWSER_QUANTUM - round(value / _BROWSER_QUANTUM)) < 1e-3 for value in seconds)
    return 40 * _BROWSER_QUANTUM if rounded else _SHORTEST


def _repeats(seconds: float, times: int, shortest: float) -> int:
    """Return how often a list is to run in its pass, if `times` runs took `seconds`."""
    if seconds >= shortest / 2:
        return times
    if times >= _MOST_REPEATS:
        if seconds == 0:
            raise BackendError(
                "gpu.frozen-timestamps",
                "This GPU's timestamps do not advance, so the time of a kernel cannot be measured.",
            )
        return times
    growth = min(16, math.ceil(shortest / seconds)) if seconds else 16
    return min(times * growth, _MOST_REPEATS)


async def measure_bandwidth(host: Host, on_round: OnRound = lambda: None) -> float:
    """Return the bytes a second that the adapter reads from a buffer larger than its caches: the best of several
    kernels.

    A software adapter reads a smaller buffer, which takes long enough.
    """
    most = min(host.adapter.max_binding_size, (16 if host.adapter.software else 256) << 20)
    size = 1 << (most.bit_length() - 1)
    shapes = [(loads, workgroup) for loads in (8, 32, 128) for workgroup in (64, 256)]
    kernels: list[MeasuringKernel] = [
        ("read_bandwidth", {"LOADS": loads, "WORKGROUP": workgroup}, size // _VEC4 // loads // workgroup)
        for loads, workgroup in shapes
        if workgroup <= host.adapter.max_workgroup_size
    ]
    return size / min(await _seconds_of(host, kernels, size, on_round))


async def measure_flops(host: Host, on_round: OnRound = lambda: None) -> float:
    """Return the FLOPs a second of multiplications and additions of float32: the best of several kernels."""
    groups, steps, workgroup = 16 if host.adapter.software else 4096, 256, 64
    chains = (2, 4, 8)
    kernels: list[MeasuringKernel] = [
        ("multiply_add", {"CHAINS": count, "STEPS": steps, "WORKGROUP": workgroup}, groups) for count in chains
    ]
    seconds = await _seconds_of(host, kernels, 2 * _VEC4, on_round)
    flops = 8 * steps * workgroup * groups
    return max(flops * count / of_kernel for count, of_kernel in zip(chains, seconds, strict=True))


async def _seconds_of(host: Host, kernels: list[MeasuringKernel], size: int, on_round: OnRound) -> list[float]:
    """Return the seconds of each kernel, over `size` zeroed bytes."""
    data, out = host.create_buffer(size, "data to measure with"), host.create_buffer(_VEC4, "out")
    recorded = []
    try:
        await host.check()
        for name, constants, groups in kernels:
            wgsl = compose(name, constants, {})
            pipeline = host.pipeline(wgsl, binding_access(wgsl), name)
            bindings = (Binding(data, 0, size), Binding(out, 0, _VEC4))
            recorded.append(host.record([Dispatch(pipeline, bindings, (groups, 1, 1))]))
        return await measure_lists(host, recorded, on_round=on_round)
    finally:
        for one in recorded:
            host.forget(one)
        host.destroy_buffer(data)
        host.destroy_buffer(out)
