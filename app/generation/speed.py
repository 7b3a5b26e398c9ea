"""Measures how fast a model runs here: tokens a second, and the time of each kernel of a step. For the terminal and the
page."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from py_core.backends.profiles import AdapterLimits, Profile
from py_core.backends.sampling_state import GREEDY
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.token_sequence import TokenSequence

_WARM_UP_TOKENS = 8
_USUAL_ROUNDS = 24  # rounds of one report's measurements


@dataclass(frozen=True)
class Speed:
    """Medians of rounds. `first_token_ms` is the time from the prompt to the first token that is shown."""

    backend: str
    adapter: str
    model: str
    prompt_tokens: int
    tokens: int
    position: int
    rounds: int
    prefill_tok_s: float
    first_token_ms: float
    decode_tok_s: float


async def measure_speed(model: Model, prompt_tokens: int, tokens: int, position: int, rounds: int) -> Speed:
    """Measure a prompt of `prompt_tokens`, and `tokens` new ones from `position` on. Raises ValueError if they do not
    fit."""
    if max(prompt_tokens, position + tokens) > model.engine.context_length:
        raise ValueError(
            f"The model has room for {model.engine.context_length} tokens: choose fewer tokens, or a lower position."
        )
    async with _sequence(model) as deep:
        await _decode(model, deep, position, min(tokens, _WARM_UP_TOKENS))
        await _prefill(model, prompt_tokens)
        prefills = [await _prefill(model, prompt_tokens) for _ in range(rounds)]
        decodes = [await _decode(model, deep, position, tokens) for _ in range(rounds)]
    capabilities = model.engine.capabilities
    return Speed(
        capabilities.backend, capabilities.adapter, model.config.name, prompt_tokens, tokens, position, rounds,
        prefill_tok_s=prompt_tokens / median(prefill for prefill, _ in prefills),
        first_token_ms=1000 * median(first for _, first in prefills),
        decode_tok_s=tokens / median(decodes),
    )  # fmt: skip


async def profile_report(
    model: Model, passes: list[tuple[int, int]], on_progress: Callable[[float], None] = lambda done: None
) -> dict[str, Any]:
    """Measure each kernel of passes (position, rows): a decode step has 1 row, more rows are a pass of a prefill. Fit
    for JSON.

    {adapter, model, limits: {gb_s, gflop_s}, passes: [{position, rows, wall_us, tok_s, us, between_us, wait_us,
    kernels: [{kernel, count, us_each, us, share, gb_s, gflop_s, limit, limit_share}]}]}. wall_us is the time of a pass
    as the engine runs it. us is the sum of its kernels and of the time outside them: the GPU's way from kernel to
    kernel (between_us), and its waiting for orders and our waiting for the end (wait_us). A kernel's us is that of all
    `count`, share its part of the sum, limit ("memory" or "compute") what bounds it, limit_share how much of that it
    reached. on_progress gets the progress, from 0 to 1. Raises the same as Engine.profile.
    """
    rounds = 0

    def on_round() -> None:
        nonlocal rounds
        rounds += 1
        on_progress(min(0.95, rounds / (_USUAL_ROUNDS * len(passes))))

    limits = await model.engine.limits(on_round)
    profiles = [await model.engine.profile(position, rows, on_round) for position, rows in passes]
    on_progress(1.0)
    return {
        "adapter": model.engine.capabilities.adapter,
        "model": model.config.name,
        "limits": {"gb_s": limits.bytes_per_second / 1e9, "gflop_s": limits.flops_per_second / 1e9},
        "passes": [_pass_row(profile, limits) for profile in profiles],
    }


def _pass_row(profile: Profile, limits: AdapterLimits) -> dict[str, Any]:
    kernels = []
    for kernel in profile.kernels:
        limit, reached = kernel.bound(limits)
        kernels.append(
            {
                "kernel": kernel.name,
                "count": kernel.count,
                "us_each": 1e6 * kernel.seconds / kernel.count,
                "us": 1e6 * kernel.seconds,
                "share": kernel.seconds / profile.seconds,
                "gb_s": kernel.bytes / kernel.seconds / 1e9,
                "gflop_s": kernel.flops / kernel.seconds / 1e9,
                "limit": limit,
                "limit_share": reached,
            }
        )
    return {
        "position": profile.position,
        "rows": profile.rows,
        "wall_us": 1e6 * profile.wall_seconds,
        "tok_s": profile.rows / profile.wall_seconds,
        "us": 1e6 * profile.seconds,
        "between_us": 1e6 * profile.between_seconds,
        "wait_us": 1e6 * profile.wait_seconds,
        "kernels": kernels,
    }


async def _prefill(model: Model, prompt_tokens: int) -> tuple[float, float]:
    """Return the seconds until the prompt is read, and until the first tokens are there."""
    timings = Timings()
    async with _sequence(model) as sequence:
        await model.engine.prefill(sequence, _tokens(model, prompt_tokens), timings)
        async for _ in model.engine.generate(sequence, 1, GREEDY, timings, ignore_end=True):
            pass
    return timings.prefill_seconds, timings.prefill_seconds + timings.first_token_seconds


async def _decode(model: Model, sequence: TokenSequence, position: int, tokens: int) -> float:
    """Return the seconds of the tokens from `position` on. The sequence keeps their keys and values for the next
    round."""
    await model.engine.prefill(sequence, _tokens(model, position), Timings())
    begin = time.perf_counter()
    async for _ in model.engine.generate(sequence, tokens, GREEDY, Timings(), ignore_end=True):
        pass
    return time.perf_counter() - begin


def _tokens(model: Model, count: int) -> list[int]:
    """Return arbitrary tokens: the time does not depend on which ones."""
    return [7919 * index % model.config.vocab_size for index in range(count)]


@asynccontextmanager
async def _sequence(model: Model) -> AsyncIterator[TokenSequence]:
    sequence = model.engine.new_sequence(shares=False)
    try:
        yield sequence
    finally:
        model.engine.free(sequence)
