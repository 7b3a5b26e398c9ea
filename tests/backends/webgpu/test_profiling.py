"""Profiling on the real device: the measurements, their comparison values, and that other callers do not notice."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.cli import main as cli
from py_core.backend_errors import BackendError
from py_core.backends.profiles import AdapterLimits, KernelCost, Profile
from py_core.backends.webgpu import host_wgpu
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.profiling import measure_bandwidth, measure_flops
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.paging.sequence_slots import SLOTS
from py_core.sampling import SamplingParams
from tests.backends.backend_pairs import MODELS, collect, open_pair, prompt
from tests.backends.variants import gated
from tests.tiny.llama import TinyLlama

COUNTS = st.integers(0, 1 << 20)
DRAWN = SamplingParams(temperature=1.0, seed=3, repetition_penalty=1.3)


def total(profile: Profile, what: str) -> float:
    return sum(getattr(kernel, what) for kernel in profile.kernels)


async def test_each_kernel_of_a_step_is_measured_once(tmp_path: Path, host: WgpuHost) -> None:
    backend = (await open_pair(TinyLlama(layers=3).write(tmp_path / "tiny.gguf"), host)).other
    profile = await backend.profile(40)
    # The lists of a token, in the order in which `decode` submits them.
    launches = [launch for name in ("step", "argmax") for launch in backend.device.launches(name, 1, 41)]
    expected = Counter(launch.kernel.name for launch in launches)
    assert {kernel.name: kernel.count for kernel in profile.kernels} == expected
    assert expected["attention"] == 3
    assert all(kernel.seconds > 0 < kernel.bytes for kernel in profile.kernels)
    assert profile.kernel_seconds == pytest.approx(total(profile, "seconds"))
    assert profile.wall_seconds > 0


@pytest.mark.parametrize(
    "model",
    gated(
        ["q4_0 untied", "q8_0 odd heads", "f16", "f32", "mixed", "mixed k", "mixed few bits"],
        lambda model: model in ("q8_0 odd heads", "mixed few bits"),
    ),
)
async def test_bytes_and_flops_are_those_of_the_models_sizes(tmp_path: Path, host: WgpuHost, model: str) -> None:
    tiny = MODELS[model].config
    hidden, layers = tiny["hidden_size"], tiny["num_hidden_layers"]
    path = MODELS[model].write(tmp_path / "tiny.gguf")
    backend = (await open_pair(path, host)).other
    near, far = await backend.profile(10), await backend.profile(110)
    width = 4 * hidden // tiny["num_attention_heads"] * tiny["num_key_value_heads"]
    assert total(far, "bytes") - total(near, "bytes") == 100 * layers * 2 * width
    assert total(far, "flops") - total(near, "flops") == 100 * layers * 4 * hidden

    tensors = (await read_header(FileSource(path))).tensors
    head = "output.weight" if "output.weight" in tensors else "token_embd.weight"
    read = {name: info for name, info in tensors.items() if name == head or name != "token_embd.weight"}
    weights = sum(info.nbytes for info in read.values())
    # In addition: keys and values, the token's embedding, and per layer some twelve activations as wide as the widest.
    widest = 4 * max(2 * tiny["intermediate_size"], hidden, tiny["vocab_size"])
    besides = total(near, "bytes") - weights - 11 * layers * 2 * width
    assert 0 < besides < (12 * layers + 6) * widest
    multiplied = 2 * sum(info.shape[0] * info.shape[1] for info in read.values() if len(info.shape) == 2)
    assert 0 < total(near, "flops") - multiplied - 11 * layers * 4 * hidden < 0.2 * multiplied


async def test_a_pass_of_a_prefill_counts_each_row_and_the_weights_once(tmp_path: Path, host: WgpuHost) -> None:
    backend = (await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)).other
    one, five, ten = [await backend.profile(0, rows) for rows in (1, 5, 10)]
    linears = [sum(k.flops for k in p.kernels if k.name.startswith("qkv 64x128")) for p in (one, five, ten)]
    assert linears == [linears[0], 5 * linears[0], 10 * linears[0]]
    assert linears[0] > 0
    assert total(ten, "bytes") < 3 * total(five, "bytes") < 9 * total(one, "bytes")
    assert "argmax" not in {kernel.name for kernel in ten.kernels}
    assert all(kernel.seconds > 0 for kernel in ten.kernels)


@pytest.mark.parametrize(
    "sampling", [pytest.param(SamplingParams(), id="greedy", marks=pytest.mark.all), pytest.param(DRAWN, id="drawn")]
)
async def test_conversations_go_on_as_if_nothing_had_been_measured(tmp_path: Path, host: WgpuHost, sampling) -> None:
    backend = (await open_pair(TinyLlama(tied=False, context=2048).write(tmp_path / "tiny.gguf"), host)).other

    async def tokens(measure: bool) -> list[int]:
        sequence, other = backend.new_sequence(), backend.new_sequence()
        await backend.prefill(sequence, prompt(70))
        await backend.prefill(other, prompt(9, seed=1))
        if measure:
            await backend.profile(3, rows=12)
        made = await collect(backend, other, 6, sampling) + await collect(backend, sequence, 6, sampling)
        if measure:
            await backend.profile(1500)  # which makes the pool of pages grow
        made += await collect(backend, sequence, 6, sampling) + await collect(backend, other, 6, sampling)
        for one in (sequence, other):
            backend.free(one)
        return made

    assert await tokens(measure=True) == await tokens(measure=False)
    assert len(backend.pages.slots.free) == SLOTS


async def test_where_there_is_no_room_a_sentence_says_where_there_is(tmp_path: Path, host: WgpuHost) -> None:
    backend = (await open_pair(TinyLlama(context=128).write(tmp_path / "tiny.gguf"), host)).other
    await backend.profile(123)
    with pytest.raises(ValueError, match=r"position 124: it must be 0 to 123\.$"):
        await backend.profile(124)
    with pytest.raises(ValueError, match=r"1 to 16 rows on this GPU, not 17\.$"):
        await backend.profile(0, rows=17)
    assert len(backend.pages.slots.free) == SLOTS


async def test_a_gpu_without_timestamps_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = host_wgpu._request_adapter()
    monkeypatch.setattr(type(adapter), "features", property(lambda self: {"subgroup"}))
    host = WgpuHost()
    backend = (await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)).other
    with pytest.raises(BackendError, match="does not offer timestamp-query"):
        await backend.profile(1)
    with pytest.raises(BackendError, match="does not offer timestamp-query"):
        await backend.limits()
    assert len(backend.pages.slots.free) == SLOTS
    host.close()


class CoarseClock(WgpuHost):
    """Runs the recorded lists, and reports a known time for each, in steps of 100 us like Chromium."""

    async def profile(self, recorded: Sequence[int], times: Sequence[int]) -> list[float]:
        await super().profile(recorded, [1] * len(recorded))
        return [count * seconds_of(at) // 1e-4 * 1e-4 for at, count in enumerate(times)]


def seconds_of(at: int) -> float:
    """The time of the list that is recorded at this place: some take less than a step of the clock, some more."""
    return 3e-6 * 1.7**at


class StoppedClock(WgpuHost):
    async def profile(self, recorded: Sequence[int], times: Sequence[int]) -> list[float]:
        return [0.0] * len(recorded)


async def test_a_coarse_clock_is_made_up_for_by_repeating(tmp_path: Path) -> None:
    host = CoarseClock()
    profile = await (await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)).other.profile(20)
    host.close()
    exact = [seconds_of(at) for at in range(len(profile.kernels))]
    assert exact[0] < 1e-4 < exact[-1]
    # A list is repeated until it takes 20 steps of the clock or more.
    assert [kernel.seconds for kernel in profile.kernels] == pytest.approx(exact, rel=0.05)


async def test_a_clock_that_stands_still_is_a_sentence(tmp_path: Path) -> None:
    host = StoppedClock()
    backend = (await open_pair(TinyLlama(layers=1).write(tmp_path / "tiny.gguf"), host)).other
    with pytest.raises(BackendError, match="do not advance"):
        await backend.profile(1)
    host.close()


class KnownClock(WgpuHost):
    """Runs the recorded lists, and reports n + 1 milliseconds for the list at place n."""

    async def profile(self, recorded: Sequence[int], times: Sequence[int]) -> list[float]:
        await super().profile(recorded, [1] * len(recorded))
        return [1e-3 * (1 + at) * count for at, count in enumerate(times)]


async def test_the_adapters_limits_are_those_of_its_best_kernel() -> None:
    host, rounds = KnownClock(), []
    assert await measure_bandwidth(host, lambda: rounds.append(1)) == pytest.approx((16 << 20) / 1e-3)
    assert rounds
    # 2, 4 and 8 chains of multiplications and additions of four numbers, 256 times by 16 workgroups of 64.
    most = max(chains / (1 + at) for at, chains in enumerate((2, 4, 8)))
    assert await measure_flops(host) == pytest.approx(2 * 4 * 256 * 16 * 64 * most / 1e-3)
    host.close()


@pytest.mark.all
async def test_the_adapters_limits_are_measured(host: WgpuHost) -> None:
    assert 0 < await measure_bandwidth(host) < math.inf
    assert 0 < await measure_flops(host) < math.inf


@pytest.mark.all
def test_bench_gives_the_same_figures_as_a_table_and_as_json(tmp_path: Path) -> None:
    path = TinyLlama().write(tmp_path / "tiny.gguf")
    command = ["bench", "--backend", "webgpu", "--profile", "--model", str(path)]
    small = ["--prompt-tokens", "12", "--tokens", "4", "--rounds", "1"]

    def run(*options: str) -> str:
        done = CliRunner().invoke(cli.app, [*command, *small, *options], env={"COLUMNS": "80"}, catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout

    report = json.loads(run("--json"))["profile"]
    step, prefill = report["passes"]
    assert (step["position"], step["rows"], prefill["position"], prefill["rows"]) == (12, 1, 0, 12)
    assert report["limits"]["gb_s"] > 0 < report["limits"]["gflop_s"]
    for one in (step, prefill):
        kernels = one["kernels"]
        assert sum(kernel["us"] for kernel in kernels) + one["between_us"] + one["wait_us"] == pytest.approx(one["us"])
        outside = (one["between_us"] + one["wait_us"]) / one["us"]
        assert sum(kernel["share"] for kernel in kernels) + outside == pytest.approx(1)
        for kernel in kernels:
            assert kernel["us"] == pytest.approx(kernel["count"] * kernel["us_each"])
            speed = {"memory": "gb_s", "compute": "gflop_s"}[kernel["limit"]]
            assert kernel["limit_share"] == pytest.approx(kernel[speed] / report["limits"][speed])
    words = run()
    assert all(kernel["kernel"].split(" +")[0] in words for kernel in step["kernels"])
    assert "A token at position 12" in words
    assert "between kernels" in words


def test_the_limit_that_applies_is_the_one_that_takes_longer() -> None:
    limits = AdapterLimits(bytes_per_second=100.0, flops_per_second=1000.0)
    assert KernelCost("read", 1, 4.0, bytes=200, flops=500).bound(limits) == ("memory", 0.5)
    assert KernelCost("multiply", 1, 4.0, bytes=200, flops=4000).bound(limits) == ("compute", 1.0)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.integers(1, 40), st.integers(0, 1000), st.integers(0, 100))
def test_a_pass_costs_what_its_rows_cost_one_after_the_other(
    fixed, row, token, row_flops, token_flops, m, position, window
):
    cost = Cost(fixed, row, token, row_flops, token_flops, window)
    rows = range(position, position + m)
    assert cost.flops(m, position) == sum(cost.flops(1, at) for at in rows)
    seen = [range(max(0, at + 1 - window) if window else 0, at + 1) for at in rows]
    assert cost.flops(m, position) == m * row_flops + token_flops * sum(map(len, seen))
    # Weights, keys and values are read once for all rows.
    assert cost.bytes(m, position) == fixed + m * row + len(set().union(*seen)) * token
    assert cost.bytes(m, position) <= sum(cost.bytes(1, at) for at in rows)
