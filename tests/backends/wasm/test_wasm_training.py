"""Training in the WASM kernels against the numpy reference, on tiny models of every kind."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.parameters import ParameterLayout, parameter_layout
from py_core.backend_errors import WorkersRestartedError
from py_core.backends.wasm import training_lowering
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.head_programs import HeadPrograms
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from py_core.training.session import AdamW, Training, TrainingLostError, TrainingState
from tests.backends.backend_pairs import MODELS, Pair, collect, open_pair, prompt
from tests.backends.dying_host import DyingHost, WorkersDie
from tests.backends.wasm.builds import OTHERS, in_turn
from tests.models.architectures.variants import VARIANTS
from tests.tiny.llama import TinyLlama
from tests.training.test_numpy_training import packed, parameters

NAMES = ["llama", "llama-fused-qkv", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "granite", "lfm2"]


async def opened(path: Path, host: WasmtimeHost, rank: int = 3) -> tuple[Pair, ParameterLayout, list[Training]]:
    """A model on both backends, each with a session over the same pairs."""
    pair = await open_pair(path, host)
    layout = parameter_layout(pair.numpy.graph, rank, 0.7)
    sessions = [await backend.open_training(layout) for backend in (pair.other, pair.numpy)]
    for session in sessions:
        await session.restore(TrainingState.of(parameters(layout, 1).astype(np.float32)))
    return pair, layout, sessions


def errors(layout: ParameterLayout, ours: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """How far each matrix is from the expected one, relative to its size."""
    found = {}
    theirs = layout.views(expected)
    for name, views in layout.views(ours).items():
        for side, mine, other in zip("ab", views, theirs[name], strict=True):
            found[f"{name} {side}"] = float(np.linalg.norm(mine - other) / max(np.linalg.norm(other), 1e-20))
    return found


@in_turn(NAMES, OTHERS)
async def test_gradients_equal_numpy(name: str, tmp_path: Path, kernel_wasm, build: str) -> None:
    path = VARIANTS[name].write(tmp_path / "tiny.gguf")
    _, layout, (ours, numpy) = await opened(path, WasmtimeHost(kernel_wasm(build)))
    pack = packed(5, [9, 1, 40], hidden=64)
    states = [await session.states(pack) for session in (ours, numpy)]
    np.testing.assert_allclose(states[0], states[1], rtol=1e-3, atol=1e-3)
    losses = [await session.accumulate(pack) for session in (ours, numpy)]
    assert losses[0].cross_entropy == pytest.approx(losses[1].cross_entropy, rel=1e-4)
    assert losses[0].divergence == pytest.approx(losses[1].divergence, rel=1e-4)
    found = errors(layout, await ours.gradient(), await numpy.gradient())
    assert max(found.values()) < 2e-4, found


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[] if name.startswith("mixed") else [pytest.mark.all]) for name in MODELS]
)
async def test_gradients_go_through_weights_of_every_format(model: str, tmp_path: Path, kernel_wasm) -> None:
    path = MODELS[model].write(tmp_path / "tiny.gguf")
    _, layout, (ours, numpy) = await opened(path, WasmtimeHost(kernel_wasm()), rank=8)
    pack = packed(0, [21])
    losses = [await session.accumulate(pack) for session in (ours, numpy)]
    assert losses[0].total == pytest.approx(losses[1].total, rel=1e-4)
    found = errors(layout, await ours.gradient(), await numpy.gradient())
    assert max(found.values()) < 2e-4, found


async def test_steps_and_fisher_information_equal_numpy(tmp_path: Path, kernel_wasm) -> None:
    path = VARIANTS["llama"].write(tmp_path / "tiny.gguf")
    _, _, sessions = await opened(path, WasmtimeHost(kernel_wasm()))
    start = (await sessions[0].save()).parameters
    rules = [AdamW(0.01), AdamW(0.02, 0.8, 0.99, 1e-6, decay=0.1, clip=0.5), AdamW(0.01, clip=0)]
    for number, rule in enumerate(rules):
        norms = []
        for session in sessions:
            await session.accumulate(packed(2, [5, 6], seed=number))
            norms.append((await session.step(rule)).norm)
            await session.accumulate(packed(2, [5, 6], seed=number))
            await session.add_fisher(0.9, 0.5)
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    ours, numpy = [await session.save() for session in sessions]
    assert ours.steps == numpy.steps == 3
    for name in ("first_moment", "second_moment", "fisher"):
        expected = getattr(numpy, name)
        assert np.linalg.norm(getattr(ours, name) - expected) < 1e-3 * np.linalg.norm(expected), name
    change = np.linalg.norm(numpy.parameters - start)
    assert np.linalg.norm(ours.parameters - numpy.parameters) < 1e-2 * change


async def test_a_step_that_is_not_finite_changes_nothing(tmp_path: Path, kernel_wasm) -> None:
    path = VARIANTS["llama"].write(tmp_path / "tiny.gguf")
    _, _, (ours, _) = await opened(path, WasmtimeHost(kernel_wasm()))
    before = await ours.save()
    pack = packed(4, [10])
    for bad in (np.inf, np.nan):
        await ours.accumulate(dataclasses.replace(pack, weights=pack.weights * bad))
        result = await ours.step(AdamW(0.1))
        assert not result.applied
        assert not np.isfinite(result.norm)
    np.testing.assert_array_equal((await ours.save()).parameters, before.parameters)
    np.testing.assert_array_equal((await ours.save()).second_moment, before.second_moment)
    loss = await ours.accumulate(pack)
    assert (await ours.step(AdamW(0.01))).applied, "the gradient was cleared"
    assert (await ours.accumulate(pack)).total < loss.total


async def test_a_chat_between_the_pieces_changes_nothing(tmp_path: Path, kernel_wasm, monkeypatch) -> None:
    monkeypatch.setattr(training_lowering, "PIECE_FLOPS", 1)  # a piece for each product
    path = TinyLlama(context=2048, layers=1, formats=("F32",)).write(tmp_path / "tiny.gguf")
    pair, _, (ours, _) = await opened(path, WasmtimeHost(kernel_wasm()))
    pack = packed(3, [8, 9], hidden=64)
    alone = await ours.accumulate(pack), await ours.gradient()
    await ours.clear()
    chat, undisturbed = pair.other.new_sequence(), pair.other.new_sequence()
    await pair.other.prefill(chat, prompt(900))  # the pages have room for 1024 tokens at first
    said: list[int] = []

    async def chat_on() -> None:
        said.extend(await collect(pair.other, chat, 4))

    between = await ours.accumulate(pack, chat_on), await ours.gradient()
    assert alone[0] == between[0]
    np.testing.assert_array_equal(alone[1], between[1])
    ours.close()
    assert len(said) > 124, "the pages grew behind the training's memory"
    await pair.other.prefill(undisturbed, prompt(900))
    assert said == await collect(pair.other, undisturbed, len(said))


async def test_a_session_that_is_closed_gives_its_memory_to_the_next(tmp_path: Path, kernel_wasm) -> None:
    path = VARIANTS["llama"].write(tmp_path / "tiny.gguf")
    pair, layout, (ours, _) = await opened(path, WasmtimeHost(kernel_wasm()))
    end = pair.other.pages.store.end  # type: ignore[attr-defined]
    ours.close()
    for _ in range(3):
        session = await pair.other.open_training(layout)
        np.testing.assert_array_equal((await session.save()).parameters, 0)
        session.close()
    assert pair.other.pages.store.end == end  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", range(5))
async def test_workers_that_die_while_a_session_is_opened_cost_time_only(
    tmp_path: Path, kernel_wasm, number: int
) -> None:
    host = WorkersDie(kernel_wasm())
    pair = await open_pair(VARIANTS["llama"].write(tmp_path / "tiny.gguf"), host)
    for seed in range(4):
        sequence = pair.other.new_sequence()
        await pair.other.prefill(sequence, [token % 128 for token in prompt(250, seed=seed)])
        pair.other.free(sequence)  # the remaining pages are kept for others, and make way
    await pair.other.limit_memory(pair.other.memory().total)
    host.lose(number)
    session = await pair.other.open_training(parameter_layout(pair.numpy.graph, 3, 0.7))
    assert host.lost == bool(number)
    host.lose(0)
    np.testing.assert_array_equal((await session.save()).parameters, 0)
    session.close()
    assert pair.other.memory().adapters == 0, "nothing was taken twice"


async def test_workers_that_die_while_programs_for_adapters_are_written_leave_no_memory_behind(
    tmp_path: Path, kernel_wasm
) -> None:
    host = WorkersDie(kernel_wasm())
    pair = await open_pair(VARIANTS["llama"].write(tmp_path / "tiny.gguf"), host)
    taken = []
    for number in (0, 1, 2):
        heads, pages = HeadPrograms(pair.other.device.lowering), pair.other.pages.store  # type: ignore[attr-defined]
        before = pages.bytes_of_others
        host.lose(number)
        with contextlib.suppress(WorkersRestartedError):
            await heads.make(host)
        taken.append(pages.bytes_of_others - before)
    assert taken[1:] == [0, taken[0] // 2]


class LosingHost(DyingHost):
    """The pool's workers die in several runs."""

    LOST = (4, 9, 10, 30)

    def _is_due(self) -> bool:
        return self.runs in self.LOST


async def test_after_workers_were_restarted_a_session_goes_on_with_the_same_numbers(
    tmp_path: Path, kernel_wasm, monkeypatch
) -> None:
    monkeypatch.setattr(training_lowering, "PIECE_FLOPS", 1e7)  # some pieces
    path = VARIANTS["llama"].write(tmp_path / "tiny.gguf")
    states = []
    for host in (WasmtimeHost(kernel_wasm()), losing := LosingHost(kernel_wasm())):
        _, _, (ours, _) = await opened(path, host)
        saved = await ours.save()
        losing.runs, losing.dies, lost = 0, int(host is losing), False
        while saved.steps < 3:
            try:
                if lost:
                    await ours.restore(saved)
                    lost = False
                await ours.accumulate(packed(3, [7, 9], seed=saved.steps))
                await ours.step(AdamW(0.01))
                saved = await ours.save()
            except TrainingLostError:
                with pytest.raises(TrainingLostError, match="Restore"):
                    await ours.gradient()
                lost = True
        states.append(saved)
    assert losing.runs > max(losing.LOST)
    np.testing.assert_array_equal(states[0].parameters, states[1].parameters)
    np.testing.assert_array_equal(states[0].second_moment, states[1].second_moment)


async def test_training_takes_less_than_150_mb_over_the_model(model_path: Path, kernel_wasm) -> None:
    host = WasmtimeHost(kernel_wasm())
    header = await read_header(FileSource(model_path))
    config, graph = describe_model(header)
    backend = await load_wasm(host, FileSource(model_path), header, config, graph)
    before = backend.pages.store.end
    session = await backend.open_training(parameter_layout(graph, 8, 2.0))
    assert session.max_rows == 512
    assert backend.pages.store.end - before < 150e6
    host.close()
