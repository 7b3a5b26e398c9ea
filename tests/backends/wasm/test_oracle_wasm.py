"""SmolLM2 in the WASM kernels against llama.cpp in float32 (tests/oracle)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.engine import Timings
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.sampling import SamplingParams
from tests.backends.backend_pairs import collect, cosine

PENALTY = SamplingParams(frequency_penalty=0.2)


@pytest.mark.parametrize("name", ["p0", *(pytest.param(name, marks=pytest.mark.all) for name in ("p1", "p3"))])
async def test_precise_gives_the_tokens_of_float32(model_path: Path, kernel_wasm, oracle, name: str) -> None:
    expected = oracle(name)
    model = await load_model(FileSource(model_path), partial(load_wasm, WasmtimeHost(kernel_wasm())), native_renderer())
    sequence = model.backend.new_sequence()
    await model.backend.prefill(sequence, expected.prompt_ids)
    logits = await model.backend.logits(sequence)
    assert cosine(logits, expected.logits.ravel()) > 0.99999
    assert np.abs(logits - expected.logits.ravel()).max() < 0.05
    # Rounding may decide the first token of p1 and p3: they continue after the oracle's.
    first = expected.first_certain(0.05)
    if first:
        await model.backend.prefill(sequence, expected.greedy_ids[:first])
    certain = expected.certain_ids(0.05, first)
    assert len(certain) >= 18
    assert await collect(model.backend, sequence, len(certain)) == certain
    # Each next token is checked after the oracle's own tokens.
    model.backend.truncate(sequence, len(expected.prompt_ids))
    sure = [lead >= 0.1 for lead in expected.top2_margin[:40]]
    assert sum(sure) >= 35
    for step, token in enumerate(expected.greedy_ids[:40]):
        if sure[step]:
            assert int(np.argmax(await model.backend.logits(sequence))) == token, step
        await model.backend.prefill(sequence, [token])
    model.close()


async def test_hidden_states_and_scores_are_those_of_float32(model_path: Path, kernel_wasm, oracle) -> None:
    expected, states, scores = oracle("p0"), [], []
    for load in (partial(load_wasm, WasmtimeHost(kernel_wasm())), load_numpy):
        model = await load_model(FileSource(model_path), load, native_renderer())
        names = [model.config.residual_at(depth) for depth in (0.25, 0.5, 0.75)] + ["final_norm"]
        sequence = model.backend.new_sequence()
        await model.backend.prefill(sequence, expected.prompt_ids)
        states.append(await model.backend.hidden(sequence, names))
        scores.append(await model.backend.token_logprobs(sequence, 1))
        model.close()
    for name, reference in states[1].items():
        assert reference.shape == (len(expected.prompt_ids), 576)
        error = np.linalg.norm(states[0][name] - reference, axis=1) / np.linalg.norm(reference, axis=1)
        assert error.max() < 2e-3, name
    np.testing.assert_allclose(scores[0], scores[1], rtol=2e-3, atol=0.02)


async def test_fast_stays_close_to_float32(model_path: Path, kernel_wasm, oracle) -> None:
    model = await load_model(
        FileSource(model_path), partial(load_wasm, WasmtimeHost(kernel_wasm()), precision="fast"), native_renderer()
    )
    for name in ("p0", "p1", "p3"):
        expected = oracle(name)
        sequence = model.backend.new_sequence()
        await model.backend.prefill(sequence, expected.prompt_ids)
        assert cosine(await model.backend.logits(sequence), expected.logits.ravel()) > 0.998
    model.close()


@pytest.mark.all  # in the gate: tests/unit/test_engine.py
async def test_an_answer_that_only_repeats_itself_ends(model_path: Path, kernel_wasm) -> None:
    model = await load_model(FileSource(model_path), partial(load_wasm, WasmtimeHost(kernel_wasm())), native_renderer())
    question = "Make a Markdown table comparing Python, Rust and Go."
    prompt = await model.encode_chat([{"role": "user", "content": question}])
    sequence, timings, said = model.engine.new_sequence(), Timings(), list[int]()
    await model.engine.prefill(sequence, prompt, timings)
    async for ids in model.engine.generate(sequence, 1024, PENALTY, timings, end_at_loops=True):
        said += ids
    assert timings.reason == "loop"
    assert timings.new_tokens < 400
    lines = model.tokenizer.decode(sequence.tokens[len(prompt) :]).splitlines()
    assert max(map(lines.count, lines)) == 2
    assert len(said) - timings.repeated_tokens == sequence.length - len(prompt)
    model.close()
