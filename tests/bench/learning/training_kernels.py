"""The GPU time of a training step on this machine: each kernel of a pass, by the GPU's own clock.

python -m tests.bench training_kernels MODEL.gguf [--rank 8] [--sequences 4] [--tokens 100] [--json FILE]

The pack has --sequences sequences, all of whose tokens have a cross-entropy; every linear has a pair. Kernels of a
name run together, so their sum is a little less than the parts' own time ("all"). tests/bench/learning/training.py has
rates.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from py_core.adapters.parameters import parameter_layout
from py_core.backends.webgpu.backend import WebGPUBackend, load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.plan import Launch
from py_core.backends.webgpu.profiling import measure_lists
from py_core.backends.webgpu.training.session import WebGPUTraining
from py_core.formats.source import FileSource
from py_core.loading import read_description
from py_core.training.session import Pack, TrainingState
from tests.bench.reporting import options_of, write_figures

PARTS = ("forward", "loss", "back")


def packed(sequences: int, tokens: int, vocabulary: int) -> Pack:
    """Random tokens, each with a random target."""
    draw = np.random.default_rng(0)
    rows = sequences * tokens
    starts = np.repeat(np.arange(sequences) * tokens, tokens).astype(np.int32)
    ids, targets = draw.integers(0, vocabulary, (2, rows)).astype(np.int32)
    weights = np.full(rows, 1 / rows, np.float32)
    every = np.arange(rows, dtype=np.int32)
    return Pack(ids, every - starts, 0, starts, every, targets, weights, 0 * weights)


async def measure(backend: WebGPUBackend, options: argparse.Namespace) -> list[dict[str, Any]]:
    host = backend.device.model.host
    layout = parameter_layout(backend.device.model.graph, options.rank, 2.0)
    training = await backend.open_training(layout)
    assert isinstance(training, WebGPUTraining)
    flat = np.random.default_rng(1).standard_normal(layout.size).astype(np.float32) / 100
    await training.restore(TrainingState.of(flat))
    await training.accumulate(packed(options.sequences, options.tokens, backend.device.model.config.vocab_size))
    groups: dict[tuple[str, str], list[Launch]] = {}
    for part, launches in training.launches().items():
        if part in PARTS:
            groups[part, "all"] = launches
            for launch in launches:
                groups.setdefault((part, launch.kernel.name), []).append(launch)
    recorded = [host.record([launch.dispatch() for launch in group]) for group in groups.values()]
    seconds = await measure_lists(host, recorded)
    rows, found = options.sequences * options.tokens, []
    for ((part, name), group), taken in zip(groups.items(), seconds, strict=True):
        flops = rows * sum(launch.kernel.cost.row_flops for launch in group)
        rate = flops / taken / 1e12 if taken else 0.0
        found.append({"part": part, "kernel": name, "count": len(group), "ms": 1e3 * taken, "tflops": rate})
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("model", type=Path)
    for name, usual in (("--rank", 8), ("--sequences", 4), ("--tokens", 100)):
        parser.add_argument(name, type=int, default=usual)
    options = parser.parse_args()

    async def run() -> list[dict[str, Any]]:
        source = FileSource(options.model)
        header, config, graph = await read_description(source, None, lambda header, config, graph: None)
        backend = await load_webgpu(WgpuHost(), source, header, config, graph)
        try:
            return await measure(backend, options)
        finally:
            backend.close()

    found = asyncio.run(run())
    write_figures(options, found)
    for row in sorted(found, key=lambda row: -row["ms"]):
        figures = f"{row['count']:5} {row['ms']:9.3f} ms {row['tflops']:7.2f} TFLOP/s"
        print(f"{row['part']:8} {row['kernel']:32} {figures}")
