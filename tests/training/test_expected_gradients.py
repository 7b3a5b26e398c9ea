"""Losses, gradients and ten steps of the optimizer on each backend against `torch`: tiny models of three families;
and steps with an anchor, against the formula.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.parameters import ParameterLayout, parameter_layout
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.registry import describe_model
from py_core.training.session import AdamW, Pack, Training, TrainingState
from tests.backends.variants import gated
from tests.training import cases

EXPECTED = Path(__file__).parent / "expected"


@dataclass(frozen=True)
class Case:
    """A session that holds the drawn pairs, the packs with the base's states, and the results of `torch` by name."""

    training: Training
    layout: ParameterLayout
    packs: list[Pack]
    expected: dict[str, np.ndarray]

    def errors(self, flat: np.ndarray, suffix: str = "", before: np.ndarray | None = None) -> dict[str, float]:
        """How far a vector's matrices are from the expected ones, each relative to those, or to their change."""
        found = {}
        start = self.layout.views(np.zeros_like(flat) if before is None else before)
        for name, views in self.layout.views(flat).items():
            for matrix, ours, first in zip("ab", views, start[name], strict=True):
                theirs = self.expected[f"{name}.{matrix}{suffix}"]
                found[f"{name}.{matrix}"] = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs - first))
        return found


@asynccontextmanager
async def opened(name: str, folder: Path, load_backend: BackendLoader) -> AsyncIterator[Case]:
    source = FileSource(cases.CASES[name].write(folder / "tiny.gguf"))
    header = await read_header(source)
    config, graph = describe_model(header)
    backend = await load_backend(source, header, config, graph, None)
    layout = parameter_layout(graph, cases.RANK, cases.SCALE)
    with np.load(EXPECTED / f"{name}.npz") as file:
        expected = dict(file)
    assert len(expected) == 4 * len(graph.linear_weights) + 1, "of every linear"
    training = await backend.open_training(layout)
    try:
        await training.restore(TrainingState.of(layout.flatten(cases.adapter(cases.CASES[name]))))
        packed, text = cases.packs()
        states = await training.states(replace(packed, kl_weights=0 * packed.kl_weights))
        packs = [replace(packed, base_states=states), text]
        yield Case(training, layout, packs, expected)
    finally:
        training.close()
        backend.close()


# In the gate one is on the GPU: tests/backends/webgpu covers the rest of the others, such as matrices and soft caps.
ON_EACH_BACKEND = gated(
    product(("numpy", "webgpu", "wasm"), cases.CASES), lambda case: case[0] != "webgpu" or case[1] == "llama"
)


@pytest.mark.parametrize(("load_backend", "name"), ON_EACH_BACKEND, indirect=["load_backend"])
async def test_losses_gradients_and_ten_steps_are_those_of_torch(
    name: str, load_backend: BackendLoader, tmp_path: Path
) -> None:
    async with opened(name, tmp_path, load_backend) as case:
        training, start = case.training, (await case.training.save()).parameters
        losses = [await training.accumulate(pack) for pack in case.packs]
        sums = [[loss.cross_entropy, loss.divergence] for loss in losses]
        np.testing.assert_allclose(sums, case.expected["losses"], rtol=1e-3, atol=1e-6)
        gradient = await training.gradient()
        assert max(case.errors(gradient).values()) < 1e-3

        await training.add_fisher(keep=0, weight=2)
        for pack in case.packs:
            await training.accumulate(pack)
        await training.add_fisher(keep=0.5, weight=1)
        state = await training.save()
        # A square has twice the gradient's relative error.
        assert np.linalg.norm(state.fisher - 2 * gradient**2) < 1e-3 * np.linalg.norm(2 * gradient**2)
        np.testing.assert_array_equal(state.parameters, start)

        norms = []
        for number in range(cases.STEPS):
            for index in cases.micro_batches(number):
                await training.accumulate(case.packs[index])
            norms.append((await training.step(cases.rule(number))).norm)
        assert min(norms) < cases.rule(0).clip < max(norms), "only some gradients are clipped"
        state = await training.save()
        assert state.steps == cases.STEPS
        assert max(case.errors(state.parameters, ".after").values()) < 1e-3
        # A step divides by the gradient's size: if that is hardly more than rounding, directions differ.
        assert max(case.errors(state.parameters, ".after", start).values()) < 1e-2


def expected_step(state: TrainingState, gradient: np.ndarray, rule: AdamW) -> tuple[TrainingState, float, float]:
    """In float64: the state after a step towards the anchor, the gradient's norm, and the penalty before it."""
    exact = state.copy(np.dtype(np.float64))
    assert exact.anchor is not None
    apart = exact.parameters - exact.anchor
    slope = gradient + rule.elastic * exact.fisher * apart
    norm = float(np.linalg.norm(slope))
    slope *= min(1, rule.clip / norm)
    first = rule.beta1 * exact.first_moment + (1 - rule.beta1) * slope
    second = rule.beta2 * exact.second_moment + (1 - rule.beta2) * slope**2
    steps = state.steps + 1
    change = first / (1 - rule.beta1**steps) / (np.sqrt(second / (1 - rule.beta2**steps)) + rule.eps)
    parameters = exact.parameters - rule.rate * (change + rule.decay * exact.parameters)
    penalty = rule.elastic / 2 * float(np.sum(exact.fisher * apart**2))
    return TrainingState(parameters, first, second, exact.fisher, steps, exact.anchor), norm, penalty


def near(ours: np.ndarray, expected: np.ndarray, before: np.ndarray) -> bool:
    return bool(np.linalg.norm(ours - expected) < 1e-3 * np.linalg.norm(expected - before))


async def test_an_anchor_pulls_by_the_fisher_information_before_the_gradient_is_clipped(
    load_backend: BackendLoader, tmp_path: Path
) -> None:
    async with opened("llama", tmp_path, load_backend) as case:
        training, draw = case.training, np.random.default_rng(6)
        plain = await training.save()
        fisher, apart = draw.random(case.layout.size) ** 4, 0.1 * draw.standard_normal(case.layout.size)
        held = replace(plain, fisher=fisher.astype(np.float32), anchor=(plain.parameters - apart).astype(np.float32))

        async def steps_from(state: TrainingState, elastic: float, check: bool = False) -> TrainingState:
            await training.restore(state)
            norms = []
            for number in range(3):
                before = await training.save()
                await training.accumulate(case.packs[number % 2])
                gradient, rule = await training.gradient(), replace(cases.rule(number), elastic=elastic, clip=1.1)
                result = await training.step(rule)
                norms.append(result.norm)
                if check:
                    after = await training.save()
                    expected, norm, penalty = expected_step(before, gradient, rule)
                    assert penalty > 0.1
                    assert (result.norm, result.penalty) == pytest.approx((norm, penalty), rel=1e-4)
                    for ours, wanted, old in zip(after.vectors[:3], expected.vectors, before.vectors, strict=False):
                        assert near(ours, wanted, old)
                    assert norm != pytest.approx(np.linalg.norm(gradient), rel=0.01), "the pull counts"
                else:
                    assert result.penalty == 0
            assert not check or min(norms) < 1.1 < max(norms), "some are clipped"
            return await training.save()

        ended = await steps_from(held, 0.3, check=True)
        for name in ("fisher", "anchor"):
            np.testing.assert_array_equal(getattr(ended, name), getattr(held, name))
        again = await steps_from(held, 0.3, check=True)
        np.testing.assert_array_equal(again.parameters, ended.parameters)
        # Without an anchor nothing pulls, nor with an elastic of 0.
        unanchored, free = await steps_from(plain, 0.3), await steps_from(held, 0)
        np.testing.assert_array_equal(unanchored.parameters, free.parameters)
        assert unanchored.anchor is None
