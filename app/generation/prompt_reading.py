"""Reads a prompt, tells how far it is, and ends at a stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from app.generation.reading_time import ReadingTime
from app.generation.stop_token import StopToken
from app.protocol import Reading
from py_core.engine.engine import Engine, Timings
from py_core.engine.page_keeping import PageShelf
from py_core.token_sequence import TokenSequence

_LONG_PROMPT = 128
"""The fewest new tokens for which the progress of reading a prompt is reported."""


async def read_prompt(
    engine: Engine, sequence: TokenSequence, prompt: Sequence[int], timings: Timings, stop: StopToken,
    shelf: PageShelf | None = None,
) -> AsyncIterator[Reading]:  # fmt: skip
    """Run the prompt. If it is long, report the progress. Ends early when `stop` is stopped."""
    news: asyncio.Queue[Reading | None] = asyncio.Queue()
    first: int | None = None
    rest = ReadingTime(len(prompt))

    def on_progress(tokens_read: int, prompt_tokens: int) -> None:
        nonlocal first
        first, left = tokens_read if first is None else first, rest.push(tokens_read)
        if prompt_tokens - first >= _LONG_PROMPT:
            news.put_nowait(Reading(tokens_read, prompt_tokens, left))

    running = asyncio.ensure_future(engine.prefill(sequence, prompt, timings, on_progress, shelf=shelf))
    running.add_done_callback(lambda _: news.put_nowait(None))
    try:
        with stop.cancels(running):
            while (progress := await news.get()) is not None:
                yield progress
            await running
    except asyncio.CancelledError:
        if not stop.is_stopped:
            raise
    finally:
        if not running.done():
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
