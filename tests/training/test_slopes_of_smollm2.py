"""The gradient of SmolLM2's loss is its slope: differences of the loss along directions of all parameters at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.parameters import parameter_layout
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.registry import describe_model
from py_core.training.packing import WeightSums, answer_example, base_example, compared_pack, packed
from py_core.training.session import TrainingState

pytestmark = pytest.mark.all  # in the gate, tiny models are compared with torch's gradients, and numpy's with slopes


@pytest.fixture(params=["numpy", "wasm"])
def load_backend(request: pytest.FixtureRequest, kernel_wasm: Callable[..., Path]) -> BackendLoader:
    return partial(load_wasm, WasmtimeHost(kernel_wasm())) if request.param == "wasm" else load_numpy


async def test_the_gradient_is_the_slope_of_the_loss(load_backend: BackendLoader, model_path: Path) -> None:
    source = FileSource(model_path)
    header = await read_header(source)
    config, graph = describe_model(header)
    backend = await load_backend(source, header, config, graph, None)
    draw = np.random.default_rng(1)
    layout = parameter_layout(graph, rank=8, scale=2.0)
    parameters = layout.fresh(1)
    for _, b in layout.views(parameters).values():
        b[:] = 0.01 * draw.uniform(-1, 1, b.shape)

    start, *texts = draw.integers(0, config.vocab_size, (3, 5)).tolist()
    examples = [
        answer_example([*start, *texts[0][:2]], texts[0][2:]),
        base_example([*start, texts[1][0]], texts[1][1:]),
    ]
    training = await backend.open_training(layout)
    await training.restore(TrainingState.of(parameters))
    states = {examples[1]: await training.states(compared_pack(examples[1]))}
    pack = packed(examples, WeightSums.of(examples), 1.0, states)
    assert (pack.prefix, pack.rows) == (5, 5 + 4 + 4)

    async def loss(changed: np.ndarray) -> float:
        await training.restore(TrainingState.of(changed.astype(np.float32)))
        return (await training.accumulate(pack)).total

    await loss(parameters)
    gradient = await training.gradient()
    # Steps long enough not to drown in the loss's rounding, and short enough for its curvature.
    for direction, step in ((gradient, 0.02), (gradient * draw.normal(1, 1, layout.size), 0.02)):
        way = direction / np.linalg.norm(direction)
        slope = (await loss(parameters + step * way) - await loss(parameters - step * way)) / (2 * step)
        assert float(gradient @ way) == pytest.approx(slope, rel=2e-3)
    training.close()
    backend.close()
