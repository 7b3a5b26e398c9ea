"""One conversation turn from text to text: prompt, generate, record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from app.text_stream import stream_text
from py_core.backends.base import ContextFullError, too_long
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.routing.agents import Agent
from py_core.sampling import SamplingParams
from py_core.tokenizers.chat_template import Message

# A model this small puts wrong words close behind right ones: drawing at random, even at temperature 0.2, loses facts
# that the likeliest token has. The penalty on words used before keeps it out of loops (docs/decisions.md).
CHAT_SAMPLING = SamplingParams(temperature=0.0, frequency_penalty=0.2)

MAX_TOKENS = 1024
"""An answer's length, at most. Small models sometimes do not find an end."""

_LEAST_ANSWER = 64
"""Tokens kept free for the answer: older turns are left out of the prompt until there are so many."""


class EmptyMessageError(ValueError):
    """There is nothing to answer."""


@dataclass(frozen=True)
class Delta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True)
class Done:
    """The answer is complete.

    `reason` is "end" (the model stopped), "length" (max_tokens), "context" (no room left) or "stopped" (by the user).
    Seconds are those of the prompt's new tokens, and of the answer's.
    `forgotten_turns` counts messages that no longer fit into the model's context and were left out.
    """

    reason: str
    prompt_tokens: int
    new_tokens: int
    prefill_tok_s: float
    decode_tok_s: float
    forgotten_turns: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


Event = Delta | Done


class Assistant:
    """A conversation with one model. One `respond` at a time."""

    def __init__(self, model: Model, sampling: SamplingParams | None = None, max_tokens: int = MAX_TOKENS) -> None:
        """sampling: of every answer; without it the agent's, or CHAT_SAMPLING where there is no agent."""
        self.model = model
        self.messages: list[Message] = []
        self._sampling, self._max_tokens = sampling, max_tokens
        self._sequence = model.engine.new_sequence()
        self._stopped = False
        self._prefill: asyncio.Task[None] | None = None

    async def respond(self, text: str, agent: Agent | None = None) -> AsyncIterator[Event]:
        """Stream the answer to a message. What was said joins the conversation, a stopped answer as far as it came.

        agent: who answers (its system prompt, sampling and longest answer); the model's own default if none.
        Raises EmptyMessageError, ContextFullError (a message too long for the model) or BackendError. What
        was seen of an answer by then stays in the conversation; without an answer it is as it was before.
        """
        if not text.strip():
            raise EmptyMessageError("The message is empty. Write something first.")
        self._stopped = False
        messages: list[Message] = [*self.messages, {"role": "user", "content": text}]
        sampling, max_tokens, system = self._sampling or CHAT_SAMPLING, self._max_tokens, list[Message]()
        if agent is not None:
            sampling, max_tokens = self._sampling or agent.sampling, min(agent.max_tokens, max_tokens)
            system = [{"role": "system", "content": agent.system_prompt}]
        prompt, forgotten = self._fit(messages, system)
        timings, answer = Timings(), ""
        if not await self._run_prompt(prompt, timings):
            yield Done("stopped", 0, 0, 0.0, 0.0)
            return
        streamed = stream_text(self.model, self._sequence, max_tokens, sampling, timings)
        try:
            async with aclosing(streamed) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    if piece:
                        answer += piece
                        yield Delta(piece)
                    if self._stopped and timings.reason != "end":
                        timings.reason = "stopped"
                        break
        finally:
            # Also when the caller walks away or the device is lost: what was seen was said.
            if answer or timings.reason == "end":
                self.messages = [*messages, {"role": "assistant", "content": answer}]
        yield Done(
            timings.reason,
            timings.prompt_tokens,
            timings.new_tokens,
            timings.prefill_tok_s,
            timings.decode_tok_s,
            forgotten,
            timings.prefill_seconds,
            timings.decode_seconds,
        )

    def stop(self) -> None:
        """End the running answer after the tokens at hand."""
        self._stopped = True
        if self._prefill is not None:
            self._prefill.cancel()

    def reset(self, messages: Sequence[Message] = ()) -> None:
        """Start a new conversation, or go on with one of these messages."""
        self.messages = list(messages)
        self.model.engine.truncate(self._sequence, 0)

    async def _run_prompt(self, prompt: list[int], timings: Timings) -> bool:
        """False if `stop` ended it."""
        self._prefill = asyncio.ensure_future(self.model.engine.prefill(self._sequence, prompt, timings))
        try:
            await self._prefill
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            return False
        finally:
            self._prefill = None
        return not self._stopped

    def _fit(self, messages: list[Message], system: list[Message]) -> tuple[list[int], int]:
        """The prompt's tokens, without as many of the oldest turns as have no room, and how many were left out.

        Raises ContextFullError when the last message alone is too long.
        """
        limit = self.model.engine.context_length - min(_LEAST_ANSWER, self._max_tokens)
        first = 0
        while True:
            prompt = self.model.encode_chat(system + messages[first:])
            if len(prompt) <= limit:
                return prompt, first
            if first >= len(messages) - 1:
                raise ContextFullError(too_long(len(prompt), limit))
            first = min(first + 2, len(messages) - 1)
