"""The cost and gain of tiers of keys and values: bytes, perplexity, and a token's time, beside exact pages.

    python -m tests.bench kv_tiers [--backend wasm|webgpu|numpy] [--build pairs] [--model FILE | --shape qwen2.5-3b]
        [--at 8000] [--scored 1024] [--rounds 3] [--steps 24] [--json FILE]

Natively (wasmtime, wgpu-py) with SmolLM2-135M, another file, or one of a shape with random weights (random_gguf.py),
whose perplexity says nothing. The text is this repository's documentation, read up to position `--at`. Bytes are those
of the pages that are held, and of the pools that they lie in, as parts of what f16 takes for as many tokens. Perplexity
is of the `--scored` tokens before that position, exp(nats per token). A token's time is the median of `--rounds`
answers of `--steps` tokens behind 100 tokens and behind `--at`, in turns with and without tiers; "speed" is the one at
100 by the one there.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from app.models.build_outputs import MODEL_BUILDS, kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.scheduler import Priority
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, Model, load_model
from py_core.paging.tiers import TierPolicy
from py_core.sampling import SamplingParams
from tests.bench.engine.random_gguf import RANDOM_FORMATS, SHAPES, write
from tests.bench.reporting import options_of, print_tables, write_figures

TEXTS = ("docs/guide/security.md", "docs/results/gpu.md", "docs/results/cpu.md", "docs/guide/learning.md")
POLICIES = {"off": None, "8-bit": TierPolicy(warm=1 << 20), "8- and 4-bit": TierPolicy()}


def loader(options: argparse.Namespace, policy: TierPolicy | None) -> BackendLoader:
    if options.backend == "numpy":
        return partial(load_numpy, tiers=policy)
    if options.backend == "webgpu":
        from app.models.autotune_cache import AutotuneCache
        from py_core.backends.webgpu.backend import load_webgpu
        from py_core.backends.webgpu.host_wgpu import WgpuHost

        return partial(load_webgpu, WgpuHost(), tuning=AutotuneCache(), tiers=policy)
    return partial(load_wasm, WasmtimeHost(kernel_path(options.build)), precision=options.precision, tiers=policy)


def written() -> str:
    return "\n".join(Path(name).read_text(encoding="utf-8") for name in TEXTS)


async def token_ms(model: Model, text: list[int], steps: int) -> float:
    """Return the time of a token behind the text, after the first batch. Closes the sequence."""
    backend = model.engine.backend
    sequence = backend.new_sequence()
    known = backend.begin_with(sequence, text)
    await backend.prefill(sequence, text[known:])
    await backend.logits(sequence)
    heard = [(0, time.perf_counter())]
    async for ids in backend.decode(sequence, steps, SamplingParams()):
        heard.append((heard[-1][0] + len(ids), time.perf_counter()))
    backend.free(sequence)
    (first, begin), (last, end) = heard[min(1, len(heard) - 2)], heard[-1]
    return 1000 * (end - begin) / (last - first)


async def measure(path: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    chosen = {name: POLICIES[name] for name in options.policies}
    models = {}
    for name, policy in chosen.items():
        models[name] = model = await load_model(FileSource(path), loader(options, policy), native_renderer())
        await model.engine.tune(Priority.INTERACTIVE)
    text = next(iter(models.values())).tokenizer.encode(written())[: options.at]
    assert len(text) == options.at, f"the texts have {len(text)} tokens only"
    config = next(iter(models.values())).config
    f16 = 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * options.at
    for name, model in models.items():
        found[name] = row = {}
        sequence = model.backend.new_sequence()
        model.backend.append(sequence, text)
        begin = time.perf_counter()
        scores = await model.backend.token_logprobs(sequence, options.at - options.scored)
        row["perplexity"] = math.exp(-float(scores.mean()))
        row["read_seconds"] = time.perf_counter() - begin
        async for _ in model.backend.decode(sequence, 1, SamplingParams()):
            pass  # which demotes pages that are old enough
        if isinstance(model.backend, PipelinedBackend):
            pages = model.backend.memory().pages
            held = {tier: each.conversations + each.kept for tier, each in pages.items()}
            row |= {f"{tier}_bytes": nbytes for tier, nbytes in held.items()}
            row["held_of_f16"] = sum(held.values()) / f16
            row["pools_of_f16"] = row["held_of_f16"] + sum(each.free for each in pages.values()) / f16
        model.backend.free(sequence)
    times: dict[str, dict[str, list[float]]] = {name: {"short": [], "long": []} for name in models}
    for _ in range(options.rounds):
        for name, model in models.items():
            times[name]["short"].append(await token_ms(model, text[:100], options.steps))
            times[name]["long"].append(await token_ms(model, text[: options.at], options.steps))
    for name, row in found.items():
        row["ms_at_100"], row["ms"] = (median(times[name][each] or [math.nan]) for each in ("short", "long"))
        row["speed"] = row["ms_at_100"] / row["ms"]
        row["perplexity_ratio"] = row["perplexity"] / found[options.policies[0]]["perplexity"]
        models[name].close()
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu", "numpy"), default="wasm")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--build", choices=MODEL_BUILDS, default=MODEL_BUILDS[0])
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--at", type=int, default=8000)
    parser.add_argument("--scored", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.shape:
            path = Path(folder, "model.gguf")
            write(path, SHAPES[options.shape], *RANDOM_FORMATS.get(options.shape, ("Q4_K_M", "")))
        else:
            path = options.model or default_model_path()
        found = asyncio.run(measure(path, options))
    write_figures(options, {"backend": options.backend, "at": options.at, "tiers": found})
    table = Table(title=f"Keys and values at {options.at:,} tokens, {options.backend}")
    columns = ("bytes of f16's", "pools", "perplexity", "by exact", "token at 100, ms", "token, ms", "speed")
    for column in ("tiers", *columns):
        table.add_column(column, justify="right")
    for name, row in found.items():
        numbers = ("held_of_f16", "pools_of_f16", "perplexity", "perplexity_ratio", "ms_at_100", "ms", "speed")
        shown = [
            format(row[each], ".2f" if each in ("perplexity", "speed") else ".3f") if each in row else ""
            for each in numbers
        ]
        table.add_row(name, *shown)
    print_tables(table)
