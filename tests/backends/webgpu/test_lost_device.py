"""A lost device is replaced, and the caller that waits for tokens does not notice. Tiny models, really destroyed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.models.template_renderer import native_renderer
from py_core.adapters.head import NeighbourAdapter
from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.webgpu import host_wgpu
from py_core.backends.webgpu.backend import WebGPUBackend, load_webgpu
from py_core.backends.webgpu.host import Binding, Dispatch
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.kernel_shapes import choose_shapes
from py_core.engine import turns
from py_core.engine.engine import Engine, Timings
from py_core.formats.gguf import GGUFError
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.sampling import SamplingParams
from tests.backends.backend_pairs import GREEDY, NO_PAUSE, Pair, collect, open_pair, prompt
from tests.backends.variants import gated
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

TINY = TinyLlama(formats=("F32",), embedding_format="F32", tied=False)
SAMPLED = SamplingParams(temperature=0.9, top_k=40, repetition_penalty=1.2, frequency_penalty=0.2, seed=5)


class FragileHost(WgpuHost):
    """Once armed, loses its device with the submissions of these numbers: on their way, or already waited for."""

    def __init__(self, *breaks: int, waited_for: bool = False) -> None:
        super().__init__()
        self.breaks: Collection[int] = breaks
        self.waited_for = waited_for
        self.submits = self.reopened = 0
        self.armed = False

    def lose(self) -> None:
        self._device.destroy()

    def submit(self, recorded: Sequence[int]) -> None:
        super().submit(recorded)
        self.submits += 1
        if not self.armed or self.submits not in self.breaks:
            return
        if self.waited_for:
            asyncio.get_running_loop().call_soon(self.lose)
        else:
            self.lose()

    async def reopen(self) -> None:
        self.reopened += 1
        await super().reopen()


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TINY.write(tmp_path_factory.mktemp("lost") / "tiny.gguf")


async def open_fragile(path: Path, host: FragileHost) -> Pair:
    """Uses passes of 32 rows, so that a prompt takes several, and two steps in a submission, however fast a step is.
    Submissions count from here on."""
    pair = await open_pair(path, host, shapes=dataclasses.replace(choose_shapes(host.adapter, 16), max_rows=32))
    assert isinstance(pair.other, WebGPUBackend)
    pair.other.decoder.times.batch = lambda rows, seconds: 2  # type: ignore[method-assign]
    host.submits, host.armed = 0, True
    return pair


async def answer(path: Path, host: FragileHost, sampling: SamplingParams) -> list[int]:
    """40 tokens after a prompt, which takes the first four submissions."""
    pair = await open_fragile(path, host)
    sequence = pair.other.new_sequence()
    await pair.other.prefill(sequence, prompt(100, seed=1))
    tokens = await collect(pair.other, sequence, 40, sampling)
    assert sequence.tokens[100:] == tokens
    pair.other.close()
    return tokens


@pytest.fixture(scope="session")
def undisturbed(path: Path) -> dict[SamplingParams, list[int]]:
    return {sampling: asyncio.run(answer(path, FragileHost(), sampling)) for sampling in (GREEDY, SAMPLED)}


BREAKS = [(1,), (4,), (5,), (8,), (2, 3, 4), (6, 7)]


@pytest.mark.parametrize(
    ("breaks", "waited_for"),
    # In the gate: once while the prompt is read, once while tokens are awaited, and repeatedly.
    gated(
        [(breaks, waited_for) for breaks in BREAKS for waited_for in (False, True)],
        lambda case: case in (((4,), False), ((8,), True), ((2, 3, 4), False)),
    ),
    ids=str,
)
async def test_an_answer_goes_on(path: Path, undisturbed, breaks: tuple[int, ...], waited_for: bool) -> None:
    host = FragileHost(*breaks, waited_for=waited_for)
    assert await answer(path, host, GREEDY) == undisturbed[GREEDY]
    assert host.reopened == len(breaks)


@pytest.mark.all  # two simultaneous answers with a seed, too
@settings(max_examples=8, deadline=None)
@given(breaks=st.sets(st.integers(1, 40), max_size=3), waited_for=st.booleans())
def test_a_seed_gives_the_same_tokens_wherever_the_device_is_lost(
    path: Path, undisturbed, breaks: set[int], waited_for: bool
) -> None:
    host = FragileHost(*breaks, waited_for=waited_for)
    assert asyncio.run(answer(path, host, SAMPLED)) == undisturbed[SAMPLED]


async def test_every_open_conversation_is_brought_back(path: Path) -> None:
    host = FragileHost()
    pair = await open_fragile(path, host)
    texts = [prompt(40, seed=2), prompt(90, seed=3), prompt(1, seed=4)]
    expected = [await collect(pair.numpy, (await pair.prefilled(text))[1], 12) for text in texts]
    pair.other.close()
    host = FragileHost()
    pair = await open_fragile(path, host)
    sequences = [pair.other.new_sequence() for _ in texts]
    for sequence, text in zip(sequences, texts, strict=True):
        await pair.other.prefill(sequence, text)
    host.lose()
    tokens = [await collect(pair.other, sequence, 6) for sequence in sequences]
    host.lose()
    tokens = [begun + await collect(pair.other, sequence, 6) for begun, sequence in zip(tokens, sequences, strict=True)]
    assert tokens == expected
    assert host.reopened == 2
    pair.other.close()


async def test_sets_of_lora_matrices_are_brought_back(path: Path) -> None:
    host = FragileHost()
    pair = await open_fragile(path, host)
    adapters = [drawn(pair.numpy.graph, seed, rank) for seed, rank in ((1, 8), (2, 3))]
    numbers = [await pair.other.add_adapter(adapters[0])]
    host.lose()
    numbers.append(await pair.other.add_adapter(adapters[1]))
    for number, adapter in zip(numbers, adapters, strict=True):
        ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
        pair.other.use_adapter(ours, number)
        pair.numpy.use_adapter(reference, await pair.numpy.add_adapter(adapter))
        for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
            await backend.prefill(sequence, prompt(40, seed=2))
        assert await collect(pair.other, ours, 6) == await collect(pair.numpy, reference, 6)
        if number == numbers[0]:
            host.lose()
        assert await collect(pair.other, ours, 6) == await collect(pair.numpy, reference, 6)
    assert host.reopened == 2
    pair.other.close()


async def test_an_adapter_at_the_heads_input_is_brought_back_and_scores_made_again(path: Path) -> None:
    host, tokens = FragileHost(), prompt(70, seed=2)
    pair = await open_fragile(path, host)
    ours, reference = await pair.prefilled(tokens)
    states = (await pair.numpy.hidden(reference, ["final_norm"]))["final_norm"]
    adapter = NeighbourAdapter(states[:20], np.array(tokens[1:21]), tau=-1)
    host.lose()
    ours_number = await pair.other.put_head_adapter(adapter)
    for change in (lambda: None, host.lose):
        pair.other.use_head_adapter(ours, ours_number)
        pair.numpy.use_head_adapter(reference, await pair.numpy.put_head_adapter(adapter))
        expected = await pair.numpy.token_logprobs(reference, 1)
        change()
        found = await pair.other.token_logprobs(ours, 1)
        np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
        change()
        assert await collect(pair.other, ours, 6) == await collect(pair.numpy, reference, 6)
        for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
            backend.truncate(sequence, 70)
    assert host.reopened == 3
    pair.other.close()


@pytest.mark.parametrize("breaks", gated([((),), ((3, 9, 20),), ((5, 6, 7),)], lambda case: 9 in case[0]), ids=str)
async def test_two_answers_at_once_go_on_as_they_would_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, breaks: tuple[int, ...]
) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    texts, rules = [prompt(40, seed=2), prompt(90, seed=3)], [GREEDY, SAMPLED]

    async def answers(host: FragileHost, at_once: bool) -> list[list[int]]:
        pair = await open_fragile(path, host)
        engine = Engine(pair.other, ())

        async def answer(text: list[int], sampling: SamplingParams) -> list[int]:
            sequence = engine.new_sequence()
            await engine.prefill(sequence, text, Timings())
            return [token async for ids in engine.generate(sequence, 30, sampling, Timings()) for token in ids]

        both = [answer(*each) for each in zip(texts, rules, strict=True)]
        said = await asyncio.gather(*both) if at_once else [await each for each in both]
        pair.other.close()
        return said

    host = FragileHost(*breaks)
    assert await answers(host, at_once=True) == await answers(FragileHost(), at_once=False)
    assert host.reopened == len(breaks)


async def test_logits_are_those_of_before(path: Path) -> None:
    host = FragileHost()
    pair = await open_fragile(path, host)
    sequence, _ = await pair.prefilled(prompt(70))
    before = await pair.other.logits(sequence)
    host.lose()
    np.testing.assert_allclose(await pair.other.logits(sequence), before, rtol=1e-5, atol=1e-5)
    host.lose()
    pair.other.truncate(sequence, 30)
    await pair.other.prefill(sequence, prompt(70)[30:])
    np.testing.assert_allclose(await pair.other.logits(sequence), before, rtol=1e-5, atol=1e-5)
    pair.other.close()


@pytest.mark.parametrize("breaks", gated([((5,),), ((6,),), ((7,),), ((6, 8),)], lambda case: case == ((6,),)), ids=str)
async def test_hidden_states_are_those_of_before(path: Path, breaks: tuple[int, ...]) -> None:
    """The prompt is four submissions; hidden states of its last 90 tokens take three more, plus the repeated ones
    after a loss."""
    host = FragileHost(*breaks)
    pair = await open_fragile(path, host)
    ours, reference = await pair.prefilled(prompt(100))
    expected = await pair.numpy.hidden(reference, ["residual.1", "final_norm"], 10)
    states = await pair.other.hidden(ours, ["residual.1", "final_norm"], 10)
    for name, values in expected.items():
        np.testing.assert_allclose(states[name], values, rtol=1e-3, atol=2e-4 * np.abs(values).max())
    assert host.reopened == len(breaks)
    pair.other.close()


@pytest.mark.all
async def test_a_pool_of_pages_that_had_grown_grows_again(tmp_path: Path) -> None:
    path = TINY.changed(max_position_embeddings=2048, num_hidden_layers=1).write(tmp_path / "tiny.gguf")
    host = FragileHost()
    pair = await open_pair(path, host, shapes=dataclasses.replace(choose_shapes(host.adapter, 16), max_rows=256))
    sequence, _ = await pair.prefilled(prompt(1100))  # the pool starts with room for 1024 tokens
    before = await pair.other.logits(sequence)
    host.lose()
    np.testing.assert_allclose(await pair.other.logits(sequence), before, rtol=1e-5, atol=1e-5)
    pair.other.close()


@pytest.mark.parametrize(
    ("every", "waited_for"),
    [
        pytest.param(1, False, id="at once"),
        pytest.param(1, True, id="at once, waited for", marks=pytest.mark.all),
        pytest.param(3, False, id="where it was lost before", marks=pytest.mark.all),
        pytest.param(3, True, id="where it was lost before, waited for", marks=pytest.mark.all),
    ],
)
async def test_a_device_that_is_always_lost_again_ends_with_a_sentence(
    path: Path, waited_for: bool, every: int
) -> None:
    host = FragileHost(waited_for=waited_for)
    pair = await open_fragile(path, host)
    sequence, reference = await pair.prefilled(prompt(50, seed=1))
    # Its tokens take two passes to run again.
    host.breaks = range(host.submits + 1, 10**6, every)
    with pytest.raises(DeviceLostError, match="Load the model again"):
        await collect(pair.other, sequence, 8)
    assert host.reopened == 3
    assert sequence.tokens == prompt(50, seed=1)
    host.breaks = ()
    assert await collect(pair.other, sequence, 8) == await collect(pair.numpy, reference, 8)
    pair.other.close()


async def test_without_an_adapter_it_ends_with_a_sentence_and_goes_on_once_there_is_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = FragileHost()
    pair = await open_fragile(path, host)
    sequence, reference = await pair.prefilled(prompt(50, seed=1))

    def none() -> None:
        raise BackendError(host_wgpu.NO_ADAPTER)

    host.lose()
    with monkeypatch.context() as patch:
        patch.setattr(host_wgpu, "_request_adapter", none)
        with pytest.raises(DeviceLostError, match="Load the model again"):
            await collect(pair.other, sequence, 8)
    assert await collect(pair.other, sequence, 8) == await collect(pair.numpy, reference, 8)
    pair.other.close()


async def test_a_software_adapter_does_not_take_the_place_of_a_real_one(path: Path) -> None:
    host = FragileHost()
    software, host.adapter = host.adapter, dataclasses.replace(host.adapter, software=False)
    assert software.software
    pair = await open_fragile(path, host)
    host.lose()
    with pytest.raises(DeviceLostError, match="only a software adapter"):
        await pair.other.prefill(pair.other.new_sequence(), prompt(5))
    pair.other.close()


class HeldSource(FileSource):
    """Before a piece is read for the second time, calls `on_second_read`."""

    async def on_second_read(self) -> None: ...

    rewound = False

    async def rewind(self) -> None:
        self.rewound = True

    async def read(self, offset: int, nbytes: int) -> memoryview:
        if self.rewound:
            self.rewound = False
            await self.on_second_read()
        return await super().read(offset, nbytes)


@pytest.mark.all
async def test_a_device_lost_again_while_the_weights_come_back(path: Path) -> None:
    host, source = FragileHost(), HeldSource(path)
    model = await load_model(source, partial(load_webgpu, host, settings=NO_PAUSE), native_renderer())
    sequence = model.backend.new_sequence()
    await model.backend.prefill(sequence, prompt(50, seed=1))
    before = await model.backend.logits(sequence)

    async def lose() -> None:
        if host.reopened < 3:
            host.lose()

    source.on_second_read = lose  # type: ignore[method-assign]
    host.lose()
    np.testing.assert_allclose(await model.backend.logits(sequence), before, rtol=1e-5, atol=1e-5)
    assert host.reopened == 3
    model.close()


@pytest.mark.parametrize("how", ["stopped", "broken off"])
async def test_weights_that_did_not_come_back_come_with_the_next_question(path: Path, how: str) -> None:
    host, source = FragileHost(), HeldSource(path)
    model = await load_model(source, partial(load_webgpu, host, settings=NO_PAUSE), native_renderer())
    sequence = model.backend.new_sequence()
    await model.backend.prefill(sequence, prompt(50, seed=1))
    before = await model.backend.logits(sequence)

    async def fail() -> None:
        if how == "broken off":
            raise GGUFError("The connection was lost.")
        asking.cancel()

    source.on_second_read = fail  # type: ignore[method-assign]
    host.lose()
    asking = asyncio.ensure_future(model.backend.logits(sequence))
    with pytest.raises(GGUFError if how == "broken off" else asyncio.CancelledError):
        await asking
    del source.on_second_read
    np.testing.assert_allclose(await model.backend.logits(sequence), before, rtol=1e-5, atol=1e-5)
    model.close()


async def test_a_closed_model_is_not_opened_again(path: Path) -> None:
    host = FragileHost()
    pair = await open_fragile(path, host)
    sequence, _ = await pair.prefilled(prompt(5))
    pair.other.close()
    with pytest.raises(BackendError, match="closed") as caught:
        await pair.other.logits(sequence)
    assert not isinstance(caught.value, DeviceLostError)


async def test_each_method_of_the_host_tells_that_the_device_is_lost() -> None:
    host, wgsl = (
        WgpuHost(),
        "@group(0) @binding(0) var<storage, read_write> a: u32; @compute @workgroup_size(1) fn main() { a = 1u; }",
    )
    buffer, pipeline = host.create_buffer(256, "buffer"), host.pipeline(wgsl, "w", "kernel")
    dispatch = Dispatch(pipeline, (Binding(buffer, 0, 256),), (1, 1, 1))
    recorded = host.record([dispatch])
    host._device.destroy()
    calls = {
        "create_buffer": (256, "buffer"), "write": (buffer, 0, bytes(4)), "copy": (buffer, 0, buffer, 128, 4),
        "pipeline": (wgsl, "w", "kernel"), "record": ([dispatch],), "submit": ([recorded],),
    }  # fmt: skip
    for name, arguments in calls.items():
        with pytest.raises(DeviceLostError):
            getattr(host, name)(*arguments)
    with pytest.raises(DeviceLostError):
        await host.read(buffer, 0, 4)
    await host.reopen()
    assert await host.read(host.create_buffer(256, "buffer"), 0, 4) == bytes(4)
    host.close()
