"""The WebGPU backend against the numpy reference, on tiny models in every format and kernel shape."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.base import BackendError, ContextFullError
from py_core.backends.numpy import NumpyBackend, load_weights
from py_core.backends.webgpu.backend import WebGPUBackend, load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.tuning import KernelShapes, choose_shapes
from py_core.engine.sampling import SamplingParams
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from tests.tiny_llama import TinyLlama

GREEDY = SamplingParams()
# As on a GPU, with and without subgroups (those of lavapipe are 4 wide), in passes small enough to need several.
HARDWARE = KernelShapes(32, 64, "reduce_workgroup", 4, True, 64, 32, 32)
SUBGROUPS = KernelShapes(4, 16, "reduce_subgroup", 4, True, 64, 16, 16)
SHAPES = {"software": None, "hardware": HARDWARE, "subgroups": SUBGROUPS}
MODELS = {
    "q4_1": TinyLlama(),
    "q4_0 untied": TinyLlama(formats=("Q4_0",), tied=False, embedding_format="Q4_0"),
    "q8_0 odd heads": TinyLlama(hidden=96, heads=6, kv_heads=3, ffn=160, formats=("Q8_0",)),
    "f16": TinyLlama(formats=("F16",), embedding_format="F16", kv_heads=4),
    "f32": TinyLlama(formats=("F32",), embedding_format="F32", kv_heads=1),
    "mixed": TinyLlama(formats=("Q4_0", "Q4_1", "Q8_0", "F16", "Q4_0", "Q8_0", "F32")),
}


class Pair:
    """The same model on numpy and on the GPU."""

    def __init__(self, numpy_backend: NumpyBackend, gpu: WebGPUBackend) -> None:
        self.numpy, self.gpu = numpy_backend, gpu


async def open_pair(path: Path, host: WgpuHost, shapes: KernelShapes | None = None, kv_format: str = "kv_f32") -> Pair:
    source = FileSource(path)
    header = await read_header(source)
    config, graph = describe_model(header)
    gpu = await load_webgpu(host, source, header, config, graph, shapes=shapes, kv_format=kv_format)
    return Pair(NumpyBackend(config, graph, await load_weights(source, header, graph)), gpu)


async def collect(backend, session, n: int, sampling: SamplingParams = GREEDY) -> list[int]:
    return [token async for ids in backend.decode(session, n, sampling) for token in ids]


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


@pytest.fixture
async def tiny(tmp_path: Path, host: WgpuHost) -> Pair:
    return await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("model", MODELS)
async def test_logits_equal_numpy_for_passes_of_every_size(tmp_path: Path, host: WgpuHost, model, shapes) -> None:
    pair = await open_pair(MODELS[model].write(tmp_path / "tiny.gguf"), host, SHAPES[shapes])
    ours, reference = pair.gpu.new_session(), pair.numpy.new_session()
    for length in (1, 5, 70, 9, 33):
        for backend, session in ((pair.gpu, ours), (pair.numpy, reference)):
            await backend.prefill(session, prompt(length, seed=length))
        expected = await pair.numpy.logits(reference)
        np.testing.assert_allclose(await pair.gpu.logits(ours), expected, rtol=1e-3, atol=2e-4 * np.abs(expected).max())


async def test_halves_in_the_pages_change_logits_only_slightly(tmp_path: Path, host: WgpuHost) -> None:
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host, kv_format="kv_f16")
    ours, reference = pair.gpu.new_session(), pair.numpy.new_session()
    for backend, session in ((pair.gpu, ours), (pair.numpy, reference)):
        await backend.prefill(session, prompt(90))
    got, expected = await pair.gpu.logits(ours), await pair.numpy.logits(reference)
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert 1e-6 < error < 1e-2


async def test_greedy_decode_equals_numpy_over_page_borders(tiny: Pair) -> None:
    ours, reference = tiny.gpu.new_session(), tiny.numpy.new_session()
    for backend, session in ((tiny.gpu, ours), (tiny.numpy, reference)):
        await backend.prefill(session, prompt(50))
    expected = await collect(tiny.numpy, reference, 100)
    assert len(set(expected)) > 3
    assert await collect(tiny.gpu, ours, 100) == expected
    assert ours.tokens == reference.tokens


async def test_sampled_decode_equals_numpy(tiny: Pair) -> None:
    rules = SamplingParams(temperature=0.9, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.2, seed=5)
    ours, reference = tiny.gpu.new_session(), tiny.numpy.new_session()
    for backend, session in ((tiny.gpu, ours), (tiny.numpy, reference)):
        await backend.prefill(session, prompt(20))
    expected = await collect(tiny.numpy, reference, 60, rules)
    assert await collect(tiny.gpu, ours, 60, rules) == expected
    other = dataclasses.replace(rules, seed=6)
    tiny.gpu.truncate(ours, 20)
    assert await collect(tiny.gpu, ours, 60, other) != expected


async def test_decode_goes_on_where_the_last_one_ended(tiny: Pair) -> None:
    session = tiny.gpu.new_session()
    await tiny.gpu.prefill(session, prompt(10))
    whole = await collect(tiny.gpu, session, 24)
    tiny.gpu.truncate(session, 10)
    assert await collect(tiny.gpu, session, 7) + await collect(tiny.gpu, session, 17) == whole


async def test_prefill_after_decode_runs_the_pending_token_too(tiny: Pair) -> None:
    ours, reference = tiny.gpu.new_session(), tiny.numpy.new_session()
    for backend, session in ((tiny.gpu, ours), (tiny.numpy, reference)):
        await backend.prefill(session, prompt(10))
        await collect(backend, session, 5)
        await backend.prefill(session, prompt(3, seed=9))
    np.testing.assert_allclose(await tiny.gpu.logits(ours), await tiny.numpy.logits(reference), rtol=1e-3, atol=1e-2)


async def test_closing_an_iterator_keeps_what_was_yielded_and_forgets_what_was_in_flight(tiny: Pair) -> None:
    session = tiny.gpu.new_session()
    await tiny.gpu.prefill(session, prompt(10))
    whole = await collect(tiny.gpu, session, 40)
    tiny.gpu.truncate(session, 10)
    seen: list[int] = []
    stream = tiny.gpu.decode(session, 40, GREEDY)
    async for ids in stream:
        seen += ids
        if len(seen) >= 3:
            break
    await stream.aclose()
    assert session.tokens[10:] == seen == whole[: len(seen)]
    assert seen + await collect(tiny.gpu, session, 40 - len(seen)) == whole


async def test_sessions_do_not_disturb_each_other(tiny: Pair) -> None:
    alone = tiny.gpu.new_session()
    await tiny.gpu.prefill(alone, prompt(30))
    expected = await collect(tiny.gpu, alone, 20)
    tiny.gpu.free(alone)
    first, second = tiny.gpu.new_session(), tiny.gpu.new_session()
    await tiny.gpu.prefill(first, prompt(30))
    await tiny.gpu.prefill(second, prompt(80, seed=3))
    got = await collect(tiny.gpu, first, 10)
    await collect(tiny.gpu, second, 10)
    assert got + await collect(tiny.gpu, first, 10) == expected


async def test_the_pool_of_pages_grows_and_keeps_what_it_held(tmp_path: Path, host: WgpuHost) -> None:
    path = TinyLlama(context=2048, layers=1).write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, host, dataclasses.replace(HARDWARE, max_rows=256))
    ours, reference = pair.gpu.new_session(), pair.numpy.new_session()
    text = prompt(1500)  # the pool starts with room for 1024 tokens
    for backend, session in ((pair.gpu, ours), (pair.numpy, reference)):
        await backend.prefill(session, text[:900])
        await backend.prefill(session, text[900:])
    expected = await pair.numpy.logits(reference)
    np.testing.assert_allclose(await pair.gpu.logits(ours), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert await collect(pair.gpu, ours, 8) == await collect(pair.numpy, reference, 8)


async def test_a_matrix_larger_than_one_binding_is_cut_into_parts(tmp_path: Path) -> None:
    path = TinyLlama(tied=False).write(tmp_path / "tiny.gguf")
    host = WgpuHost()
    pair = await open_pair(path, host)
    whole = len(pair.gpu.arena.segments)
    host.close()
    host = WgpuHost()
    # The table of 259 rows of 68 bytes no longer fits; the other matrices do.
    host.adapter = dataclasses.replace(host.adapter, max_binding_size=8192)
    pair = await open_pair(path, host, dataclasses.replace(choose_shapes(host.adapter, 16), max_rows=8))
    assert len(pair.gpu.arena.segments) > whole
    ours, reference = pair.gpu.new_session(), pair.numpy.new_session()
    for backend, session in ((pair.gpu, ours), (pair.numpy, reference)):
        await backend.prefill(session, [0, 100, 121, 240, 258])
    expected = await pair.numpy.logits(reference)
    np.testing.assert_allclose(await pair.gpu.logits(ours), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    host.close()


async def test_a_weight_that_cannot_be_bound_is_named(tmp_path: Path) -> None:
    path = TinyLlama().write(tmp_path / "tiny.gguf")
    host = WgpuHost()
    host.adapter = dataclasses.replace(host.adapter, max_binding_size=2048)
    with pytest.raises(BackendError, match=r"blk\.0\.\w+\.weight is larger than this GPU can bind"):
        await open_pair(path, host)
    host.close()


async def test_more_tokens_than_the_context_are_refused_and_nothing_is_lost(tiny: Pair) -> None:
    session = tiny.gpu.new_session()
    await tiny.gpu.prefill(session, prompt(500))
    with pytest.raises(ContextFullError, match="at most 512"):
        await tiny.gpu.prefill(session, prompt(13))
    assert session.length == 500
    assert len(await collect(tiny.gpu, session, 40)) == 12
    assert await collect(tiny.gpu, session, 40) == []


async def test_ids_outside_of_the_vocabulary_are_refused(tiny: Pair) -> None:
    session = tiny.gpu.new_session()
    for bad in ([259], [-1], []):
        with pytest.raises(ValueError, match="token"):
            await tiny.gpu.prefill(session, bad)
    assert session.tokens == []


async def test_every_slot_can_be_used_again_after_free(tiny: Pair) -> None:
    for _ in range(3):
        sessions = [tiny.gpu.new_session() for _ in range(4)]
        for session in sessions:
            await tiny.gpu.prefill(session, prompt(70))
        with pytest.raises(BackendError, match="conversations open"):
            tiny.gpu.new_session()
        for session in sessions:
            tiny.gpu.free(session)


async def test_a_closed_device_says_what_to_do(tmp_path: Path) -> None:
    host = WgpuHost()
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    session = pair.gpu.new_session()
    pair.gpu.close()
    with pytest.raises(BackendError, match="Load the model again"):
        await pair.gpu.prefill(session, prompt(5))
