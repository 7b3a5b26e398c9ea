"""Sets of LoRA matrices in the kernels that GPUs choose, against the numpy reference. Tiny models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.lora import LoraAdapter
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.lowering import model as lowering
from tests.backends.backend_pairs import Pair, collect, open_pair, prompt, unfused
from tests.backends.webgpu.gpu_shapes import INTEGERS, SHAPES, SUBGROUPS
from tests.models.architectures.variants import QUANTIZED
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

LENGTHS = (1, 3, 70)
"""Tokens that follow one another: a pass of one row, of few, and of many."""


async def opened(path: Path, host: WgpuHost, rank: int = 8, **options) -> tuple[Pair, WebGPUBackend, LoraAdapter]:
    pair = await open_pair(path, host, **options)
    assert isinstance(pair.other, WebGPUBackend)
    return pair, pair.other, drawn(pair.other.graph, 1, rank=rank)


async def compare(pair: Pair, adapter: LoraAdapter, lengths: tuple[int, ...] = LENGTHS) -> None:
    """Logits after prefills of these lengths, and after some decoded tokens."""
    numbers = [await backend.add_adapter(adapter) for backend in pair.both]
    ours, reference = (backend.new_sequence() for backend in pair.both)
    pair.other.use_adapter(ours, numbers[0])
    pair.numpy.use_adapter(reference, numbers[1])

    async def logits_are_equal() -> None:
        got, expected = await pair.other.logits(ours), await pair.numpy.logits(reference)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())

    for length in lengths:
        await pair.other.prefill(ours, prompt(length, seed=length))
        await pair.numpy.prefill(reference, prompt(length, seed=length))
        await logits_are_equal()
    await pair.numpy.prefill(reference, await collect(pair.other, ours, 3))
    await logits_are_equal()


@pytest.mark.parametrize(
    ("model", "shapes", "rank"),
    [
        ("llama with every bias", "integers", 8),
        ("phi3", "subgroups", 3),
        pytest.param("gemma2", "hardware", 16, marks=pytest.mark.all),
        pytest.param("qwen3 of odd widths", "subgroups", 4, marks=pytest.mark.all),
    ],
)
async def test_a_set_gives_what_it_gives_on_numpy(
    tmp_path: Path, host: WgpuHost, model: str, shapes: str, rank: int
) -> None:
    pair, _, adapter = await opened(QUANTIZED[model].write(tmp_path / "tiny.gguf"), host, rank, shapes=SHAPES[shapes])
    await compare(pair, adapter)


async def test_linears_that_no_pattern_fuses_have_their_set(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowering, "fuse", unfused)
    pair, _, adapter = await opened(QUANTIZED["phi3"].write(tmp_path / "tiny.gguf"), host)
    await compare(pair, adapter)


async def test_a_matrix_in_parts_has_its_set(tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = TinyLlama(formats=("F16", "Q8_0", "F16", "F16", "F16", "Q8_0", "F16"), ffn=96, embedding_format="F16")
    monkeypatch.setattr(host, "adapter", replace(host.adapter, max_binding_size=8192))
    pair, backend, adapter = await opened(tiny.write(tmp_path / "tiny.gguf"), host)
    assert len(backend.device.arena.place(["blk.0.ffn_down.weight"]).parts) == 2
    await compare(pair, adapter)


async def test_kernels_with_a_set_bind_8_buffers_where_webgpu_promises_no_more(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "adapter", replace(host.adapter, max_storage_buffers=8))
    pair, backend, adapter = await opened(QUANTIZED["qwen2"].write(tmp_path / "tiny.gguf"), host, shapes=SUBGROUPS)
    await compare(pair, adapter)
    kernels = [kernel for plan in backend.device._sets._plans[8].values() for kernel in plan.body]
    assert max(len(kernel.bindings()) for kernel in kernels) == 8


async def test_a_set_takes_one_dispatch_more_in_a_decode_step(tmp_path: Path, host: WgpuHost) -> None:
    """The kernel that makes x leaves parts of A x; only the first linears read an x that no such kernel makes."""
    _, backend, adapter = await opened(TinyLlama().write(tmp_path / "tiny.gguf"), host, shapes=INTEGERS)
    await backend.add_adapter(adapter)
    assert len(backend.device._sets._plans[8]["one"].step) == len(backend.device._plans["one"].step) + 1


async def test_without_a_set_the_same_kernels_run_over_the_same_buffers(tmp_path: Path, host: WgpuHost) -> None:
    def lists() -> list[object]:
        launches = [backend.device.launches(name, m, 100) for name, m in (("step", 1), ("body", 5), ("body", 60))]
        return [launch.dispatch() for one in launches for launch in one]

    _, backend, adapter = await opened(TinyLlama().write(tmp_path / "tiny.gguf"), host, shapes=INTEGERS)
    before = lists()
    sequence = backend.new_sequence()
    backend.use_adapter(sequence, await backend.add_adapter(adapter))
    await backend.prefill(sequence, prompt(3))
    await collect(backend, sequence, 2)
    other = backend.new_sequence()
    await backend.prefill(other, prompt(3))
    assert lists() == before


async def test_what_is_read_between_layers_is_the_set_s(tmp_path: Path, host: WgpuHost) -> None:
    pair, _, adapter = await opened(TinyLlama().write(tmp_path / "tiny.gguf"), host, shapes=INTEGERS)
    found = []
    for one in pair.both:
        sequence = one.new_sequence()
        await one.prefill(sequence, prompt(40))
        plain = await one.hidden(sequence, ["residual.1", "final_norm"], start=30)
        one.use_adapter(sequence, await one.add_adapter(adapter))
        changed = await one.hidden(sequence, ["residual.1", "final_norm"], start=30)
        found.append(changed)
        assert all(np.abs(changed[name] - plain[name]).max() > 0.01 for name in plain)
    for name, ours in found[0].items():
        np.testing.assert_allclose(ours, found[1][name], atol=1e-3 * np.abs(ours).max())
