"""Answers of models of diffusion that follow a grammar: their places become tokens from left to right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from py_core.backends.protocols import Backend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.diffusion import Unmasking
from py_core.engine.engine import Engine, Timings
from py_core.grammar.expressions import Choice, Grammar, Joined, Literal, Repeat
from py_core.models.diffusion import Diffusion
from py_core.sampling import SamplingParams
from tests.backends.backend_pairs import open_pair, prompt
from tests.diffusion.tiny import MASK, write_diffusion
from tests.grammar.byte_grammars import DIGIT, byte_kernel, follows

END = 1
WORD = Choice((Literal(b"north"), Literal(b"south"), Literal(b"east")))
SHAPES = {
    r"\d{3}-\d{1,2}": Joined((Repeat(DIGIT, 3, 3), Literal(b"-"), Repeat(DIGIT, 1, 2))),
    r"(north|south|east)(, (north|south|east)){0,9}\.": Joined(
        (WORD, Repeat(Joined((Literal(b", "), WORD)), 0, 9), Literal(b"."))
    ),
    r"(north)?": Repeat(Literal(b"north"), 0, 1),
}


def engine_of(backend: Backend, block: int) -> Engine:
    """Return an engine with the kernel of grammars, whose tokens are bytes."""
    engine = Engine(backend, [END], Diffusion(MASK, block, shifted=False))
    return follows(engine, byte_kernel({MASK, END}), END)


async def answered(engine: Engine, pattern: str, rules: SamplingParams, number: int) -> tuple[list[int], Timings]:
    sequence, timings = engine.new_sequence(), Timings()
    await engine.prefill(sequence, prompt(20 + number), timings)
    shaped = SamplingParams(**{**vars(rules), "grammar": Grammar({"root": SHAPES[pattern]})})
    said = [token async for ids in engine.generate(sequence, 90, shaped, timings) for token in ids]
    engine.free(sequence)
    return said, timings


@pytest.mark.parametrize("block", [8, 32, 0])
async def test_an_answer_has_its_shape_and_forced_tokens_take_no_pass(
    tmp_path: Path, kernel_wasm: Callable[[], Path], block: int
) -> None:
    pair = await open_pair(write_diffusion(tmp_path / "tiny.gguf", block), WasmtimeHost(kernel_wasm()))
    ours, reference = engine_of(pair.other, block), engine_of(pair.numpy, block)
    answers = set()
    for pattern in SHAPES:
        for number, rules in enumerate(
            (SamplingParams(), *(SamplingParams(temperature=1.2, seed=n) for n in range(3)))
        ):
            said, timings = await answered(ours, pattern, rules, number)
            assert re.fullmatch(pattern, bytes(said).decode()), (pattern, bytes(said))
            assert timings.reason == "end"
            assert (await answered(reference, pattern, rules, number))[0] == said
            answers.add(bytes(said))
            words = len(re.findall("north|south|east", bytes(said).decode()))
            if words:  # a pass chooses a word's first letter, one ends it, and two say if another word follows
                assert timings.passes <= 4 * words + 1
            # A place behind the first mask becomes a token in the same pass only if the grammar allows it.
            ours.unmasking = Unmasking(threshold=0.0)
            hasty, _ = await answered(ours, pattern, rules, number)
            assert re.fullmatch(pattern, bytes(hasty).decode())
            ours.unmasking = Unmasking()
    assert len(answers) > len(SHAPES)
    pair.other.close()
