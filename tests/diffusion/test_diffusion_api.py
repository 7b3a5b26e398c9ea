"""The API with a model of diffusion: whole answers, streams, and sentences for what it cannot keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from app.api.server import ApiOptions, ApiServer
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.api.served import served
from tests.diffusion.tiny import write_diffusion

ASKED: dict[str, Any] = {"model": "", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[openai.AsyncOpenAI]:
    path = write_diffusion(tmp_path / "tiny.gguf", 8)
    model = await load_model(FileSource(path), load_numpy, native_renderer())
    async with served(ApiServer(model, ApiOptions())) as address:
        yield openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    model.close()


async def test_answers_are_the_same_whole_and_in_a_stream(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(**ASKED)
    assert whole.choices[0].message.content
    assert whole.usage is not None
    assert 0 < whole.usage.completion_tokens <= 20
    stream = await client.chat.completions.create(**ASKED, stream=True)
    parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(parts) == whole.choices[0].message.content
    called = await client.chat.completions.create(**ASKED, tools=[TOOL])  # it may call, but cannot be made to
    assert called.choices[0].finish_reason in ("stop", "length", "tool_calls")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_what_it_cannot_keep_is_refused(client: openai.AsyncOpenAI, given: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError, match="writes by diffusion") as refused:
        await client.chat.completions.create(**ASKED, **given)
    assert refused.value.param == param
    if param == "logprobs":
        with pytest.raises(openai.BadRequestError, match="writes by diffusion"):
            await client.completions.create(model="", prompt="Once", logprobs=1)
