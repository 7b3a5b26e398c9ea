"""A memory that one can talk to, in a conversation: with the real gate and embedder over a tiny model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.consolidation.api import LearningApi
from app.consolidation.preparation import Preparation
from app.generation.assistant import Assistant
from app.lessons import service as learning_service
from app.lessons.service import LearningService
from app.protocol import Card, Delta, Event, Offer, Recall, Stored, Taught
from app.runtime import Runtime
from py_core.loading import Model
from tests.runtime import begin_conversation

OpenModel = Callable[..., Awaitable[Model]]
CODE = "What is the door code of the office?"


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path)


@pytest.fixture
def learner(model: Model) -> Model:
    return model


@pytest.fixture
def conversation(model: Model, runtime: Runtime) -> Conversation:
    return begin_conversation(Assistant(model, max_tokens=48), runtime)


async def events_of(conversation: Conversation, text: str) -> list[Event]:
    return [event async for event in conversation.respond(text)]


async def cards(conversation: Conversation, text: str) -> list[tuple[str, list[str]]]:
    found = [event for event in await events_of(conversation, text) if isinstance(event, Card)]
    return [(card.kind, [one.question for one in card.lessons]) for card in found]


def said(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def read(conversation: Conversation) -> str:
    """The text in the model's context."""
    return conversation.assistant.model.tokenizer.decode(conversation.assistant.sequence.tokens)


def learning_of(runtime: Runtime) -> LearningService:
    assert runtime.learning is not None
    return runtime.learning


async def test_what_is_to_be_forgotten_is_found_shown_and_gone_from_the_model_too(
    conversation: Conversation, runtime: Runtime
) -> None:
    await events_of(conversation, "The door of our office opens with 4471, you see.")  # to the model alone
    await events_of(conversation, "Please remember: the door code of the office is 4471.")
    await events_of(conversation, "remember that my sister is Ann Lee")
    assert any(isinstance(event, Recall) for event in await events_of(conversation, CODE))
    await events_of(conversation, "hello")
    assert "4471" in read(conversation)
    events = await events_of(conversation, "Forget the door code of the office.")
    assert [one.question for event in events if isinstance(event, Card) for one in event.lessons] == [CODE]
    assert "4471" not in said(events)
    for _ in range(2):
        events = await events_of(conversation, CODE)
        assert not any(isinstance(event, Recall) for event in events)
        assert "hello" in read(conversation)
        assert "4471" not in read(conversation)
        session = conversation.session_id
        assert session is not None
        conversation.reset()  # as a reload
        await conversation.resume(session)
    assert "4471" in " ".join(turn.content for turn in conversation.turns)  # its writer still sees it
    assert await cards(conversation, "What do you know about me?") == [("listed", ["Who is my sister?"])]


async def test_what_only_may_be_meant_is_shown_first_and_other_messages_are_for_the_model(
    conversation: Conversation, runtime: Runtime
) -> None:
    learning = learning_of(runtime)
    for question, answer in (("Where do I live?", "You live in Lisbon."), (CODE, "It is 4471.")):
        await learning.teach(question, answer)
    assert await cards(conversation, "Forget everything") == [("choose", [CODE, "Where do I live?"])]
    assert await cards(conversation, "forget the office") == [("choose", [CODE])]
    assert await cards(conversation, "Forget where I live") == [("forgotten", ["Where do I live?"])]
    events = await events_of(conversation, "Delete what I told you about bees")
    assert "nothing to forget" in said(events)
    for message in ("Forget the past", "forget it", "what do you know about bees?", "No, my dog is called Tim now"):
        assert await cards(conversation, message) == []
        assert conversation.turns[-1].details["tokens"] > 0  # the model answered
    assert [one.question for one in await runtime.memory.lessons.all()] == [CODE]


async def test_what_is_forgotten_in_a_panel_leaves_the_conversation_and_can_come_back(
    conversation: Conversation, runtime: Runtime
) -> None:
    api = LearningApi(runtime, leave_out=conversation.leave_out)
    await events_of(conversation, "remember that the door code of the office is 4471")
    (lesson,) = await runtime.memory.lessons.all()
    await events_of(conversation, CODE)
    await events_of(conversation, "and now?")
    assert "4471" in read(conversation)
    await api.forget([lesson.id])
    await events_of(conversation, "hello")
    assert "4471" not in read(conversation)
    await api.restore([lesson.id])
    assert any(isinstance(event, Recall) for event in await events_of(conversation, CODE))


async def test_a_lesson_is_said_as_it_was_taught_however_it_is_asked(
    conversation: Conversation, runtime: Runtime
) -> None:
    learning, recalled = learning_of(runtime), 0
    await learning.teach("Where do I live?", "You live in Bonn.")
    await learning.teach("What does Mia eat?", "Mia is vegetarian.")
    for message, answer in (
        ("Do I live in Bonn?", "You live in Bonn."),
        ("I live in Bonn, right?", "You live in Bonn."),
        ("Is it still true that I live in Bonn?", "You live in Bonn."),
        ("which town is my home?", "You live in Bonn."),
        ("Is Mia a vegetarian?", "Mia is vegetarian."),
    ):
        events = await events_of(conversation, message)
        if any(isinstance(event, Recall) for event in events):
            assert said(events) == conversation.turns[-1].content == answer
            assert conversation.assistant.messages[-1]["content"] == answer
            recalled += 1
    assert recalled >= 3


async def test_a_correction_replaces_what_was_taught_and_only_that(
    conversation: Conversation, runtime: Runtime
) -> None:
    events = await events_of(conversation, "remember that Peter is allergic to nuts and my dentist is Dr. Quill")
    assert len([event for event in events if isinstance(event, Taught)]) == 2
    events = await events_of(conversation, "No, that is wrong. My dentist is Dr. Bauer now.")
    (learned,) = [event for event in events if isinstance(event, Taught)]
    assert learned.answer == "Your dentist is Dr. Bauer."
    current = {one.answer for one in await runtime.memory.lessons.all() if not one.replaced_by}
    assert current == {"Peter is allergic to nuts.", "Your dentist is Dr. Bauer."}


async def test_what_is_no_longer_so_replaces_what_was_taught_and_only_that(
    conversation: Conversation, runtime: Runtime
) -> None:
    learning = learning_of(runtime)
    for question, answer in (
        ("Which town do I live in?", "You live in Bonn."),
        ("Do I eat fish?", "You eat fish on Fridays."),
        ("Wo arbeite ich?", "Du arbeitest bei Siemens."),
        ("Who is my dentist?", "Your dentist is Dr. Quill."),
    ):
        await learning.teach(question, answer)

    async def replaced_by(message: str) -> list[tuple[str, str]]:
        """The old and the new answer."""
        events = await events_of(conversation, message)
        learned = {event.id: event.answer for event in events if isinstance(event, Taught)}
        assert all(answer in said(events) for answer in learned.values())
        lessons = await runtime.memory.lessons.all()
        return [(one.answer, learned[one.replaced_by]) for one in lessons if one.replaced_by in learned]

    assert await replaced_by("I no longer live in Bonn.") == [("You live in Bonn.", "You no longer live in Bonn.")]
    assert await replaced_by("Ich arbeite nicht mehr bei Siemens") == [
        ("Du arbeitest bei Siemens.", "Du arbeitest nicht mehr bei Siemens.")
    ]
    for message in ("No, my dentist isn't Dr. Bauer.", "My dentist is not nice.", "I don't like fish."):
        assert await replaced_by(message) == []
        assert conversation.turns[-1].details["tokens"] > 0  # the model answered
    events = await events_of(conversation, "Remember that Dr. Bauer is no longer my dentist.")
    assert "That stays" in said(events)
    *_, offer = await events_of(conversation, "I don't eat fish on Fridays any more. Write a poem about the sea.")
    assert isinstance(offer, Offer)
    assert [one.question for one in offer.lessons] == ["Do I eat fish?"]
    assert await replaced_by("Actually, I don't eat fish on Fridays now.") == [
        ("You eat fish on Fridays.", "You do not eat fish on Fridays.")
    ]
    assert await replaced_by("Remember that Dr. Quill isn't my dentist any more") == [
        ("Your dentist is Dr. Quill.", "Dr. Quill is not your dentist any more.")
    ]
    assert await replaced_by("Remember that I do eat fish on Fridays again") == [
        ("You do not eat fish on Fridays.", "You do eat fish on Fridays again.")
    ]
    assert (await learning.look("What do I eat on Fridays?"))[0].lesson.answer == "You do eat fish on Fridays again."


async def test_what_is_told_in_passing_is_offered_until_the_conversation_has_dismissed_it(
    conversation: Conversation, runtime: Runtime
) -> None:
    birthday = "My sister's birthday is on 14 March."
    *_, stored, offer = await events_of(conversation, birthday)
    assert isinstance(stored, Stored)
    assert isinstance(offer, Offer)
    (told,) = offer.lessons
    await learning_of(runtime).teach(told.question, told.answer)
    for message in (birthday, "My cat is hungry."):  # known only this way today
        assert not any(isinstance(event, Offer) for event in await events_of(conversation, message))
    await LearningApi(runtime).offer_no_more(stored.chat)
    for message in ("My name is Anna.", "hello"):  # an answer keeps the stored conversation
        assert not any(isinstance(event, Offer) for event in await events_of(conversation, message))
    conversation.reset()
    assert any(isinstance(event, Offer) for event in await events_of(conversation, "My name is Anna."))


async def test_a_lesson_for_a_model_that_is_not_prepared_is_given_as_text_and_learned_behind_that(
    conversation: Conversation, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning, memory = learning_of(runtime), runtime.memory
    learning.prepares_in_pauses = True
    monkeypatch.setattr(learning_service, "PREPARING_PATIENCE", 0.0)
    preparation = Preparation(learning)
    assert await preparation.waiting() == 1
    events = await events_of(conversation, "remember that my dentist is Dr. Quill")
    (learned,) = [event for event in events if isinstance(event, Taught)]
    assert learned.nll_after is None
    events = await events_of(conversation, "Who is my dentist?")
    assert said(events) == "Your dentist is Dr. Quill."
    await memory.background.settled()
    assert await preparation.waiting() == 0
    (lesson,) = await memory.lessons.all()
    assert await learning.imprint_nll(lesson) is not None
    recalled = await learning.recall("Who is my dentist?")
    assert recalled is not None
    assert recalled.heads


async def test_a_model_is_prepared_in_a_pause_with_progress(runtime: Runtime) -> None:
    preparation, reports = Preparation(learning_of(runtime)), list[tuple[int, int, object]]()
    await preparation.run(lambda done, total, what="": reports.append((done, total, what)))
    read = [(done, total) for done, total, what in reports if str(what) == "gets to know this model"]
    assert read[0][0] == 0
    assert read[-1][0] == read[-1][1] > 1
    assert await preparation.waiting() == 0
