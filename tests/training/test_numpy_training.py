"""The reference for training: gradients are the slopes of the loss, and a pack equals its sequences alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.parameters import ParameterLayout, parameter_layout
from py_core.backend_errors import BackendError
from py_core.backends.numpy.backend import NumpyBackend, load_weights
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.config import read_rope_factors
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from py_core.training.session import AdamW, Pack, Training, TrainingState, check_pack
from tests.models.architectures.variants import VARIANTS

NAMES = ["llama", "llama-fused-qkv", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "glm4", "granite", "lfm2"]
VOCABULARY = 100


async def opened(name: str, folder: Path) -> tuple[NumpyBackend, Graph]:
    """The model in float64, in which differences of the loss give its slope."""
    source = FileSource(VARIANTS[name].write(folder / "tiny.gguf"))
    header = await read_header(source)
    config, graph = describe_model(header, None, await read_rope_factors(source, header))
    weights = await load_weights(source, header, graph)
    return NumpyBackend(config, graph, {name: weight.astype(float) for name, weight in weights.items()}), graph


def packed(prefix: int, lengths: list[int], seed: int = 0, hidden: int = 0) -> Pack:
    """Random tokens; some rows have a loss. With `hidden` there are arbitrary states of a base."""
    draw = np.random.default_rng(seed)
    starts = np.concatenate([np.zeros(prefix), *(np.full(n, prefix + sum(lengths[:i])) for i, n in enumerate(lengths))])
    positions = np.concatenate([np.arange(prefix), *(prefix + np.arange(n) for n in lengths)])
    rows = len(starts)
    loss_rows = np.sort(draw.choice(np.arange(prefix, rows), rows // 2, replace=False))
    count = len(loss_rows)
    return Pack(
        draw.integers(0, VOCABULARY, rows),
        positions.astype(int),
        prefix,
        starts.astype(int),
        loss_rows,
        draw.integers(0, VOCABULARY, count),
        draw.uniform(0, 1, count),
        draw.uniform(0, 1, count) if hidden else np.zeros(count),
        draw.standard_normal((count, hidden)) if hidden else None,
    )


def parameters(layout: ParameterLayout, seed: int) -> np.ndarray:
    """Pairs with a visible effect in both matrices."""
    flat = np.zeros(layout.size)
    draw = np.random.default_rng(seed)
    for a, b in layout.views(flat).values():
        a[:] = draw.standard_normal(a.shape) / a.shape[1] ** 0.5
        b[:] = draw.standard_normal(b.shape) / b.shape[1] ** 0.5
    return flat


async def loss_at(training: Training, flat: np.ndarray, pack: Pack) -> float:
    await training.restore(TrainingState.of(flat))
    return (await training.accumulate(pack)).total


@pytest.mark.parametrize("only", ["", "blk.2.ffn"])
@pytest.mark.parametrize("name", NAMES)
async def test_the_gradient_is_the_slope_of_the_loss(name: str, only: str, tmp_path: Path) -> None:
    backend, graph = await opened(name, tmp_path)
    chosen = {tensor for tensor in graph.linear_weights if tensor.startswith(only)}
    layout = parameter_layout(graph, 3, 0.7, chosen)
    training = await backend.open_training(layout)
    pack, flat = packed(5, [9, 1, 12], hidden=64), parameters(layout, 1)
    await loss_at(training, flat, pack)
    gradient = await training.gradient()
    for seed in range(3):
        way = parameters(layout, 10 + seed) / layout.size**0.5
        before, after = [await loss_at(training, flat + step * way, pack) for step in (-1e-4, 1e-4)]
        slope = (after - before) / 2e-4
        assert gradient @ way == pytest.approx(slope, rel=1e-5)
    for tensor, views in layout.views(gradient).items():
        assert all(np.abs(view).max() > 0 for view in views), f"{tensor} has a gradient"


@pytest.mark.parametrize("name", ["llama", "gemma2", "lfm2"])
async def test_a_pack_is_what_its_sequences_are_alone(name: str, tmp_path: Path) -> None:
    backend, graph = await opened(name, tmp_path)
    layout = parameter_layout(graph, 2, 1.0)
    training = await backend.open_training(layout)
    await training.restore(TrainingState.of(np.zeros(layout.size)))
    pack = packed(6, [20, 7, 30])
    states = await training.states(pack)
    for start in sorted(set(pack.starts[6:])):
        own = (pack.starts == start) & (np.arange(pack.rows) >= 6)
        sequence = backend.new_sequence()
        await backend.prefill(sequence, [*pack.tokens[:6], *pack.tokens[own]])
        alone = (await backend.hidden(sequence, ["final_norm"]))["final_norm"][6:]
        rows = [row - start for row in pack.loss_rows if own[row]]
        mine = states[[own[row] for row in pack.loss_rows]]
        np.testing.assert_allclose(mine, alone[rows], rtol=1e-4, atol=1e-5)


async def test_where_nothing_was_learned_there_is_no_divergence_from_the_base(tmp_path: Path) -> None:
    backend, graph = await opened("gemma2", tmp_path)
    layout = parameter_layout(graph, 2, 1.0)
    training = await backend.open_training(layout)
    flat = parameters(layout, 1)
    for _, b in layout.views(flat).values():
        b[:] = 0
    await training.restore(TrainingState.of(flat))
    pack = packed(4, [10, 10])
    pack = dataclasses.replace(
        pack, weights=0 * pack.weights, kl_weights=1 + pack.weights, base_states=await training.states(pack)
    )
    loss = await training.accumulate(pack)
    assert loss.total == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(await training.gradient(), 0, atol=1e-9)


async def test_a_step_that_is_not_finite_changes_nothing(tmp_path: Path) -> None:
    backend, graph = await opened("llama", tmp_path)
    layout = parameter_layout(graph, 2, 1.0)
    training = await backend.open_training(layout)
    flat = parameters(layout, 1)
    await training.restore(TrainingState.of(flat))
    pack = packed(4, [10])
    with np.errstate(invalid="ignore"):
        await training.accumulate(dataclasses.replace(pack, weights=pack.weights * np.inf))
    assert not (await training.step(AdamW(0.1))).applied
    np.testing.assert_array_equal((await training.save()).parameters, flat)
    loss = await training.accumulate(pack)
    assert (await training.step(AdamW(0.01))).applied, "the gradient was cleared"
    assert (await training.accumulate(pack)).total < loss.total


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("granitemoe", "a mixture of experts"),
        ("qwen35", "a model with gated delta rules"),
        ("gemma4", "models of this kind"),
    ],
)
async def test_models_without_gradients_are_refused(name: str, said: str, tmp_path: Path) -> None:
    backend, graph = await opened(name, tmp_path)
    with pytest.raises(BackendError, match=f"cannot train {said} yet"):
        await backend.open_training(parameter_layout(graph, 2, 1.0))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokens": np.array([1, 2, 3, VOCABULARY + 1000])}, "tokens must be 0 to"),
        ({"starts": np.array([0, 0, 2, 2])}, "begins behind the prefix"),
        ({"starts": np.array([0, 1, 2, 1])}, "first row of its own sequence"),
        ({"prefix": 3}, "first row of its own sequence"),
        ({"loss_rows": np.array([3, 2])}, "in order"),
        ({"kl_weights": np.array([0.0, 1.0])}, "base's states"),
        ({"targets": np.array([1])}, "of one length"),
        ({"positions": np.array([0, 1])}, "of one length"),
    ],
)
def test_a_pack_that_breaks_its_rules_is_refused(changes: dict[str, object], said: str) -> None:
    two = np.zeros(2, int)
    pack = Pack(
        np.arange(4), np.arange(4), 1, np.array([0, 1, 1, 1]), np.array([2, 3]), two, np.ones(2), np.zeros(2), None
    )
    check_pack(pack, VOCABULARY, 64, 16)
    with pytest.raises(ValueError, match=said):
        check_pack(dataclasses.replace(pack, **changes), VOCABULARY, 64, 16)
