"""A conversation with branches: edited messages, variants, other agents, continued answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.chat_question import CannotAnswerError
from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.memory.api import MemoryApi
from app.protocol import Context, Delta, Done, Event, Replacement, Route, Stored, to_json
from app.records.branches import Turn
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.backend_errors import ContextFullError
from py_core.backends.numpy.backend import NumpyBackend
from py_core.loading import Model
from py_core.routing.agents import AgentError
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError
from py_core.token_sequence import TokenSequence
from tests.runtime import begin_conversation, runtime_over

OpenModel = Callable[..., Awaitable[Model]]
OpenRuntime = Callable[[], Awaitable[Runtime]]


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    """Never ends an answer by itself; a byte is a token, and its context has 512."""
    return await open_model(tiny_path, end_tokens=())


def begin(model: Model, runtime: Runtime, max_tokens: int = 6) -> Conversation:
    return begin_conversation(Assistant(model, SamplingParams(), max_tokens), runtime)


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def stored_of(events: AsyncIterator[Event]) -> Stored:
    stored = (await all_of(events))[-1]
    assert isinstance(stored, Stored)
    return stored


async def stopped_after(conversation: Conversation, pieces: int, text: str) -> list[Event]:
    """The events of an answer that is stopped after some pieces."""
    events, seen = list[Event](), 0
    async for event in conversation.respond(text):
        events.append(event)
        seen += isinstance(event, Delta)
        if seen == pieces:
            conversation.stop()
    return events


def said(conversation: Conversation) -> list[str]:
    return [turn.content for turn in conversation.turns if turn.role == "user"]


def read(conversation: Conversation) -> str:
    """All text in the model's sequence."""
    assistant = conversation.assistant
    return assistant.model.tokenizer.decode(assistant.sequence.tokens)


async def stored_texts(runtime: Runtime, id: str) -> list[str]:
    return [turn.content for turn in (await runtime.memory.sessions.branches(id)).turns]


async def test_an_edited_message_begins_a_branch_and_the_old_one_can_be_chosen_again(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    await all_of(conversation.respond("First"))
    await all_of(conversation.respond("A storry"))
    stored = await stored_of(conversation.respond("A story", after=1))
    assert (stored.question, stored.number, stored.turns) == (4, 5, 4)
    assert said(conversation) == ["First", "A story"]
    assert "storry" not in read(conversation)
    told = await MemoryApi(runtime).choose(stored.chat, 2)
    assert [turn.siblings for turn in told["turns"]] == [(0,), (1,), (2, 4), (3,)]
    assert [turn.number for turn in told["turns"]] == [0, 1, 2, 3]
    shared = conversation.assistant.sequence.stored
    resumed = await conversation.resume(stored.chat)  # as the page does if it shows another branch
    assert [turn.number for turn in resumed.path()] == [0, 1, 2, 3]
    await all_of(conversation.respond("And then"))
    assert said(conversation) == ["First", "A storry", "And then"]
    assert "storry" in read(conversation)
    assert "A story" not in read(conversation)
    assert shared > 0


class Counting(NumpyBackend):
    """Records the number of tokens of each prompt that were not in the model before."""

    read: list[int]

    async def prefill(self, sequence: TokenSequence, tokens, after_pass=None) -> None:
        self.read = [*getattr(self, "read", []), len(tokens)]
        await super().prefill(sequence, tokens, after_pass)


async def test_what_two_branches_share_is_not_read_again(
    tiny_path: Path, open_model: OpenModel, open_runtime: OpenRuntime
) -> None:
    model = await open_model(tiny_path, Counting, end_tokens=())
    conversation = begin(model, await open_runtime())
    await all_of(conversation.respond("A long beginning of this conversation, which nobody wants to read again."))
    await all_of(conversation.respond("One"))
    await all_of(conversation.respond("Two", after=1))
    await all_of(conversation.retry())
    assert conversation.session_id is not None
    runtime = conversation._runtime
    await MemoryApi(runtime).choose(conversation.session_id, 2)
    await all_of(conversation.respond("Three"))
    first, _, edited, again, chosen = model.backend.read  # type: ignore[attr-defined]
    assert first > 100
    assert edited < 40
    assert again < 40
    assert chosen < 80


async def test_an_edit_of_the_first_message_begins_the_conversation_anew(
    model: Model, open_runtime: OpenRuntime
) -> None:
    conversation = begin(model, await open_runtime())
    await all_of(conversation.respond("Zorbina"))
    stored = await stored_of(conversation.respond("Another", after=None))
    assert said(conversation) == ["Another"]
    assert "Zorbina" not in read(conversation)
    assert stored.turns == 2


async def test_an_earlier_message_is_answered_again_in_a_branch_of_its_own(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    await all_of(conversation.respond("One"))
    await all_of(conversation.respond("Two"))
    stored = await stored_of(conversation.retry(0))
    assert [turn.number for turn in conversation.turns] == [0, 4]
    assert (await runtime.memory.sessions.branches(stored.chat)).siblings(4) == [1, 4]


async def test_what_is_edited_behind_a_turn_that_is_not_there_says_so_and_loses_nothing(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    with pytest.raises(StoreError, match="no longer in this conversation"):
        await all_of(conversation.respond("Two", after=0))
    stored = await stored_of(conversation.respond("One"))
    before = await stored_texts(runtime, stored.chat)
    for answering in (
        conversation.respond("Two", after=7),
        conversation.retry(7),
        conversation.respond("Two", after=-1),
    ):
        with pytest.raises(StoreError, match="no longer in this conversation"):
            await all_of(answering)
    with pytest.raises(CannotAnswerError, match="Only your own messages"):
        await all_of(conversation.retry(1))
    with pytest.raises(AgentError, match="no longer exists"):
        await all_of(conversation.retry(agent="nobody"))
    with pytest.raises(StoreError, match="no longer in this conversation"):
        await MemoryApi(runtime).choose(stored.chat, 7)
    assert await stored_texts(runtime, stored.chat) == before
    await runtime.memory.store.delete("turn", f"{stored.chat}/000001")  # as damaged ones are
    other = begin(model, await open_runtime())
    await other.resume(stored.chat)
    with pytest.raises(StoreError, match="no longer in this conversation"):
        await all_of(other.respond("Two", after=1))
    assert said(other) == ["One"]


async def test_turns_that_could_not_be_stored_are_stored_with_the_next_answer(
    model: Model, open_runtime: OpenRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await open_runtime()
    conversation, sessions = begin(model, runtime), runtime.memory.sessions
    begun = await stored_of(conversation.respond("One"))

    async def full(*_: object, **__: object) -> None:
        raise StoreError("quota")

    with monkeypatch.context() as patch:
        patch.setattr(sessions, "add_turns", full)
        assert not any(isinstance(event, Stored) for event in await all_of(conversation.respond("Two")))
        other = (await open_runtime()).memory
        assert other is not None
        await other.sessions.add_turns(begun.chat, Turn("user", "Theirs"), Turn("assistant", "Yes."))
        await all_of(conversation.retry())
    assert runtime.problem
    stored = await stored_of(conversation.respond("Three"))
    assert said(conversation) == ["One", "Two", "Three"]
    branches = await sessions.branches(stored.chat)
    assert [turn.content for turn in branches.path() if turn.role == "user"] == ["One", "Two", "Three"]
    assert [turn.after for turn in branches.turns] == [None, 0, 1, 2, 1, 4, 4, 6, 7]
    assert [turn.number for turn in conversation.turns] == [turn.number for turn in branches.path()]
    assert [turn.content for turn in branches.path(3)][2:] == ["Theirs", "Yes."]


async def test_a_conversation_without_a_memory_has_branches_and_keeps_them_once_there_is_one(
    model: Model, open_runtime: OpenRuntime
) -> None:
    locked = Runtime()
    conversation = begin(model, locked)
    await all_of(conversation.respond("One"))
    await all_of(conversation.retry())
    await all_of(conversation.respond("Uno", after=None))
    await all_of(conversation.respond("Two"))
    assert said(conversation) == ["Uno", "Two"]
    runtime = await open_runtime()
    conversation._runtime = conversation._keeper._runtime = runtime
    stored = await stored_of(conversation.respond("Three"))
    branches = await runtime.memory.sessions.branches(stored.chat)
    assert [turn.after for turn in branches.turns] == [None, 0, 0, None, 3, 4, 5, 6, 7]
    assert [turn.content for turn in branches.path()] == [turn.content for turn in conversation.turns]


# ---- a continued answer ----


@pytest.mark.parametrize("pieces", [1, 5])
async def test_a_stopped_answer_goes_on_with_the_same_tokens(
    model: Model, open_runtime: OpenRuntime, pieces: int
) -> None:
    whole = begin(model, await open_runtime(), max_tokens=24)
    await all_of(whole.respond("Count"))
    runtime = await open_runtime()
    conversation = begin(model, runtime, max_tokens=24)
    first = await stopped_after(conversation, pieces, "Count")
    shown = conversation.turns[-1].content
    assert 0 < len(shown) < len(whole.turns[-1].content)
    assert isinstance(first[-1], Stored)
    request = conversation.turns[-1].details["request"]
    events = await all_of(conversation.continue_answer())
    more = "".join(event.text for event in events if isinstance(event, Delta))
    (done,) = (event for event in events if isinstance(event, Done))
    tokens, wanted = conversation.assistant.sequence.tokens, whole.assistant.sequence.tokens
    assert tokens[: len(wanted)] == wanted
    assert shown + more == done.text == conversation.turns[-1].content
    assert events[-3] == Replacement(done.text, "")
    assert done.text.startswith(whole.turns[-1].content.rstrip("\ufffd"))
    assert events[-1] == Stored(first[-1].chat, 2, done.text, request, 0, 1)
    branches = await MemoryApi(runtime).conversation(first[-1].chat)
    assert [turn.content for turn in branches["turns"]] == ["Count", done.text]
    (stopped,) = (event for event in first if isinstance(event, Done))
    ended = branches["turns"][1].events[-2]
    assert (ended.reason, ended.new_tokens) == ("length", stopped.new_tokens + 24)
    await runtime.memory.background.settled()
    made = await runtime.memory.trajectories.get(request)
    assert made is not None
    assert (made.answered, made.reason) == (done.text, "length")
    assert [turn.number for turn in conversation.turns] == [0, 1]


async def test_an_answer_that_was_cut_off_goes_on_again_and_again(model: Model, open_runtime: OpenRuntime) -> None:
    whole = begin(model, await open_runtime(), max_tokens=18)
    await all_of(whole.respond("Count"))
    conversation = begin(model, await open_runtime(), max_tokens=6)
    await all_of(conversation.respond("Count"))
    for _ in range(2):
        await all_of(conversation.continue_answer())
    assert conversation.assistant.sequence.tokens == whole.assistant.sequence.tokens
    assert conversation.turns[-1].details["tokens"] == 18
    await all_of(conversation.respond("Thanks"))
    assert read(conversation).count("Count") == 1


async def test_an_answer_goes_on_after_a_reload_from_its_text(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    stored = await stored_of(begin(model, runtime).respond("Count"))
    turn = (await runtime.memory.sessions.path(stored.chat))[1]
    await runtime.memory.sessions.replace_turn(stored.chat, replace(turn, content="One, two"), turn.content)
    again = begin(model, await open_runtime())
    await again.resume(stored.chat)
    events = await all_of(again.continue_answer())
    (done,) = (event for event in events if isinstance(event, Done))
    assert done.text.startswith("One, two")
    assert len(done.text) > len("One, two")
    assert read(again).count("One, two") == 1
    template = await model.encode_chat([{"role": "system", "content": "S"}, {"role": "user", "content": "Count"}])
    begins = model.tokenizer.decode(template).rpartition("Count")[2]
    assert f"Count{begins}One, two" in read(again)


async def test_what_another_tab_made_of_the_answer_meanwhile_stays(model: Model, open_runtime: OpenRuntime) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    stored = await stored_of(conversation.respond("Count"))
    turn = conversation.turns[-1]
    async for event in conversation.continue_answer():
        if isinstance(event, Done):
            other = replace(turn, content="Theirs")
            await runtime.memory.sessions.replace_turn(stored.chat, other, turn.content)
            ours = event.text
    assert await stored_texts(runtime, stored.chat) == ["Count", "Theirs", ours]
    assert conversation.turns[-1].content == ours


@pytest.mark.parametrize("details", [{"request": "r", "reason": "end"}, {"taught": None}, {"lesson": {"id": "l"}}])
async def test_what_cannot_be_gone_on_with_says_so_and_stays(
    model: Model, open_runtime: OpenRuntime, details: dict[str, object]
) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime)
    with pytest.raises(CannotAnswerError, match="no answer to continue yet"):
        await all_of(conversation.continue_answer())
    session = await runtime.memory.sessions.start("Done")
    await runtime.memory.sessions.add_turns(session.id, Turn("user", "One"))
    await conversation.resume(session.id)
    with pytest.raises(CannotAnswerError, match="no answer to continue yet"):
        await all_of(conversation.continue_answer())
    await runtime.memory.sessions.add_turns(session.id, Turn("assistant", "Yes.", details=details))
    with pytest.raises(CannotAnswerError, match=r"is complete|did not write"):
        await all_of(conversation.continue_answer())
    assert await stored_texts(runtime, session.id) == ["One", "Yes."]


async def test_an_answer_that_fills_the_context_says_that_there_is_no_room_and_stays(
    model: Model, open_runtime: OpenRuntime
) -> None:
    runtime = await open_runtime()
    conversation = begin(model, runtime, max_tokens=500)
    stored = await stored_of(conversation.respond("Count"))
    assert conversation.turns[-1].details["reason"] == "context"
    before = await stored_texts(runtime, stored.chat)
    with pytest.raises(ContextFullError, match="no room to continue"):
        await all_of(conversation.continue_answer())
    assert await stored_texts(runtime, stored.chat) == before


async def test_a_continuation_that_is_stopped_before_it_begins_leaves_the_answer(
    model: Model, open_runtime: OpenRuntime
) -> None:
    conversation = begin(model, await open_runtime())
    await all_of(conversation.respond("Count"))
    before = conversation.turns
    going = conversation.continue_answer()
    conversation.assistant.stop()
    events = list[Event]()
    async for event in going:
        events.append(event)
        conversation.stop()
    assert conversation.turns[-1].content.startswith(before[-1].content)
    assert len(conversation.turns) == 2


# ---- the agent that answers ----


async def test_an_agent_is_asked_for_by_its_id_and_its_answer_is_a_variant(
    model: Model, parts: RouterParts, tmp_path: Path
) -> None:
    runtime = await runtime_over(tmp_path / "routed.sqlite", parts)
    conversation = begin(model, runtime)
    first = await all_of(conversation.respond("why does my page crash when I scroll"))
    assert isinstance(first[0], Route)
    assert first[0].agent == "debugger"
    events = await all_of(conversation.retry(agent="planner"))
    routed = next(event for event in events if isinstance(event, Route))
    assert (routed.agent, routed.reason, routed.neighbours) == ("planner", "chosen", ())
    assert runtime.routing is not None
    assert runtime.routing.agents["planner"].system_prompt in read(conversation)
    stored = events[-1]
    assert isinstance(stored, Stored)
    _, answer = (await MemoryApi(runtime).conversation(stored.chat))["turns"]
    route = answer.events[0]
    assert (route.agent, route.reason, answer.siblings) == ("planner", "chosen", (1, 2))
    assert await runtime.memory.patterns.all() == []  # nothing is learned from it by itself
    told = await all_of(conversation.respond("write a poem", agent="coder"))
    assert [event.agent for event in told if isinstance(event, Route)] == ["coder"]


# ---- the prompt ----


async def test_what_is_in_the_prompt_is_told_once_a_turn_and_adds_up(model: Model, open_runtime: OpenRuntime) -> None:
    conversation = begin(model, await open_runtime())
    lost = 0
    for number in range(6):
        events = await all_of(conversation.respond(f"Message {number}: " + "word " * 18))
        (context,) = (event for event in events if isinstance(event, Context))
        parts = (context.system, context.memory, context.turns, context.file, context.tools, context.free)
        assert sum(parts) == context.total == 512
        assert min(parts) >= 0
        (done,) = (event for event in events if isinstance(event, Done))
        assert context.total - context.free == done.prompt_tokens
        assert (context.left_out > 0) == (done.forgotten_turns > 0)
        lost = context.left_out
    assert lost > 0
    assert context.system == len(model.tokenizer.encode("You are a helpful AI assistant named Sonata."))
    config = model.config
    per_token = 2 * 4 * config.num_key_value_heads * config.head_dim * config.num_hidden_layers
    assert context.bytes_per_token == per_token
    assert to_json(context)["leftOut"] == context.left_out
