"""SmolLM2 on this machine's WebGPU adapter against llama.cpp in float32 (tests/oracle)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from py_core.backends.numpy.backend import NumpyBackend, load_weights
from py_core.backends.webgpu.backend import WebGPUBackend, load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.fit import memory_need
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from tests.backends.backend_pairs import collect, cosine
from tests.backends.variants import gated

STEPS = 12
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
@pytest.mark.all
async def test_the_model_takes_as_much_memory_as_was_told_and_little_more_than_the_file(
    smollm: WebGPUBackend, model_path: Path
) -> None:
    """Called before a token is read: its pages grow afterwards."""
    sizes = smollm.device.host.buffer_bytes()
    assert 0.9 < sizes["weights"] / FileSource(model_path).size < 1.05
    assert not {"bytes of the file", "runs of blocks"} & sizes.keys()
    header = await read_header(FileSource(model_path))
    need = memory_need(header.tensors, *describe_model(header), "webgpu", adapter=smollm.device.host.adapter)
    told = need.at(1024).total + int((8192 - 1024) * need.token_scratch)
    assert told == pytest.approx(sum(sizes.values()), rel=0.02)


@pytest.mark.all  # tiny models are compared in the same way in the gate
@pytest.mark.asyncio(loop_scope="module")
async def test_hidden_states_and_scores_equal_numpy_and_states_make_the_logits(
    smollm: WebGPUBackend, model_path: Path, oracle
) -> None:
    expected, source = oracle("p0"), FileSource(model_path)
    header = await read_header(source)
    config, graph = describe_model(header)
    weights = await load_weights(source, header, graph)
    names = [config.residual_at(depth) for depth in (0.25, 0.5, 0.75)] + ["final_norm"]
    states, scores = [], []
    for backend in (smollm, NumpyBackend(config, graph, weights)):
        sequence = backend.new_sequence()
        await backend.prefill(sequence, expected.prompt_ids)
        states.append(await backend.hidden(sequence, names, len(expected.prompt_ids) - 5))
        scores.append(await backend.token_logprobs(sequence, len(expected.prompt_ids) - 5))
        backend.free(sequence)
    for name, reference in states[1].items():
        assert reference.shape == (5, 576)
        np.testing.assert_allclose(states[0][name], reference, atol=1e-3 * np.abs(reference).max())
    logits = states[0]["final_norm"][-1] @ weights["token_embd.weight"].T
    assert np.abs(logits - expected.logits.ravel()).max() < 0.02
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", gated(["p0", "p1", "p3"], lambda name: name == "p0"))
@pytest.mark.asyncio(loop_scope="module")
async def test_logits_and_greedy_tokens_equal_llama_cpp(smollm: WebGPUBackend, oracle, name: str) -> None:
    expected = oracle(name)
    sequence = smollm.new_sequence()
    await smollm.prefill(sequence, expected.prompt_ids)
    logits, reference = await smollm.logits(sequence), expected.logits.ravel()
    assert cosine(logits, reference) > 0.99999
    assert np.abs(logits - reference).max() < 0.02
    # Rounding may decide the first token of p1 and p3: they continue after the oracle's.
    first = expected.first_certain()
    if first:
        await smollm.prefill(sequence, expected.greedy_ids[:first])
    certain = expected.certain_ids(first=first)[:STEPS]
    assert len(certain) == STEPS
    assert await collect(smollm, sequence, STEPS) == certain
    smollm.free(sequence)
