"""The cost of teaching and recalling, natively, and a check that nothing else changes.

    python -m tests.bench instant [--backend wasm|webgpu] [--facts N] [--stored N] [--random N] [--long N]

Facts and paragraphs are the committed ones of app/lessons/facts; `--stored` fills the memory with facts by templates,
`--long N` teaches N paragraphs as answers of several parts, and asks for them.
Milliseconds are medians, with the least beside them: other programs may run beside it.
"""

from __future__ import annotations

import argparse
import time
from contextlib import contextmanager
from operator import truediv
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.table import Table

from app.bench.perplexity import MeasuredText, joined, score_texts
from app.generation.assistant import SYSTEM_PROMPT, Assistant
from app.lessons.facts import InventedFact, facts, paragraphs
from app.lessons.facts.templates import template_facts
from app.lessons.service import LearningService
from app.lessons.shipped_gate import shipped_gate
from app.models.cache import sha256_of_model
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from app.native_runtime import native_router_parts
from app.protocol import Done
from app.records.kinds import KINDS
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.routing.factory import RouterParts
from py_core.engine.engine import Engine
from py_core.formats.source import FileSource
from py_core.learning.imprint import Imprint
from py_core.learning.imprint_maker import STATES, LessonTokens, lesson_tokens
from py_core.loading import Model, load_model
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.bench.engine.parallel_sequences import loader_of
from tests.bench.reporting import options_of, print_tables, write_figures

Times = dict[str, list[float]]
IN_TURNS = ("an imprint, made", "the same, everything read again")


@contextmanager
def timed(times: Times, name: str):
    begin = time.perf_counter()
    yield
    times.setdefault(name, []).append(1000 * (time.perf_counter() - begin))


async def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--facts", type=int, default=24)
    parser.add_argument("--stored", type=int, default=0, help="facts by templates beside them")
    parser.add_argument("--random", type=int, default=0, help="lessons far from all others beside these")
    parser.add_argument("--long", type=int, default=0, help="paragraphs that are taught as answers")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        await measure(options, Path(folder))


async def measure(options: argparse.Namespace, folder: Path) -> None:
    path = default_model_path()
    model = await load_model(FileSource(path), loader_of(options.backend), native_renderer())
    parts = native_router_parts()
    file = folder / "memory.sqlite"
    memory = await Memory.open(await Store.open(await SQLiteRows.open(file), kinds=KINDS), lambda: parts.kernel)
    learning = await LearningService.open(model, sha256_of_model(path), parts.embedder, memory, shipped_gate())
    chosen = facts("held")[: options.facts]
    texts = [MeasuredText(line, text) for line, text in enumerate(paragraphs("held")[:5], 1)]
    before = await score_texts(model, texts)
    times: Times = {}
    nll = await teach(learning, chosen, times)
    await pieces(model, learning, chosen, times)
    await in_turns(model, learning, chosen, times)
    recalled = {options.facts: await ask(learning, chosen, times)}
    whole = await say_long(learning, options.long)
    after = await score_texts(model, texts)
    if options.stored:
        await store(learning, options.stored)
        recalled[options.facts + options.stored] = await ask(learning, chosen, times, f", {options.stored} more stored")
        if options.random:
            await store_random(learning, options.random)
            total = options.facts + options.stored + options.random
            recalled[total] = await ask(learning, chosen, times, f", {total} stored")
        await memory.close()
        memory = await opened_again(learning, file, parts, chosen, times)
    found: dict[str, Any] = {
        "backend": options.backend, "facts": len(chosen), "milliseconds": times, "nll": nll, "recalled": recalled,
        "long": whole, "same_bits": before == after,
        "perplexity": [joined(before).perplexity, joined(after).perplexity],
    }  # fmt: skip
    write_figures(options, found)
    table = Table("", "median ms", "least ms", title=f"{options.backend}, {len(chosen)} facts")
    for name, each in times.items():
        table.add_row(name, f"{median(each):.2f}", f"{min(each):.2f}")
    print_tables(table)
    made, again = (times[name] for name in IN_TURNS)
    print(
        f"an imprint in turns with one that reads everything again: {median(map(truediv, made, again)):.3f} of the time"
    )
    own, now = (np.array(nll[name]) for name in ("before", "after"))
    print(f"own NLL before {own.mean():.2f}, after {now.mean():.4f}, at most {now.max():.4f}")
    print(f"unrelated perplexity {found['perplexity'][0]:.4f}, the same bits after teaching: {found['same_bits']}")
    for stored, (taught, other) in recalled.items():
        print(f"{stored} stored: the right lesson for {taught:.3f} of questions, {other:.3f} of other words for them")
    for tokens, said in whole:
        print(f"an answer of {tokens} tokens: {'said whole' if said else 'not said whole'}")
    await memory.close()
    model.close()


async def teach(learning: LearningService, chosen: tuple[InventedFact, ...], times: Times) -> dict[str, list[float]]:
    nll: dict[str, list[float]] = {"before": [], "after": []}
    for fact in chosen:
        learned = await learning.teach(fact.question, fact.answer)
        times.setdefault("teach", []).append(learned.milliseconds)
        times.setdefault("  of it the model's passes, and the imprint", []).append(learned.states_milliseconds)
        rest = learned.milliseconds - learned.states_milliseconds
        times.setdefault("  the rest: embedding, storing", []).append(rest)
        nll["before"].append(learned.nll_before)
        nll["after"].append(learned.nll_after)
    return nll


async def pieces(model: Model, learning: LearningService, chosen: tuple[InventedFact, ...], times: Times) -> None:
    """Time the remaining steps once the answer's states are there."""
    engine, directions = model.engine, await learning.imprints.directions(learning.memory)
    sequence = engine.new_sequence()
    for fact in chosen:
        tokens = await lesson_tokens(model, SYSTEM_PROMPT, fact.question, fact.answer)
        states = []
        for prompt in tokens.prompts:
            with timed(times, "a pass for the states of an answer"):
                engine.hold(sequence, [*prompt, *tokens.answer[:-1]])
                states.append((await engine.hidden(sequence, [STATES], len(prompt) - 1))[STATES])
        with timed(times, "once the states are there: imprint, on the device, kept"):
            imprint = Imprint.of(np.stack(states), tokens.answer, directions)
            number = await engine.put_head_adapter(imprint.parts()[0].adapter)
            await learning.memory.store.put_blob("bench", imprint.to_bytes())
        engine.remove_head_adapter(number)
    engine.free(sequence)


async def in_turns(model: Model, learning: LearningService, chosen: tuple[InventedFact, ...], times: Times) -> None:
    """Time an imprint as it is usually made, and with everything read again, in alternation."""
    memory, directions = learning.memory, await learning.imprints.directions(learning.memory)
    for turn, lesson in enumerate(await memory.lessons.all()):
        tokens = await learning.imprints.tokens(lesson)

        async def as_made(lesson: Lesson = lesson, tokens: LessonTokens = tokens) -> None:
            with timed(times, IN_TURNS[0]):
                await learning.imprints.make(memory, lesson, tokens)

        async def again(tokens: LessonTokens = tokens) -> None:
            with timed(times, IN_TURNS[1]):
                await imprint_anew(model.engine, tokens, directions)

        for make in (as_made, again) if turn % 2 else (again, as_made):
            await make()


async def imprint_anew(engine: Engine, tokens: LessonTokens, directions: np.ndarray) -> None:
    """Make an imprint as the first version did: the whole prompt, and four passes over the answer."""
    sequence, prompt, states = engine.new_sequence(), tokens.prompts[0], []
    for each in tokens.prompts[::-1]:
        engine.hold(sequence, [*each, *tokens.answer[:-1]])
        states.append((await engine.hidden(sequence, [STATES], len(each) - 1))[STATES])
    imprint, begin = Imprint.of(np.stack(states[::-1]), tokens.answer, directions), 0
    await engine.token_logprobs(sequence, [*prompt, *tokens.answer], len(prompt))
    for part in imprint.parts():
        number = await engine.put_head_adapter(part.adapter)
        engine.use_head_adapter(sequence, number)
        scored = [*prompt, *tokens.answer[: begin + part.tokens]]
        await engine.token_logprobs(sequence, scored, len(prompt) + begin)
        engine.remove_head_adapter(number)
        begin += part.tokens
    engine.free(sequence)


async def ask(
    learning: LearningService, chosen: tuple[InventedFact, ...], times: Times, more: str = ""
) -> tuple[float, float]:
    """The shares of questions, and of other words for them, that open the gate of the right lesson."""
    right: dict[bool, list[bool]] = {True: [], False: []}
    for fact in chosen:
        for text in (fact.question, *fact.paraphrases):
            learning.embedder.forget()
            with timed(times, f"recall{more}"):
                recalled = await learning.recall(text)
            right[text == fact.question].append(recalled is not None and recalled.lesson.answer == fact.answer)
            with timed(times, f"  of it all but the embedding{more}"):
                await learning.recall(text)
    return float(np.mean(right[True])), float(np.mean(right[False]))


async def say_long(learning: LearningService, count: int) -> list[tuple[int, bool]]:
    """Return the tokens of each paragraph, and True if the model says all of it when asked."""
    found = []
    for number, text in enumerate(paragraphs("held")[:count]):
        question = f"What is written on page {number} of my notebook?"
        learned = await learning.teach(question, text)
        heads = await learning.imprints.heads(learning.memory, learned.lesson)
        assistant = Assistant(learning.model)
        (done,) = [one async for one in assistant.respond(question, heads=heads) if isinstance(one, Done)]
        assistant.close()
        found.append((sum(head.tokens for head in heads), done.text == text))
    return found


async def store(learning: LearningService, count: int) -> None:
    """Store facts by templates, with the data that the gate needs; no model learns them."""
    many = template_facts(count, 1)
    for begin in range(0, count, 100):
        part = many[begin : begin + 100]
        meanings = await learning.embedder.meanings([fact.question for fact in part])
        lessons = [
            Lesson(fact.question, fact.answer, vector=meaning.vector)
            for fact, meaning in zip(part, meanings, strict=True)
        ]
        for lesson in lessons:
            await learning.memory.lessons.keep(lesson)
        await learning.meanings.of(lessons)


async def store_random(learning: LearningService, count: int) -> None:
    """Store lessons whose vectors are far from every question: they cost only search and opening."""
    vectors = np.random.default_rng(0).standard_normal((count, learning.embedder.dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for number, vector in enumerate(vectors):
        await learning.memory.lessons.keep(Lesson(f"What is number {number}?", f"It is {number}.", vector=vector))


async def opened_again(
    learning: LearningService, file: Path, parts: RouterParts, chosen: tuple[InventedFact, ...], times: Times
) -> Memory:
    """Open the memory as a restart of the program does."""
    learning.close()
    with timed(times, "a new start: the memory"):
        memory = await Memory.open(await Store.open(await SQLiteRows.open(file), kinds=KINDS), lambda: parts.kernel)
    with timed(times, "a new start: the learning"):
        again = await LearningService.open(learning.model, learning.base_sha256, parts.embedder, memory, learning.gate)
    await memory.background.settled()
    for name in ("first", "second"):
        learning.embedder.forget()
        with timed(times, f"a new start: the {name} recall"):
            await again.recall(chosen[0].question)
    again.close()
    return memory
