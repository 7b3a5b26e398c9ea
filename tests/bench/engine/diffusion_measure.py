"""The measurements of diffusion_passes.py, natively and in the page: Python over backends, independent of the host."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median

import numpy as np

from py_core.backends.protocols import Backend, Tunes
from py_core.engine.engine import Engine, Timings
from py_core.models.diffusion import Diffusion
from py_core.sampling import SamplingParams

MASK, STEPS = 0, 16
GREEDY = SamplingParams()
RULES = (GREEDY, SamplingParams(temperature=0.9, seed=4))

Opened = Callable[[Diffusion | None], Awaitable[Backend]]
"""Opens one model, which writes as it is said."""


def drawn(count: int) -> list[int]:
    return np.random.default_rng(1).integers(3, 250, count).tolist()


async def measure(opened: Opened, places: Sequence[int], prompt: int, rounds: int) -> dict[str, object]:
    """Return the seconds of a token from left to right ("step"), and of a pass over so many masks ("passes")."""
    plain = await opened(None)
    others = {count: await opened(Diffusion(MASK, count, False)) for count in places}
    for backend in (plain, *others.values()):
        if isinstance(backend, Tunes):
            await backend.tune(lambda: False)
    steps, passes = list[float](), {count: list[float]() for count in places}
    for number in range(rounds + 1):
        steps.append(await _step(plain, prompt))
        for count, backend in others.items():
            passes[count].append(await _pass(backend, prompt // count * count, count))
        if not number:  # the first round compiles
            steps.clear()
            for times in passes.values():
                times.clear()
    adapter = plain.capabilities.adapter
    for backend in (plain, *others.values()):
        backend.close()
    return {
        "adapter": adapter,
        "step": median(steps),
        "passes": {str(count): median(times) for count, times in passes.items()},
    }


async def _step(backend: Backend, prompt: int) -> float:
    """Return the seconds of a token."""
    sequence = backend.new_sequence()
    await backend.prefill(sequence, drawn(prompt))
    begin = time.perf_counter()
    async for _ in backend.decode(sequence, STEPS, GREEDY):
        pass
    taken = time.perf_counter() - begin
    backend.free(sequence)
    return taken / STEPS


async def _pass(backend: Backend, prompt: int, places: int) -> float:
    """Return the seconds of a pass over a block of masks behind whole blocks."""
    sequence = backend.new_sequence()
    await backend.prefill(sequence, drawn(prompt))
    await backend.denoise(sequence, [MASK] * places, GREEDY)
    begin = time.perf_counter()
    await backend.denoise(sequence, [MASK] * places, GREEDY)
    taken = time.perf_counter() - begin
    backend.free(sequence)
    return taken


async def written(backend: Backend, diffusion: Diffusion, count: int) -> list[list[int]]:
    """Return the tokens of an answer by each of RULES."""
    engine, answers = Engine(backend, (), diffusion), []
    for rules in RULES:
        sequence, timings = engine.new_sequence(), Timings()
        await engine.prefill(sequence, drawn(21), timings)
        answers.append([one async for found in engine.generate(sequence, count, rules, timings) for one in found])
        engine.free(sequence)
    return answers
