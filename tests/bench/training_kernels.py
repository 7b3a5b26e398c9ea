"""How fast the GPU of this machine trains, and where the time goes: tokens a second, and each kernel of a pass.

python tests/bench/training_kernels.py MODEL.gguf [--rank 8] [--sequences 4] [--length 100] [--steps 10] [--kernels]
    [--tiles integers,slices,wide] [--gradient-tiles slices,wide]

A step is one pack of so many sequences, all of whose tokens have a cross-entropy, and AdamW over the pairs of every
linear. --kernels times each kernel by the GPU's own clock. --tiles and --gradient-tiles give all products these shapes
(MatmulShape). Prints JSON, and a line a kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from py_core.adapters.parameters import parameter_layout
from py_core.backends.training import AdamW, Pack, TrainingState
from py_core.backends.webgpu.backend import WebGPUBackend, load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.profiling import measure_lists
from py_core.backends.webgpu.training import WebGPUTraining
from py_core.backends.webgpu.tuning import MatmulShape
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.config import read_rope_factors
from py_core.models.registry import describe_model

_PRODUCTS = ("linear", "gradient")


def packed(sequences: int, length: int, vocabulary: int) -> Pack:
    """Random tokens, each of which has the next one as its target."""
    draw = np.random.default_rng(0)
    rows = sequences * length
    starts = np.repeat(np.arange(sequences) * length, length).astype(np.int32)
    tokens, targets = draw.integers(0, vocabulary, (2, rows)).astype(np.int32)
    weights = np.full(rows, 1 / rows, np.float32)
    every = np.arange(rows, dtype=np.int32)
    return Pack(tokens, every - starts, 0, starts, every, targets, weights, 0 * weights)


async def measure(backend: WebGPUBackend, options: argparse.Namespace) -> dict[str, Any]:
    graph = backend.model.graph
    layout = parameter_layout(graph, options.rank, 2.0)
    begin = time.perf_counter()
    training = await backend.open_training(layout)
    assert isinstance(training, WebGPUTraining)
    opened = time.perf_counter() - begin
    draw = np.random.default_rng(1)
    await training.restore(TrainingState.of(draw.standard_normal(layout.size).astype(np.float32) / 100))
    pack = packed(options.sequences, options.length, backend.model.config.vocab_size)
    seconds, losses = [], []
    for _ in range(options.steps + 3):
        begin = time.perf_counter()
        losses.append((await training.accumulate(pack)).cross_entropy)
        await training.step(AdamW(1e-3))
        seconds.append(time.perf_counter() - begin)
    found: dict[str, Any] = {
        "adapter": backend.capabilities.adapter, "open_s": opened, "step_ms": 1e3 * median(seconds[3:]),
        "tokens_s": pack.rows / median(seconds[3:]), "losses": losses,
    }  # fmt: skip
    if options.kernels:
        found["kernels"] = await kernels(backend, training)
    training.close()
    return found


async def kernels(backend: WebGPUBackend, training: WebGPUTraining) -> list[dict[str, Any]]:
    """Each kernel of the parts of a step, those of one name together."""
    host, names, recorded, counts = backend.model.host, [], [], []
    for part, launches in training.launches().items():
        if part not in ("forward", "loss", "back"):
            continue
        groups: dict[str, list[Any]] = {"all": launches}
        for launch in launches:
            groups.setdefault(launch.kernel.name, []).append(launch)
        for name, group in groups.items():
            names.append((part, name))
            counts.append((len(group), sum(launch.kernel.cost.row_flops for launch in group)))
            recorded.append(host.record([launch.dispatch() for launch in group]))
    seconds = await measure_lists(host, recorded)
    for one in recorded:
        host.forget(one)
    return [
        {"part": part, "kernel": name, "count": count, "ms": 1e3 * taken, "row_mflops": flops / 1e6}
        for (part, name), (count, flops), taken in zip(names, counts, seconds, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    for name, usual in (("--rank", 8), ("--sequences", 4), ("--length", 100), ("--steps", 10)):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--tiles")
    parser.add_argument("--gradient-tiles")
    options = parser.parse_args()

    async def run() -> dict[str, Any]:
        source = FileSource(options.model)
        header = await read_header(source)
        config, graph = describe_model(header, 8192, rope_factors=await read_rope_factors(source, header))
        backend = await load_webgpu(WgpuHost(), source, header, config, graph)
        numbers = [
            [int(one) for one in (given or "").split(",") if one] for given in (options.tiles, options.gradient_tiles)
        ]
        if numbers[0] or numbers[1]:
            builder = backend.model.builder
            if numbers[0]:
                integers, slices, wide = numbers[0]
                builder.tiles = lambda *given: MatmulShape(bool(integers), slices, wide)
            if numbers[1]:
                builder.gradient_tiles = lambda *given: MatmulShape(False, *numbers[1])
        try:
            return await measure(backend, options)
        finally:
            backend.close()

    found = asyncio.run(run())
    rows = found["kernels"] if options.kernels else []
    print(json.dumps(found))
    for row in sorted(rows, key=lambda row: -row["ms"]):
        rate = row["row_mflops"] * options.sequences * options.length / row["ms"] / 1e3 if row["ms"] else 0
        print(f"{row['part']:9} {row['kernel']:32} {row['count']:5} {row['ms']:9.3f} ms {rate:8.2f} TFLOP/s")
    print(
        f"{found['step_ms']:.1f} ms a step, {found['tokens_s']:.0f} tokens a second, opened in {found['open_s']:.1f} s"
    )


if __name__ == "__main__":
    main()
