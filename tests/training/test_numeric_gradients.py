"""Each gradient of the reference is the slope of the operation's result: central differences in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.backends.numpy import training as numpy_training
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.numpy.gradients import (
    attention_gradient,
    glu_gradient,
    packed_attention,
    rms_norm_gradient,
    seen_rows,
    soft_cap_gradient,
)
from py_core.backends.numpy.rows import glu, rms_norm, rope, soft_cap
from py_core.models.graph import Activation, Attention, Value
from py_core.training.session import Pack
from tests.training.test_expected_gradients import opened

STEP = 1e-5

sizes = st.integers(1, 5)
seeds = st.integers(0, 2**32 - 1)

Arrays = Sequence[np.ndarray]


def are_slopes(
    function: Callable[..., np.ndarray], gradients: Callable[[np.ndarray], Arrays], inputs: Arrays, seed: int
) -> None:
    """Compared along a random direction of each input, with a random weight for each output number."""
    draw = np.random.default_rng([seed, 1])
    dout = draw.standard_normal(function(*inputs).shape)
    for place, gradient in enumerate(gradients(dout)):
        way = draw.standard_normal(inputs[place].shape)

        def moved(step: float, place: int = place, way: np.ndarray = way) -> float:
            changed = [one + step * way if index == place else one for index, one in enumerate(inputs)]
            return float(np.sum(dout * function(*changed)))

        slope = (moved(STEP) - moved(-STEP)) / (2 * STEP)
        assert gradient.shape == inputs[place].shape
        assert float(np.sum(gradient * way)) == pytest.approx(slope, rel=1e-6, abs=1e-7)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [2 * draw.standard_normal(shape) for shape in shapes]


@given(sizes, sizes, st.integers(2, 6), seeds)
def test_of_rms_norm(m: int, heads: int, width: int, seed: int) -> None:
    x, weight = drawn(seed, (m, heads * width), (width,))
    are_slopes(
        lambda x: rms_norm(x, weight, 1e-2), lambda dy: [rms_norm_gradient(dy, x, weight, float(np.float32(1e-2)))],
        [x], seed,
    )  # fmt: skip


@given(sizes, sizes, sizes, st.integers(0, 3), st.booleans(), seeds)
def test_of_rope_it_is_the_rotation_by_the_negated_angles(
    m: int, heads: int, pairs: int, unturned: int, interleaved: bool, seed: int
) -> None:
    x, angles = drawn(seed, (m, heads * (2 * pairs + unturned)), (m, pairs))
    forth, back = (np.stack([np.cos(turned), np.sin(turned)], axis=-1) for turned in (angles, -angles))
    are_slopes(lambda x: rope(x, forth, heads, interleaved), lambda dy: [rope(dy, back, heads, interleaved)], [x], seed)


@given(sizes, sizes, st.sampled_from(["silu", "gelu"]), seeds)
def test_of_gated_linear_units(m: int, width: int, activation: Activation, seed: int) -> None:
    gate, up = drawn(seed, (m, width), (m, width))
    are_slopes(
        lambda gate, up: glu(gate, up, activation), lambda dy: glu_gradient(dy, gate, up, activation), [gate, up], seed
    )


@given(sizes, sizes, st.floats(0.5, 50), seeds)
def test_of_soft_caps(m: int, width: int, cap: float, seed: int) -> None:
    cap = float(np.float32(cap))
    (x,) = drawn(seed, (m, width))
    are_slopes(
        lambda x: soft_cap(x, cap), lambda dy: [soft_cap_gradient(dy, soft_cap(x, cap), cap)], [x], seed
    )  # fmt: skip


@given(
    st.integers(0, 4), st.lists(sizes, min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 3), sizes,
    st.sampled_from([0.0, 1.5]), st.sampled_from([0, 1, 3]), seeds,
)  # fmt: skip
def test_of_attention_in_a_pack(
    prefix: int, lengths: list[int], kv_heads: int, group: int, width: int, softcap: float, window: int, seed: int
) -> None:
    first = prefix + np.cumsum(lengths) - lengths
    starts = np.concatenate([np.zeros(prefix, int), np.repeat(first, lengths)])
    positions = np.concatenate([np.arange(prefix), *(prefix + np.arange(length) for length in lengths)])
    none, m = np.zeros(0), len(starts)
    seen = seen_rows(Pack(starts, positions, prefix, starts, none, none, none, none), window)
    heads = kv_heads * group
    q, k, v = drawn(seed, (m, heads * width), (m, kv_heads * width), (m, kv_heads * width))
    named = [Value(index, rows.shape[1]) for index, rows in enumerate((q, q, k, v))]
    op = Attention(named[0], 0, *named[1:], heads, kv_heads, 0.6, softcap, window)

    def gradients(dout: np.ndarray) -> Arrays:
        return attention_gradient(dout, *packed_attention(q, k, v, seen, op), q, k, v, seen, op)

    are_slopes(lambda q, k, v: packed_attention(q, k, v, seen, op)[0], gradients, [q, k, v], seed)
    _, log_sums = packed_attention(q, k, v, seen, op)
    assert log_sums.shape == (m, heads)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
async def test_the_loss_by_parts_of_the_vocabulary_is_that_of_all_of_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for chunk in (4096, 50):
        monkeypatch.setattr(numpy_training, "_CHUNK", chunk)
        async with opened(name, tmp_path, load_numpy) as case:
            loss = await case.training.accumulate(case.packs[0])
            found.append([loss.cross_entropy, loss.divergence, *await case.training.gradient()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-6)
