"""The reference backend: it computes the model, however its tokens are split into passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.backend_errors import BackendError, ContextFullError
from py_core.backends.numpy.backend import NumpyBackend, glu, load_weights
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import Model
from py_core.models.config import ModelConfig
from py_core.models.registry import describe_model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence

GREEDY = SamplingParams()
VOCAB = 259
run = asyncio.run

token_lists = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=150)


@pytest.fixture(scope="module")
def backend(tiny_path: Path, open_model: Callable[..., Coroutine[Any, Any, Model]]) -> Iterator[NumpyBackend]:
    """A TinyLlama; its context is 512 tokens."""
    model = run(open_model(tiny_path))
    assert isinstance(model.backend, NumpyBackend)
    yield model.backend
    model.close()


def some_tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()


async def decode(
    backend: NumpyBackend, sequence: TokenSequence, n: int, sampling: SamplingParams = GREEDY
) -> list[int]:
    return [token async for ids in backend.decode(sequence, n, sampling) for token in ids]


async def fresh_logits(backend: NumpyBackend, tokens: Sequence[int]) -> np.ndarray:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, tokens)
    logits = await backend.logits(sequence)
    backend.free(sequence)
    return logits


def assert_same(logits: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-3)


def llama_in_float64(config: ModelConfig, weights: dict[str, np.ndarray], tokens: Sequence[int]) -> np.ndarray:
    """Logits (M, vocab_size) of every token, written from the paper: whole matrices, one head after the other."""
    w = {name: values.astype(np.float64) for name, values in weights.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + config.rms_norm_eps) * w[name]

    def rotated(head: np.ndarray) -> np.ndarray:
        """Neighbouring values are a complex number, turned by position * theta^(-2i/d)."""
        pairs = head[:, 0::2] + 1j * head[:, 1::2]
        speeds = np.array(config.rope.frequencies)
        turned = pairs * np.exp(1j * np.outer(np.arange(len(head)), speeds))
        return np.stack([turned.real, turned.imag], axis=-1).reshape(head.shape)

    x = w["token_embd.weight"][list(tokens)]
    future = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for layer in range(config.num_hidden_layers):
        block = f"blk.{layer}"
        h = norm(x, f"{block}.attn_norm.weight")
        q, k, v = (h @ w[f"{block}.attn_{name}.weight"].T for name in "qkv")
        heads = []
        for head in range(config.num_attention_heads):
            shared = head * config.num_key_value_heads // config.num_attention_heads
            own = slice(head * config.head_dim, (head + 1) * config.head_dim)
            kv = slice(shared * config.head_dim, (shared + 1) * config.head_dim)
            scores = rotated(q[:, own]) @ rotated(k[:, kv]).T / np.sqrt(config.head_dim) + future
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(scores / scores.sum(axis=1, keepdims=True) @ v[:, kv])
        x = x + np.concatenate(heads, axis=1) @ w[f"{block}.attn_output.weight"].T
        h = norm(x, f"{block}.ffn_norm.weight")
        gate, up = h @ w[f"{block}.ffn_gate.weight"].T, h @ w[f"{block}.ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{block}.ffn_down.weight"].T
    return norm(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T


@pytest.mark.parametrize(
    "options",
    [
        {}, {"tied": False}, {"heads": 8, "kv_heads": 1}, {"heads": 4, "kv_heads": 4, "layers": 3},
        {"hidden": 96, "heads": 6, "kv_heads": 3, "ffn": 160, "formats": ("F32",), "embedding_format": "F16"},
        {"hidden": 256, "ffn": 256, "formats": ("Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "BF16", "Q4_K"),
         "embedding_format": "Q6_K"},
        {"changes": {"llama.rope.freq_base": 500.0, "llama.attention.layer_norm_rms_epsilon": 0.1}},
    ],
    ids=str,
)  # fmt: skip
def test_the_logits_are_those_of_a_plain_llama_in_float64(
    write_model: Callable[..., Path], options: dict[str, Any]
) -> None:
    source = FileSource(write_model(seed=3, **options))
    header = run(read_header(source))
    config, graph = describe_model(header)
    weights = run(load_weights(source, header, graph))
    backend = NumpyBackend(config, graph, weights)
    tokens = some_tokens(100)
    expected = llama_in_float64(config, weights, tokens)
    for length in (1, 2, 65, 100):
        logits = run(fresh_logits(backend, tokens[:length]))
        assert logits.dtype == np.float32
        assert_same(logits, expected[length - 1])


@given(tokens=token_lists, cuts=st.lists(st.integers(1, 149), max_size=6))
@settings(max_examples=40)
def test_a_prompt_may_come_in_any_pieces(backend: NumpyBackend, tokens: list[int], cuts: list[int]) -> None:
    async def in_pieces() -> np.ndarray:
        sequence = backend.new_sequence()
        edges = [0, *sorted({cut for cut in cuts if cut < len(tokens)}), len(tokens)]
        for begin, end in pairwise(edges):
            await backend.prefill(sequence, tokens[begin:end])
        assert sequence.tokens == tokens
        return await backend.logits(sequence)

    assert_same(run(in_pieces()), run(fresh_logits(backend, tokens)))


async def test_a_prompt_may_come_token_by_token(backend: NumpyBackend) -> None:
    tokens, sequence = some_tokens(140), backend.new_sequence()
    for index, token in enumerate(tokens):
        await backend.prefill(sequence, [token])
        if index in (0, 63, 64, 65, 127, 128, 139):
            assert_same(await backend.logits(sequence), await fresh_logits(backend, tokens[: index + 1]))


@given(tokens=token_lists, keep=st.integers(0, 150), more=token_lists)
@settings(max_examples=40)
def test_truncated_and_continued_is_as_if_new(
    backend: NumpyBackend, tokens: list[int], keep: int, more: list[int]
) -> None:
    async def truncated() -> np.ndarray:
        sequence = backend.new_sequence()
        await backend.prefill(sequence, tokens)
        backend.truncate(sequence, keep)
        assert sequence.tokens == tokens[:keep]
        await backend.prefill(sequence, more)
        return await backend.logits(sequence)

    assert_same(run(truncated()), run(fresh_logits(backend, tokens[:keep] + more)))


async def test_the_logits_after_a_truncation_are_those_of_the_last_token_left(backend: NumpyBackend) -> None:
    tokens, sequence = some_tokens(80), backend.new_sequence()
    await backend.prefill(sequence, tokens)
    backend.truncate(sequence, 30)
    assert_same(await backend.logits(sequence), await fresh_logits(backend, tokens[:30]))


async def test_sessions_do_not_disturb_each_other(backend: NumpyBackend) -> None:
    prompts = [some_tokens(70, seed=1), some_tokens(30, seed=2)]
    alone = []
    for prompt in prompts:
        sequence = backend.new_sequence()
        await backend.prefill(sequence, prompt)
        alone.append(await decode(backend, sequence, 20))

    async def together(sequence: TokenSequence, prompt: list[int]) -> list[int]:
        await backend.prefill(sequence, prompt)
        out = []
        async for ids in backend.decode(sequence, 20, GREEDY):
            out += ids
            await asyncio.sleep(0)
        return out

    sequences = [backend.new_sequence(), backend.new_sequence()]
    assert await asyncio.gather(*map(together, sequences, prompts)) == alone
    backend.free(sequences[0])
    backend.truncate(sequences[1], 30)
    assert await decode(backend, sequences[1], 20) == alone[1]


async def test_greedy_decoding_is_a_loop_of_argmax(backend: NumpyBackend) -> None:
    prompt = some_tokens(20)
    expected = list(prompt)
    for _ in range(60):
        expected.append(int(np.argmax(await fresh_logits(backend, expected))))
    sequence = backend.new_sequence()
    await backend.prefill(sequence, prompt)
    assert len(set(expected[20:])) > 20
    assert await decode(backend, sequence, 60) == expected[20:]
    assert sequence.tokens == expected


async def test_decoding_in_two_parts_is_decoding_in_one(backend: NumpyBackend) -> None:
    drawn = SamplingParams(temperature=0.5, seed=5, repetition_penalty=1.3)
    one, two = backend.new_sequence(), backend.new_sequence()
    for sequence in (one, two):
        await backend.prefill(sequence, some_tokens(20))
    whole = await decode(backend, one, 40, drawn)
    assert await decode(backend, two, 13, drawn) + await decode(backend, two, 27, drawn) == whole
    assert len(set(whole)) > 10


async def test_the_logits_after_decoding_are_those_of_the_last_sampled_token(backend: NumpyBackend) -> None:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, some_tokens(10))
    await decode(backend, sequence, 7)
    assert sequence.length == 17
    assert_same(await backend.logits(sequence), await fresh_logits(backend, sequence.tokens))


async def test_logits_belong_to_the_caller(backend: NumpyBackend) -> None:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, some_tokens(5))
    (await backend.logits(sequence)).fill(0)
    assert_same(await backend.logits(sequence), await fresh_logits(backend, some_tokens(5)))


async def test_closing_decode_early_keeps_exactly_what_was_yielded(backend: NumpyBackend) -> None:
    prompt, sequence, got = some_tokens(20), backend.new_sequence(), []
    await backend.prefill(sequence, prompt)
    whole = await decode(backend, sequence, 30)
    backend.truncate(sequence, 20)
    async with aclosing(backend.decode(sequence, 30, GREEDY)) as batches:  # type: ignore[type-var]
        async for ids in batches:
            got += ids
            if len(got) == 5:
                break
    assert got == whole[:5]
    assert sequence.tokens == prompt + got
    assert await decode(backend, sequence, 25) == whole[5:]


async def test_a_prompt_may_fill_the_context_to_the_last_token(backend: NumpyBackend) -> None:
    tokens, sequence = some_tokens(512), backend.new_sequence()
    await backend.prefill(sequence, tokens)
    assert (await backend.logits(sequence)).shape == (VOCAB,)
    assert await decode(backend, sequence, 5) == []
    with pytest.raises(ContextFullError, match="513 tokens long, but the model reads at most 512"):
        await backend.prefill(sequence, [1])
    assert sequence.tokens == tokens


async def test_decoding_ends_where_the_context_does(backend: NumpyBackend) -> None:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, some_tokens(505))
    assert len(await decode(backend, sequence, 100)) == 7
    assert sequence.length == 512
    assert_same(await backend.logits(sequence), await fresh_logits(backend, sequence.tokens))


async def test_the_context_is_the_models_or_what_was_allowed(tiny_path: Path, open_model: Callable) -> None:
    assert (await open_model(tiny_path)).backend.context_length == 512
    assert (await open_model(tiny_path, context=40)).backend.context_length == 40


@pytest.mark.parametrize(
    ("bad", "said"),
    [([], "at least one token"), ([0, VOCAB], "outside of 0..258"), ([-1], "outside of 0..258"), ([1] * 510, "reads")],
    ids=["nothing", "too high", "negative", "too many"],
)
async def test_bad_tokens_leave_the_session_as_it_was(backend: NumpyBackend, bad: list[int], said: str) -> None:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, some_tokens(5))
    with pytest.raises((ValueError, ContextFullError), match=said):
        await backend.prefill(sequence, bad)
    assert sequence.tokens == some_tokens(5)
    assert_same(await backend.logits(sequence), await fresh_logits(backend, some_tokens(5)))


async def test_a_prefill_that_was_cancelled_goes_on_where_it_ended(backend: NumpyBackend) -> None:
    tokens, sequence = some_tokens(300), backend.new_sequence()
    task = asyncio.ensure_future(backend.prefill(sequence, tokens))
    for _ in range(6):  # the backend yields to others once a layer
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0 < sequence.stored < 300
    assert_same(await backend.logits(sequence), await fresh_logits(backend, tokens))


async def test_a_session_that_was_freed_is_a_sentence(backend: NumpyBackend) -> None:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, [1, 2])
    backend.free(sequence)
    with pytest.raises(BackendError, match="This conversation was closed"):
        await backend.prefill(sequence, [3])


async def test_progress_rises_to_the_end_of_the_file(tiny_path: Path) -> None:
    source, seen = FileSource(tiny_path), []
    header = await read_header(source)
    _, graph = describe_model(header)
    weights = await load_weights(source, header, graph, lambda done, total: seen.append((done, total)))
    assert set(weights) == set(graph.weights)
    assert len(seen) == len(weights)
    assert seen == sorted(set(seen))
    assert seen[-1] == (header.end_offset, header.end_offset)


def test_a_glu_of_huge_values_is_finite_and_warns_of_nothing() -> None:
    gate, up = np.array([[-1e4, -90, -1, 0, 1, 1e4]], np.float32), np.ones((1, 6), np.float32)
    with np.errstate(all="raise", under="ignore"):
        out = glu(gate, up)
    np.testing.assert_allclose(out, [[0, 0, -0.26894143, 0, 0.7310586, 1e4]], atol=1e-6)
