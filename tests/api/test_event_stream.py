"""Events that come at once are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from app.api.event_stream import AT_ONCE, together


async def test_nothing_is_lost_and_a_slow_reader_does_not_hold_the_answer() -> None:
    made = list[int]()

    async def events() -> AsyncGenerator[str]:
        for number in range(100):
            made.append(number)
            yield f"{number} "
            if number % 10 == 0:
                await asyncio.sleep(0)

    read = list[str]()
    async with aclosing(together(events())) as parts:
        async for part in parts:
            read.append(part)
            await asyncio.sleep(0.05)
            assert len(made) == (100 if len(read) > AT_ONCE else len(read))
    assert "".join(read) == "".join(f"{number} " for number in range(100))
    assert len(read) <= AT_ONCE + 2


async def test_who_leaves_ends_the_answer_and_a_failure_arrives() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[str]:
        try:
            while True:
                yield "more"
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    async with aclosing(together(endless())) as parts:
        assert await anext(parts)
    assert ended.is_set()

    async def failing() -> AsyncGenerator[str]:
        yield "one"
        raise ValueError("two")

    async with aclosing(together(failing())) as parts:
        assert await anext(parts) == "one"
        with pytest.raises(ValueError, match="two"):
            await anext(parts)
