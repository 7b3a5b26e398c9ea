"""Chooses the turns of a conversation that the model reads: the newest ones, as many as fit into its context.

A prompt's length is known only after rendering and encoding, which cost more the longer it is. So the messages' texts
are encoded one by one, once each, from the newest back to where the room ends. The sum of their lengths tells roughly
which turn is the first that fits. A search from there finds it with a few prompts, none of them much longer than the
room.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from app.protocol import Context
from py_core.backend_errors import ContextFullError
from py_core.fit import bytes_per_token
from py_core.loading import Model
from py_core.tokenizers.base import THINKING_TAGS
from py_core.tokenizers.chat_template import Message
from py_core.tokenizers.conversation_shape import is_plain

if TYPE_CHECKING:
    from py_core.tool_calls.definitions import ToolDefinition

LEFT_OUT_FOR_LATER = 0.25
"""The share of the room that is freed once turns must be left out. Without it each later message would change the
prompt's beginning, and all of it would be read again each time."""

_FRAME_TOKENS = 5
"""The approximate number of tokens that a template puts around a message."""
_CLEARLY = 1.2
"""Turns that are about this many times as long as the room are tried first: if they do not fit, more do not either."""


class PromptWindow:
    """Chooses for the prompts of one conversation, which begin with a system message."""

    def __init__(self, model: Model, system: str, limit: int) -> None:
        """limit: the most tokens of a prompt."""
        self._model, self._limit = model, limit
        self._system: Message = {"role": "system", "content": system}
        self._lengths: dict[str, int] = {}  # tokens of a message's text, of those that were last needed

    async def fit(
        self, messages: Sequence[Message], first: int, opening: str = "", begun: Sequence[tuple[str, bool]] = (),
        tools: Sequence[ToolDefinition] = (),
    ) -> tuple[list[int], int]:  # fmt: skip
        """Return the prompt's tokens, without the oldest turns that do not fit, and the number of messages left out.

        opening: a text at the beginning of the first message that is left in.
        first: this many messages are left out in any case, but never the user's last one. More are left out with the
        answers to them. begun: of the answer, as in Model.encode_chat. tools: that the model may call.
        Raises ContextFullError if the user's last message alone, with the calls and results behind it, is too long.
        """
        asked = [at for at, message in enumerate(messages) if message["role"] == "user"]
        starts = [at for at in asked[:-1] if at >= first] + asked[-1:]
        refuse_by_length(self._model, messages[starts[-1]]["content"], self._limit)
        about = self._about(messages, starts, opening)
        prompts: dict[int, list[int]] = {}

        async def fits(at: int, room: float) -> bool:
            if at not in prompts:
                kept = messages[starts[at] :]
                if any(self._is_surely_too_long(message) for message in kept):
                    return False
                if opening:
                    kept = [{**kept[0], "content": f"{opening}\n\n{kept[0]['content']}"}, *kept[1:]]
                prompts[at] = await self._encoded(kept, begun, tools)
            return len(prompts[at]) <= room

        clearly = max((at for at in range(len(starts)) if about[at] > _CLEARLY * self._limit), default=0)
        if await fits(clearly, self._limit) and await fits(0, self._limit):
            return prompts[0], starts[0]
        room = (1 - LEFT_OUT_FOR_LATER) * self._limit
        guess = next((at for at in range(clearly, len(starts)) if about[at] <= room), len(starts) - 1)
        low = 0 if await fits(clearly, self._limit) else clearly
        found = await _first_that(lambda at: fits(at, room), low, len(starts) - 1, guess)
        if not await fits(found, self._limit):
            raise ContextFullError(
                "chat.message-too-long",
                "The message is too long: with the instructions it has {length} tokens, and "
                "the model reads at most {most}. Shorten it, or send it in parts.",
                length=len(prompts[found]),
                most=self._limit,
            )
        return prompts[found], starts[found]

    async def room(self, messages: Sequence[Message], opening: str, tools: Sequence[ToolDefinition]) -> int:
        """Return the most tokens of more results that fit behind the user's last message and what follows it, if all
        before it is left out. An eighth of the room is for the answer."""
        last = max(at for at, message in enumerate(messages) if message["role"] == "user")
        kept = [*messages[last:]]
        if opening:
            kept[0] = {**kept[0], "content": f"{opening}\n\n{kept[0]['content']}"}
        return self._limit * 7 // 8 - len(await self._encoded(kept, (), tools))

    def context(
        self, prompt: Sequence[int], messages: Sequence[Message], left_out: int, file: int = 0,
        tools: Sequence[ToolDefinition] = (),
    ) -> Context:  # fmt: skip
        """Return the parts of a prompt that `fit` made. file: the tokens in it that are of files. Those of tools are
        about right: templates write them in their own ways."""
        model, total = self._model, self._model.engine.context_length
        system = min(len(model.tokenizer.encode(self._system["content"])), len(prompt))
        file = min(file, len(prompt) - system)
        entries = json.dumps([tool.entry() for tool in tools], ensure_ascii=False) if tools else ""
        defined = min(len(model.tokenizer.encode(entries)), len(prompt) - system - file) if entries else 0
        turns = len(prompt) - system - file - defined
        characters = [len(_text_of(message)) for message in messages]
        lost, kept = sum(characters[:left_out]), sum(characters[left_out:])
        backend = model.engine.capabilities
        precision = "fast" if "fast" in backend.features else "precise"
        return Context(
            system, 0, turns, file, defined, total - len(prompt), total, round(turns * lost / kept) if kept else 0,
            bytes_per_token(model.graph, backend.backend, precision),
        )  # fmt: skip

    def _about(self, messages: Sequence[Message], starts: Sequence[int], opening: str) -> list[float]:
        """Estimate for each start how many tokens the prompt has that begins there; infinity far beyond the room."""
        known, self._lengths = self._lengths, {}
        about, end = [math.inf] * len(starts), len(messages)
        total: float = _FRAME_TOKENS
        if opening:
            self._lengths[opening] = known.get(opening) or len(self._model.tokenizer.encode(opening))
            total += self._lengths[opening]
        for at in range(len(starts) - 1, -1, -1):
            for message in messages[starts[at] : end]:
                if self._is_surely_too_long(message):
                    return about
                text = _text_of(message)
                self._lengths[text] = known.get(text) or len(self._model.tokenizer.encode(text))
                total += self._lengths[text] + _FRAME_TOKENS
            about[at], end = total, starts[at]
            if total > 2 * self._limit:
                break
        return about

    def _is_surely_too_long(self, message: Message) -> bool:
        # Templates may leave out what a model thought before it answered.
        return self._model.tokenizer.exceeds(message["content"].rpartition(THINKING_TAGS[1])[2], self._limit)

    async def _encoded(
        self, messages: Sequence[Message], begun: Sequence[tuple[str, bool]], tools: Sequence[ToolDefinition]
    ) -> list[int]:
        if not tools and all(is_plain(message) for message in messages):
            return await self._model.encode_chat([self._system, *messages], begun)
        from py_core.tool_calls.prompt import ASKED, with_tools  # late: few conversations have tools

        system = {**self._system, "content": f"{self._system['content']} {ASKED}"} if tools else self._system
        told, entries = await with_tools(self._model.template, [system, *messages], tools)
        return await self._model.encode_chat(told, begun, entries)


def _text_of(message: Message) -> str:
    """The text of a message that the model reads, about as a template writes it."""
    calls = message.get("tool_calls")
    return f"{message['content']}{json.dumps(calls)}" if calls else str(message["content"])


def refuse_by_length(model: Model, text: str, limit: int) -> None:
    """Raises ContextFullError if `text` surely has more tokens than `limit`: encoding it would take long."""
    if model.tokenizer.exceeds(text, limit):
        raise ContextFullError(
            "chat.text-too-long",
            "The text is too long: it has {length} characters, and the model reads at most "
            "{most} tokens. Shorten it, or send it in parts.",
            length=f"{len(text):,}",
            most=limit,
        )


async def _first_that(fits: Callable[[int], Awaitable[bool]], low: int, high: int, guess: int) -> int:
    """Return the first number from low to high that fits, given that all after it do; high if none does.

    The search leaves the guess in steps that double, and comes back by bisection: a good guess costs two or three
    tries.
    """
    step = 1
    if await fits(guess):
        high = guess
        while low < high:
            at = max(low, high - step)
            if not await fits(at):
                low = at + 1
                break
            high, step = at, 2 * step
    else:
        low = min(guess + 1, high)
        while low < high:
            at = min(high, low + step - 1)
            if await fits(at):
                high = at
                break
            low, step = min(at + 1, high), 2 * step
    while low < high:
        middle = (low + high) // 2
        if await fits(middle):
            high = middle
        else:
            low = middle + 1
    return high
