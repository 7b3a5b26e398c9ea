"""Feedback on an answer changes the parts that made it, and can be taken back: with the real router and gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.chat.turn_events import stored_turns
from app.generation.assistant import Assistant
from app.lessons.feedback import NOTHING_TOLD, Feedback, FeedbackError
from app.lessons.imprints import LessonError
from app.protocol import Delta, Event, Stored, Taught
from app.records.branches import Branches
from app.records.lessons import Lesson
from app.routing.factory import RouterParts
from app.runtime import Runtime
from app.stage import State
from py_core.learning.trajectories import Trajectory
from py_core.loading import Model
from tests.runtime import begin_conversation

OpenModel = Callable[..., Awaitable[Model]]
CRASH = "why does my page crash when I scroll"
DENTIST, QUILL, ASKED = "my dentist is Dr. Quill", "Your dentist is Dr. Quill.", "Who is my dentist?"


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path)


@pytest.fixture
def router(parts: RouterParts) -> RouterParts:
    return parts


@pytest.fixture
def learner(model: Model) -> Model:
    return model


@pytest.fixture
def feedback(runtime: Runtime) -> Feedback:
    return Feedback(runtime)


@pytest.fixture
def conversation(model: Model, runtime: Runtime) -> Conversation:
    return begin_conversation(Assistant(model, max_tokens=48), runtime)


async def ask(conversation: Conversation, text: str) -> str:
    """The answer's id."""
    *_, last = [event async for event in conversation.respond(text)]
    assert isinstance(last, Stored)
    return last.request


async def recorded(runtime: Runtime, id: str) -> Trajectory:
    found = await runtime.memory.trajectories.get(id)
    assert found is not None
    return found


async def weights(runtime: Runtime, id: str) -> list[float]:
    """Weights of the patterns that chose the agent of an answer."""
    assert runtime.routing is not None
    return [runtime.routing.router.weight(pattern) for pattern in (await recorded(runtime, id)).route["patterns"]]


async def lesson(runtime: Runtime, id: str) -> Lesson:
    found = await runtime.memory.lessons.get(id)
    assert found is not None
    return found


async def test_an_opinion_moves_the_weights_of_the_route_and_is_taken_back_exactly(
    conversation: Conversation, runtime: Runtime, feedback: Feedback
) -> None:
    id = await ask(conversation, CRASH)
    await runtime.memory.background.settled()
    assert (await recorded(runtime, id)).parts["fits"] is not None
    own = (await recorded(runtime, id)).quality
    before = await weights(runtime, id)
    assert before
    judged = await feedback.good(id)
    assert (judged.trajectory.feedback, judged.trajectory.quality) == ("good", 1.0)
    first = await weights(runtime, id)
    assert first[:5] == [pytest.approx(1.05 * weight) for weight in before[:5]]
    assert await feedback.good(id)  # given twice, it counts once
    assert await weights(runtime, id) == first
    assert (await feedback.bad(id)).trajectory.quality == 0.0
    assert (await weights(runtime, id))[:5] == [pytest.approx(0.95 * weight) for weight in before[:5]]
    (entry,) = await runtime.memory.log.poor()
    assert (entry.id, entry.rating) == (id, 0.0)
    await feedback.take_back(id)
    assert await weights(runtime, id) == before
    after = await recorded(runtime, id)
    assert (after.feedback, after.effects, after.quality) == ("", (), own)
    assert await runtime.memory.log.poor() == []


async def test_opinions_of_several_answers_are_taken_back_in_any_order(
    conversation: Conversation, runtime: Runtime, feedback: Feedback
) -> None:
    one, two = await ask(conversation, CRASH), await ask(conversation, CRASH)
    before = await weights(runtime, one)
    await feedback.bad(one)
    alone = await weights(runtime, one)
    await feedback.bad(two)
    await feedback.take_back(one)
    assert await weights(runtime, two) == pytest.approx(alone)
    await feedback.take_back(two)
    assert await weights(runtime, one) == pytest.approx(before)


async def test_a_lesson_that_was_wrong_twice_is_switched_off_and_on_again_when_that_is_taken_back(
    runtime: Runtime, feedback: Feedback
) -> None:
    memory = runtime.memory
    learned = await feedback.remember(DENTIST)
    id = learned.lesson.id
    for answer in ("a1", "a2", "a3"):
        memory.trajectories.record(Trajectory(answer, ASKED, QUILL, lesson=id))
    assert (await feedback.bad("a1")).lesson_off == ""
    assert (await lesson(runtime, id)).on
    assert (await feedback.bad("a2")).lesson_off == id
    assert await runtime.learning.recall(ASKED) is None  # type: ignore[union-attr]
    assert (await feedback.bad("a3")).lesson_off == ""
    await feedback.take_back("a1")
    assert not (await lesson(runtime, id)).on
    await feedback.take_back("a2")
    assert ((await lesson(runtime, id)).on, (await lesson(runtime, id)).quality) == (True, 0.75)
    await feedback.good("a1")
    await feedback.good("a2")
    await feedback.take_back("a3")
    assert (await lesson(runtime, id)).quality == 1.0
    for answer in ("a1", "a2"):
        await feedback.take_back(answer)
    now = await lesson(runtime, id)
    assert replace(now, uses=learned.lesson.uses) == learned.lesson


async def test_a_better_answer_is_learned_and_taking_it_back_brings_the_older_lesson_again(
    conversation: Conversation, runtime: Runtime, feedback: Feedback
) -> None:
    first = await feedback.remember("my dentist is Dr. Okapi")
    id = await ask(conversation, ASKED)
    said = await recorded(runtime, id)
    assert (said.lesson, said.answered) == (first.lesson.id, "Your dentist is Dr. Okapi.")
    learned = await feedback.should_have_said(id, ASKED, QUILL)
    assert (learned.lesson.source, learned.replaced) == ("corrected", first.lesson)
    corrected = await recorded(runtime, id)
    assert (corrected.feedback, corrected.kept, corrected.quality) == ("corrected", 0.8, 0.4)
    assert (await lesson(runtime, first.lesson.id)).quality == 0.75
    conversation.reset()
    again = await ask(conversation, ASKED)
    assert (await recorded(runtime, again)).answered == QUILL
    await feedback.take_back(id)
    assert await runtime.memory.lessons.get(learned.lesson.id) is None
    restored = await lesson(runtime, first.lesson.id)
    assert (restored.quality, restored.replaced_by, restored.answers) == (1.0, "", True)


async def test_an_answer_that_was_good_is_remembered_and_taking_that_back_forgets_it(
    conversation: Conversation, runtime: Runtime, feedback: Feedback
) -> None:
    id = await ask(conversation, ASKED)
    said = await recorded(runtime, id)
    before = await weights(runtime, id)
    learned = await feedback.remember_answer(id, ASKED, said.answered)
    assert (learned.lesson.source, learned.lesson.answer) == ("praised", said.answered.strip())
    assert ((await recorded(runtime, id)).feedback, (await recorded(runtime, id)).quality) == ("good", 1.0)
    judged = await weights(runtime, id)
    again = await feedback.remember_answer(id, ASKED, said.answered)
    assert (again.lesson.id, again.is_new, await weights(runtime, id)) == (learned.lesson.id, False, judged)
    conversation.reset()
    assert (await recorded(runtime, await ask(conversation, ASKED))).lesson == learned.lesson.id

    better = await feedback.should_have_said(id, ASKED, QUILL)
    assert [one.id for one in await runtime.memory.lessons.all()] == [better.lesson.id]
    with pytest.raises(LessonError, match="answer is empty"):
        await feedback.remember_answer(id, ASKED, " ")
    assert (await recorded(runtime, id)).feedback == "corrected"  # earlier feedback stays
    await feedback.remember_answer(id, ASKED, said.answered)
    await feedback.take_back(id)
    assert await runtime.memory.lessons.all() == []
    assert await weights(runtime, id) == before
    assert (await recorded(runtime, id)).feedback == ""


async def test_what_cannot_be_judged_or_remembered_says_so(runtime: Runtime, feedback: Feedback) -> None:
    with pytest.raises(FeedbackError, match="cannot judge it"):
        await feedback.good("nothing")
    await feedback.take_back("nothing")
    for text in (" ?! ", "hello"):
        with pytest.raises(LessonError, match="nothing to remember"):
            feedback.proposal(text)
    assert feedback.proposal(DENTIST).question == ASKED
    assert await runtime.memory.lessons.all() == []
    runtime.learning_stage.end(State.OFF, "Learning is off for this model.")
    runtime.learning = None
    with pytest.raises(LessonError, match="off for this model"):
        await feedback.remember(DENTIST)


async def test_a_message_that_asks_to_remember_something_is_learned_and_confirmed(
    conversation: Conversation, runtime: Runtime
) -> None:
    await ask(conversation, "hello")
    events: list[Event] = [event async for event in conversation.respond(f"Please remember that {DENTIST}")]
    learned, said, *_, stored = events
    assert isinstance(learned, Taught)
    assert isinstance(said, Delta)
    assert (learned.question, learned.answer) == (ASKED, QUILL)
    assert ASKED in said.text
    assert QUILL in said.text
    assert isinstance(stored, Stored)
    *_, shown = stored_turns(stored.chat, Branches(conversation.turns))
    assert shown.events[:2] == (replace(learned, ms=None), said)
    assert await runtime.memory.trajectories.get(stored.request) is None
    assert len(await runtime.memory.sessions.path(stored.chat)) == 4
    for _ in range(2):
        id = await ask(conversation, ASKED)
        await ask(conversation, "and now?")
        read = conversation.assistant.model.tokenizer.decode(conversation.assistant.sequence.tokens)
        assert "hello" in read
        assert "remember" not in read  # it could be repeated from there after the lesson is forgotten
        conversation.reset()
        await conversation.resume(stored.chat)
    assert (await recorded(runtime, id)).lesson == learned.id


async def test_what_cannot_be_remembered_is_answered_with_the_reason_and_nothing_is_learned(
    conversation: Conversation, runtime: Runtime
) -> None:
    text = "remember that " + "my dentist is Dr. Quill and " * 40 + "so on"
    events = [event async for event in conversation.respond(text)]
    assert isinstance(events[0], Delta)
    assert events[0].text.startswith("I could not remember that. ")
    refused, *_ = [event async for event in conversation.respond("Remember: hello")]
    assert isinstance(refused, Delta)
    assert refused.text == str(NOTHING_TOLD)
    assert await runtime.memory.lessons.all() == []


async def test_another_answer_than_the_confirmation_comes_from_the_model_and_takes_its_place(
    conversation: Conversation, runtime: Runtime
) -> None:
    await ask(conversation, "hello")
    await ask(conversation, f"remember that {DENTIST}")
    *_, stored = [event async for event in conversation.retry()]
    assert isinstance(stored, Stored)
    assert [turn.content for turn in conversation.turns if turn.role == "user"] == ["hello", f"remember that {DENTIST}"]
    assert "taught" not in conversation.turns[-1].details
    assert [message["role"] for message in conversation.assistant.messages] == ["user", "assistant"] * 2
    assert (await recorded(runtime, stored.request)).prompt_tokens > 0
