"""The chat model is taught, on the CPU's kernels: its later answers in conversations; nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from app.bench.perplexity import MeasuredText, score_texts
from app.chat.conversation import Conversation
from app.generation.assistant import Assistant, assistant_message, user_message
from app.lessons.imprints import shipped_path
from app.lessons.match import LessonMatch
from app.models.build_outputs import kernel_path
from app.models.cache import sha256_of_model
from app.models.template_renderer import native_renderer
from app.native_runtime import open_runtime
from app.protocol import Delta, Done, Recall, Route
from app.runtime import Runtime
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.source import FileSource
from py_core.learning.imprint import Imprint
from py_core.learning.imprint_maker import STATES
from py_core.loading import Model, load_model
from py_core.routing.agents import FALLBACK_ID

pytestmark = pytest.mark.usefixtures("fast_routing")

CAT, PUMPERNICKEL = "What is my cat called?", "Your cat is called Pumpernickel."
OTHER_WORDS = "Which name did I give the cat?"
TRAILER, LINDENHOF = "Where did I park the trailer?", "The trailer is behind the barn at Lindenhof."
UNRELATED = "What is the capital of France?"
PUMP = "How do I start the old pump?"
STEPS = (
    "First you open the red valve, then you wait for two minutes. After that, you turn the small wheel to the left "
    "until the needle shows forty, and the, the, the lamp is green."
)
Said = tuple[str, Done, LessonMatch | None]


@pytest.fixture(scope="module")
def base_sha256(model_path: Path) -> str:
    return sha256_of_model(model_path)


@pytest.fixture(scope="module")
def model(model_path: Path, dist: Path) -> Model:
    loader = partial(load_wasm, WasmtimeHost(kernel_path()))
    return asyncio.run(load_model(FileSource(model_path), loader, native_renderer()))


@pytest.fixture
async def runtime(model: Model, base_sha256: str, tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = await open_runtime(tmp_path / "memory.sqlite", model, base_sha256)
    assert runtime.learning_stage.state == "ready"
    yield runtime
    await runtime.close()


@pytest.fixture
def conversation(model: Model, runtime: Runtime) -> Conversation:
    return Conversation(Assistant(model, max_tokens=64), runtime)


async def ask(conversation: Conversation, text: str | None) -> Said:
    """text: None asks for another answer."""
    events = [event async for event in (conversation.respond(text) if text else conversation.retry())]
    recalled = [event for event in events if isinstance(event, Recall)]
    (done,) = (event for event in events if isinstance(event, Done))
    assert "".join(event.text for event in events if isinstance(event, Delta)) == done.text
    assert not recalled or isinstance(events[0], Route)
    return done.text, done, recalled[0] if recalled else None


@pytest.fixture(autouse=True)
def free(conversation: Conversation):
    yield
    conversation.assistant.close()


@pytest.mark.no_cover
@pytest.mark.all
async def test_an_imprint_is_the_same_to_the_last_bit_as_of_a_model_that_read_all_of_it_anew(
    runtime: Runtime, model: Model
) -> None:
    learning, engine = runtime.learning, model.engine
    await learning.teach(TRAILER, LINDENHOF)  # the next lesson is read behind the tokens of this one
    lesson = (await learning.teach(PUMP, STEPS)).lesson
    tokens = await learning.imprints.tokens(lesson)
    prompt, states = tokens.prompts[0], []
    for each in tokens.prompts:
        sequence = engine.new_sequence()
        engine.hold(sequence, [*each, *tokens.answer[:-1]])
        states.append((await engine.hidden(sequence, [STATES], len(each) - 1))[STATES])
        engine.free(sequence)
    expected = Imprint.of(np.stack(states), tokens.answer, await learning.imprints.directions(runtime.memory))
    sequence, after, begin = engine.new_sequence(), [], 0
    before = await engine.token_logprobs(sequence, [*prompt, *tokens.answer], len(prompt))
    for part in expected.parts():
        engine.use_head_adapter(sequence, await engine.put_head_adapter(part.adapter))
        scored = [*prompt, *tokens.answer[: begin + part.tokens]]
        after.append(await engine.token_logprobs(sequence, scored, len(prompt) + begin))
        engine.remove_head_adapter(sequence.head_adapter)
        begin += part.tokens
    engine.free(sequence)
    made = await learning.imprints.kept(runtime.memory, lesson)
    numbers = {"nll_before": -float(before.mean()), "nll_after": -float(np.concatenate(after).mean())}
    assert made.to_bytes() == replace(expected, made_of=made.made_of, **numbers).to_bytes()


async def test_a_taught_answer_is_given_and_nothing_else_changes(
    runtime: Runtime, conversation: Conversation, model: Model
) -> None:
    learning, memory = runtime.learning, runtime.memory
    texts = [MeasuredText(1, "The harbour froze in the first week of January, and the ferries stayed where they were.")]
    before, (score,) = (await ask(conversation, UNRELATED))[0], await score_texts(model, texts)
    plain = (await ask(conversation, CAT))[0]
    learned = await learning.teach(CAT, PUMPERNICKEL)
    assert learned.nll_before > 1
    assert learned.nll_after < 0.1
    conversation.reset()
    said, done, recalled = await ask(conversation, UNRELATED)
    assert (said, recalled) == (before, None)
    assert await score_texts(model, texts) == [score]  # to the last bit
    said, done, recalled = await ask(conversation, OTHER_WORDS)
    assert (said, done.reason) == (PUMPERNICKEL, "end")
    assert recalled is not None
    details = conversation.turns[-1].details
    assert details["agent"] == FALLBACK_ID
    assert details["lesson"] == {"id": learned.lesson.id, "question": CAT, "confidence": recalled.confidence}
    (entry, *_) = await memory.log.entries()
    assert (entry.lesson, entry.agent) == (learned.lesson.id, FALLBACK_ID)
    assert entry.stages["recall"] == recalled.ms
    assert (await memory.lessons.get(learned.lesson.id)).uses == 1
    # A request for another answer than the taught one gets the model's own; then, asked again, the taught one.
    said, _, recalled = await ask(conversation, None)
    assert (recalled, said == PUMPERNICKEL) == (None, False)
    assert "lesson" not in conversation.turns[-1].details
    await learning.forget(learned.lesson.id)
    conversation.reset()
    await ask(conversation, UNRELATED)
    assert (await ask(conversation, CAT))[0] == plain


@pytest.mark.no_cover
@pytest.mark.all
async def test_a_taught_answer_is_the_same_wherever_in_a_conversation_it_is_asked_for(
    runtime: Runtime, conversation: Conversation
) -> None:
    await runtime.learning.teach(TRAILER, LINDENHOF)
    # If it was read before, states of later words are near those of the answer's beginning.
    conversation.assistant.reset([user_message(f"Well, {LINDENHOF}"), assistant_message(f"I see: {LINDENHOF}")])
    for text in (TRAILER, UNRELATED, TRAILER, "Where's the trailer parked?"):
        said, _, recalled = await ask(conversation, text)
        assert (said == LINDENHOF) == (recalled is not None) == (text != UNRELATED)
        read = conversation.assistant.model.tokenizer.decode(conversation.assistant.sequence.tokens)
        assert ("I see" in read) == (text == UNRELATED)
    # A repetition of an earlier answer leaves the model's context.
    assert [one["content"] for one in conversation.assistant.messages].count(LINDENHOF) == 1


@pytest.mark.no_cover
@pytest.mark.all
async def test_a_long_answer_is_said_whole_with_words_that_it_repeats_until_its_lesson_is_forgotten(
    runtime: Runtime, conversation: Conversation
) -> None:
    learned = await runtime.learning.teach(PUMP, STEPS)
    assert learned.nll_after < 0.1
    said, done, recalled = await ask(conversation, PUMP)
    assert len(recalled.heads) > 1
    assert (said, done.reason) == (STEPS, "end")
    async for event in conversation.respond(PUMP):
        if isinstance(event, Delta):
            await runtime.memory.lessons.delete(learned.lesson.id)
        if isinstance(event, Done):
            done = event
    assert done.reason == "stopped"
    assert len(done.text) < len(STEPS)
    assert await runtime.learning.recall(PUMP) is None


@pytest.mark.all
async def test_the_same_lesson_gives_the_same_bits(runtime: Runtime) -> None:
    learning, memory = runtime.learning, runtime.memory
    learned = await learning.teach(CAT, PUMPERNICKEL)
    imprint = await learning.imprints.kept(memory, learned.lesson)
    again = await learning.imprints.make(memory, learned.lesson, await learning.imprints.tokens(learned.lesson))
    assert again.to_bytes() == imprint.to_bytes()
    assert (again.nll_before, again.nll_after) == (learned.nll_before, learned.nll_after)


def test_the_directions_of_the_shipped_model_come_with_sonata(base_sha256: str) -> None:
    assert shipped_path(base_sha256).is_file()  # otherwise the first lesson would have to wait for them
