"""Sessions of training on a GPU: fused matrices in integers, sessions left in the middle, and memory that is returned.

tests/training covers every backend: beside chats, and after a lost device.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.parameters import ParameterLayout, parameter_layout
from py_core.backend_errors import BackendError
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.kernel_shapes import MatmulShape
from py_core.backends.webgpu.training import loss as training_loss
from py_core.training.session import AdamW, Pack, TrainingState
from tests.backends.backend_pairs import open_pair
from tests.backends.webgpu.gpu_shapes import INTEGERS
from tests.models.architectures.variants import VARIANTS
from tests.training.cases import CASES, RANK, SCALE, packs


def begun(layout: ParameterLayout) -> TrainingState:
    draw = np.random.default_rng(1)
    flat = np.zeros(layout.size, np.float32)
    for a, b in layout.views(flat).values():
        a[:] = draw.standard_normal(a.shape) / a.shape[1] ** 0.5
        b[:] = draw.standard_normal(b.shape)
    return TrainingState.of(flat)


def plain(pack: Pack) -> Pack:
    return dataclasses.replace(pack, weights=30 * pack.weights, kl_weights=0 * pack.kl_weights)


@pytest.mark.all
async def test_gradients_of_fused_matrices_by_products_in_integers_are_those_of_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_loss, "CHUNK", 48)  # of 128 tokens: three chunks, the last of which is shorter
    path = VARIANTS["phi3-partial"].changed(num_hidden_layers=1).write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WgpuHost(), shapes=INTEGERS)
    pair.other.device.model.builder.usual_tiles = [MatmulShape(True, 2, 4)]
    layout = parameter_layout(pair.other.device.model.graph, RANK, SCALE)
    found, states = [], None
    for backend in pair.both:
        training = await backend.open_training(layout)
        await training.restore(begun(layout))
        pack = plain(packs()[0])
        states = await training.states(pack) if states is None else states
        await training.accumulate(dataclasses.replace(pack, base_states=states, kl_weights=packs()[0].kl_weights))
        found.append(await training.gradient())
        training.close()
    ours, expected = found
    assert np.linalg.norm(ours - expected) < 1e-3 * np.linalg.norm(expected)
    pair.other.close()


async def test_left_in_the_middle_it_begins_again_and_closed_it_gives_its_memory_back(tmp_path: Path) -> None:
    host = WgpuHost()
    # The kernels of tests/training, which are also compiled there.
    backend = (await open_pair(CASES["llama"].write(tmp_path / "tiny.gguf"), host)).other
    layout, before = parameter_layout(backend.device.model.graph, RANK, SCALE), len(host._buffers)
    training = await backend.open_training(layout)
    await training.restore(begun(layout))
    pack = plain(packs()[0])
    await training.accumulate(pack)
    expected = await training.gradient()
    await training.clear()
    assert not (await training.gradient()).any()

    async def stop() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await training.accumulate(pack, stop)
    await training.clear()
    await training.accumulate(pack)
    np.testing.assert_array_equal(await training.gradient(), expected)
    with pytest.raises(ValueError, match="1 to 512 rows"):
        await training.accumulate(dataclasses.replace(pack, tokens=np.zeros(513, np.int32)))
    training.close()
    training.close()
    assert len(host._buffers) == before
    with pytest.raises(BackendError):
        await training.step(AdamW(0.1))
    again = await backend.open_training(layout)
    await again.restore(begun(layout))
    await again.accumulate(pack)
    np.testing.assert_array_equal(await again.gradient(), expected)
    backend.close()
