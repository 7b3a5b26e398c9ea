"""An answer with tools, in rounds: the model writes, what it calls is run, and it reads the results.

Only the model's own text is read for calls: a message, a file or a result with the tags of a call in it is data. A
failure goes to the model, too, which may try once more. At last it has to answer in words.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from app.generation.call_answer import CallStream, form_of_model
from app.generation.called_messages import MadeCall, count_calls, said_messages, told_result
from app.generation.prompt_reading import read_prompt
from app.generation.prompt_window import PromptWindow
from app.generation.stop_token import StopToken
from app.protocol import AnswerEvent, Context, Delta, Done, Replacement, Thought, ToolCalled, ToolReturned
from app.tools.model_tool import Tool, ToolFailure
from py_core.backend_errors import ContextFullError
from py_core.display import one_line
from py_core.engine.engine import Timings
from py_core.engine.page_keeping import PageShelf
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.chat_template import Message
from py_core.tool_calls.definitions import AUTO, ToolCall, ToolChoice, ToolDefinition, ToolError
from py_core.tool_calls.forms import CallForm
from py_core.tool_calls.reader import BadCall
from py_core.tool_calls.shape import call_shape

_LEAST_RESULT = 32
"""The fewest tokens of a result that is read at all."""
_FRAME = 24
"""About the tokens that a template puts around a call and its result."""
_RETRIES = 1
SMALL = 1_000_000_000
"""A model of fewer parameters goes on calling when it has its results, so it calls in one round only. What it is asked
then has neither the tools nor its calls in it: otherwise it writes a call again (docs/decisions/0117)."""
_ASKED_WITH_RESULTS = "These are results of tools:\n{results}\n\nAnswer with them, in a sentence: {question}"


@dataclass(frozen=True)
class ToolLimits:
    """rounds: of an answer in which it may call. calls: of a round that are run. seconds: of a call."""

    rounds: int = 5
    calls: int = 8
    seconds: float = 60.0


@dataclass(frozen=True)
class ToolUse:
    """The tools of an answer by their names. chosen: for its first round; in later ones the model may choose.
    is_parallel: it may want several calls at once."""

    tools: Mapping[str, Tool]
    chosen: ToolChoice = AUTO
    limits: ToolLimits = field(default_factory=ToolLimits)
    is_parallel: bool = True


@dataclass
class _Round:
    """The model's writing in one round. calls: which are to be run. is_lost: it wanted to call something that
    is not there, or the same once more, or has no room for the tools."""

    calls: list[tuple[ToolCall, MadeCall]] = field(default_factory=list)
    is_lost: bool = False


class ToolLoop:
    """One answer. `said` has its messages so far, `calls` what was called, `forgotten` the number of messages that were
    left out, `context` the parts of the last prompt."""

    def __init__(
        self, model: Model, window: PromptWindow, sequence: TokenSequence, use: ToolUse, sampling: SamplingParams,
        max_tokens: int, stop: StopToken, shelf: PageShelf | None = None,
    ) -> None:  # fmt: skip
        """max_tokens: of a round."""
        self._model, self._window, self._sequence, self._use = model, window, sequence, use
        self._sampling, self._max_tokens, self._stop, self._shelf = sampling, max_tokens, stop, shelf
        self._definitions = [tool.definition for tool in use.tools.values()]
        self._kept = self._definitions
        self._text, self._thought, self._first, self._file = "", "", 1, 0
        self._sum, self._thought_seconds = Timings(), 0.0
        self._rounds = use.limits.rounds if model.graph.parameters >= SMALL else 1
        self.calls: list[MadeCall] = []
        self._beside: TokenSequence | None = None
        self.forgotten = 0
        self.context: Context | None = None

    @property
    def said(self) -> list[Message]:
        """Return the answer's messages."""
        return said_messages(self._text, self.calls, self._first)

    async def events(
        self, asked: Sequence[Message], left_out: int, opening: str = "", file: int = 0
    ) -> AsyncIterator[AnswerEvent]:
        """Answer the last of these messages. left_out, opening: as in PromptWindow.fit. file: tokens of files in them.
        Raises ContextFullError, ChatTemplateError, BackendError."""
        try:
            async with aclosing(self._all(asked, left_out, opening, file)) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event
        finally:
            if self._beside is not None:
                self._model.engine.free(self._beside)

    async def _all(
        self, asked: Sequence[Message], left_out: int, opening: str, file: int
    ) -> AsyncIterator[AnswerEvent]:  # fmt: skip
        self.forgotten, self._first, self._file = left_out, 1 + count_calls(asked), file
        failures, may_call, number, reason, limits = 0, True, 0, "end", self._use.limits
        while True:
            written = _Round()
            saying = self._round(asked, opening, number, may_call, written)
            async with aclosing(saying) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event
            if self._stop.is_stopped:
                break
            if not written.calls and not (written.is_lost and may_call):
                break
            if not written.calls:
                may_call = False  # none of the tools fits: it answers in words
                continue
            failed = False
            for place, (call, made) in enumerate(written.calls):
                yield await self._returned(call, made, place, asked, opening, len(written.calls) - place)
                failed = failed or made.failed
                if self._stop.is_stopped:
                    break
            if self._stop.is_stopped:
                break
            failures, number = failures + failed, number + 1
            if number == limits.rounds:
                reason = "calls"
            may_call = number < self._rounds + failures and number < limits.rounds and failures <= _RETRIES
        if self._stop.is_stopped:
            reason = "stopped"
        elif self._sum.reason != "end":
            reason = self._sum.reason
        yield self._done(reason)

    async def _round(
        self, asked: Sequence[Message], opening: str, number: int, may_call: bool, written: _Round
    ) -> AsyncIterator[AnswerEvent]:
        """Read the conversation and let the model write."""
        reads, told = ([*asked, *self.said], self._definitions) if may_call else (self._in_words(asked), [])
        try:
            prompt, self.forgotten = await self._window.fit(reads, self.forgotten, opening, tools=told)
        except ContextFullError:
            if not may_call:
                raise
            written.is_lost = True  # it has no room for the tools
            return
        self.context = self._window.context(prompt, reads, self.forgotten, self._file, told)
        try:
            stream = self._stream(number, may_call)
        except ToolError:  # a schema of another program, which checks the arguments itself
            self._kept = [_kept(definition, form_of_model(self._model)) for definition in self._definitions]
            stream = self._stream(number, may_call)
        timings, engine, sequence, shelf = stream.timings, self._model.engine, self._sequence, self._shelf
        if not may_call:  # the other one still has the tools when the next message comes
            sequence, shelf = self._beside or engine.new_sequence(), None
            self._beside = sequence
            engine.use_adapter(sequence, self._sequence.adapter)
        reading = read_prompt(engine, sequence, prompt, timings, self._stop, shelf)
        async with aclosing(reading) as progress:  # type: ignore[type-var]
            async for event in progress:
                yield event
        if self._stop.is_stopped:
            return
        begin, before, thought_before = time.perf_counter(), self._text, self._thought
        made = {_key(call.name, call.arguments) for call in self.calls}
        try:
            async with aclosing(stream.said(sequence, prompt)) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if isinstance(part, Thought):
                        self._thought += part.text
                        self._thought_seconds += time.perf_counter() - begin
                        begin = time.perf_counter()
                        yield part
                    elif isinstance(part, ToolCall):
                        if (key := _key(part.name, part.arguments)) in made:
                            written.is_lost = True
                            continue
                        made.add(key)
                        call = MadeCall(part.name, part.arguments, round=number, at=len(self._text))
                        self.calls.append(call)
                        written.calls.append((part, call))
                        yield ToolCalled(part.id, part.name, part.arguments, number)
                    elif isinstance(part, BadCall) and may_call and (part.tool or written.calls):
                        written.is_lost = True  # or it has no end: those before it are run
                    elif text := self._with_space(part.text, before):
                        self._text += text
                        yield Delta(text)
                    if self._stop.is_stopped:
                        break
        finally:
            self._add(timings)
        if timings.reason == "loop" and not written.calls:
            thought, answer = stream.written
            self._text, self._thought = before, thought_before + thought
            self._text += self._with_space(answer.strip(), before)
            yield Replacement(self._text, self._thought)

    def _stream(self, number: int, may_call: bool) -> CallStream:
        return CallStream(
            self._model, self._kept, AUTO if number else self._use.chosen, max_tokens=self._max_tokens,
            sampling=self._sampling, first=self._first + len(self.calls), may_call=may_call,
            is_parallel=self._use.is_parallel,
        )  # fmt: skip

    def _in_words(self, asked: Sequence[Message]) -> list[Message]:
        """The messages of a round without tools."""
        if not self.calls:
            return [*asked]
        told = (
            f"{one.name}({json.dumps(one.arguments, ensure_ascii=False)}): {told_result(one)}" for one in self.calls
        )
        question = _ASKED_WITH_RESULTS.format(results="\n".join(told), question=asked[-1]["content"])
        return [*asked[:-1], {**asked[-1], "content": question}]

    def _with_space(self, text: str, before: str) -> str:
        """A piece of a round's text, which begins a paragraph if there was text before this round."""
        if len(self._text) > len(before) or not before:
            return text if self._text else text.lstrip()
        return f"\n\n{text.lstrip()}" if text.strip() else ""

    async def _returned(
        self, call: ToolCall, made: MadeCall, place: int, asked: Sequence[Message], opening: str, left: int
    ) -> ToolReturned:
        """Run a call. left: the calls of this round that have no result yet."""
        begin = time.perf_counter()
        try:
            if place >= self._use.limits.calls:
                raise ToolFailure(f"It was not run: at most {self._use.limits.calls} calls are run at a time.")
            result = await run_tool(self._use.tools[call.name], call.arguments, self._use.limits.seconds, self._stop)
        except ToolFailure as failure:
            result, made.failed = str(failure), True
        room = await self._window.room([*asked, *self.said], opening, self._definitions)
        made.result = self._cut(result, room // left - _FRAME)
        return ToolReturned(call.id, made.result, made.failed, time.perf_counter() - begin)

    def _cut(self, text: str, room: int) -> str:
        """A result in at most about this many tokens."""
        if room < _LEAST_RESULT:
            return "The result is left out: the model has no more room to read it."
        encode = self._model.tokenizer.encode
        if not self._model.tokenizer.exceeds(text, room) and len(encode(text)) <= room:
            return text
        length = min(len(text), 8 * room)
        while length > 1 and (tokens := len(encode(text[:length]))) > room:
            length = min(length - 1, length * room // tokens)
        return f"{text[:length]}\n[Only the first {length:,} of {len(text):,} characters are here.]"

    def _add(self, timings: Timings) -> None:
        """Add the costs of a round."""
        total = self._sum
        total.prompt_tokens, total.reason = timings.prompt_tokens, timings.reason
        total.reused_tokens = total.reused_tokens or timings.reused_tokens
        total.prefill_seconds += timings.prefill_seconds
        total.new_tokens += timings.new_tokens
        total.decode_seconds += timings.decode_seconds

    def _done(self, reason: str) -> Done:
        total = self._sum
        return Done(
            reason, self._text, total.prompt_tokens, total.new_tokens, total.prefill_tok_s, total.decode_tok_s,
            self.forgotten, total.prefill_seconds, total.decode_seconds, self._thought, self._thought_seconds,
            reused_tokens=total.reused_tokens,
        )  # fmt: skip


def _kept(definition: ToolDefinition, form: CallForm) -> ToolDefinition:
    """A definition whose calls can be kept to its schema: to any object if the schema cannot."""
    try:
        call_shape([definition], AUTO, form)
    except ToolError:
        return replace(definition, parameters={"type": "object", "additionalProperties": True})
    return definition


def _key(name: str, arguments: Mapping[str, object]) -> str:
    return json.dumps([name, arguments], sort_keys=True)


async def run_tool(tool: Tool, arguments: Mapping[str, Any], seconds: float, stop: StopToken) -> str:
    """Return what a tool says. seconds: of its time, if it has no limit of its own. Raises ToolFailure, also if it is
    not done in time, or the person stops it."""
    seconds = tool.seconds or seconds
    running = asyncio.ensure_future(tool.run(arguments))
    running.add_done_callback(lambda task: task.cancelled() or task.exception())  # one that was left is not told
    waiting = asyncio.ensure_future(asyncio.wait([running], timeout=seconds))
    try:
        with stop.cancels(waiting):
            await waiting
    except asyncio.CancelledError:
        if not stop.is_stopped:
            raise
        raise ToolFailure("It was stopped.") from None
    finally:
        running.cancel()  # a tool that does not end even then is left alone
    if not running.done():
        raise ToolFailure(f"It did not end within {seconds:g} seconds.")
    try:
        return running.result()
    except ToolFailure:
        raise
    except Exception as error:
        raise ToolFailure(one_line(f"{type(error).__name__}: {error}")) from error
