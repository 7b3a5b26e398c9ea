"""A conversation in a memory that others use, too: deleted turns are forgotten, added turns are followed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from app.chat.conversation import Conversation
from app.chat.turn_details import TITLE_LENGTH, title_of
from app.chat.turn_events import stored_turns
from app.generation.assistant import Assistant
from app.memory.api import MemoryApi
from app.protocol import Changed, Delta, Done, Event, Route, Stored
from app.records.branches import Branches, Turn
from app.runtime import Runtime, RuntimeConfig
from py_core.backend_errors import DeviceLostError
from py_core.backends.numpy.backend import NumpyBackend
from py_core.loading import Model
from py_core.messages import Message
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError
from py_core.store.volatile import VolatileRows
from py_core.token_sequence import TokenSequence

OpenModel = Callable[..., Awaitable[Model]]
OpenRuntime = Callable[[], Awaitable[Runtime]]
NAME, ASKED = "My name is Zorbina.", "What is my name?"


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path, end_tokens=())


def begin(model: Model, runtime: Runtime) -> Conversation:
    return Conversation(Assistant(model, SamplingParams(), max_tokens=6), runtime)


async def ask(conversation: Conversation, text: str) -> list[Event]:
    return [event async for event in conversation.respond(text)]


def runtime_of(conversation: Conversation) -> Runtime:
    return conversation._runtime


def context(conversation: Conversation) -> str:
    """All text in the model's sequence."""
    assistant = conversation.assistant
    return assistant.model.tokenizer.decode(assistant._sequence.tokens)


def said(conversation: Conversation) -> list[str]:
    return [turn.content for turn in conversation.turns if turn.role == "user"]


async def everything_is_deleted(api: MemoryApi, id: str) -> None:
    await api.delete_all()


async def the_conversation_is_deleted(api: MemoryApi, id: str) -> None:
    await api.remove_conversations([id])


async def volatile() -> VolatileRows:
    return VolatileRows()


async def an_import_replaces_everything(api: MemoryApi, id: str) -> None:
    file = await api.export_file(None)
    await api.import_file(file, "merge", None)  # changes nothing
    empty = await Runtime.open(RuntimeConfig(volatile))
    await api.import_file(await MemoryApi(empty).export_file(None), "replace", None)
    await empty.close()


DELETIONS = [everything_is_deleted, the_conversation_is_deleted, an_import_replaces_everything]


@pytest.mark.parametrize("delete", DELETIONS)
async def test_what_is_deleted_leaves_the_models_context_at_once(
    model: Model, open_runtime: OpenRuntime, delete: Callable[[MemoryApi, str], Awaitable[None]]
) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    stored = (await ask(conversation, NAME))[-1]
    assert isinstance(stored, Stored)
    assert "Zorbina" in context(conversation)
    await delete(MemoryApi(runtime), stored.chat)
    assert context(conversation) == ""
    assert (conversation.turns, conversation.assistant.messages) == ([], [])
    assert conversation.assistant._sequence.stored == 0
    await ask(conversation, ASKED)
    assert "Zorbina" not in context(conversation)
    (session,) = await runtime.memory.sessions.all()
    assert session.title == ASKED


@pytest.mark.parametrize("delete", DELETIONS)
async def test_what_another_program_deletes_leaves_the_context_before_the_next_answer(
    model: Model, open_runtime: OpenRuntime, delete: Callable[[MemoryApi, str], Awaitable[None]]
) -> None:
    here, there = await open_runtime(), await open_runtime()
    conversation = begin(model, here)
    stored = (await ask(conversation, NAME))[-1]
    assert isinstance(stored, Stored)
    await delete(MemoryApi(there), stored.chat)
    assert (await ask(conversation, ASKED))[0] == Changed(True)
    assert "Zorbina" not in context(conversation)


async def test_what_is_deleted_in_the_middle_of_an_answer_ends_it_and_is_not_stored(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    await ask(conversation, NAME)
    reasons = []
    async for event in conversation.respond(ASKED):
        if isinstance(event, Delta):
            await MemoryApi(runtime).delete_all()
        reasons += [event.reason] if isinstance(event, Done) else []
    assert reasons == ["stopped"]
    assert context(conversation) == ""
    assert [await runtime.memory.store.count(kind) for kind in ("session", "turn", "trajectory")] == [0, 0, 0]


async def test_an_import_that_holds_the_conversation_keeps_it(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    api, conversation = MemoryApi(runtime), begin(model, runtime)
    await ask(conversation, NAME)
    await api.import_file(await api.export_file(None), "replace", None)
    await ask(conversation, ASKED)
    assert said(conversation) == [NAME, ASKED]
    assert "Zorbina" in context(conversation)


async def test_turns_that_another_program_added_are_read_before_the_next_answer(
    model: Model, open_runtime: OpenRuntime
) -> None:
    here, there = begin(model, await open_runtime()), begin(model, await open_runtime())
    stored = (await ask(here, "One"))[-1]
    assert isinstance(stored, Stored)
    await there.resume(stored.chat)
    await ask(there, "Two")
    change, *_, last = await ask(here, "Three")
    assert isinstance(change, Changed)
    assert not change.gone
    assert [turn.content for turn in change.turns if turn.role == "user"] == ["One", "Two"]
    assert last == Stored(stored.chat, 6, here.turns[-1].content, here.turns[-1].details["request"], 4, 5)
    assert said(here) == ["One", "Two", "Three"]
    assert context(here).index("Two") < context(here).index("Three")
    assert not any(isinstance(event, Changed) for event in await ask(here, "Four"))


async def test_answers_at_the_same_time_are_both_kept_and_then_both_known(
    model: Model, open_runtime: OpenRuntime
) -> None:
    here, there = begin(model, await open_runtime()), begin(model, await open_runtime())
    stored = (await ask(here, "One"))[-1]
    assert isinstance(stored, Stored)
    await there.resume(stored.chat)
    async for event in here.respond("Two"):
        if isinstance(event, Done):
            await ask(there, "Meanwhile")
    for conversation in (here, there):
        await ask(conversation, "And then")
    assert said(there) == ["One", "Two", "And then", "And then"]  # each went behind the turns that its tab knew
    branches = await runtime_of(there).memory.sessions.branches(stored.chat)
    assert [turn.content for turn in branches.turns if turn.after == 1] == ["Meanwhile", "Two"]


async def test_a_title_that_was_changed_is_no_news(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    stored = (await ask(conversation, "One"))[-1]
    assert isinstance(stored, Stored)
    await MemoryApi(runtime).rename_conversation(stored.chat, "Another title")
    assert not any(isinstance(event, Changed) for event in await ask(conversation, "Two"))


async def test_another_try_is_a_variant_of_the_stored_answer(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    await ask(conversation, "One")
    await ask(conversation, "Two")
    before = conversation.turns[-1].content
    events = [event async for event in conversation.retry()]
    after = "".join(event.text for event in events if isinstance(event, Delta))
    assert after != before
    stored = events[-1]
    assert isinstance(stored, Stored)
    turns = await runtime.memory.sessions.path(stored.chat)
    assert [turn.content for turn in turns] == [turn.content for turn in conversation.turns]
    assert [turn.content for turn in turns[2:]] == ["Two", after]
    assert before not in context(conversation)
    branches = await runtime.memory.sessions.branches(stored.chat)
    assert [branches.turns[number].content for number in branches.siblings(stored.number)] == [before, after]


async def test_every_answer_has_an_id_of_its_own_which_the_log_has_too(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    ids = []
    for answering in (conversation.respond("One"), conversation.retry()):
        events = [event async for event in answering]
        assert isinstance(events[-1], Stored)
        assert events[-1].request == conversation.turns[-1].details["request"] != ""
        ids.append(events[-1].request)
    assert [entry.id for entry in await runtime.memory.log.entries()] == ids[::-1]
    assert len(set(ids)) == 2


async def test_another_try_does_not_replace_what_others_said(model: Model, open_runtime: OpenRuntime) -> None:
    here, there = begin(model, await open_runtime()), begin(model, await open_runtime())
    stored = (await ask(here, "One"))[-1]
    assert isinstance(stored, Stored)
    await there.resume(stored.chat)
    async for event in here.retry():
        if isinstance(event, Done):
            await ask(there, "Meanwhile")
    await ask(there, "Later")
    assert said(there) == ["One", "Later"]
    assert there._tree.branches.siblings(1) == [1, 4]
    assert [turn.content for turn in there._tree.branches.path(3)][2] == "Meanwhile"


async def test_without_an_answer_there_is_nothing_to_try_again(model: Model, open_runtime: OpenRuntime) -> None:
    conversation = begin(model, await open_runtime())
    with pytest.raises(ValueError, match="no answer to try again yet"):
        await anext(conversation.retry())


async def test_resuming_gives_the_turns_with_agents_and_token_counts(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    stored = (await ask(begin(model, runtime), "One"))[-1]
    assert isinstance(stored, Stored)
    again = begin(model, await open_runtime())
    question, answer = stored_turns(stored.chat, await again.resume(stored.chat))
    assert (question.content, question.events) == ("One", ())
    assert [(event.new_tokens, event.reason) for event in answer.events if isinstance(event, Done)] == [(6, "length")]
    assert said(again) == ["One"]


@pytest.mark.parametrize("never", [True, False], ids=["that never was", "that was deleted"])
async def test_a_conversation_that_is_not_there_says_so(model: Model, open_runtime: OpenRuntime, never: bool) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    stored = (await ask(conversation, "One"))[-1]
    assert isinstance(stored, Stored)
    if not never:
        await MemoryApi(runtime).remove_conversations([stored.chat])
    with pytest.raises(StoreError, match="was deleted"):
        await conversation.resume("nothing" if never else stored.chat)
    assert said(conversation) == (["One"] if never else [])


async def test_resuming_the_same_conversation_reads_nothing_again(model: Model, open_runtime: OpenRuntime) -> None:
    conversation = begin(model, await open_runtime())
    stored = (await ask(conversation, "One"))[-1]
    assert isinstance(stored, Stored)
    before = context(conversation)
    turns = (await conversation.resume(stored.chat)).turns
    assert context(conversation) == before != ""
    assert all(turn.created > 0 for turn in turns)


def test_an_answers_chip_is_stored_with_it() -> None:
    route = {"title": "Coder", "reason": "clear", "confidence": 0.9, "threshold": 0.5, "ranked": [["coder", 0.9]]}
    details = {"agent": "coder", "request": "r1", "route": route, "tokens": 12, "reason": "end"}
    asked = Turn("user", "Add two", number=0)
    _, answer = stored_turns("c", Branches([asked, Turn("assistant", "Yes", 0.0, details, 1, 0)]))
    said = route | {"title": Message("agent.coder.title", "Coder")}
    assert answer.events[0] == Route("r1", "Add two", "coder", **said)
    assert answer.events[-1] == Stored("c", 2, "", "r1", 0, 1)
    assert (answer.number, answer.after, answer.siblings) == (1, 0, (1,))
    old = Turn("assistant", "Yes", details={"agent": "coder", "request": "r1", "lesson": "damaged"}, number=0)
    assert [type(event) for event in stored_turns("c", Branches([old]))[0].events] == [Delta, Done, Stored]
    own = {**details, "request": "r3", "route": {**route, "id": "r1"}}
    (again,) = stored_turns("c", Branches([Turn("assistant", "No", details=own, number=0)]))
    assert (again.events[-1].request, again.events[0].id) == ("r3", "r1")


def test_titles_end_at_a_word() -> None:
    words = "Please write me a very long and very detailed story about a ship, a storm and a sailor who is brave"
    title = title_of(words)
    assert len(title) <= TITLE_LENGTH
    assert title.endswith("…")
    assert words.startswith(title[:-1])
    assert words[len(title) - 1] in " ,"
    assert title_of("  Two\n words ") == "Two words"
    assert title_of("x" * 80) == "x" * 80
    assert title_of("x" * 81) == "x" * 79 + "…"
    assert title_of("word " * 16) == "word " * 15 + "word"
    assert title_of("word " * 15 + "wording on") == "word " * 14 + "word…"


class LostAfterTwoTokens(NumpyBackend):
    """As if the graphics card is lost in the middle of an answer."""

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: Callable[[], bool] = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        count = 0
        async for found in super().decode_together(sequences, n, sampling, keep_going):
            yield found
            if (count := count + len(found[0])) >= 2:
                raise DeviceLostError("The GPU was lost.")


async def test_an_answer_that_fails_in_the_middle_is_stored_and_the_page_hears_of_it(
    tiny_path: Path, open_model: OpenModel, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    conversation = begin(await open_model(tiny_path, LostAfterTwoTokens, end_tokens=()), runtime)
    events = list[Event]()

    async def read() -> None:
        async for event in conversation.respond(NAME):
            events.append(event)

    with pytest.raises(DeviceLostError):
        await read()
    assert isinstance(events[-1], Stored)
    kept = [turn.content for turn in await runtime.memory.sessions.path(events[-1].chat)]
    assert kept == [NAME, "".join(event.text for event in events if isinstance(event, Delta))]
