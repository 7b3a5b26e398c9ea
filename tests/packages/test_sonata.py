"""The class Sonata natively: its answers are those of the API."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sonata import Sonata, SonataError

HELLO = [{"role": "user", "content": "Hello"}]
PLACE = {"enum": ["Bern", "Rome"]}


@pytest.fixture(scope="module")
def tiny_bytes(tiny_path: Path) -> bytes:
    return tiny_path.read_bytes()


async def test_a_model_answers_whole_in_parts_and_in_a_form(tiny_bytes: bytes) -> None:
    asked = {"messages": HELLO, "max_tokens": 6, "temperature": 1, "seed": 3}
    async with await Sonata.load(tiny_bytes, backend="numpy") as sonata:
        whole = (await sonata.chat.completions.create(**asked)).choices[0].message.content
        parts = await sonata.chat.completions.create(**asked, stream=True)
        assert "".join([part.choices[0].delta.content or "" async for part in parts]) == whole
        events = await sonata.responses.create(input="Hello", max_output_tokens=3, stream=True)
        assert [event.type async for event in events][-1] == "response.incomplete"
        shape = {"type": "json_schema", "json_schema": {"schema": PLACE}}
        made = await sonata.chat.completions.create(messages=HELLO, response_format=shape)
        assert json.loads(made.choices[0].message.content) in PLACE["enum"]
        with pytest.raises(SonataError, match="no messages") as refused:
            await sonata.chat.completions.create(messages=[])
        assert (refused.value.status, refused.value.param) == (400, "messages")


async def test_leaving_a_stream_ends_the_answer(tiny_path: Path) -> None:
    async with await Sonata.load(tiny_path, backend="numpy") as sonata, asyncio.timeout(30):
        left = []
        for _ in range(20):  # more than there may be at a time
            async with await sonata.chat.completions.create(messages=HELLO, max_tokens=400, stream=True) as parts:
                assert (await anext(parts)).object == "chat.completion.chunk"
                left.append(parts)
