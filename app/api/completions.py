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
from typing import Any

from app.api.errors import ApiError
from app.api.logprobs import ShownToken, TokenLog, chat_logprobs, completion_logprobs
from app.api.requests import ChatRequest, CompletionRequest, Sampled
from app.api.stop_texts import StopTexts
from app.generation.answer_stream import AnswerStream
from app.generation.call_answer import CallStream
from app.generation.prompt_window import refuse_by_length
from app.protocol import Thought
from py_core.backend_errors import BackendError, ContextFullError
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.messages import UserError
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.aside import encode_aside
from py_core.tokenizers.prompts import framed
from py_core.tool_calls.definitions import ChoiceMode, ToolCall
from py_core.tool_calls.prompt import with_tools

_REASONS = {"end": "stop", "loop": "stop", "stopped": "length", "length": "length", "context": "length"}


def _refuse_for_diffusion(model: Model, request: Sampled) -> None:
    """Raises ApiError if a model of diffusion cannot keep the request."""
    if model.config.diffusion is not None and request.likeliest is not None:
        raise ApiError("This model writes by diffusion, so `logprobs` cannot be kept: leave it out.", param="logprobs")


class _Answer:
    """The answers to one request. One of `chunks`, `deltas` and `whole` may be called, once, after `prepare`.
    `choices`: the answers."""

    choices: list[_Choice]
    _prompt: list[int]

    def stop(self) -> None:
        """Let the answers end with what they have."""
        for choice in self.choices:
            choice.stop()

    @property
    def timings(self) -> list[Timings]:
        """Return those of each choice."""
        return [choice.timings for choice in self.choices]

    def usage(self) -> dict[str, Any]:
        """Return the tokens of the request. Those of the prompt that nobody had to read are `cached_tokens`."""
        made = sum(one.new_tokens for one in self.timings)
        return usage_of(len(self._prompt), made, self.choices[0].timings.reused_tokens)


class ChatAnswer(_Answer):
    """The answer to a request of /v1/chat/completions."""

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
        _refuse_for_diffusion(model, request)
        rules = request.sampling(self._shape, model.config.vocab_size)
        self.choices = [_Choice(model, at, self._new_stream(one), request) for at, one in enumerate(rules)]
        self._prompt = []
        self._head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}

    def _new_stream(self, sampling: SamplingParams) -> CallStream | AnswerStream:
        request = self._request
        if not self._tools:
            return AnswerStream(self._model, request.most_tokens, sampling)
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
            whole = "".join(str(message["content"]) for message in self._conversation)
            refuse_by_length(self._model, whole, self._model.engine.context_length)
            told, entries = await with_tools(self._model.template, self._conversation, tools)
            self._prompt = await self._model.encode_chat(told, tools=entries)
        except ContextFullError as error:
            raise _too_long(str(error)) from None
        except UserError as error:
            raise ApiError(str(error), param="messages") from None
        check_length(self._model, self._prompt)

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects `chat.completion.chunk`. Raises BackendError."""

        def chunk(choice: _Choice, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            told = {"index": choice.number, "delta": delta, "finish_reason": reason}
            tokens = delta.pop("logprobs", None)
            told["logprobs"] = None if tokens is None else {"content": chat_logprobs(tokens), "refusal": None}
            return self._object("chat.completion.chunk", [told])

        for choice in self.choices:
            yield chunk(choice, {"role": "assistant", "content": ""})
        async with aclosing(_together(self.choices, self._prompt)) as parts:  # type: ignore[type-var]
            async for choice, part in parts:
                yield chunk(choice, {}, choice.reason) if part is None else chunk(choice, part)
        if self._request.stream_options.include_usage:
            yield self._object("chat.completion.chunk", []) | {"usage": self.usage()}

    async def deltas(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the deltas of the only choice's message, as `_Choice.parts`. Raises BackendError."""
        async with aclosing(self.choices[0].parts(self._prompt)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                yield delta

    async def whole(self) -> dict[str, Any]:
        """Return the object `chat.completion`. Raises BackendError."""
        await _finish(self.choices, self._prompt)
        told = [
            {
                "index": one.number,
                "message": one.message(),
                "finish_reason": one.reason,
                "logprobs": {"content": chat_logprobs(one.tokens), "refusal": None} if one.log else None,
            }
            for one in self.choices
        ]
        return self._object("chat.completion", told) | {"usage": self.usage()}

    def _object(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": list(choices)}


class CompletionAnswer(_Answer):
    """The answer to a request of /v1/completions; the prompt is continued as it is."""

    def __init__(self, model: Model, name: str, request: CompletionRequest) -> None:
        """Raises ApiError if the request cannot be kept."""
        _refuse_for_diffusion(model, request)
        self._request, self._model, prompt = request, model, request.prompt
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
            if len(prompt) > 1:
                raise ApiError("`prompt` has several texts: send a request for each.", param="prompt")
            prompt = prompt[0]
        if isinstance(prompt, str):
            try:
                refuse_by_length(model, prompt, model.engine.context_length)  # before a long text is encoded
            except ContextFullError as error:
                raise _too_long(str(error), "prompt") from None
        elif not all(isinstance(token, int) and 0 <= token < model.config.vocab_size for token in prompt):
            raise ApiError(
                f"`prompt` has no tokens of this model: they are below {model.config.vocab_size}.", param="prompt"
            )
        self._given, self._prompt, self._begun = prompt, [], ""
        rules = request.sampling(None, model.config.vocab_size)
        streams = [AnswerStream(model, request.max_tokens, one, continues=True) for one in rules]
        self.choices = [_Choice(model, at, stream, request, continues=True) for at, stream in enumerate(streams)]
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": name,
        }

    async def prepare(self) -> None:
        """Read the prompt. Raises ApiError if it cannot be one."""
        model, given = self._model, self._given
        if isinstance(given, str):
            self._prompt = framed(model.tokenizer, await encode_aside(model.tokenizer, [(given, True)]), bos=model.bos)
        else:
            self._prompt = [int(token) for token in given]
        if not self._prompt:
            raise ApiError("The prompt is empty. Write something to continue.", param="prompt")
        check_length(model, self._prompt)
        self._begun = model.tokenizer.decode(self._prompt) if self._request.echo else ""

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects `text_completion` of a stream. Raises BackendError."""
        if self._begun:
            yield self._object([(choice, self._begun, None, ()) for choice in self.choices])
        async with aclosing(_together(self.choices, self._prompt)) as parts:  # type: ignore[type-var]
            async for choice, part in parts:
                delta = part or {}
                reason = choice.reason if part is None else None
                yield self._object([(choice, delta.get("content", ""), reason, delta.get("logprobs", ()))])
        if self._request.stream_options.include_usage:
            yield self._object([]) | {"usage": self.usage()}

    async def whole(self) -> dict[str, Any]:
        """Return the object `text_completion`. Raises BackendError."""
        await _finish(self.choices, self._prompt)
        told = self._object([(one, self._begun + one.text, one.reason, one.tokens) for one in self.choices])
        return told | {"usage": self.usage()}

    def _object(self, parts: Sequence[tuple[_Choice, str, str | None, Sequence[ShownToken]]]) -> dict[str, Any]:
        choices = [
            {
                "index": choice.number,
                "text": text,
                "finish_reason": reason,
                "logprobs": completion_logprobs(tokens) if choice.log else None,
            }
            for choice, text, reason, tokens in parts
        ]
        return {**self._head, "choices": choices}


class _Choice:
    """One of the answers. `text`, `thought`, `calls`, `tokens`: so far, tokens if there is a `log` of them. `reason`:
    why it ended, as OpenAI says it."""

    def __init__(
        self, model: Model, number: int, stream: CallStream | AnswerStream, request: Sampled, continues: bool = False
    ) -> None:
        """continues: as of AnswerStream."""
        self.number, self.reason = number, ""
        self.text, self.thought, self.calls = "", "", list[dict[str, Any]]()
        self._model, self._stream, self._stops = model, stream, StopTexts(request.stops)
        words = stream.words if isinstance(stream, CallStream) else stream
        self._priority = words.priority = request.priority
        self.log = None if request.likeliest is None else TokenLog(model.tokenizer, words, continues)
        self.tokens = list[ShownToken]()
        self._sequence: TokenSequence | None = None
        self._is_stopped = False

    @property
    def timings(self) -> Timings:
        return self._stream.timings

    async def parts(self, prompt: list[int]) -> AsyncIterator[dict[str, Any]]:
        """Yield the deltas of a message; `logprobs` has the tokens that are new, if there is a log. Raises
        BackendError."""
        engine = self._model.engine
        sequence = self._sequence = engine.new_sequence()
        try:
            await engine.prefill(sequence, prompt, self.timings, priority=self._priority)
            async with aclosing(self._stream.said(sequence, prompt)) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if delta := self._delta(part):
                        yield delta | self._logged()
                    if self._stops.found:
                        break
            rest = self._stops.flush()
            self.text += rest
            logged = self._logged(is_last=True)
            if rest or logged.get("logprobs"):
                yield {"content": rest} | logged
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

    def _logged(self, is_last: bool = False) -> dict[str, Any]:
        if self.log is None:
            return {}
        tokens = self.log.upto(self._stream.length - self._stops.held, is_last)
        self.tokens += tokens
        return {"logprobs": tokens}

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


def usage_of(read: int, made: int, cached: int) -> dict[str, Any]:
    """Return the tokens of a request in OpenAI's form."""
    return {
        "prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }  # fmt: skip


def check_length(model: Model, prompt: Sequence[int]) -> None:
    """Raises ApiError if there is no room for an answer."""
    most = model.engine.context_length
    if len(prompt) >= most:
        raise _too_long(f"The prompt has {len(prompt):,} tokens, and the model reads at most {most - 1:,}: shorten it.")


def _too_long(sentence: str, param: str = "messages") -> ApiError:
    return ApiError(sentence, param=param, code="context_length_exceeded")
