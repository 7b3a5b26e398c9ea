"""The gradient of the states that the output matrix reads is the slope of their loss, on every backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.parameters import parameter_layout
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.protocols import Backend
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.registry import describe_model
from py_core.training.session import HeadRows, Training, TrainingState
from tests.backends.variants import gated
from tests.training.cases import CASES, packs

WIDTH, ROWS = 64, 21


def drawn(compared: bool = True, seed: int = 3) -> HeadRows:
    draw = np.random.default_rng(seed)
    rows = HeadRows(
        draw.standard_normal((ROWS, WIDTH)).astype(np.float32), draw.integers(0, 100, ROWS).astype(np.int32),
        draw.uniform(0, 1, ROWS).astype(np.float32), draw.uniform(0, 1, ROWS).astype(np.float32),
        draw.standard_normal((ROWS, WIDTH)).astype(np.float32),
    )  # fmt: skip
    return rows if compared else dataclasses.replace(rows, kl_weights=0 * rows.kl_weights, base_states=None)


async def session(path: Path, load: BackendLoader) -> tuple[Backend, Training]:
    source = FileSource(path)
    header = await read_header(source)
    config, graph = describe_model(header)
    backend = await load(source, header, config, graph, None)
    layout = parameter_layout(graph, 2, 1.0)
    training = await backend.open_training(layout)
    await training.restore(TrainingState.of(layout.fresh(1)))
    return backend, training


@pytest.mark.parametrize("compared", [True, False], ids=["with the base's states", "without"])
@pytest.mark.parametrize("name", CASES)
async def test_in_the_reference_it_is_the_slope_of_the_loss(name: str, compared: bool, tmp_path: Path) -> None:
    _, training = await session(CASES[name].write(tmp_path / "tiny.gguf"), load_numpy)
    training._dtype = np.dtype(np.float64)  # so that a difference of two losses is exact
    training._weights = {weight: value.astype(np.float64) for weight, value in training._weights.items()}
    rows, draw = drawn(compared), np.random.default_rng(1)
    _, gradient = await training.head_gradient(rows)
    assert gradient.shape == rows.states.shape
    way = draw.standard_normal(rows.states.shape)

    async def loss(step: float) -> float:
        return (await training.head_gradient(dataclasses.replace(rows, states=rows.states + step * way)))[0].total

    slope = (await loss(1e-5) - await loss(-1e-5)) / 2e-5
    assert float(np.sum(gradient * way)) == pytest.approx(slope, rel=1e-6)


@pytest.fixture
def load_backend(request: pytest.FixtureRequest, kernel_wasm: Callable[..., Path]) -> BackendLoader:
    if request.param == "wasm":
        return partial(load_wasm, WasmtimeHost(kernel_wasm()))
    return partial(load_webgpu, WgpuHost())


@pytest.mark.parametrize(
    ("load_backend", "name"),
    gated(product(("wasm", "webgpu"), ("qwen2", "gemma2")), lambda case: case != ("webgpu", "qwen2")),
    indirect=["load_backend"],
)
async def test_kernels_give_the_reference_s(name: str, load_backend: BackendLoader, tmp_path: Path) -> None:
    path = CASES[name].write(tmp_path / "tiny.gguf")
    _, numpy = await session(path, load_numpy)
    backend, ours = await session(path, load_backend)
    for rows in (drawn(), drawn(compared=False), drawn(seed=4)):
        await ours.accumulate(dataclasses.replace(packs()[0], kl_weights=0 * packs()[0].kl_weights))
        before = await ours.gradient()
        (loss, found), (expected_loss, expected) = [await one.head_gradient(rows) for one in (ours, numpy)]
        assert loss.cross_entropy == pytest.approx(expected_loss.cross_entropy, rel=1e-4)
        assert loss.divergence == pytest.approx(expected_loss.divergence, rel=1e-3)
        assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)
        np.testing.assert_array_equal(await ours.gradient(), before)  # the gradient of the parameters differs
    ours.close()
    backend.close()


async def test_more_rows_than_there_is_room_for_are_refused(tmp_path: Path) -> None:
    _, training = await session(CASES["llama"].write(tmp_path / "tiny.gguf"), load_numpy)
    most, rows = training.max_rows + 1, drawn()
    many = HeadRows(*(np.resize(one, (most, *one.shape[1:])) for one in dataclasses.astuple(rows)))
    with pytest.raises(ValueError, match="A pack has"):
        await training.head_gradient(many)
