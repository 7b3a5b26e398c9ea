"""Graphs of every architecture in the WASM kernels against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from py_core.backends.protocols import Backend
from py_core.backends.wasm import lowering
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import cosine, open_pair, prompt, unfused
from tests.backends.variants import gated
from tests.backends.wasm.builds import OTHERS, in_turn
from tests.models.architectures.variants import OUTSIDE_GATE, QUANTIZED

TINY = pytest.mark.parametrize("model", gated(QUANTIZED, lambda name: name not in OUTSIDE_GATE))
ATOL = 8e-3
"""Activations have 15 bits."""


@in_turn(QUANTIZED, OTHERS)
async def test_logits_equal_numpy(tmp_path: Path, kernel_wasm, name: str, build: str) -> None:
    path = QUANTIZED[name].write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WasmtimeHost(kernel_wasm(build)))
    # Prefills longer and shorter than the windows; later steps take positions in parts, some of them before a window.
    await pair.compare((1, 2, 45, 70, 3, 200), 6, ATOL)


@TINY
async def test_fast_stays_close_to_numpy(tmp_path: Path, kernel_wasm, model: str) -> None:
    path = QUANTIZED[model].write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WasmtimeHost(kernel_wasm()), precision="fast")
    for length in (1, 210):
        ours, reference = await pair.prefilled(prompt(length))
        assert cosine(await pair.other.logits(ours), await pair.numpy.logits(reference)) > 0.98


@in_turn(QUANTIZED, OTHERS, first=1)
async def test_each_operation_of_a_graph_runs_unfused(
    tmp_path: Path, kernel_wasm, monkeypatch, name: str, build: str
) -> None:
    monkeypatch.setattr(lowering, "fuse", unfused)
    path = QUANTIZED[name].write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WasmtimeHost(kernel_wasm(build)))
    await pair.compare((1, 45, 170), 2, ATOL)


@pytest.mark.parametrize("is_fused", [True, False], ids=["fused", "unfused"])
@TINY
async def test_hidden_states_and_last_logits_equal_numpy(
    tmp_path: Path, kernel_wasm, monkeypatch, model: str, is_fused: bool
) -> None:
    if not is_fused:
        monkeypatch.setattr(lowering, "fuse", unfused)
    path = QUANTIZED[model].write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WasmtimeHost(kernel_wasm()))
    ours, reference = await pair.prefilled(prompt(90))

    async def states(backend: Backend, sequence: TokenSequence) -> dict[str, np.ndarray]:
        return await backend.hidden(sequence, ["residual.1", "residual.3", "final_norm"], start=20)

    got, expected = await states(pair.other, ours), await states(pair.numpy, reference)
    for name in expected:
        assert min(map(cosine, got[name], expected[name])) > 0.9999, name
    got_rows, rows = await pair.other.last_logits(ours, 5), await pair.numpy.last_logits(reference, 5)
    assert min(map(cosine, got_rows, rows)) > 0.9999
