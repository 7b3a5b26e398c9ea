"""The calls of developers and tests to the model, beside the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypedDict

from app.generation.completion import Completion, complete, last_logits
from app.generation.grammars import shape_of
from app.generation.speed import profile_report
from app.page.talk import PageTalk
from py_core.engine.scheduler import Priority
from py_core.sampling import SamplingParams

PROFILE_POSITION = 512  # the position of the measured token: some way into a conversation


class Measured(TypedDict):
    """done: how far a measurement is, from 0, when its turn has come, to 1. report: of
    app.generation.speed.profile_report, once it is there."""

    done: float
    report: dict[str, Any] | None


class CallsMade(TypedDict):
    """calls: {name, arguments}. text: what is no call. bad: what only looks like one ({tool, why}). tokens: of the
    answer."""

    calls: list[dict[str, Any]]
    text: str
    bad: list[dict[str, Any]]
    tokens: int


class DeveloperApi:
    """Each public method is a call of the page."""

    def __init__(self, talk: PageTalk) -> None:
        self._talk = talk

    async def generate(
        self, prompt: str, raw: bool = False, max_tokens: int = 128, temperature: float = 0.0, seed: int = 0,
        schema: str | None = None, grammar: str | None = None, regex: str | None = None,
        after: str | None = None, close: bool = False,
    ) -> Completion:  # fmt: skip
        """Answer one prompt beside the conversation, as `sonata generate` does on the command line. raw: no chat
        template, special tokens parsed. schema, grammar, regex: the shape of the answer, one of them: a JSON Schema, a
        grammar in GBNF, or a regular expression for the whole text. after: free text, in which each of these tags
        begins the shape. close: if max_tokens ends the shape, the shortest rest of it is appended."""
        shape = shape_of(schema, grammar, regex, after=after)
        sampling = SamplingParams(temperature=temperature, seed=seed, grammar=shape, closes=close)
        return await complete(self._talk.model(), prompt, raw=raw, max_tokens=max_tokens, sampling=sampling)

    async def calls(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], choice: Any = None, max_tokens: int = 256,
        shaped: bool = True,
    ) -> CallsMade:  # fmt: skip
        """Answer a conversation with tools, both in OpenAI's form, greedy and beside the conversation of the page; no
        call is executed. choice: as in `choice_from`. shaped: calls follow a grammar. Raises ToolError,
        ContextFullError."""
        from app.generation.call_answer import CallStream, answer_with_calls  # late: a chat does not need it
        from py_core.tool_calls.definitions import choice_from, tools_from

        found = tools_from(tools)
        chosen = choice_from(choice, found)
        stream = CallStream(self._talk.model(), found, chosen, max_tokens=max_tokens, is_shaped=shaped)
        answer = await answer_with_calls(stream, messages)
        return {
            "calls": [call.entry() for call in answer.calls], "text": answer.text,
            "bad": [{"tool": one.tool, "why": str(one.why)} for one in answer.bad], "tokens": answer.new_tokens,
        }  # fmt: skip

    async def logits(self, prompt: str, raw: bool = False) -> bytes:
        """Return the logits after a prompt's last token, after the running answer: float32 (vocab_size,)."""
        async with self._talk.turn:
            return (await last_logits(self._talk.model(), prompt, raw=raw)).tobytes()

    async def profile(self) -> AsyncIterator[Measured]:
        """Measure each kernel of a token, after the running answer. Leaving the stream ends the measurement."""
        async with self._talk.turn:
            yield {"done": 0.0, "report": None}
            model, done = self._talk.model(), asyncio.Queue[float | None]()
            position = min(PROFILE_POSITION, model.engine.context_length // 2)
            measuring = asyncio.ensure_future(profile_report(model, [(position, 1)], done.put_nowait))
            measuring.add_done_callback(lambda _: done.put_nowait(None))
            try:
                with self._talk.measurement.cancels(measuring):
                    while (part := await done.get()) is not None:
                        yield {"done": part, "report": None}
                    yield {"done": 1.0, "report": await measuring}
            finally:
                measuring.cancel()

    async def tune(self) -> None:
        """Measure at once which kernels are the fastest on this GPU, which else the first pauses do (`Engine.tune`)."""
        await self._talk.model().engine.tune(Priority.INTERACTIVE)

    def speculate(self, on: bool) -> None:
        """Turn speculation on or off (`Engine.speculates`): tokens are guessed and run together. Answers are the same
        either way."""
        self._talk.model().engine.speculates = on
