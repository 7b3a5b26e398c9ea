"""How long a message waits before the model reads its prompt, in a long chat: what `Assistant.respond` does first.

    python tests/bench/long_chat.py [--messages 1000] [--words 40] [--two-by-two]

`--two-by-two` measures what was done before: a prompt of all turns, and one with two less, until one fits.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from app.generation.assistant import SYSTEM_PROMPT
from app.generation.prompt_window import LEFT_OUT_FOR_LATER, PromptWindow
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.source import FileSource
from py_core.loading import Model, load_model
from py_core.tokenizers.chat_template import Message

WORDS = ("the", "a", "model", "page", "reads", "token", "answer", "question", "long", "chat", "memory", "of", "weather")
LEAST_ANSWER = 64

Fit = Callable[[list[Message], int], Awaitable[tuple[list[int], int]]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--words", type=int, default=40, help="of a message")
    parser.add_argument("--two-by-two", action="store_true")
    options = parser.parse_args()
    asyncio.run(measured(options))


async def measured(options: argparse.Namespace) -> None:
    model = await load_model(FileSource(default_model_path()), load_numpy, native_renderer())
    draw = random.Random(1)
    messages: list[Message] = [
        {"role": ("user", "assistant")[number % 2], "content": " ".join(draw.choices(WORDS, k=options.words))}
        for number in range(options.messages + 1 - options.messages % 2)
    ]
    limit = model.engine.context_length - LEAST_ANSWER
    window = PromptWindow(model, SYSTEM_PROMPT, limit)
    prompts = 0
    encode_chat = model.encode_chat

    async def counting(*given: Any) -> list[int]:
        nonlocal prompts
        prompts += 1
        return await encode_chat(*given)

    model.encode_chat = counting  # type: ignore[method-assign, assignment]

    async def measure(what: str, fit: Fit, first: int) -> int:
        nonlocal prompts
        prompts, begin = 0, time.perf_counter()
        prompt, left_out = await fit(messages, first)
        seconds = time.perf_counter() - begin
        print(f"{what:<28}{1000 * seconds:9.1f} ms {prompts:5} prompts  {left_out} left out, {len(prompt)} tokens")
        return left_out

    if options.two_by_two:
        await measure("two by two", lambda given, first: two_by_two(model, limit, given, first), 0)
        return
    first = await measure("after a reload", window.fit, 0)
    await measure("once more after a reload", window.fit, 0)
    for _ in range(2):
        messages += [dict(messages[1], content=messages[1]["content"] + " again"), messages[2]]
        first = await measure("the next message", window.fit, first)


async def two_by_two(model: Model, limit: int, messages: list[Message], first: int) -> tuple[list[int], int]:
    room: float = limit
    while True:
        prompt = await model.encode_chat([{"role": "system", "content": SYSTEM_PROMPT}, *messages[first:]])
        if len(prompt) <= room or first >= len(messages) - 1:
            return prompt, first
        room = (1 - LEFT_OUT_FOR_LATER) * limit
        first = min(first + 2, len(messages) - 1)


if __name__ == "__main__":
    main()
