"""Each answerer alone, over a real memory, embedder, router and gate, and a tiny model: the questions that it
answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.answer import Answer
from app.chat.answerers import (
    AnalysisAnswerer,
    FileAnswerer,
    LessonAnswerer,
    ModelAnswerer,
    TalkAnswerer,
    ToolAnswerer,
    ToolLoopAnswerer,
    answerers,
)
from app.chat.chat_question import ChatQuestion, rest_of_answer
from app.chat.conversation_routes import ConversationRoutes
from app.chat.conversation_tree import ConversationTree
from app.generation.assistant import Assistant
from app.protocol import Card, Citations, Computation, Delta, Recall, Route, Taught
from app.records.branches import Branches, Turn
from app.records.lessons import Lesson
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.loading import Model
from py_core.sampling import SamplingParams
from tests.generation.test_shaped_answers import shaped, with_grammars

OpenModel = Callable[..., Awaitable[Model]]
TEACHES, ASKS = "Remember that my dentist is Dr. Quill.", "Who is my dentist?"
EVERY = [AnalysisAnswerer, TalkAnswerer, LessonAnswerer, ToolAnswerer, ToolLoopAnswerer, FileAnswerer, ModelAnswerer]
SUM = "What is 17 * 23?"


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path, end_tokens=())


@pytest.fixture
def router(parts: RouterParts) -> RouterParts:
    return parts


@pytest.fixture
def learner(model: Model) -> Model:
    return model


class Chat:
    """The parts that the answerers of a conversation share."""

    def __init__(self, model: Model, runtime: Runtime, sampling: SamplingParams | None = None) -> None:
        self.assistant, self.tree = Assistant(model, sampling, max_tokens=4), ConversationTree()
        self.routes = ConversationRoutes(runtime, self.tree)
        self.left_out = list[Lesson]()
        every = answerers(runtime, self.assistant, self.tree, self.routes, self.leave_out)
        self.analysis, self.talk, self.lesson, self.tool, self.loop, self.file, self.model = every
        self.kinds = [type(one) for one in every]

    async def leave_out(self, lessons: object) -> None:
        self.left_out += lessons  # type: ignore[operator]

    async def said(self, answer: Answer | None) -> str:
        assert answer is not None
        return "".join([event.text async for event in answer.events(self.assistant) if isinstance(event, Delta)])


@pytest.fixture
def chat(model: Model, runtime: Runtime) -> Chat:
    return Chat(model, runtime)


def new(text: str, **more: object) -> ChatQuestion:
    return replace(ChatQuestion(text, None), **more)  # type: ignore[arg-type]


def kinds(answer: Answer | None) -> list[type]:
    assert answer is not None
    return [type(event) for event in answer.told]


async def test_lessons_are_taught_given_and_forgotten_and_other_messages_are_for_the_model(
    chat: Chat,
) -> None:
    assert chat.kinds == EVERY
    others = (chat.talk, chat.lesson, chat.tool, chat.loop, chat.file)
    assert [await one.answer(new("Tell me about owls.")) for one in others] == [None] * 5

    assert await chat.talk.answer(new(TEACHES, again=True)) is None
    taught = await chat.talk.answer(new(TEACHES))
    assert kinds(taught) == [Taught]
    assert "Dr. Quill" in await chat.said(taught)
    assert taught is not None
    assert (taught.by, taught.routed, taught.details()["taught"][0]["question"]) == ("memory", None, ASKS)
    assert chat.assistant.messages == []  # the model does not read it

    planner = chat.routes.agents["planner"]
    lesson = Turn("assistant", "Dr. Quill", details={"lesson": {"id": "l"}})
    for asks in ({"agent": planner}, {"again": True, "replaced": lesson}, {"again": True, "rest": True}):
        assert await chat.lesson.answer(new(ASKS, **asks)) is None
    answer = await chat.lesson.answer(new("Tell me who my dentist is"))
    assert kinds(answer) == [Route, Recall]
    assert answer is not None
    assert answer.match is not None
    assert (answer.match.lesson.question, answer.details()["agent"]) == (ASKS, "assistant")
    assert "Dr. Quill" in await chat.said(answer)

    forgotten = await chat.talk.answer(new("Forget my dentist."))
    assert kinds(forgotten) == [Card]
    assert [one.question for one in chat.left_out] == [ASKS]
    assert await chat.lesson.answer(new(ASKS)) is None


async def test_a_tool_computes_what_no_agent_is_asked_for(chat: Chat) -> None:
    answer = await chat.tool.answer(new(SUM))
    assert kinds(answer) == [Computation]
    assert answer is not None
    assert answer.by == "tool"
    said = await chat.said(answer)
    assert said.endswith("391")
    assert answer.details()["tool"]["kind"] == "arithmetic"
    assert [one["content"] for one in chat.assistant.messages] == [SUM, said]  # the model reads it
    for asks in ({"agent": chat.routes.agents["planner"]}, {"again": True}):
        assert await chat.tool.answer(new(SUM, **asks)) is None


async def test_what_has_not_the_shape_of_answers_is_for_the_model(model: Model, runtime: Runtime) -> None:
    with_grammars(model)
    words, numbers = (Chat(model, runtime, shaped(regex)) for regex in ("[A-Z].*Quill.*", r"\d+"))
    await words.talk.answer(new(TEACHES))
    assert await words.lesson.answer(new(ASKS)) is not None
    assert await numbers.lesson.answer(new(ASKS)) is None
    assert await words.tool.answer(new(SUM)) is None
    assert (await numbers.said(await numbers.model.answer(new(ASKS)))).isdigit()


async def test_files_are_read_if_something_in_them_belongs_to_the_question(chat: Chat, runtime: Runtime) -> None:
    file = await runtime.files.attach(None, "key.txt", "", b"The key is under the mat.")
    chat.tree.session = await runtime.memory.sessions.get(file.session)
    answer = await chat.file.answer(new("Where is the key?"))
    assert kinds(answer) == [Route, Citations]
    assert await chat.said(answer)
    assert "under the mat" in chat.assistant.model.tokenizer.decode(chat.assistant.sequence.tokens)
    stopped = new("Where is the key?")
    stopped.stop.stop()
    assert await chat.file.answer(stopped) is None  # they are not looked through


async def test_the_model_answers_everything_and_goes_on_with_what_it_began(chat: Chat) -> None:
    question = new("Why does my page crash?")
    answer = await chat.model.answer(question)
    assert kinds(answer) == [Route]
    begun = await chat.said(answer)
    assert answer is not None
    assert answer.done is not None
    assert (answer.said, answer.done.reason) == (begun, "length")
    made = Turn("assistant", begun, details=answer.details(), number=1, after=0)
    turns = [Turn("user", question.text, number=0), made]
    rest = await chat.model.answer(rest_of_answer(Branches(turns, 1), chat.routes.agents))
    assert kinds(rest) == []
    more = await chat.said(rest)
    assert rest is not None
    assert (rest.said, rest.is_more) == (begun + more, True)
    again = await chat.model.answer(new(question.text, again=True, replaced=made))
    assert kinds(again) == [Route]  # that of the question
    assert again is not None
    assert again.routed is None


async def test_an_answer_that_fails_says_what_was_said_until_then(chat: Chat) -> None:
    answer = await chat.model.answer(new("word " * 3000))
    assert await chat.said(answer) == ""
    assert answer is not None
    made = answer.trajectory(answer.details(), None, session="", model="tiny", backend="numpy", learnable=False)
    assert "ContextFullError" in str(made.error)
    assert (made.reason, answer.is_shown) == ("error", False)
