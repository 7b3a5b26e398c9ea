"""Adapters at the head's input and log-probabilities of tokens, on each backend, against their formulas in numpy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import AdapterError
from py_core.backend_errors import BackendError
from py_core.backends.checks import HEAD_SLOTS
from py_core.backends.numpy.backend import load_weights
from py_core.backends.protocols import Backend
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.graph import Graph, Linear, SoftCap
from py_core.models.registry import describe_model
from py_core.sampling import SamplingParams
from tests.backends.backend_pairs import collect
from tests.backends.variants import gated
from tests.models.architectures.variants import VARIANTS
from tests.tiny.adapters import drawn

TOKENS = [3, 17, 80, 5, 42, 9, 61, 8, 77, 30]


@dataclasses.dataclass
class Tiny:
    """A backend with a tiny model, and the model's own output matrix."""

    backend: Backend
    head: Callable[[np.ndarray], np.ndarray]
    """The logits of states after the final norm: (M, hidden) -> (M, vocab_size)."""
    graph: Graph

    @property
    def hidden_size(self) -> int:
        return self.graph.head_input.width

    @property
    def vocab_size(self) -> int:
        return self.graph.output.width

    def saying(self, token: int) -> NeighbourAdapter:
        """An adapter that says a token, whatever the state."""
        return NeighbourAdapter(np.ones((1, self.hidden_size), np.float32), np.array([token]), tau=-1.0)

    async def states(self, tokens: list[int]) -> np.ndarray:
        sequence = self.backend.new_sequence()
        await self.backend.prefill(sequence, tokens)
        states = await self.backend.hidden(sequence, ["final_norm"])
        self.backend.free(sequence)
        return states["final_norm"]

    async def expected(
        self, tokens: list[int], adapter: NeighbourAdapter | None, h: np.ndarray | None = None
    ) -> np.ndarray:
        """log p after each of the tokens (M, vocab_size), by the definitions: kNN mixes probabilities.

        h: the states after the final norm, if they differ from the model's own.
        """
        h = await self.states(tokens) if h is None else h
        logits = self.head(h).astype(np.float64)
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        if adapter:
            for row, state in enumerate(h):
                lengths = np.linalg.norm(adapter.states, axis=1) * np.linalg.norm(state)
                cosines = adapter.states @ state / lengths
                if cosines.max() < adapter.tau:
                    continue
                weights = np.exp(cosines / adapter.temperature)
                p[row] *= 1 - adapter.lambda_
                np.add.at(p[row], adapter.tokens, adapter.lambda_ * weights / weights.sum())
        return np.log(p)


def on_each_backend(on_the_gpu: str) -> pytest.MarkDecorator:
    """Runs with both models; in the gate the GPU runs only `on_the_gpu`."""
    pairs = product(("llama", "gemma2"), ("numpy", "webgpu", "wasm"))
    cases = gated(pairs, lambda case: case[1] != "webgpu" or case[0] == on_the_gpu)
    return pytest.mark.parametrize(("tiny", "load_backend"), cases, indirect=True)


@pytest.fixture(params=["llama", "gemma2"])
async def tiny(request: pytest.FixtureRequest, load_backend: BackendLoader, tmp_path: Path) -> Tiny:
    return await opened(request.param, tmp_path, load_backend)


@pytest.fixture
async def llama(load_backend: BackendLoader, tmp_path: Path) -> Tiny:
    return await opened("llama", tmp_path, load_backend)


async def opened(name: str, folder: Path, load_backend: BackendLoader) -> Tiny:
    source = FileSource(VARIANTS[name].write(folder / "tiny.gguf"))
    header = await read_header(source)
    config, graph = describe_model(header)
    weights = await load_weights(source, header, graph)
    (output,) = [op for op in graph.head if isinstance(op, Linear)]
    caps = [op.cap for op in graph.head if isinstance(op, SoftCap)]

    def head(h: np.ndarray) -> np.ndarray:
        logits = h @ weights[output.weight].T
        return caps[0] * np.tanh(logits / caps[0]) if caps else logits

    backend = await load_backend(source, header, config, graph, None)
    return Tiny(backend, head, graph)


def close(ours: np.ndarray, expected: np.ndarray) -> None:
    """Log-probabilities; those of the least likely tokens may be less exact."""
    np.testing.assert_allclose(ours, expected, atol=2e-3 * np.abs(expected).max())


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    largest = logits.max(-1, keepdims=True)
    return logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))


async def neighbours(tiny: Tiny, **settings: float) -> NeighbourAdapter:
    """States of a text that shares its beginning with TOKENS, so that some states are equal and others are far."""
    text = [*TOKENS[:6], 11, 12]
    tokens = np.array([*text[1:], text[1]])
    return NeighbourAdapter(await tiny.states(text), tokens, **{"temperature": 0.2, **settings})


@pytest.mark.every_backend
@on_each_backend(on_the_gpu="gemma2")
async def test_logits_and_scores_are_those_of_the_definition(tiny: Tiny) -> None:
    backend, sequence = tiny.backend, tiny.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    plain = await backend.last_logits(sequence, 8)
    half_open = await neighbours(tiny, tau=0.9999)
    for adapter in (tiny.saying(50), await neighbours(tiny, tau=0.2), half_open):
        expected = await tiny.expected(TOKENS, adapter)
        backend.use_head_adapter(sequence, await backend.put_head_adapter(adapter))
        changed = await backend.last_logits(sequence, 8)
        close(log_softmax(changed), expected[-8:])
        moved = np.abs(changed - plain).max(1) > 0.05
        assert moved.any()
        if adapter is half_open:
            assert not moved.all()
            np.testing.assert_allclose(changed[~moved], plain[~moved], atol=1e-5 * np.abs(plain).max())
        close(await backend.token_logprobs(sequence, 3), expected_of(TOKENS, expected, 3))
    backend.use_head_adapter(sequence, 0)
    np.testing.assert_allclose(await backend.last_logits(sequence, 8), plain, atol=1e-4 * np.abs(plain).max())


def expected_of(tokens: list[int], log_p: np.ndarray, start: int) -> np.ndarray:
    """log p of the tokens from `start` on, taken from log p after each position."""
    return log_p[np.arange(start - 1, len(tokens) - 1), tokens[start:]]


async def test_a_change_runs_the_last_token_again_and_no_other(llama: Tiny) -> None:
    backend, sequence = llama.backend, llama.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    number = await backend.put_head_adapter(llama.saying(50))
    backend.use_head_adapter(sequence, number)
    assert sequence.stored == len(TOKENS) - 1
    close(log_softmax(await backend.logits(sequence)), (await llama.expected(TOKENS, llama.saying(50)))[-1])


async def test_answers_are_sampled_of_the_changed_logits(llama: Tiny) -> None:
    """An adapter with a single state near every row repeats one token."""
    backend, sequence = llama.backend, llama.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    plain = await collect(backend, sequence, 6)
    state = (await llama.states(TOKENS))[-1:]
    adapter = NeighbourAdapter(state, np.array([50]), lambda_=0.999, tau=-1.0)
    backend.truncate(sequence, len(TOKENS))
    number = await backend.put_head_adapter(adapter)
    backend.use_head_adapter(sequence, number)
    assert await collect(backend, sequence, 3) == [50, 50, 50]
    rules = SamplingParams(temperature=0.5, top_k=3, seed=3, repetition_penalty=1.001)
    assert await collect(backend, sequence, 3, rules) == [50, 50, 50]
    backend.truncate(sequence, len(TOKENS))
    backend.use_head_adapter(sequence, 0)
    assert await collect(backend, sequence, 6) == plain


async def test_sequences_with_and_without_one_do_not_touch_each_other(llama: Tiny) -> None:
    backend = llama.backend
    adapters = [llama.saying(50), await neighbours(llama, tau=0.2), None]
    numbers = [await backend.put_head_adapter(one) if one else 0 for one in adapters]
    sequences = [backend.new_sequence() for _ in adapters]
    for sequence, number in zip(sequences, numbers, strict=True):
        backend.use_head_adapter(sequence, number)
    for token in TOKENS[:4]:
        for sequence in sequences:
            await backend.prefill(sequence, [token])
    for sequence, one in zip(sequences, adapters, strict=True):
        close(log_softmax(await backend.logits(sequence)), (await llama.expected(TOKENS[:4], one))[-1])


async def test_one_works_together_with_a_set_of_lora_matrices(llama: Tiny) -> None:
    backend, sequence = llama.backend, llama.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    backend.use_adapter(sequence, await backend.add_adapter(drawn(llama.graph, 1)))
    h = (await backend.hidden(sequence, ["final_norm"]))["final_norm"]
    assert np.abs(h - await llama.states(TOKENS)).max() > 0.1
    for one in (llama.saying(50), await neighbours(llama, tau=-1.0)):
        backend.use_head_adapter(sequence, await backend.put_head_adapter(one))
        expected = await llama.expected(TOKENS, one, h)
        close(log_softmax(await backend.last_logits(sequence, 3)), expected[-3:])
        close(await backend.token_logprobs(sequence, 2), expected_of(TOKENS, expected, 2))
        likeliest = int(np.argmax(expected[-1]))
        assert await collect(backend, sequence, 1) == [likeliest]
        backend.truncate(sequence, len(TOKENS))


async def test_an_adapter_that_is_removed_is_used_no_more(llama: Tiny) -> None:
    backend, sequence = llama.backend, llama.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    plain = await backend.logits(sequence)
    number = await backend.put_head_adapter(llama.saying(50))
    backend.use_head_adapter(sequence, number)
    await backend.logits(sequence)
    backend.remove_head_adapter(number)
    assert sequence.head_adapter == 0
    np.testing.assert_allclose(await backend.logits(sequence), plain, atol=1e-4 * np.abs(plain).max())
    for call in (lambda: backend.use_head_adapter(sequence, number), lambda: backend.remove_head_adapter(number)):
        with pytest.raises(ValueError, match="There is no adapter 1 at the head's input"):
            call()


async def test_every_slot_can_be_used_and_used_again(llama: Tiny) -> None:
    backend, sequence = llama.backend, llama.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    numbers = [await backend.put_head_adapter(llama.saying(token)) for token in range(HEAD_SLOTS)]
    assert numbers == list(range(1, HEAD_SLOTS + 1))
    with pytest.raises(BackendError, match="Remove one first"):
        await backend.put_head_adapter(llama.saying(1))
    backend.remove_head_adapter(numbers[7])
    assert await backend.put_head_adapter(await neighbours(llama)) == numbers[7]
    backend.use_head_adapter(sequence, HEAD_SLOTS)
    expected = await llama.expected(TOKENS, llama.saying(HEAD_SLOTS - 1))
    close(log_softmax(await backend.logits(sequence)), expected[-1])


async def test_what_does_not_fit_is_refused_with_a_sentence(llama: Tiny) -> None:
    backend, near = llama.backend, await neighbours(llama)

    async def refused(adapter: NeighbourAdapter, sentence: str) -> None:
        with pytest.raises(AdapterError, match=sentence):
            await backend.put_head_adapter(adapter)

    await refused(dataclasses.replace(near, states=near.states * np.float32(np.nan)), "not finite")
    await refused(dataclasses.replace(near, states=near.states[:, 1:]), "made for another model")
    await refused(dataclasses.replace(near, tokens=near.tokens[1:]), "made for another model")
    many = np.repeat(near.states, 9, axis=0)
    await refused(dataclasses.replace(near, states=many, tokens=np.zeros(72, int)), "72 states; it may have 1 to 64")
    await refused(dataclasses.replace(near, tokens=near.tokens + llama.vocab_size), "outside 0")
    await refused(dataclasses.replace(near, states=near.states * [[0.0]]), "zeros")
    await refused(dataclasses.replace(near, lambda_=1.0), r"lambda_, the neighbours' share, is 1\.0")
    await refused(dataclasses.replace(near, tau=2.0), r"tau, a cosine, is 2\.0")
    await refused(dataclasses.replace(near, temperature=0.0), r"temperature is 0\.0")
    assert await backend.put_head_adapter(near) == 1, "nothing of these took a slot"


async def test_log_probabilities_of_tokens_are_those_of_the_logits(llama: Tiny) -> None:
    backend, sequence = llama.backend, llama.backend.new_sequence()
    tokens = np.random.default_rng(1).integers(0, llama.vocab_size, 150).tolist()
    expected = await llama.expected(tokens, None)
    # In passes of 64 rows (numpy, WASM) or 16: within one, over a border, all of several.
    for length, start in ((2, 1), (70, 1), (70, 69), (70, 65), (150, 20)):
        backend.truncate(sequence, 0)
        await backend.prefill(sequence, tokens[:length])
        found = await backend.token_logprobs(sequence, start)
        assert found.shape == (length - start,)
        assert found.dtype == np.float32
        close(found, expected_of(tokens[:length], expected, start))
        close(log_softmax(await backend.logits(sequence)), expected[length - 1])


async def test_tokens_that_have_not_run_are_scored_as_well(llama: Tiny) -> None:
    backend, sequence = llama.backend, llama.backend.new_sequence()
    backend.append(sequence, TOKENS)
    assert sequence.stored == 0
    passes: list[int] = []

    async def after_pass(stored: int) -> None:
        passes.append(stored)

    found = await backend.token_logprobs(sequence, 1, after_pass)
    close(found, expected_of(TOKENS, await llama.expected(TOKENS, None), 1))
    assert passes == [len(TOKENS) - 1]


async def test_only_tokens_behind_others_can_be_scored(llama: Tiny) -> None:
    sequence = llama.backend.new_sequence()
    llama.backend.append(sequence, TOKENS)
    for start in (0, -1, 10):
        with pytest.raises(ValueError, match=f"start is {start}, but must be from 1 to 9"):
            await llama.backend.token_logprobs(sequence, start)


@pytest.mark.every_backend
@on_each_backend(on_the_gpu="llama")
async def test_states_that_were_read_are_scored_as_the_tokens_behind_them_are(tiny: Tiny) -> None:
    backend, sequence = tiny.backend, tiny.backend.new_sequence()
    tokens = np.random.default_rng(2).integers(0, tiny.vocab_size, 90).tolist()
    backend.append(sequence, tokens)
    (last,) = [name for name, value in tiny.graph.taps.items() if value == tiny.graph.head_residual]
    states = (await backend.hidden(sequence, [last]))[last][:-1]
    some = await backend.hidden(sequence, [last], 70, end=75)
    np.testing.assert_allclose(some[last], states[70:75], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="end is 91, but must be from 71 to 90"):
        await backend.hidden(sequence, [last], 70, end=91)
    for adapter in (None, await neighbours(tiny, tau=-1)):
        backend.use_head_adapter(sequence, await backend.put_head_adapter(adapter) if adapter else 0)
        found = await backend.score_states(sequence, states, tokens[1:])
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, await backend.token_logprobs(sequence, 1), rtol=1e-5, atol=1e-5)
    # The sequence's own logits are those of its last token, whatever was scored.
    close(log_softmax(await backend.logits(sequence)), (await tiny.expected(tokens, adapter))[-1])
    for wrong, scored in ((states[:, :-1], tokens[1:]), (states, tokens), (states[:0], [])):
        with pytest.raises(ValueError, match="need states of shape"):
            await backend.score_states(sequence, wrong, scored)
    with pytest.raises(ValueError, match="a token id is outside of 0"):
        await backend.score_states(sequence, states[:1], [tiny.vocab_size])
