"""A conversation whose answers have a shape: behind a thought, continued, and beside what was learned."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from app.building import kernels
from app.generation.assistant import Assistant
from app.generation.grammars import VocabularyGrammars, shape_of
from app.protocol import Done
from py_core.backends.protocols import KeepGoing
from py_core.grammar.kernel import KernelHost
from py_core.grammar.wasmtime_kernel import WasmtimeGrammarHost
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from tests.generation.test_assistant_thoughts import OPENED, THOUGHT, Speaks

OpenModel = Callable[..., Awaitable[Model]]


async def host() -> KernelHost:
    return WasmtimeGrammarHost(kernels.grammar_kernel_path())


def with_grammars(model: Model) -> Model:
    model.engine.constraint_of = VocabularyGrammars(model.tokenizer, model.config.vocab_size, host).constraint
    return model


def shaped(regex: str, temperature: float = 0.0) -> SamplingParams:
    return SamplingParams(temperature=temperature, grammar=shape_of(None, None, regex))


async def done_of(events: AsyncGenerator) -> Done:
    *_, done = [event async for event in events]
    assert isinstance(done, Done)
    return done


class Follows(Speaks):
    """Says what Speaks does, as far as the grammar allows it."""

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        constraint = sequences[0].constraint
        assert constraint is not None
        async for (ids,) in super().decode_together(sequences, n, sampling, keep_going):
            assert all(constraint.mask()[token // 32] >> token % 32 & 1 for token in ids)
            constraint.extend(ids)
            yield [ids]


async def test_the_shape_begins_behind_a_thought_that_the_template_opens(
    write_model: Callable[..., Path], open_model: OpenModel
) -> None:
    path = write_model({"tokenizer.chat_template": OPENED}, tied=False)
    model = with_grammars(await open_model(path, Follows, end_tokens=[2]))
    done = await done_of(Assistant(model, shaped(r"It is \d\.")).respond("the sum"))
    assert (done.text, done.thought, done.reason) == ("It is 4.", THOUGHT, "end")
    with pytest.raises(AssertionError):
        await done_of(Assistant(model, shaped(r"It was \d\.")).respond("the sum"))


@pytest.mark.parametrize("is_held", [True, False])
async def test_an_answer_that_goes_on_keeps_its_shape(tiny_path: Path, open_model: OpenModel, is_held: bool) -> None:
    """Also if its digits repeat themselves."""
    model = with_grammars(await open_model(tiny_path))
    assistant = Assistant(model, shaped(r"7{24}\d{3}-(yes|no)", 1.0), max_tokens=12)
    done, rounds = await done_of(assistant.respond("Hello")), 1
    assert done.text == "7" * 12
    while done.reason == "length":
        if not is_held:
            assistant.reset()
        done, rounds = await done_of(assistant.go_on("Hello", done.text, before=[])), rounds + 1
    assert re.fullmatch(r"7{24}\d{3}-(yes|no)", done.text)
    assert (done.reason, rounds) == ("end", 3)


async def test_an_answer_that_is_left_gives_its_grammar_back(tiny_path: Path, open_model: OpenModel) -> None:
    model = with_grammars(await open_model(tiny_path))
    assistant = Assistant(model, shaped(r"\d{400}"))
    async for _ in assistant.respond("Hello"):
        assistant.stop()
    assert assistant.sequence.constraint is None
    assert await assistant.is_shaped("7" * 400)
    assert not await assistant.is_shaped("7")
