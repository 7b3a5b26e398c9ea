"""What tiers of keys and values cost and gain: bytes, perplexity, and a token's time, beside exact pages.

    python tests/bench/kv_tiers.py [--backend wasm|numpy] [--build pairs] [--at 8000] [--scored 1024] [--json]

Natively with SmolLM2-135M. The text is this repository's documentation, read up to position `--at`. Bytes are those of
the pages that are held, and of the pools that they lie in, as parts of what f16 takes for as many tokens. Perplexity is
of the `--scored` tokens before that position, exp(nats per token). A token's time is the median at 100 tokens and at
`--at`, in turns with and without tiers; "speed" is the one at 100 by the one there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from app.build_outputs import MODEL_BUILDS, kernel_path
from app.downloads import default_model_path
from app.template_renderer import native_renderer
from py_core.backends.numpy import load_numpy
from py_core.backends.tiers import TierPolicy
from py_core.backends.wasm.backend import WasmBackend, load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, Model, load_model
from py_core.sampling import SamplingParams

TEXTS = ("docs/decisions.md", "docs/performance.md", "docs/learning.md")
POLICIES = {"off": None, "8-bit": TierPolicy(warm=1 << 20), "8- and 4-bit": TierPolicy()}


def loader(options: argparse.Namespace, policy: TierPolicy | None) -> BackendLoader:
    if options.backend == "numpy":
        return partial(load_numpy, tiers=policy)
    return partial(load_wasm, WasmtimeHost(kernel_path(options.build)), precision=options.precision, tiers=policy)


def written() -> str:
    return "\n".join(Path(name).read_text(encoding="utf-8") for name in TEXTS)


async def token_ms(model: Model, text: list[int], steps: int) -> list[float]:
    """Of each step behind the text, and the sequence closed."""
    engine, times = model.engine, []
    sequence = engine.backend.new_sequence()
    known = engine.backend.begin_with(sequence, text)
    await engine.backend.prefill(sequence, text[known:])
    await engine.backend.logits(sequence)
    for _ in range(steps):
        begin = time.perf_counter()
        async for _ in engine.backend.decode(sequence, 1, SamplingParams()):
            pass
        times.append(1000 * (time.perf_counter() - begin))
    engine.backend.free(sequence)
    return times[1:]


async def measure(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    chosen = {name: POLICIES[name] for name in options.policies}
    models = {}
    for name, policy in chosen.items():
        source = FileSource(default_model_path())
        models[name] = await load_model(source, loader(options, policy), native_renderer())
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
        if isinstance(model.backend, WasmBackend):
            pages = model.backend.memory().pages
            held = {tier: each.conversations + each.kept for tier, each in pages.items()}
            row |= {f"{tier}_bytes": nbytes for tier, nbytes in held.items()}
            row["held_of_f16"] = sum(held.values()) / f16
            row["pools_of_f16"] = row["held_of_f16"] + sum(each.free for each in pages.values()) / f16
        model.backend.free(sequence)
    times: dict[str, dict[str, list[float]]] = {name: {"short": [], "long": []} for name in models}
    for _ in range(options.rounds):
        for name, model in models.items():
            times[name]["short"] += await token_ms(model, text[:100], options.steps)
            times[name]["long"] += await token_ms(model, text[: options.at], options.steps)
    for name, row in found.items():
        row["ms_at_100"], row["ms"] = (median(times[name][each] or [math.nan]) for each in ("short", "long"))
        row["speed"] = row["ms_at_100"] / row["ms"]
        row["perplexity_ratio"] = row["perplexity"] / found[options.policies[0]]["perplexity"]
        models[name].close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("wasm", "numpy"), default="wasm")
    parser.add_argument("--build", choices=MODEL_BUILDS, default=MODEL_BUILDS[0])
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--at", type=int, default=8000)
    parser.add_argument("--scored", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    if options.json:
        print(json.dumps({"backend": options.backend, "at": options.at, "tiers": found}, indent=1))
        return
    table = Table(title=f"Keys and values at {options.at:,} tokens, {options.backend}")
    columns = ("bytes of f16's", "pools", "perplexity", "by exact", "token at 100, ms", "token, ms", "speed")
    for column in ("tiers", *columns):
        table.add_column(column, justify="right")
    for name, row in found.items():
        numbers = ("held_of_f16", "pools_of_f16", "perplexity", "perplexity_ratio", "ms_at_100", "ms", "speed")
        shown = [
            format(row[each], ".4f" if each == "perplexity_ratio" else ".2f") if each in row else "" for each in numbers
        ]
        table.add_row(name, *shown)
    Console().print(table)


if __name__ == "__main__":
    main()
