"""The API with a model of diffusion: whole answers, streams, shapes, and a sentence for what it cannot keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from app.api.server import ApiOptions, ApiServer
from app.cli.loading import native_grammar_host
from app.generation.grammars import VocabularyGrammars
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
    model.engine.constraint_of = VocabularyGrammars(
        model.tokenizer, model.config.vocab_size, native_grammar_host
    ).constraint
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


async def test_answers_have_shapes_and_calls_are_made(client: openai.AsyncOpenAI) -> None:
    schema = {"name": "s", "schema": {"enum": ["north", "south"]}}
    shape: Any = {"type": "json_schema", "json_schema": schema}
    shaped = await client.chat.completions.create(**ASKED, response_format=shape)
    assert shaped.choices[0].message.content in ('"north"', '"south"')
    called = await client.chat.completions.create(**ASKED | {"max_tokens": 90}, tools=[TOOL], tool_choice="required")
    assert called.choices[0].finish_reason == "tool_calls"


async def test_probabilities_are_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="writes by diffusion") as refused:
        await client.chat.completions.create(**ASKED, logprobs=True)
    assert refused.value.param == "logprobs"
    with pytest.raises(openai.BadRequestError, match="writes by diffusion"):
        await client.completions.create(model="", prompt="Once", logprobs=1)
