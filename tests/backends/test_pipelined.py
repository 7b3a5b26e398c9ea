"""What every backend that decodes in flight must do, on tiny models: on WebGPU and in the WASM kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.base import BackendError, ContextFullError
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.sampling import SamplingParams
from tests.backend_pairs import GREEDY, Pair, collect, open_pair, prompt
from tests.tiny_llama import TinyLlama


@pytest.fixture(params=["webgpu", "wasm"])
async def tiny(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[Pair]:
    """In float32, so that no rounding of activations decides between two tokens."""
    path = TinyLlama(formats=("F32",), embedding_format="F32", tied=False).write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WgpuHost() if request.param == "webgpu" else WasmtimeHost(kernel_wasm(True)))
    yield pair
    pair.other.close()


async def test_greedy_decode_equals_numpy_over_page_borders(tiny: Pair) -> None:
    # After this prompt the second best token is never nearer than 0.017; the WASM kernels err by 0.005.
    ours, reference = await tiny.prefilled(prompt(50, seed=1))
    expected = await collect(tiny.numpy, reference, 100)
    assert len(set(expected)) > 3
    assert await collect(tiny.other, ours, 100) == expected
    assert ours.tokens == reference.tokens


async def test_sampled_decode_equals_numpy(tiny: Pair) -> None:
    rules = SamplingParams(temperature=0.9, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.2, seed=5)
    ours, reference = await tiny.prefilled(prompt(20))
    expected = await collect(tiny.numpy, reference, 60, rules)
    assert await collect(tiny.other, ours, 60, rules) == expected
    other = dataclasses.replace(rules, seed=6)
    tiny.other.truncate(ours, 20)
    assert await collect(tiny.other, ours, 60, other) != expected


async def test_decode_goes_on_where_the_last_one_ended(tiny: Pair) -> None:
    sequence = tiny.other.new_sequence()
    await tiny.other.prefill(sequence, prompt(10))
    whole = await collect(tiny.other, sequence, 24)
    tiny.other.truncate(sequence, 10)
    assert await collect(tiny.other, sequence, 7) + await collect(tiny.other, sequence, 17) == whole


async def test_prefill_after_decode_runs_the_pending_token_too(tiny: Pair) -> None:
    ours, reference = tiny.other.new_sequence(), tiny.numpy.new_sequence()
    for backend, sequence in ((tiny.other, ours), (tiny.numpy, reference)):
        await backend.prefill(sequence, prompt(10))
        await collect(backend, sequence, 5)
        await backend.prefill(sequence, prompt(3, seed=9))
    np.testing.assert_allclose(await tiny.other.logits(ours), await tiny.numpy.logits(reference), rtol=1e-3, atol=1e-2)


async def test_closing_an_iterator_keeps_what_was_yielded_and_forgets_what_was_in_flight(tiny: Pair) -> None:
    sequence = tiny.other.new_sequence()
    await tiny.other.prefill(sequence, prompt(10))
    whole = await collect(tiny.other, sequence, 40)
    tiny.other.truncate(sequence, 10)
    seen: list[int] = []
    stream = tiny.other.decode(sequence, 40, GREEDY)
    async for ids in stream:
        seen += ids
        if len(seen) >= 3:
            break
    await stream.aclose()
    assert sequence.tokens[10:] == seen == whole[: len(seen)]
    assert seen + await collect(tiny.other, sequence, 40 - len(seen)) == whole


async def test_sessions_do_not_disturb_each_other(tiny: Pair) -> None:
    alone = tiny.other.new_sequence()
    await tiny.other.prefill(alone, prompt(30))
    expected = await collect(tiny.other, alone, 20)
    tiny.other.free(alone)
    first, second = tiny.other.new_sequence(), tiny.other.new_sequence()
    await tiny.other.prefill(first, prompt(30))
    await tiny.other.prefill(second, prompt(80, seed=3))
    got = await collect(tiny.other, first, 10)
    await collect(tiny.other, second, 10)
    assert got + await collect(tiny.other, first, 10) == expected


async def test_a_prefill_tells_after_each_pass_how_far_it_is(tiny: Pair) -> None:
    sequence, rows, stored = tiny.other.new_sequence(), tiny.other.max_rows, list[int]()

    async def after_pass(tokens: int) -> None:
        stored.append(tokens)

    await tiny.other.prefill(sequence, prompt(150), after_pass)
    assert stored == [*range(rows, 150, rows), 150]


async def test_more_tokens_than_the_context_are_refused_and_nothing_is_lost(tiny: Pair) -> None:
    sequence = tiny.other.new_sequence()
    await tiny.other.prefill(sequence, prompt(500))
    with pytest.raises(ContextFullError, match="at most 512"):
        await tiny.other.prefill(sequence, prompt(13))
    assert sequence.length == 500
    assert len(await collect(tiny.other, sequence, 40)) == 12
    assert await collect(tiny.other, sequence, 40) == []


async def test_ids_outside_of_the_vocabulary_are_refused(tiny: Pair) -> None:
    sequence = tiny.other.new_sequence()
    for bad in ([259], [-1], []):
        with pytest.raises(ValueError, match="token"):
            await tiny.other.prefill(sequence, bad)
    assert sequence.tokens == []


async def test_before_a_prefill_there_is_nothing_to_predict_from(tiny: Pair) -> None:
    for backend in tiny.both:
        sequence = backend.new_sequence()
        with pytest.raises(ValueError, match="prefill comes first"):
            await backend.logits(sequence)
        with pytest.raises(ValueError, match="prefill comes first"):
            await collect(backend, sequence, 1)
        await backend.prefill(sequence, prompt(3))
        backend.truncate(sequence, 0)
        with pytest.raises(ValueError, match="prefill comes first"):
            await backend.logits(sequence)


async def test_every_slot_can_be_used_again_after_free(tiny: Pair) -> None:
    for _ in range(3):
        sequences = [tiny.other.new_sequence() for _ in range(4)]
        for sequence in sequences:
            await tiny.other.prefill(sequence, prompt(70))
        with pytest.raises(BackendError, match="conversations open"):
            tiny.other.new_sequence()
        for sequence in sequences:
            tiny.other.free(sequence)
