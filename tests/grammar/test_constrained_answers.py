"""Answers that follow a grammar, on each backend: each is one of its texts. Tiny models, whose tokens are bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from py_core.backends.protocols import Backend
from py_core.engine.engine import Engine, Timings
from py_core.grammar.expressions import Choice, Grammar, GrammarError, Joined, Literal, Repeat
from py_core.grammar.kernel import GrammarKernel
from py_core.sampling import SamplingParams
from tests.backends.backend_pairs import open_pair, prompt, sharing_backend, written
from tests.backends.dying_host import DeviceGoes, WorkersDie
from tests.grammar.byte_grammars import DIGIT, byte_kernel, follows

WORD = Choice((Literal(b"north"), Literal(b"northwest"), Literal(b"south")))
SHAPES = {
    r"\d{3}-\d{1,2}": Joined((Repeat(DIGIT, 3, 3), Literal(b"-"), Repeat(DIGIT, 1, 2))),
    r"(north|northwest|south)(, (north|northwest|south)){0,2}\.": Joined(
        (WORD, Repeat(Joined((Literal(b", "), WORD)), 0, 2), Literal(b"."))
    ),
    "yes|no": Choice((Literal(b"yes"), Literal(b"no"))),
}
RULES = [
    SamplingParams(), SamplingParams(temperature=1.0, seed=3), SamplingParams(temperature=1.5, top_k=40, seed=4),
    SamplingParams(repetition_penalty=1.3),
]  # fmt: skip
END = 0


@pytest.fixture(scope="session")
def kernel() -> GrammarKernel:
    return byte_kernel({END})


@pytest.fixture(params=["numpy", "wasm", "webgpu"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[Backend]:
    async with sharing_backend(request.param, tmp_path, kernel_wasm) as opened:
        yield opened


def engine_of(backend: Backend, kernel: GrammarKernel) -> Engine:
    return follows(Engine(backend, [END]), kernel, END)


async def answered(engine: Engine, number: int, sampling: SamplingParams, most: int = 60) -> tuple[str, str]:
    """The text and the reason for its end."""
    sequence, timings = engine.new_sequence(), Timings()
    try:
        await engine.prefill(sequence, prompt(20 + number), timings)
        said = [token async for ids in engine.generate(sequence, most, sampling, timings) for token in ids]
        return bytes(said).decode("latin-1"), timings.reason
    finally:
        engine.free(sequence)


def shaped(pattern: str, rules: SamplingParams) -> SamplingParams:
    return SamplingParams(**{**vars(rules), "grammar": Grammar({"root": SHAPES[pattern]})})


@pytest.mark.every_backend
async def test_every_answer_has_its_shape_alone_and_beside_others(backend: Backend, kernel: GrammarKernel) -> None:
    engine = engine_of(backend, kernel)
    asked = [(pattern, rules) for pattern in SHAPES for rules in RULES]
    alone = []
    for number, (pattern, rules) in enumerate(asked):
        text, reason = await answered(engine, number, shaped(pattern, rules))
        assert re.fullmatch(pattern, text), (pattern, text)
        assert reason == "end"
        alone.append(text)
    assert len(set(alone)) > len(SHAPES), "the model chooses"
    # Eight at once, each with a grammar of its own or none.
    free = asyncio.ensure_future(answered(engine, 40, SamplingParams(), 12))
    together = await asyncio.gather(*(answered(engine, n, shaped(*one)) for n, one in enumerate(asked[:7])))
    assert [text for text, _ in together] == alone[:7]
    assert await free == await answered(engine, 40, SamplingParams(), 12)
    # Whoever wants probabilities gets the same answer; biases choose among what a grammar allows.
    measured = [replace(shaped(*one), likeliest=2) for one in asked[:7]]
    told = await asyncio.gather(*(answered(engine, n, one) for n, one in enumerate(measured)))
    assert [text for text, _ in told] == alone[:7]
    for other, word in (("y", "no"), ("n", "yes")):
        rules = replace(shaped("yes|no", RULES[1]), biases=((ord("x"), 100.0), (ord(other), -100.0)))
        assert await answered(engine, 0, rules) == (word, "end")


async def test_an_answer_without_room_ends_within_its_shape_or_is_closed(
    backend: Backend, kernel: GrammarKernel
) -> None:
    engine, pattern = engine_of(backend, kernel), r"\d{3}-\d{1,2}"
    text, reason = await answered(engine, 1, shaped(pattern, RULES[0]), 2)
    assert (len(text), text.isdigit(), reason) == (2, True, "length")
    rules = replace(shaped(pattern, RULES[0]), closes=True)
    assert await answered(engine, 1, rules, 2) == (f"{text}0-0", "length")
    whole, _ = await answered(engine, 1, rules)
    assert await answered(engine, 1, rules, len(whole)) == (whole, "end")  # without its end token
    # What is appended has been read when the next answer comes; of what has no room the text is all that is left.
    sequence, timings = engine.new_sequence(), Timings()
    await engine.prefill(sequence, prompt(20), timings)
    said = [token async for ids in engine.generate(sequence, 2, rules, timings) for token in ids]
    assert sequence.tokens == [*prompt(20), *said]
    grown = [*sequence.tokens, *prompt(backend.context_length - sequence.length - 2)]
    await engine.prefill(sequence, grown, timings)
    said = [token async for ids in engine.generate(sequence, 10, rules, timings) for token in ids]
    assert re.fullmatch(pattern, bytes(said).decode())
    assert (timings.reason, sequence.tokens) == ("context", [*grown, *said[:2]])
    engine.free(sequence)


async def test_a_text_that_is_the_only_one_ends_where_there_is_no_more_room(
    backend: Backend, kernel: GrammarKernel
) -> None:
    engine, only = engine_of(backend, kernel), Grammar({"root": Literal(b"a" * 100)})
    for most in range(1, 9):
        assert await answered(engine, 1, SamplingParams(grammar=only), most) == ("a" * most, "length")


@pytest.mark.every_backend
async def test_a_long_prompts_answer_has_no_more_tokens_than_were_asked_for(
    backend: Backend, kernel: GrammarKernel
) -> None:
    """On a GPU its passes have guesses, of which each may be right."""
    engine, rules = (
        engine_of(backend, kernel),
        shaped(r"(north|northwest|south)(, (north|northwest|south)){0,2}\.", RULES[0]),
    )
    whole, reason = await answered(engine, 120, rules)
    assert reason == "end"
    for most in range(1, len(whole) + 1):
        text, _ = await answered(engine, 120, rules, most)
        assert text == whole[:most]


async def test_what_no_text_fits_is_refused(backend: Backend, kernel: GrammarKernel) -> None:
    engine = engine_of(backend, kernel)
    with pytest.raises(GrammarError, match="No text fits"):
        await answered(engine, 0, SamplingParams(grammar=Grammar({"root": Choice(())})))
    engine.constraint_of = None
    with pytest.raises(GrammarError, match="no kernel for grammars"):
        await answered(engine, 0, shaped("yes|no", RULES[0]))


@pytest.mark.parametrize("kind", ["workers", "device"])
async def test_a_loss_in_the_middle_changes_no_answer(
    kind: str, tmp_path: Path, kernel: GrammarKernel, kernel_wasm: Callable[[], Path]
) -> None:
    host = DeviceGoes() if kind == "device" else WorkersDie(kernel_wasm())
    pair = await open_pair(written(tmp_path), host)
    engine, asked = engine_of(pair.other, kernel), list(zip(SHAPES, RULES, strict=False))
    asked.append((asked[0][0], replace(RULES[1], likeliest=2, biases=((ord("7"), 3.0),))))

    async def all_answers() -> list[str]:
        told = await asyncio.gather(*(answered(engine, n, shaped(*one)) for n, one in enumerate(asked)))
        return [text for text, _ in told]

    expected = await all_answers()
    host.lose(0)
    await all_answers()
    calls = host.calls
    for place in range(3):
        host.lose(1 + (2 * place + 1) * calls // 8)  # other runs have other numbers of calls
        assert await all_answers() == expected
    assert host.lost == 3
    pair.other.close()


async def test_a_grammar_that_grows_too_large_ends_its_own_answer_only(backend: Backend, kernel: GrammarKernel) -> None:
    """Behind a few letters there are more ways to count than the kernel follows."""
    engine, wild = engine_of(backend, kernel), DIGIT
    for _ in range(3):
        wild = Repeat(Choice((wild, Literal(b""))), 0, 100)
    letters = Repeat(Choice((Literal(b"a"), Literal(b"b"))), 3, 3)
    large = SamplingParams(grammar=Grammar({"root": Joined((letters, wild))}))
    other = shaped(r"\d{3}-\d{1,2}", RULES[1])
    alone = await answered(engine, 2, other)
    beside = await asyncio.gather(answered(engine, 1, large), answered(engine, 2, other), return_exceptions=True)
    assert isinstance(beside[0], GrammarError)
    assert "make it simpler" in str(beside[0])
    assert beside[1] == alone
