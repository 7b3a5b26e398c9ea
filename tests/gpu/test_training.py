"""Sessions of training on a GPU: other families, chats in between, lost devices, and the memory that is given back."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.parameters import ParameterLayout, parameter_layout
from py_core.backends.base import BackendError
from py_core.backends.training import AdamW, Pack, Training, TrainingLostError, TrainingState
from py_core.backends.webgpu import backend as webgpu_backend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.tuning import MatmulShape
from tests.architectures.variants import VARIANTS
from tests.backend_pairs import collect, open_pair
from tests.gpu.test_lost_device import FragileHost
from tests.gpu_shapes import INTEGERS
from tests.learning.cases import CASES, RANK, SCALE, packs

RULE = AdamW(0.02, eps=1e-4)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webgpu_backend, "_PAUSE_SECONDS", 0.01)


def write(folder: Path) -> Path:
    """That of tests/learning, whose kernels are compiled already, with one block."""
    return CASES["llama"].changed(num_hidden_layers=1).write(folder / "tiny.gguf")


def begun(layout: ParameterLayout, seed: int = 1) -> TrainingState:
    draw = np.random.default_rng(seed)
    flat = np.zeros(layout.size, np.float32)
    for a, b in layout.views(flat).values():
        a[:] = draw.standard_normal(a.shape) / a.shape[1] ** 0.5
        b[:] = draw.standard_normal(b.shape)
    return TrainingState.of(flat)


def plain(pack: Pack) -> Pack:
    return dataclasses.replace(pack, weights=30 * pack.weights, kl_weights=0 * pack.kl_weights)


async def test_gradients_of_fused_matrices_by_products_in_integers_are_those_of_numpy(tmp_path: Path) -> None:
    path = VARIANTS["phi3-partial"].changed(num_hidden_layers=1).write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WgpuHost(), shapes=INTEGERS)
    pair.other.model.builder.usual_tiles = [MatmulShape(True, 2, 4)]
    layout = parameter_layout(pair.other.model.graph, RANK, SCALE)
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


async def steps(training: Training, count: int) -> None:
    """Micro-batches of two packs."""
    for _ in range(count):
        for pack in packs():
            await training.accumulate(plain(pack))
        assert (await training.step(RULE)).applied


async def test_a_chat_between_the_pieces_changes_nothing_and_memory_is_given_back(tmp_path: Path) -> None:
    host = WgpuHost()
    pair = await open_pair(write(tmp_path), host)
    backend, layout = pair.other, parameter_layout(pair.other.model.graph, RANK, SCALE)
    sequence, reference = await pair.prefilled(list(range(20)))
    await collect(backend, sequence, 1)
    await collect(pair.numpy, reference, 1)
    before = len(host._buffers)
    training = await backend.open_training(layout)
    await training.restore(begun(layout))
    await training.accumulate(plain(packs()[0]))
    alone = await training.gradient()
    await training.clear()
    assert not (await training.gradient()).any()
    said: list[int] = []

    async def chat() -> None:
        said.extend(await collect(backend, sequence, 2))

    await training.accumulate(plain(packs()[0]), chat)
    np.testing.assert_array_equal(await training.gradient(), alone)
    assert len(said) > 2
    assert said == await collect(pair.numpy, reference, len(said))
    training.close()
    training.close()
    assert before == len(host._buffers)
    with pytest.raises(BackendError):
        await training.step(RULE)
    backend.close()


async def test_after_a_lost_device_training_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    path, results = write(tmp_path), []
    for breaks in (False, True):
        host = FragileHost(waited_for=True)
        pair = await open_pair(path, host)
        backend, layout = pair.other, parameter_layout(pair.other.model.graph, RANK, SCALE)
        training = await backend.open_training(layout)
        await training.restore(begun(layout))
        await steps(training, 1)
        saved = await training.save()
        if breaks:
            host.breaks, host.armed = (host.submits + 5,), True
            with pytest.raises(TrainingLostError, match="lost"):
                await steps(training, 1)
            with pytest.raises(TrainingLostError):
                await training.gradient()
            await training.restore(saved)
            assert host.reopened == 1
        await steps(training, 2)
        state = await training.save()
        assert state.steps == 3
        results.append([*vars(state).values()])
        if breaks:
            # Of a chat that hears of a loss first, the session hears as well.
            host.lose()
            sequence, reference = await pair.prefilled([5, 60, 17])
            assert await collect(backend, sequence, 3) == await collect(pair.numpy, reference, 3)
            with pytest.raises(TrainingLostError):
                await training.accumulate(plain(packs()[0]))
            training.close()
        backend.close()
    for undisturbed, restored in zip(*results, strict=True):
        np.testing.assert_array_equal(restored, undisturbed)


async def test_left_in_the_middle_it_begins_again(tmp_path: Path) -> None:
    pair = await open_pair(write(tmp_path), WgpuHost())
    layout = parameter_layout(pair.other.model.graph, RANK, SCALE)
    training = await pair.other.open_training(layout)
    await training.restore(begun(layout))
    pack = plain(packs()[0])
    await training.accumulate(pack)
    expected = await training.gradient()
    await training.clear()

    async def stop() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await training.accumulate(pack, stop)
    await training.clear()
    await training.accumulate(pack)
    np.testing.assert_array_equal(await training.gradient(), expected)
    with pytest.raises(ValueError, match="1 to 512 rows"):
        await training.accumulate(dataclasses.replace(pack, tokens=np.zeros(513, np.int32)))
    pair.other.close()
