"""Answers of one model in OpenAI's form: whole ones, and in chunks while they are written.

An answer is independent of others that run at the same time: each choice has a sequence of its own, which the engine
runs together with those of other requests, and takes the prompt's keys and values from whoever has read it before.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from app.api.errors import ApiError
from app.api.requests import ChatRequest, CompletionRequest
from app.api.stop_texts import StopTexts
from app.generation.call_answer import CallStream
from app.generation.grammars import behind_thought
from app.generation.prompt_window import refuse_by_length
from app.generation.text_stream import TextStream
from app.protocol import Thought
from py_core.backend_errors import BackendError, ContextFullError
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.messages import UserError
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.prompts import encode_text
from py_core.tokenizers.thinking import ThoughtSplitter, opens_thought
from py_core.tool_calls.definitions import ChoiceMode, ToolCall
from py_core.tool_calls.prompt import with_tools

_REASONS = {"end": "stop", "loop": "stop", "stopped": "length", "length": "length", "context": "length"}


class ChatAnswer:
    """The answer to one request. One of `chunks`, `deltas` and `whole` may be called, once. `choices`: the answers."""

    def __init__(self, model: Model, name: str, request: ChatRequest) -> None:
        """name: of the model. Raises ApiError if the request cannot be kept."""
        self._model, self._request = model, request
        self._conversation = request.conversation()
        self._tools, self._chosen = request.callable_tools()
        self._shape = request.shape()
        if self._shape is not None and self._tools and self._chosen.mode is not ChoiceMode.none:
            raise ApiError(
                "An answer has the shape of its tools: leave `response_format` or `tools` out.", param="tools"
            )
        seed = secrets.randbits(32)
        self.choices = [
            _Choice(model, at, self._new_stream(request.sampling(self._shape, seed), at), request.stops)
            for at in range(request.n)
        ]
        self._prompt: list[int] = []
        self._head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}

    def _new_stream(self, sampling: SamplingParams, at: int) -> CallStream | _Words:
        request, sampling = self._request, replace(sampling, seed=(sampling.seed + at) % 2**32)
        if not self._tools:
            return _Words(self._model, request.most_tokens, sampling)
        try:
            return CallStream(
                self._model, self._tools, self._chosen, max_tokens=request.most_tokens, sampling=sampling,
                is_parallel=request.parallel_tool_calls,
            )  # fmt: skip
        except UserError as error:
            raise ApiError(str(error), param="tools") from None

    async def prepare(self) -> None:
        """Read the request's texts. Raises ApiError if they cannot be a prompt."""
        tools = self._tools if self._chosen.mode is not ChoiceMode.none else ()
        try:
            for message in self._conversation:
                refuse_by_length(self._model, str(message["content"]), self._model.engine.context_length)
            told, entries = await with_tools(self._model.template, self._conversation, tools)
            self._prompt = await self._model.encode_chat(told, tools=entries)
        except ContextFullError as error:
            raise _too_long(str(error)) from None
        except UserError as error:
            raise ApiError(str(error), param="messages") from None
        check_length(self._model, self._prompt)

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects `chat.completion.chunk`. Raises BackendError."""

        def chunk(at: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            return self._object("chat.completion.chunk", [{"index": at, "delta": delta, "finish_reason": reason}])

        for choice in self.choices:
            yield chunk(choice.number, {"role": "assistant", "content": ""})
        async with aclosing(_together(self.choices, self._prompt)) as parts:  # type: ignore[type-var]
            async for choice, part in parts:
                yield chunk(choice.number, {} if part is None else part, choice.reason if part is None else None)
        if self._request.stream_options.include_usage:
            yield self._object("chat.completion.chunk", []) | {"usage": self.usage()}

    async def deltas(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the deltas of the only choice's message. Raises BackendError."""
        async with aclosing(self.choices[0].parts(self._prompt)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                yield delta

    async def whole(self) -> dict[str, Any]:
        """Return the object `chat.completion`. Raises BackendError."""
        await _finish(self.choices, self._prompt)
        told = [
            {"index": one.number, "message": one.message(), "finish_reason": one.reason, "logprobs": None}
            for one in self.choices
        ]
        return self._object("chat.completion", told) | {"usage": self.usage()}

    def stop(self) -> None:
        """Let the answers end with what they have."""
        for choice in self.choices:
            choice.stop()

    @property
    def timings(self) -> list[Timings]:
        """Return those of each choice."""
        return [choice.timings for choice in self.choices]

    def _object(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": list(choices)}

    def usage(self) -> dict[str, Any]:
        return usage_of(self._prompt, self.choices)


class CompletionAnswer:
    """The answer to a request of /v1/completions, like ChatAnswer; the prompt is continued as it is."""

    def __init__(self, model: Model, name: str, request: CompletionRequest) -> None:
        """Raises ApiError if the request cannot be kept."""
        self._request, prompt = request, request.prompt
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
            if len(prompt) > 1:
                raise ApiError("`prompt` has several texts: send a request for each.", param="prompt")
            prompt = prompt[0]
        if isinstance(prompt, str):
            try:
                refuse_by_length(model, prompt, model.engine.context_length)  # before a long text is encoded
            except ContextFullError as error:
                raise _too_long(str(error), "prompt") from None
            self._prompt = encode_text(model.tokenizer, prompt, special=True, bos=model.bos)
        elif all(isinstance(token, int) and 0 <= token < model.config.vocab_size for token in prompt):
            self._prompt = [int(token) for token in prompt]
        else:
            raise ApiError(
                f"`prompt` has no tokens of this model: they are below {model.config.vocab_size}.", param="prompt"
            )
        if not self._prompt:
            raise ApiError("The prompt is empty. Write something to continue.", param="prompt")
        check_length(model, self._prompt)
        self._begun = model.tokenizer.decode(self._prompt) if request.echo else ""
        sampling = request.sampling(None, secrets.randbits(32))
        self.choices = [
            _Choice(
                model,
                at,
                _Words(model, request.max_tokens, replace(sampling, seed=(sampling.seed + at) % 2**32), True),
                request.stops,
            )
            for at in range(request.n)
        ]
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": name,
        }

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects `text_completion` of a stream. Raises BackendError."""
        if self._begun:
            yield self._object([(choice, self._begun, None) for choice in self.choices])
        async with aclosing(_together(self.choices, self._prompt)) as parts:  # type: ignore[type-var]
            async for choice, part in parts:
                text = "" if part is None else part.get("content", "")
                yield self._object([(choice, text, choice.reason if part is None else None)])
        if self._request.stream_options.include_usage:
            yield self._object([]) | {"usage": usage_of(self._prompt, self.choices)}

    async def whole(self) -> dict[str, Any]:
        """Return the object `text_completion`. Raises BackendError."""
        await _finish(self.choices, self._prompt)
        told = self._object([(one, self._begun + one.text, one.reason) for one in self.choices])
        return told | {"usage": usage_of(self._prompt, self.choices)}

    def stop(self) -> None:
        """As ChatAnswer.stop."""
        for choice in self.choices:
            choice.stop()

    @property
    def timings(self) -> list[Timings]:
        """As ChatAnswer.timings."""
        return [choice.timings for choice in self.choices]

    def _object(self, parts: Sequence[tuple[_Choice, str, str | None]]) -> dict[str, Any]:
        choices = [
            {"index": choice.number, "text": text, "finish_reason": reason, "logprobs": None}
            for choice, text, reason in parts
        ]
        return {**self._head, "choices": choices}


class _Words:
    """An answer without tools, as CallStream gives one with tools."""

    def __init__(self, model: Model, max_tokens: int, sampling: SamplingParams, raw: bool = False) -> None:
        """raw: the text goes on from the prompt; nothing in it is a thought."""
        self._model, self._max_tokens, self._sampling, self._raw = model, max_tokens, sampling, raw
        self.timings = Timings()

    async def said(self, sequence: TokenSequence, prompt: list[int]) -> AsyncIterator[str | Thought]:
        model, sampling = self._model, self._sampling
        thinks = not self._raw and opens_thought(model.tokenizer, prompt)
        if thinks and sampling.grammar:
            sampling = replace(sampling, grammar=behind_thought(sampling.grammar, model.tokenizer))
        stream = TextStream(model, sequence, self._max_tokens, sampling, self.timings)
        splitter = ThoughtSplitter(thinks)
        async with aclosing(stream.pieces()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if self._raw:
                    yield piece
                    continue
                for said in splitter.push(piece):
                    yield Thought(said.text) if said.is_thought else said.text
        for said in splitter.flush():
            yield Thought(said.text) if said.is_thought else said.text


class _Choice:
    """One of the answers. `text`, `thought`, `calls`: so far. `reason`: why it ended, as OpenAI says it."""

    def __init__(self, model: Model, number: int, stream: CallStream | _Words, stops: Sequence[str]) -> None:
        self.number, self.reason = number, ""
        self.text, self.thought, self.calls = "", "", list[dict[str, Any]]()
        self._model, self._stream, self._stops = model, stream, StopTexts(stops)
        self._sequence: TokenSequence | None = None
        self._is_stopped = False

    @property
    def timings(self) -> Timings:
        return self._stream.timings

    async def parts(self, prompt: list[int]) -> AsyncIterator[dict[str, Any]]:
        """Yield the deltas of a message. Raises BackendError."""
        engine = self._model.engine
        sequence = self._sequence = engine.new_sequence()
        try:
            await engine.prefill(sequence, prompt, self.timings)
            async with aclosing(self._stream.said(sequence, prompt)) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if delta := self._delta(part):
                        yield delta
                    if self._stops.found:
                        break
            if rest := self._stops.flush():
                self.text += rest
                yield {"content": rest}
        except BackendError:
            if not self._is_stopped:
                raise
            self.timings.reason = "stopped"
        finally:
            self._sequence = None
            engine.free(sequence)
        reason = "stop" if self._stops.found else _REASONS.get(self.timings.reason, "stop")
        self.reason = "tool_calls" if self.calls and reason == "stop" else reason

    def stop(self) -> None:
        """End with what is there; the reason is "length"."""
        self._is_stopped = True
        if sequence := self._sequence:
            self._model.engine.truncate(sequence, sequence.length)

    def _delta(self, part: Any) -> dict[str, Any] | None:
        if isinstance(part, Thought):
            self.thought += part.text
            return {"reasoning_content": part.text}
        if isinstance(part, ToolCall):
            function = {"name": part.name, "arguments": json.dumps(part.arguments, ensure_ascii=False)}
            call = {"id": f"call_{secrets.token_hex(9)}", "type": "function", "function": function}
            self.calls.append(call)
            return {"tool_calls": [{"index": len(self.calls) - 1, **call}]}
        text = self._stops.push(part if isinstance(part, str) else part.text)
        self.text += text
        return {"content": text} if text else None

    def message(self) -> dict[str, Any]:
        """Return the whole message."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or (None if self.calls else "")}
        if self.thought:
            message["reasoning_content"] = self.thought
        if self.calls:
            message["tool_calls"] = self.calls
        return message


async def _together(
    choices: Sequence[_Choice], prompt: list[int]
) -> AsyncIterator[tuple[_Choice, dict[str, Any] | None]]:
    """The parts of several choices as they come, and None at the end of each."""
    if len(choices) == 1:
        (choice,) = choices
        async with aclosing(choice.parts(prompt)) as only:  # type: ignore[type-var]
            async for delta in only:
                yield choice, delta
        yield choice, None
        return
    queue = asyncio.Queue[tuple[_Choice, dict[str, Any] | None, Exception | None]]()

    async def run(choice: _Choice) -> None:
        try:
            async with aclosing(choice.parts(prompt)) as parts:  # type: ignore[type-var]
                async for part in parts:
                    queue.put_nowait((choice, part, None))
            queue.put_nowait((choice, None, None))
        except Exception as error:
            queue.put_nowait((choice, None, error))

    tasks, left = [asyncio.ensure_future(run(choice)) for choice in choices], len(choices)
    try:
        while left:
            choice, part, failure = await queue.get()
            if failure is not None:
                raise failure
            left -= part is None
            yield choice, part
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _finish(choices: Sequence[_Choice], prompt: list[int]) -> None:
    async with aclosing(_together(choices, prompt)) as parts:  # type: ignore[type-var]
        async for _ in parts:
            pass


def usage_of(prompt: Sequence[int], choices: Sequence[_Choice]) -> dict[str, Any]:
    """Return the tokens of a request. Those of the prompt that nobody had to read are `cached_tokens`."""
    made = sum(one.timings.new_tokens for one in choices)
    return {
        "prompt_tokens": len(prompt), "completion_tokens": made, "total_tokens": len(prompt) + made,
        "prompt_tokens_details": {"cached_tokens": choices[0].timings.reused_tokens},
    }  # fmt: skip


def check_length(model: Model, prompt: Sequence[int]) -> None:
    """Raises ApiError if there is no room for an answer."""
    most = model.engine.context_length
    if len(prompt) >= most:
        raise _too_long(f"The prompt has {len(prompt):,} tokens, and the model reads at most {most - 1:,}: shorten it.")


def _too_long(sentence: str, param: str = "messages") -> ApiError:
    return ApiError(sentence, param=param, code="context_length_exceeded")
