"""Graphs of every architecture in the GPU's kernels against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from py_core.backends.base import TokenSequence
from py_core.backends.webgpu import lowering
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.models.graph import Graph
from tests.backend_pairs import Pair, collect, cosine, open_pair, prompt
from tests.gpu.test_webgpu_backend import SHAPES
from tests.tiny_architectures import TINY_MODELS

# Each model as the adapter here would run it or as a GPU would.
WAYS = [
    (model, way)
    for at, model in enumerate(TINY_MODELS)
    for way in (("software", "subgroups") if at % 2 else ("hardware", "integers"))
]


async def assert_equal_logits(pair: Pair, ours: TokenSequence, reference: TokenSequence, where: object) -> None:
    got, expected = await pair.other.logits(ours), await pair.numpy.logits(reference)
    assert cosine(got, expected) > 0.9999, where
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max(), err_msg=str(where))


async def compare(pair: Pair, lengths: tuple[int, ...], steps: int) -> None:
    """Logits after prefills of these lengths, and of so many decoded tokens after that."""
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    for length in lengths:
        for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
            await backend.prefill(sequence, prompt(length, seed=length))
        await assert_equal_logits(pair, ours, reference, length)
    await pair.numpy.prefill(reference, await collect(pair.other, ours, steps))
    await assert_equal_logits(pair, ours, reference, "decode")


def unfused(graph: Graph) -> tuple[list, list]:
    return graph.body, graph.head


@pytest.mark.parametrize(("model", "shapes"), WAYS)
async def test_logits_equal_numpy(tmp_path: Path, host: WgpuHost, model: str, shapes: str) -> None:
    pair = await open_pair(TINY_MODELS[model].write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    # One row, few and many; windows are 40 and 150 tokens long.
    await compare(pair, (1, 2, 45, 70, 3, 60), 12)


@pytest.mark.parametrize(("model", "shapes"), WAYS[::2])
async def test_each_operation_of_a_graph_runs_unfused(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch, model: str, shapes: str
) -> None:
    monkeypatch.setattr(lowering, "fuse", unfused)
    pair = await open_pair(TINY_MODELS[model].write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    await compare(pair, (1, 2, 45, 130), 4)
