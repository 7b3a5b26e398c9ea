"""The numpy backend against llama.cpp on the real model: the reference is right before anything is compared to it.

Both compute with the weights dequantized to f32; if llama.cpp's lead of the best token over the second is under
0.02, rounding may decide, and nothing is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from py_core.backends.numpy.backend import NumpyBackend
from py_core.loading import Model
from py_core.sampling import SamplingParams, probability_of

FURTHER = [pytest.param(name, marks=pytest.mark.all) for name in ("p1", "p3")]
PROMPTS = ["p0", *FURTHER]
SURE = 0.02


@pytest.fixture(scope="module", params=PROMPTS)
def forced(request: pytest.FixtureRequest, real_parts: tuple, oracle: Callable) -> tuple:
    """The oracle, and logits (128, vocab_size) before each greedy token, if all before it are the oracle's."""
    expected = oracle(request.param)
    config, graph, weights = real_parts

    async def final_norm() -> np.ndarray:
        backend = NumpyBackend(config, graph, weights)
        sequence = backend.new_sequence()
        await backend.prefill(sequence, expected.prompt_ids + expected.greedy_ids[:-1])
        return (await backend.hidden(sequence, ["final_norm"], len(expected.prompt_ids) - 1))["final_norm"]

    return expected, asyncio.run(final_norm()) @ weights["token_embd.weight"].T


def test_the_logits_after_the_prompt_are_llama_cpps(forced: tuple) -> None:
    expected, rows = forced
    ours, theirs = rows[0].astype(np.float64), expected.logits.astype(np.float64)
    assert ours.shape == theirs.shape
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.99999
    assert np.abs(ours - theirs).max() < 0.02
    # So are the probabilities of what it says, and of what else is likely.
    theirs -= theirs.max() + np.log(np.exp(theirs - theirs.max()).sum())
    noted = probability_of(rows[0], expected.greedy_ids[0], 20)
    assert noted.logprob == pytest.approx(theirs[expected.greedy_ids[0]], abs=0.02)
    tokens, logprobs = zip(*noted.likeliest, strict=True)
    np.testing.assert_allclose(logprobs, theirs[list(tokens)], atol=0.02)
    np.testing.assert_allclose(logprobs, np.sort(theirs)[:-21:-1], atol=0.02)


def test_every_sure_token_of_llama_cpp_is_the_argmax_here(forced: tuple) -> None:
    expected, rows = forced
    wrong = {
        step: (int(row.argmax()), token)
        for step, (row, token, lead) in enumerate(
            zip(rows, expected.greedy_ids, expected.top2_margin, strict=True)
        )
        if lead >= SURE and row.argmax() != token
    }  # fmt: skip
    assert wrong == {}
    assert sum(lead >= SURE for lead in expected.top2_margin) >= 126


def test_the_lead_over_the_second_token_is_llama_cpps(forced: tuple) -> None:
    expected, rows = forced
    second, best = np.sort(rows, axis=1)[:, -2:].T
    np.testing.assert_allclose(best - second, expected.top2_margin, atol=0.02)


@pytest.mark.all
async def test_it_writes_what_llama_cpp_writes(real_model: Model, oracle: Callable) -> None:
    expected = oracle("p0")  # the others begin with a token that rounding could flip
    certain = expected.certain_ids(SURE)
    assert len(certain) == 84
    backend = real_model.backend
    session = backend.new_sequence()
    await backend.prefill(session, expected.prompt_ids)
    written = [token async for ids in backend.decode(session, len(certain), SamplingParams()) for token in ids]
    backend.free(session)
    assert written == certain


@pytest.mark.parametrize("name", ["p0", "p1", "p3"])
def test_the_tokenizer_reads_and_writes_as_llama_cpps(real_model: Model, oracle: Callable, name: str) -> None:
    expected = oracle(name)
    assert real_model.tokenizer.encode(expected.prompt, special=True) == expected.prompt_ids
    assert real_model.tokenizer.decode(expected.greedy_ids) == expected.text


async def test_the_chat_template_makes_the_oracles_prompt(real_model: Model, oracle: Callable) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert await real_model.encode_chat(messages) == oracle("p0").prompt_ids
