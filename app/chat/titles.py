"""A title for a conversation. The model that answers makes it, after its first answer.

Small models write sentences, stories and what was in the examples; what they get right are words of the message. So a
title is taken only if it is short, ends by itself, and most of its words are in the conversation. Otherwise the first
words of the message stay (turn_details.title_of). docs/guide/chats.md has how many are good.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from app.chat.turn_details import is_unread
from app.records.branches import Turn
from app.records.memory import Memory
from app.records.sessions import Session
from py_core.backend_errors import BackendError, ContextFullError
from py_core.engine.engine import Timings
from py_core.engine.scheduler import Priority
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError
from py_core.text_search import fold
from py_core.tokenizers.chat_template import ChatTemplateError, Message

if TYPE_CHECKING:
    from app.runtime import Runtime

MOST_TOKENS = 12
LONGEST = 60  # characters
READ = 400  # characters of the message
PIECE = 32
"""Tokens that are read at once. It is also the most that a message waits for."""
SYSTEM = "You write a short title for each message."
EXAMPLES = (
    ("how do i get red wine out of a white shirt? it's been there since last night", "Red wine on a white shirt"),
    ("Write a Python function that reverses a list without using reversed().", "Reversing a list in Python"),
    ("My landlord wants to raise the rent by 20%. Is he allowed to do that?", "Rent increase by the landlord"),
    ("can you explain how vaccines work in simple words", "How vaccines work"),
)
_QUOTES = "\"'`*_#\u201c\u201d\u2018\u2019\u00ab\u00bb "
_END = re.compile(r"[\n.!?:;\u3002\uff01\uff1f]")
_WORD = re.compile(r"[^\W_]+")
_STEM = 4
"""Two words count as the same if this many first letters are equal: "bake", "baking"."""
_SHORTEST = 3  # "UDP"
_SAYS_LITTLE = re.compile(
    "and|are|but|can|did|does|for|from|had|has|her|his|how|its|not|our|the|that|this|was|what|when|where|who|why|will|with"
    "|you|your|das|dem|den|der|des|die|eine?[nrs]?|ich|ist|mir|mit|sie|sind|und|von|wie|zum|zur"
)


def title_messages(text: str) -> list[Message]:
    """Return the messages from which the model makes a title; its answer begins with "Title:"."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    for message, title in EXAMPLES:
        messages.append({"role": "user", "content": f"Message: {message}"})
        messages.append({"role": "assistant", "content": f"Title: {title}"})
    return [*messages, {"role": "user", "content": f"Message: {' '.join(text.split())[:READ]}"}]


def title_from(said: str, ended: bool, conversation: str) -> str:
    """Return the title in what the model said, "" if there is none. ended: by itself, not at MOST_TOKENS."""
    line = said.strip(_QUOTES + "\n")
    cut = _END.search(line)
    title = " ".join((line[: cut.start()] if cut else line).strip(_QUOTES + ",-\u2013").split())
    if not (ended or cut) or not 2 <= len(title) <= LONGEST or not _is_about(title, conversation):
        return ""
    return title[0].upper() + title[1:]


async def make_title(model: Model, text: str, answer: str) -> str:
    """Make a title for a conversation that begins with a message and its answer; "" if the model makes no good title.

    It takes the device only while nothing else needs it, and may be cancelled anywhere. Raises BackendError, and
    ChatTemplateError if the model's template has no system message.
    """
    engine = model.engine
    prompt = [*await model.encode_chat(title_messages(text)), *model.tokenizer.encode("Title:")]
    if len(prompt) + MOST_TOKENS > engine.context_length:
        raise ContextFullError("chat.no-room-for-title", "The context is too short for a title.")
    sequence, timings = engine.new_sequence(), Timings()
    try:
        for end in range(PIECE, len(prompt) + PIECE, PIECE):
            await engine.prefill(sequence, prompt[:end], timings, priority=Priority.BACKGROUND)
        ids, greedy = list[int](), SamplingParams(temperature=0.0)
        steps = engine.generate(sequence, MOST_TOKENS, greedy, timings, priority=Priority.BACKGROUND)
        async with aclosing(steps) as batches:  # type: ignore[type-var]
            async for batch in batches:
                ids += batch
                if "\n" in model.tokenizer.decode(ids).strip():
                    break
    finally:
        engine.free(sequence)
    return title_from(model.tokenizer.decode(ids), timings.reason == "end", f"{text}\n{answer}")


def _is_about(title: str, conversation: str) -> bool:
    """True if at least half of the title's words are in the conversation."""
    there = {stem for word in _WORD.findall(fold(conversation)) for stem in _stems(word)}
    named = [stem for word in _WORD.findall(fold(title)) for stem in _stems(word)]
    return 2 * sum(stem in there for stem in named) >= len(named) > 0


def _stems(word: str) -> list[str]:
    """Return [] for a word that says little; each character of a script that needs no spaces."""
    if not word.isascii() and ord(max(word)) >= 0x0E00:
        return list(word)
    return [word[:_STEM]] if len(word) >= _SHORTEST and not _SAYS_LITTLE.fullmatch(word) else []


class TitleMaker:
    """Makes the titles of one page's conversations in the background. It stops at once when the user says something."""

    def __init__(self, model: Model, runtime: Runtime) -> None:
        self._model, self._runtime = model, runtime
        self._tried: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def begin(self, session: Session | None, turns: Sequence[Turn]) -> None:
        """Call after an answer was stored. turns: what is shown of the conversation."""
        memory = self._runtime.memory_if_open
        said = [turn for turn in turns[:2] if not is_unread(turn)]
        if memory is None or session is None or session.titled or session.id in self._tried or len(said) < 2:
            return
        self.stop()
        self._task = memory.background.start(partial(self._make, memory, session.id, said[0].content, said[1].content))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _make(self, memory: Memory, id: str, text: str, answer: str) -> None:
        try:
            title = await make_title(self._model, text, answer)
            if title:
                await memory.sessions.entitle(id, title)
        except (BackendError, ChatTemplateError, StoreError):
            pass  # the first words stay
        self._tried.add(id)
