"""A conversation: its turns stay, turns without room are left out, and no failure loses a turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.generation.assistant import SYSTEM_PROMPT, Assistant, EmptyMessageError, user_message
from app.protocol import AnswerEvent, Delta, Done, Reading
from app.routing.agent_catalog import current_agents, no_changes, shipped_agents
from py_core.backend_errors import ContextFullError, DeviceLostError
from py_core.backends.numpy.backend import NumpyBackend
from py_core.backends.protocols import AfterPass, KeepGoing
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.chat_template import Message

GREEDY = SamplingParams()
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
NO_ENDS: tuple[int, ...] = ()

OpenModel = Callable[..., Awaitable[Model]]


class Watched(NumpyBackend):
    """Shows its sessions, and can lose its device: in the prefill, or after this number of tokens of an answer."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sessions: list[TokenSequence] = []
        self.lost_after: int | None = None
        self.lost_in_prefill = False
        self.after_prefill: Callable[[], None] | None = None
        self.read: list[int] = []
        """The number of tokens of each prompt that were not in the model before."""

    def new_sequence(self) -> TokenSequence:
        self.sessions.append(super().new_sequence())
        return self.sessions[-1]

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        self.read.append(len(tokens))
        await super().prefill(sequence, tokens, after_pass)
        if self.lost_in_prefill:
            raise DeviceLostError("The GPU was lost.")
        if self.after_prefill:
            asyncio.get_running_loop().call_soon(self.after_prefill)

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        done = 0
        async with aclosing(super().decode_together(sequences, n, sampling, keep_going)) as steps:
            while done != self.lost_after:
                try:
                    yield await anext(steps)
                except StopAsyncIteration:
                    return
                done += 1
        raise DeviceLostError("The GPU was lost.")


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    """A TinyLlama that never ends by itself; its context is 512 tokens of a byte each."""
    return await open_model(tiny_path, Watched, end_tokens=NO_ENDS)


def new_assistant(model: Model, max_tokens: int = 40) -> Assistant:
    return Assistant(model, GREEDY, max_tokens)


async def ask(assistant: Assistant, text: str) -> tuple[str, Done]:
    """The whole answer, and how it ended."""
    events = [event async for event in assistant.respond(text)]
    done = events.pop()
    assert isinstance(done, Done)
    return "".join(event.text for event in events if isinstance(event, Delta)), done


async def watch(assistant: Assistant, text: str, seen: list[Delta]) -> None:
    """Collect the pieces of an answer that does not reach its end."""
    async for event in assistant.respond(text):
        assert isinstance(event, Delta)
        seen.append(event)


async def fresh_answer(model: Model, messages: Sequence[Message], max_tokens: int = 40) -> str:
    """The model's answer to these messages in a separate session."""
    session, ids = model.engine.new_sequence(), list[int]()
    await model.engine.prefill(session, await encode(model, messages), Timings())
    async for batch in model.engine.generate(session, max_tokens, GREEDY, Timings()):
        ids += batch
    stream = model.tokenizer.stream(skip_special=True)
    return "".join(stream.push(index) for index in ids)


async def encode(model: Model, messages: Sequence[Message]) -> list[int]:
    """The prompt that an assistant makes of these messages."""
    return await model.encode_chat([{"role": "system", "content": SYSTEM_PROMPT}, *messages])


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said_by_model(text: str) -> Message:
    return {"role": "assistant", "content": text}


async def test_an_answer_streams_and_joins_the_conversation(model: Model) -> None:
    assistant = new_assistant(model)
    events: list[AnswerEvent] = [event async for event in assistant.respond("Hello")]
    text = "".join(event.text for event in events if isinstance(event, Delta))
    assert len(events) > 10
    assert text == await fresh_answer(model, [user("Hello")])
    assert assistant.messages == [user("Hello"), said_by_model(text)]
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.new_tokens, done.forgotten_turns) == ("length", 40, 0)
    assert done.prompt_tokens == len(await encode(model, [user("Hello")]))
    assert done.prefill_tok_s > 0 < done.decode_tok_s


async def test_a_later_answer_follows_from_the_earlier_turns(model: Model) -> None:
    assistant = new_assistant(model, max_tokens=12)
    history: list[Message] = []
    for text in ("One", "Two", "Three"):
        history.append(user(text))
        answer, done = await ask(assistant, text)
        assert done.prompt_tokens == len(await encode(model, history))
        assert answer == await fresh_answer(model, history, 12)
        history.append(said_by_model(answer))
    assert assistant.messages == history
    assert answer != await fresh_answer(model, [user("Three")], 12)


async def test_the_model_ends_its_answer_and_the_end_token_is_not_shown(
    tiny_path: Path, open_model: OpenModel, model: Model
) -> None:
    prompt = await encode(model, [user("Hello")])
    session = model.engine.new_sequence()
    await model.engine.prefill(session, prompt, Timings())
    said = [token async for ids in model.engine.generate(session, 9, GREEDY, Timings()) for token in ids]
    ending = await open_model(tiny_path, end_tokens=[said[8]])
    assistant = new_assistant(ending)
    text, done = await ask(assistant, "Hello")
    assert (done.reason, done.new_tokens) == ("end", 9)
    assert text == model.tokenizer.decode(said[:8], skip_special=True)
    assert (await ask(assistant, "And?"))[0] == await fresh_answer(ending, [*assistant.messages[:2], user("And?")])


async def test_an_answer_may_be_nothing(tiny_path: Path, open_model: OpenModel) -> None:
    ending = await open_model(tiny_path, end_tokens=range(259))
    assistant = new_assistant(ending)
    assert (await ask(assistant, "Hello"))[1].reason == "end"
    assert assistant.messages == [user("Hello"), said_by_model("")]


@pytest.mark.parametrize("text", ["", " ", "\n\t  \n", "\u2003"])
async def test_an_empty_message_is_refused_and_changes_nothing(model: Model, text: str) -> None:
    assistant = new_assistant(model)
    await ask(assistant, "Hello")
    before = list(assistant.messages)
    with pytest.raises(EmptyMessageError, match="The message is empty"):
        await ask(assistant, text)
    assert assistant.messages == before


@pytest.mark.parametrize("after", range(1, 8))
async def test_stop_keeps_what_was_said(model: Model, after: int) -> None:
    whole = await fresh_answer(model, [user("Hello")])
    assistant, text, deltas, done = new_assistant(model), "", 0, None
    async for event in assistant.respond("Hello"):
        if isinstance(event, Delta):
            text += event.text
            deltas += 1
            if deltas == after:
                assistant.stop()
        else:
            done = event
    assert done is not None
    assert done.reason == "stopped"
    assert 0 < done.new_tokens < 40
    assert whole.startswith(text)
    assert assistant.messages == [user("Hello"), said_by_model(text)]
    answer, _ = await ask(assistant, "Go on")
    assert answer == await fresh_answer(model, [user("Hello"), said_by_model(text), user("Go on")])


async def test_stop_may_come_from_another_task(model: Model) -> None:
    assistant = new_assistant(model, max_tokens=400)
    answering = asyncio.create_task(ask(assistant, "Hello"))
    for _ in range(30):
        await asyncio.sleep(0)
    assistant.stop()
    text, done = await answering
    assert done.reason == "stopped"
    assert 0 < done.new_tokens < 100
    assert assistant.messages == [user("Hello"), said_by_model(text)]


async def test_stop_while_the_prompt_is_read_leaves_the_conversation_as_it_was(model: Model) -> None:
    assistant = new_assistant(model)
    await ask(assistant, "Hello")
    before = list(assistant.messages)
    (session,) = model.backend.sessions  # type: ignore[attr-defined]
    answering = asyncio.create_task(ask(assistant, "x" * 250))
    for _ in range(6):
        await asyncio.sleep(0)
    assert 0 < session.stored < session.length  # in the middle of it
    assistant.stop()
    text, done = await answering
    assert (text, done.reason, done.new_tokens) == ("", "stopped", 0)
    assert session.stored < session.length  # the rest was not read
    assert assistant.messages == before
    answer, _ = await ask(assistant, "Then this")
    assert answer == await fresh_answer(model, [*before, user("Then this")])


async def test_stop_between_the_prompt_and_the_answer_leaves_the_conversation_as_it_was(model: Model) -> None:
    assistant = new_assistant(model)
    model.backend.after_prefill = assistant.stop  # type: ignore[attr-defined]
    text, done = await ask(assistant, "Hello")
    assert (text, done.reason, done.new_tokens) == ("", "stopped", 0)
    assert assistant.messages == []


async def test_a_stop_before_the_message_does_not_stop_it(model: Model) -> None:
    assistant = new_assistant(model)
    assistant.stop()
    assert (await ask(assistant, "Hello"))[1].reason == "length"


async def test_a_caller_that_walks_away_keeps_what_it_saw(model: Model) -> None:
    assistant, text = new_assistant(model), ""
    async with aclosing(assistant.respond("Hello")) as events:  # type: ignore[type-var]
        async for event in events:
            assert isinstance(event, Delta)
            text += event.text
            if len(text) > 5:
                break
    assert assistant.messages == [user("Hello"), said_by_model(text)]
    answer, _ = await ask(assistant, "Go on")
    assert answer == await fresh_answer(model, [user("Hello"), said_by_model(text), user("Go on")])


async def test_a_caller_that_is_cancelled_keeps_what_it_saw(model: Model) -> None:
    assistant, seen = new_assistant(model, max_tokens=400), list[Delta]()
    watching = asyncio.create_task(watch(assistant, "Hello", seen))
    for _ in range(40):
        await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert seen
    assert assistant.messages == [user("Hello"), said_by_model("".join(event.text for event in seen))]


async def test_cancelling_while_the_prompt_is_read_is_no_stop(model: Model) -> None:
    assistant = new_assistant(model)
    answering = asyncio.create_task(ask(assistant, "x" * 250))
    for _ in range(6):
        await asyncio.sleep(0)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert assistant.messages == []
    assert (await ask(assistant, "Hello"))[0] == await fresh_answer(model, [user("Hello")])


async def test_a_lost_device_keeps_what_was_seen(model: Model) -> None:
    assistant, seen = new_assistant(model), list[Delta]()
    model.backend.lost_after = 12  # type: ignore[attr-defined]
    with pytest.raises(DeviceLostError):
        await watch(assistant, "Hello", seen)
    text = "".join(event.text for event in seen)
    assert len(text) > 3
    assert assistant.messages == [user("Hello"), said_by_model(text)]


@pytest.mark.parametrize("lost", [{"lost_in_prefill": True}, {"lost_after": 0}], ids=str)
async def test_a_device_lost_before_the_answer_leaves_the_conversation_as_it_was(model: Model, lost: dict) -> None:
    assistant = new_assistant(model)
    await ask(assistant, "Hello")
    before = list(assistant.messages)
    vars(model.backend).update(lost)
    with pytest.raises(DeviceLostError):
        await ask(assistant, "Go on")
    assert assistant.messages == before


async def test_turns_without_room_are_left_out_the_oldest_first_and_it_says_so(
    tiny_path: Path, open_model: OpenModel
) -> None:
    model = await open_model(tiny_path, context=400, end_tokens=NO_ENDS)
    assistant, forgotten = new_assistant(model, max_tokens=30), []
    for turn in range(8):
        messages = [*assistant.messages, user(f"This is message {turn}. " * 2)]
        answer, done = await ask(assistant, messages[-1]["content"])
        left = messages[done.forgotten_turns :]
        assert left[0]["role"] == "user"
        assert done.prompt_tokens == len(await encode(model, left)) <= 400 - 30
        assert answer == await fresh_answer(model, left, 30)
        forgotten.append(done.forgotten_turns)
        assert assistant.messages == [*messages, said_by_model(answer)]
    assert forgotten == sorted(forgotten)
    assert forgotten[0] == 0 < forgotten[-1]
    assistant.reset()
    assert (await ask(assistant, "Hello"))[1].forgotten_turns == 0


async def test_where_turns_are_left_out_so_many_go_that_the_next_messages_keep_the_beginning(
    tiny_path: Path, open_model: OpenModel
) -> None:
    model = await open_model(tiny_path, Watched, context=500, end_tokens=NO_ENDS)
    assistant, forgotten = new_assistant(model, max_tokens=10), []
    for _ in range(20):
        _, done = await ask(assistant, "This is a message.")
        forgotten.append(done.forgotten_turns)
    changes = sum(now != then for then, now in pairwise(forgotten))
    assert 1 <= changes <= 5 < forgotten[-1] // 2
    read = model.backend.read  # type: ignore[attr-defined]
    assert sum(tokens > 100 for tokens in read) == changes


async def test_a_message_longer_than_the_context_leaves_the_conversation_as_it_was(model: Model) -> None:
    assistant = new_assistant(model)
    await ask(assistant, "Hello")
    before = list(assistant.messages)
    with pytest.raises(ContextFullError, match="Shorten it, or send it in parts"):
        await ask(assistant, "x" * 600)
    assert assistant.messages == before
    answer, done = await ask(assistant, "Short")
    assert done.forgotten_turns == 0
    assert answer == await fresh_answer(model, [*before, user("Short")])


@pytest.mark.parametrize(("max_tokens", "room"), [(1024, 64), (10, 10)])
async def test_a_message_leaves_room_for_an_answer_or_is_too_long(model: Model, max_tokens: int, room: int) -> None:
    longest = 512 - room - len(await encode(model, [user("")]))
    assistant = new_assistant(model, max_tokens)
    with pytest.raises(ContextFullError) as raised:
        await ask(assistant, "x" * (longest + 1))
    length, limit = map(int, re.findall(r"\d+", str(raised.value)))
    assert length == limit + 1
    _, done = await ask(assistant, "x" * longest)
    assert (done.new_tokens, done.reason) == (room, "length" if max_tokens == room else "context")


async def test_reset_starts_a_conversation_that_knows_nothing_of_the_last(model: Model) -> None:
    assistant = new_assistant(model)
    first, _ = await ask(assistant, "Hello")
    await ask(assistant, "And then?")
    assistant.reset()
    assert assistant.messages == []
    assert (await ask(assistant, "Hello"))[0] == first
    assert assistant.messages == [user("Hello"), said_by_model(first)]


async def test_two_conversations_with_one_model_do_not_mix(model: Model) -> None:
    one, other = new_assistant(model), new_assistant(model)
    answers = await asyncio.gather(ask(one, "Hello"), ask(other, "What?"))
    assert [text for text, _ in answers] == [await fresh_answer(model, [user(text)]) for text in ("Hello", "What?")]


async def test_without_a_choice_the_same_question_gets_the_same_answer(model: Model) -> None:
    assert len({(await ask(Assistant(model, max_tokens=60), "Hello"))[0] for _ in range(3)}) == 1


async def test_a_seed_gives_an_answer_of_its_own_that_repeats(model: Model) -> None:
    answers = [
        (await ask(Assistant(model, SamplingParams(temperature=1.0, seed=seed), 60), "Hello"))[0] for seed in (1, 2, 1)
    ]
    assert answers[0] == answers[2] != answers[1]


hostile = st.lists(
    st.sampled_from([*SPECIAL, "<|im_", "start|>", "end|>", "<|", "|>", "\n", "system", "user\n", "é", "a", " "]),
    min_size=1, max_size=12,
).map("".join)  # fmt: skip


@given(text=hostile.filter(str.strip), later=hostile.filter(str.strip))
@settings(max_examples=30)
def test_special_tokens_in_a_message_are_plain_text(
    tiny_path: Path, open_model: OpenModel, text: str, later: str
) -> None:
    async def converse() -> None:
        model = await open_model(tiny_path, Watched, end_tokens=range(259))
        backend = model.backend
        assert isinstance(backend, Watched)
        assistant = new_assistant(model, max_tokens=1)
        for message in (text, later):
            _, done = await ask(assistant, message)
            prompt = backend.sessions[0].tokens[: done.prompt_tokens]
            # <|im_start|> ... <|im_end|> for each message, and <|im_start|> for the answer: the template's alone.
            assert [token for token in prompt if token < 3] == [1, 2] * len(assistant.messages) + [1]
            assert message in model.tokenizer.decode(prompt)

    asyncio.run(converse())


# --- agents share one beginning -------------------------------------------------------------------------------------

AGENTS = {agent.id: agent for agent in current_agents(shipped_agents(), no_changes())}


async def drain(assistant: Assistant, text: str, agent: str) -> Done:
    events = [event async for event in assistant.respond(text, AGENTS[agent])]
    assert isinstance(events[-1], Done)
    return events[-1]


async def test_another_agent_in_the_middle_reads_only_the_new_message(tiny_path: Path, open_model: OpenModel) -> None:
    model = await open_model(tiny_path, Watched, end_tokens=NO_ENDS)
    assistant = new_assistant(model, max_tokens=8)
    await drain(assistant, "Write a function that adds two numbers.", "coder")
    before = len(assistant.messages)
    done = await drain(assistant, "Plan my week.", "planner")
    new = await encode(model, [user_message("Plan my week.", AGENTS["planner"])])
    assert done.prompt_tokens > 200
    # The last token of the answer, the end of its turn, and the message with its instruction.
    assert model.backend.read[-1] <= len(new)  # type: ignore[attr-defined]
    assert [message["role"] for message in assistant.messages] == ["user", "assistant"] * (before // 2 + 1)


async def test_the_instruction_of_an_agent_stands_before_its_message_and_stays_there(
    tiny_path: Path, open_model: OpenModel
) -> None:
    model = await open_model(tiny_path, end_tokens=NO_ENDS)
    assistant = new_assistant(model, max_tokens=4)
    await drain(assistant, "Add two numbers.", "coder")
    await drain(assistant, "Hello.", "assistant")
    asked = [message["content"] for message in assistant.messages if message["role"] == "user"]
    assert asked == [f"{AGENTS['coder'].system_prompt}\n\nAdd two numbers.", "Hello."]
    prompt = model.tokenizer.decode(assistant._sequence.tokens)
    assert prompt.startswith(f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>")


def test_the_plain_assistant_needs_no_instruction_of_its_own() -> None:
    assert AGENTS["assistant"].system_prompt == SYSTEM_PROMPT
    edited = replace(AGENTS["assistant"], system_prompt="You rhyme.")
    assert user_message("Hi", edited) == user("You rhyme.\n\nHi")


# --- reports while a prompt is read -----------------------------------------------------------------------------


async def test_reading_a_long_prompt_is_told_from_its_first_new_token_to_its_last(model: Model) -> None:
    assistant = new_assistant(model, max_tokens=5)
    await ask(assistant, "Hello")
    events = [event async for event in assistant.respond("x" * 250)]
    reading = [event for event in events if isinstance(event, Reading)]
    done = events[-1]
    assert isinstance(done, Done)
    assert len(reading) > 2
    assert events[: len(reading)] == reading
    read = [event.done for event in reading]
    assert read == sorted(read)
    assert read[0] > 50  # the first turn was in the model
    assert read[-1] == done.prompt_tokens
    assert {event.total for event in reading} == {done.prompt_tokens}
    assert not any([isinstance(event, Reading) async for event in assistant.respond("short")])


# --- loops and second tries -----------------------------------------------------------------------------------------


async def test_an_answer_that_goes_in_circles_ends_without_its_repeats(
    write_model: Callable[..., Path], open_model: OpenModel
) -> None:
    # With one layer and large tied embeddings a model soon repeats itself.
    model = await open_model(write_model(layers=1, embedding_spread=1.0), end_tokens=NO_ENDS)
    assistant, shown = new_assistant(model, max_tokens=350), ""
    async for event in assistant.respond("Hello"):
        if isinstance(event, Delta):
            shown += event.text
    assert isinstance(event, Done)
    assert event.reason == "loop"
    assert event.new_tokens < 350
    assert shown.startswith(event.text)
    assert len(event.text) < len(shown)
    assert assistant.messages == [user("Hello"), said_by_model(event.text)]
    sequence = model.tokenizer.decode(assistant._sequence.tokens)
    assert sequence.endswith(event.text)


async def test_another_try_takes_the_place_of_the_last_answer(model: Model) -> None:
    assistant = new_assistant(model, max_tokens=30)
    await ask(assistant, "One")
    first, _ = await ask(assistant, "Two")
    before = list(assistant.messages)
    hot = SamplingParams(temperature=1.0, seed=3)
    events = [event async for event in assistant.respond("Two", before=before[:-2], sampling=hot)]
    second = "".join(event.text for event in events if isinstance(event, Delta))
    assert second != first
    assert assistant.messages == [*before[:-1], said_by_model(second)]


async def test_another_try_that_is_stopped_before_it_begins_leaves_the_first_answer(model: Model) -> None:
    assistant = new_assistant(model)
    await ask(assistant, "One")
    before = list(assistant.messages)
    model.backend.after_prefill = assistant.stop  # type: ignore[attr-defined]
    hot = SamplingParams(temperature=1.0, seed=3)
    events = [event async for event in assistant.respond("One", before=[], sampling=hot)]
    assert [event.reason for event in events if isinstance(event, Done)] == ["stopped"]
    assert assistant.messages == before
