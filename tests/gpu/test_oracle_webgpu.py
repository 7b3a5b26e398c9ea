"""SmolLM2 on this machine's WebGPU adapter against llama.cpp in float32 (tests/oracle)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from py_core.backends.webgpu.backend import WebGPUBackend, load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from tests.backend_pairs import collect, cosine

STEPS = 24
"""Each takes long on a software GPU."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def smollm(model_path: Path) -> AsyncIterator[WebGPUBackend]:
    source = FileSource(model_path)
    header = await read_header(source)
    config, graph = describe_model(header)
    backend = await load_webgpu(WgpuHost(), source, header, config, graph)
    yield backend
    backend.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_the_weights_take_little_more_than_the_file(smollm: WebGPUBackend, model_path: Path) -> None:
    sizes: dict[str, int] = {}
    for buffer in smollm._host._buffers.values():
        sizes[buffer.label] = sizes.get(buffer.label, 0) + buffer.size
    assert 0.9 < sizes["weights"] / FileSource(model_path).size < 1.05
    assert not {"bytes of the file", "runs of blocks"} & sizes.keys()


@pytest.mark.parametrize("name", ["p0", "p1", "p3"])
@pytest.mark.asyncio(loop_scope="module")
async def test_logits_and_greedy_tokens_equal_llama_cpp(smollm: WebGPUBackend, oracle, name: str) -> None:
    expected = oracle(name)
    sequence = smollm.new_sequence()
    await smollm.prefill(sequence, expected.prompt_ids)
    logits, reference = await smollm.logits(sequence), expected.logits.ravel()
    assert cosine(logits, reference) > 0.99999
    assert np.abs(logits - reference).max() < 0.02
    # Rounding may decide the first token of p1 and p3: they go on after the oracle's.
    first = expected.first_certain()
    if first:
        await smollm.prefill(sequence, expected.greedy_ids[:first])
    certain = expected.certain_ids(first=first)[:STEPS]
    assert len(certain) == STEPS
    assert await collect(smollm, sequence, STEPS) == certain
    smollm.free(sequence)
