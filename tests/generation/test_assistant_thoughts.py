"""A model that thinks before it answers: its thoughts are separated, stored, and left out of the next prompt."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.chat.conversation import Conversation
from app.chat.turn_events import stored_turns
from app.cli.terminal_chat import run_chat
from app.generation.assistant import Assistant
from app.protocol import AnswerEvent, Delta, Done, Stored, Thought
from app.runtime import Runtime, RuntimeConfig
from py_core.adapters.lora import LoraAdapter
from py_core.backends.numpy.backend import NumpyBackend
from py_core.backends.protocols import KeepGoing
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.store.sqlite import SQLiteRows
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.tiny.llama import TinyLlama
from tests.tiny.models import CHATML, metadata

OpenModel = Callable[..., Awaitable[Model]]
ANSWERS = {
    "sum": "<think>\nTwo and two\nmake four.\n</think>\n\nIt is 4.",
    "plain": "It is 4.",
    "endless": "<think>\nHm, " + "".join(f"{n} and " for n in range(30)),
    "loop": "<think>\nHm.\n</think>\n\nYes. " + "No, no. " * 40,
}
SPELLING = tokenizer_from_gguf(metadata(TinyLlama()))
THOUGHT = "Two and two\nmake four."
OPENED = CHATML.replace("assistant\n'", "assistant\n<think>\n'")


class Speaks(NumpyBackend):
    """Reads prompts normally, and gives the entry of ANSWERS for the last of its words in the prompt, or the rest of
    it."""

    sampling = SamplingParams()

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        (sequence,), (self.sampling,) = sequences, sampling
        text = SPELLING.decode(sequence.tokens)
        said = ANSWERS[re.findall("|".join(ANSWERS), text)[-1]]
        begun = next(length for length in range(len(said), -1, -1) if text.endswith(said[:length]))
        said = said[begun:]
        for token in [*SPELLING.encode(said), 2][:n]:
            if not keep_going():
                return
            sequence.tokens.append(token)
            yield [[token]]
            await asyncio.sleep(0)


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    return await open_model(tiny_path, Speaks, end_tokens=[2])


async def ask(assistant: Assistant, text: str) -> list[AnswerEvent]:
    return [event async for event in assistant.respond(text)]


def texts(events: list[Any], kind: type) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


async def test_a_thought_comes_before_the_answer_and_is_no_part_of_it(model: Model) -> None:
    assistant = Assistant(model)
    events = await ask(assistant, "the sum")
    assert (texts(events, Thought), texts(events, Delta)) == (THOUGHT, "It is 4.")
    kinds = [type(event) for event in events if isinstance(event, Thought | Delta)]
    assert kinds == [Thought] * kinds.count(Thought) + [Delta] * kinds.count(Delta)
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.text, done.thought, done.reason) == ("It is 4.", THOUGHT, "end")
    assert done.thought_seconds > 0


async def test_the_next_prompt_has_the_answer_and_not_the_thought(model: Model) -> None:
    assistant = Assistant(model)
    await ask(assistant, "the sum")
    await ask(assistant, "plain")
    prompt = model.tokenizer.decode(assistant._sequence.tokens)
    assert "assistant\nIt is 4.<|im_end|>" in prompt
    assert "Two and two" not in prompt
    assert "think" not in prompt


async def test_a_thought_that_the_template_opens_is_one_too(
    write_model: Callable[..., Path], open_model: OpenModel
) -> None:
    path = write_model({"tokenizer.chat_template": OPENED}, tied=False)
    assistant = Assistant(await open_model(path, Speaks, end_tokens=[2]))
    events = await ask(assistant, "the sum")
    assert (texts(events, Thought), texts(events, Delta)) == (THOUGHT, "It is 4.")


async def test_an_answer_without_a_thought_has_none(model: Model) -> None:
    events = await ask(Assistant(model), "plain")
    assert texts(events, Thought) == ""
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.text, done.thought, done.thought_seconds) == ("It is 4.", "", 0.0)


async def test_a_thought_without_an_end_is_all_there_is(model: Model) -> None:
    assistant = Assistant(model, max_tokens=40)
    events = await ask(assistant, "endless")
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.text, done.reason) == ("", "length")
    assert texts(events, Thought) == done.thought == ANSWERS["endless"].removeprefix("<think>\n")[: len(done.thought)]
    assert len(done.thought) > 20
    assert assistant.messages[-1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("reload", [False, True], ids=["at once", "after a reload"])
async def test_a_thought_that_was_cut_off_goes_on(
    write_model: Callable[..., Path], open_model: OpenModel, tmp_path: Path, reload: bool
) -> None:
    for template in (CHATML, OPENED):
        path = write_model({"tokenizer.chat_template": template}, tied=False)
        model = await open_model(path, Speaks, end_tokens=[2])
        runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite")))
        conversation = Conversation(Assistant(model, max_tokens=60), runtime)
        stored = [event async for event in conversation.respond("endless")][-1]
        assert isinstance(stored, Stored)
        first = conversation.turns[-1].details["thinking"]
        if reload:
            conversation = Conversation(Assistant(model, max_tokens=60), runtime)
            await conversation.resume(stored.chat)
        events = [event async for event in conversation.continue_answer()]
        assert texts(events, Delta) == ""
        answer = conversation.turns[-1]
        whole = first["text"] + texts(events, Thought)
        assert ANSWERS["endless"].removeprefix("<think>\n").startswith(whole.rstrip())
        assert answer.details["thinking"]["text"].strip() == whole.strip()
        assert len(whole) > len(first["text"]) + 30
        assert (answer.content, answer.details["tokens"], stored.number) == ("", 120, answer.number)
        assert answer.details["thinking"]["seconds"] > first["seconds"]
        await runtime.close()


async def test_an_answer_goes_on_behind_its_thought_also_after_a_reload(model: Model, tmp_path: Path) -> None:
    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite")))
    conversation = Conversation(Assistant(model, max_tokens=len(SPELLING.encode(ANSWERS["sum"])) - 4), runtime)
    stored = [event async for event in conversation.respond("the sum")][-1]
    assert isinstance(stored, Stored)
    begun = conversation.turns[-1].content
    assert 0 < len(begun) < len("It is 4.")
    again = Conversation(Assistant(model), runtime)
    await again.resume(stored.chat)
    events = [event async for event in again.continue_answer()]
    assert (texts(events, Thought), begun + texts(events, Delta)) == ("", "It is 4.")
    assert (again.turns[-1].content, again.turns[-1].details["reason"]) == ("It is 4.", "end")
    assert again.turns[-1].details["thinking"]["text"] == THOUGHT
    await runtime.close()


async def test_an_answer_that_looped_goes_on_with_other_words_than_the_likeliest(model: Model) -> None:
    conversation = Conversation(Assistant(model), Runtime())
    *_, done = [event async for event in conversation.respond("loop")]
    assert isinstance(done, Done)
    assert done.reason == "loop"
    assert conversation.assistant.model.backend.sampling.temperature == 0  # type: ignore[attr-defined]
    shown = conversation.turns[-1].content
    events = [event async for event in conversation.continue_answer()]
    assert conversation.assistant.model.backend.sampling.temperature > 0  # type: ignore[attr-defined]
    assert (shown + texts(events, Delta)).startswith(conversation.turns[-1].content)


async def test_an_answer_that_repeats_itself_keeps_its_thought(model: Model) -> None:
    events = await ask(Assistant(model), "loop")
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.thought) == ("loop", "Hm.")
    assert done.text.startswith("Yes. No, no.")
    assert len(done.text) < len(texts(events, Delta))


async def test_a_stored_turn_has_its_thought_beside_the_answer(model: Model, tmp_path: Path) -> None:
    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite")))
    conversation = Conversation(Assistant(model, max_tokens=60), runtime)
    for text in ("the sum", "endless"):
        events = [event async for event in conversation.respond(text)]
        assert isinstance(events[-1], Stored)
    branches = await runtime.memory.sessions.branches(events[-1].chat)
    assert [turn.content for turn in branches.path()] == ["the sum", "It is 4.", "endless", ""]
    thought, _, done, _ = stored_turns(events[-1].chat, branches)[1].events
    assert thought == Thought(THOUGHT)
    assert done.thought_seconds > 0
    (endless, *_) = stored_turns(events[-1].chat, branches)[3].events
    assert endless.text.startswith("Hm, 0 and 1")

    again = Conversation(Assistant(model), runtime)
    await again.resume(events[-1].chat)
    assert [message["content"] for message in again.assistant.messages] == ["the sum", "It is 4.", "endless", ""]
    await runtime.close()


def no_adapter(name: str) -> LoraAdapter:
    raise AssertionError(f"nobody asked for the adapter {name}")


def test_the_terminal_prints_a_thought_dimmed_before_the_answer(
    tiny_path: Path, open_model: OpenModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    lines = iter(["the sum", "/exit"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    with asyncio.Runner() as runner:
        model = runner.run(open_model(tiny_path, Speaks, end_tokens=[2]))
        run_chat(runner, model, None, 100, Runtime(), no_adapter)
    out = capsys.readouterr().out
    dimmed = "".join(re.findall(r"\x1b\[2m(.*?)\x1b\[0m", out, re.DOTALL))
    assert THOUGHT.replace("\n", "") in dimmed.replace("\n", "")
    assert re.search(r"\nIt is 4\.\n", out)
    assert "think>" not in out
