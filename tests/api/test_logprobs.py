"""The probabilities of an answer's tokens fit its text: at thoughts, halves of characters, stop texts and calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.api.completions import ChatAnswer, CompletionAnswer
from app.api.requests import ChatRequest, CompletionRequest, read
from app.api.responses import ResponseAnswer, ResponsesRequest
from app.cli.loading import native_grammar_host
from app.generation.grammars import VocabularyGrammars
from py_core.backends.numpy.backend import NumpyBackend
from py_core.backends.protocols import AfterPass
from py_core.loading import Model
from py_core.token_sequence import TokenSequence

HELLO = [{"role": "user", "content": "Hello"}]
END = 2


class Speaks(NumpyBackend):
    """Finds the tokens of `script` the likeliest, one after the other behind each prompt."""

    script: Sequence[int] = ()

    async def _run_pending(
        self, sequence: TokenSequence, logit_rows: int = 1, after_pass: AfterPass | None = None
    ) -> None:
        await super()._run_pending(sequence, logit_rows, after_pass)
        begun = self.__dict__.setdefault("begun", {}).setdefault(sequence.number, sequence.length)
        at = sequence.length - begun
        self._state(sequence).logits[-1, self.script[at] if at < len(self.script) else END] = 30.0


@pytest.fixture
async def model(tiny_path: Path, open_model) -> Model:
    model = await open_model(tiny_path, Speaks, end_tokens=[END])
    grammars = VocabularyGrammars(model.tokenizer, model.config.vocab_size, native_grammar_host)
    model.engine.constraint_of = grammars.constraint
    return model


async def chat(model: Model, said: str, **asked: Any) -> dict[str, Any]:
    """The only choice of the answer, whole; that in a stream has the same."""
    model.engine.backend.script = model.tokenizer.encode(said)  # type: ignore[attr-defined]
    request = read(ChatRequest, {"messages": HELLO, "logprobs": True, "top_logprobs": 2, **asked})
    whole, streamed = ChatAnswer(model, "tiny", request), ChatAnswer(model, "tiny", request)
    await whole.prepare()
    await streamed.prepare()
    (choice,) = (await whole.whole())["choices"]
    chunks = [chunk["choices"][0] async for chunk in streamed.chunks()]
    pieces = [entry for chunk in chunks for entry in (chunk["logprobs"] or {"content": []})["content"]]
    assert pieces == choice["logprobs"]["content"]
    assert "".join(chunk["delta"].get("content") or "" for chunk in chunks) == (choice["message"]["content"] or "")
    for entry in pieces:
        assert entry["top_logprobs"][0] == {name: entry[name] for name in ("token", "logprob", "bytes")}
        assert entry["top_logprobs"][1]["logprob"] <= entry["logprob"] <= 0
    return choice


def text_of(choice: dict[str, Any]) -> str:
    return b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"]).decode()


async def test_thoughts_have_none_and_halves_of_characters_come_together(model: Model) -> None:
    choice = await chat(model, "<think>\nHm, 2 €.\n</think>\n\nIt is 4 €, \N{PILE OF POO}.")
    assert choice["message"]["content"] == text_of(choice) == "It is 4 €, \N{PILE OF POO}."
    halves = [entry["token"] for entry in choice["logprobs"]["content"][8:11]]
    assert halves == ["bytes:\\xe2", "bytes:\\x82", "bytes:\\xac"]  # a token of this model is a byte
    cut = await chat(model, "It is 4 €.", max_tokens=9)
    assert (cut["message"]["content"], cut["logprobs"]["content"][-1]["bytes"]) == ("It is 4 ", [0xE2])


async def test_what_lies_behind_a_stop_text_has_none(model: Model) -> None:
    choice = await chat(model, "It is € 4, STOP. Or 5.", stop=["STOP"])
    assert choice["message"]["content"] == text_of(choice) == "It is € 4, "
    before = await chat(model, "It costs €. 4.", stop=["€"])
    assert before["message"]["content"] == text_of(before) == "It costs "
    held = await chat(model, "It is S", stop=["STOP"])
    assert text_of(held) == "It is S"


async def test_calls_are_there_as_they_are_written(model: Model) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Bern"]}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    said = '{"name": "weather", "arguments": {"city": "Bern"}}'
    choice = await chat(model, said, tools=[tool])
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Bern"}
    assert (choice["message"]["content"], text_of(choice).strip()) == (None, said)


async def test_completions_and_responses_have_them_in_their_own_forms(model: Model) -> None:
    model.engine.backend.script = model.tokenizer.encode("it is €.")  # type: ignore[attr-defined]
    request = read(CompletionRequest, {"prompt": "Now ", "logprobs": 1, "max_tokens": 20})
    answer = CompletionAnswer(model, "tiny", request)
    await answer.prepare()
    (choice,) = (await answer.whole())["choices"]
    told = choice["logprobs"]
    assert told["tokens"] == ["i", "t", " ", "i", "s", " ", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "."]
    assert told["text_offset"] == [0, 1, 2, 3, 4, 5, 6, 6, 6, 7]
    assert [max(one, key=one.get) for one in told["top_logprobs"]] == told["tokens"]
    assert [max(one.values()) for one in told["top_logprobs"]] == told["token_logprobs"]

    asked = {"input": "Hello", "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    response = ResponseAnswer(model, "tiny", read(ResponsesRequest, asked))
    await response.prepare()
    events = [event async for event in response.chunks()]
    pieces = [entry for event in events if event["type"].endswith("text.delta") for entry in event["logprobs"]]
    (item,) = events[-1]["response"]["output"]
    assert item["content"][0]["logprobs"] == pieces
    assert b"".join(bytes(entry["bytes"]) for entry in pieces).decode() == item["content"][0]["text"] == "it is €."
