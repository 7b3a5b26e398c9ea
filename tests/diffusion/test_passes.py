"""A pass over a canvas of masks gives the same on every backend, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from py_core.backend_errors import ContextFullError
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.sampling import SamplingParams, mask_words
from tests.backends.backend_pairs import CONTEXT, GREEDY, Pair, open_pair, prompt, written
from tests.diffusion.tiny import MASK, write_diffusion
from tests.tiny.models import ALL_BYTES

DRAWN = SamplingParams(temperature=0.8, seed=3)


@pytest.fixture(params=["wasm", "webgpu"])
def host(request: pytest.FixtureRequest, kernel_wasm: Callable[[], Path]) -> WasmtimeHost | WgpuHost:
    return WgpuHost() if request.param == "webgpu" else WasmtimeHost(kernel_wasm())


def canvas_of(places: int, known: int) -> list[int]:
    """Masks, among which some places are known."""
    canvas = np.full(places, MASK)
    at = np.random.default_rng(places).permutation(places)[:known]
    canvas[at] = prompt(known, seed=known)
    return canvas.tolist()


async def assert_alike(
    pair: Pair, tokens: list[int], canvas: list[int], rules: SamplingParams, allowed: np.ndarray | None = None
) -> np.ndarray:
    """Returns the tokens."""
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    pair.other.append(ours, tokens)
    pair.numpy.append(reference, tokens)
    ids, scores = await pair.other.denoise(ours, canvas, rules, allowed)
    expected, expected_scores = await pair.numpy.denoise(reference, canvas, rules, allowed)
    assert MASK not in ids
    assert ours.tokens == tokens
    assert np.mean(ids == expected) > 0.9  # rounding may decide between two tokens that are as likely
    same = ids == expected
    np.testing.assert_allclose(scores[same], expected_scores[same], atol=0.01)
    pair.other.free(ours)
    pair.numpy.free(reference)
    return ids


@pytest.mark.parametrize(("block", "shifted"), [(8, False), (8, True), (32, False), (0, True)])
async def test_every_backend_draws_the_same_tokens_as_numpy(
    tmp_path: Path, host: WasmtimeHost | WgpuHost, block: int, shifted: bool
) -> None:
    pair = await open_pair(write_diffusion(tmp_path / "tiny.gguf", block, shifted), host)
    for length in (13, 64, 101):
        places = block - length % block if block else 50
        for rules in (GREEDY, DRAWN):
            await assert_alike(pair, prompt(length), canvas_of(places, places // 3), rules)
    pair.other.close()


@pytest.mark.parametrize(("block", "shifted"), [(8, True), (32, False)])
async def test_the_first_mask_becomes_one_of_the_tokens_that_may_come(
    tmp_path: Path, host: WasmtimeHost | WgpuHost, block: int, shifted: bool
) -> None:
    pair = await open_pair(write_diffusion(tmp_path / "tiny.gguf", block, shifted), host)
    words = np.zeros(mask_words(ALL_BYTES), np.uint32)
    for token in (may := (5, 77, 140)):
        words[token // 32] |= np.uint32(1 << token % 32)
    for length, known in ((65, 0), (65, 2), (101, 1)):
        canvas = [*prompt(known, seed=2), *[MASK] * (block - length % block - known)]
        for rules in (GREEDY, DRAWN):
            ids = await assert_alike(pair, prompt(length), canvas, rules, words)
            assert ids[known] in may
            free = await assert_alike(pair, prompt(length), canvas, rules)
            assert np.delete(ids, known).tolist() == np.delete(free, known).tolist()
            assert free[known] not in may
    pair.other.close()


async def test_a_canvas_leaves_nothing_and_its_block_runs_again(tmp_path: Path, host: WasmtimeHost | WgpuHost) -> None:
    pair = await open_pair(write_diffusion(tmp_path / "tiny.gguf", 8), host)
    tokens, found = prompt(45), dict[str, np.ndarray]()
    for backend in pair.both:
        sequence = backend.new_sequence()
        await backend.prefill(sequence, tokens)
        before = await backend.denoise(sequence, [MASK] * 3, GREEDY)
        await backend.denoise(sequence, [7, 8, MASK], GREEDY)
        again = await backend.denoise(sequence, [MASK] * 3, GREEDY)
        np.testing.assert_array_equal(again[0], before[0])
        np.testing.assert_allclose(again[1], before[1], atol=1e-5)
        backend.append(sequence, [7, 8, 9])
        assert (await backend.denoise(sequence, [MASK] * 8, GREEDY))[0].shape == (8,)
        # A block that grows is read again as a whole.
        grown, whole = backend.new_sequence(), backend.new_sequence()
        await backend.prefill(grown, tokens)
        backend.append(grown, [7, 8, 9])
        await backend.prefill(whole, [*tokens, 7, 8, 9])
        np.testing.assert_allclose(await backend.logits(grown), await backend.logits(whole), atol=1e-4)
        other = backend.new_sequence()
        await backend.prefill(other, [*tokens, 7, 8, 9, *prompt(8, seed=2)])
        backend.append(sequence, prompt(8, seed=2))
        np.testing.assert_allclose(await backend.logits(sequence), await backend.logits(other), atol=1e-4)
        found[backend.capabilities.backend] = await backend.logits(other)
    ours, reference = found.values()
    np.testing.assert_allclose(ours, reference, atol=1e-2)
    pair.other.close()


async def test_what_is_no_canvas_is_refused(tmp_path: Path, kernel_wasm: Callable[[], Path]) -> None:
    pair = await open_pair(write_diffusion(tmp_path / "tiny.gguf", 8), WasmtimeHost(kernel_wasm()))
    plain = await open_pair(written(tmp_path), WasmtimeHost(kernel_wasm()))
    for backend in pair.both:
        sequence = backend.new_sequence()
        with pytest.raises(ValueError, match="no tokens"):
            await backend.denoise(sequence, [MASK], GREEDY)
        backend.append(sequence, prompt(12))
        with pytest.raises(ValueError, match="does not end with its block"):
            await backend.denoise(sequence, [MASK] * 5, GREEDY)
        backend.append(sequence, prompt(CONTEXT - 12))
        with pytest.raises(ContextFullError):
            await backend.denoise(sequence, [MASK], GREEDY)
    for backend in plain.both:
        sequence = backend.new_sequence()
        backend.append(sequence, prompt(12))
        with pytest.raises(ValueError, match="from left to right"):
            await backend.denoise(sequence, [MASK], GREEDY)
