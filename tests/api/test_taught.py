"""Lessons of a memory answer the requests that name it; nothing else of a request is stored."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from app.api.lessons import LessonMemory
from app.api.server import ApiServer
from app.cli.loading import native_grammar_host
from app.cli.served_memories import folder_of
from app.generation.grammars import VocabularyGrammars
from app.runtime import Runtime
from py_core.loading import Model

DOG, BISCUIT, WAGS = "What is the name of my dog?", "Your dog is called Biscuit.", "Your dog is called Wags."
ASKED: dict[str, Any] = {"model": "", "max_tokens": 6, "extra_body": {"sonata": {"memory": "work"}}}


@pytest.fixture
async def learner(tiny_path, open_model) -> Model:
    model = await open_model(tiny_path)
    model.engine.constraint_of = VocabularyGrammars(
        model.tokenizer, model.config.vocab_size, native_grammar_host
    ).constraint
    return model


@pytest.fixture
async def http(learner: Model, runtime: Runtime) -> AsyncIterator[httpx.AsyncClient]:
    api = ApiServer(learner, memories={"work": LessonMemory(runtime, learner)})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api.app()), base_url="http://localhost") as http:
        yield http


def messages(text: str) -> Any:
    return [{"role": "system", "content": "Be short."}, {"role": "user", "content": text}]


async def test_what_is_taught_answers_and_says_so(http: httpx.AsyncClient, runtime: Runtime) -> None:
    client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=http)
    taught = await http.post("/v1/sonata/lessons", json={"memory": "work", "question": DOG, "answer": BISCUIT})
    lesson = taught.json()
    assert (lesson["question"], lesson["answer"], lesson["replaced"]) == (DOG, BISCUIT, None)

    limit = {**ASKED, "max_tokens": 100}
    made = await client.chat.completions.create(messages=messages("How is my dog called?"), n=2, **limit)
    assert [one.message.content for one in made.choices] == [BISCUIT, BISCUIT]
    told = made.model_extra["sonata"]["lesson"]
    assert (told["id"], told["question"]) == (lesson["id"], DOG)
    assert told["confidence"] > 0.5
    stream = await client.chat.completions.create(messages=messages(DOG), stream=True, **limit)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == BISCUIT
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].model_extra["sonata"]["lesson"]["id"] == lesson["id"]
    short = await client.chat.completions.create(messages=messages(DOG), stop="Biscuit", **limit)
    assert short.choices[0].message.content == "Your dog is called "
    cut = await client.chat.completions.create(messages=messages(DOG), **{**limit, "max_tokens": 2})
    assert cut.choices[0].finish_reason == "length"
    assert BISCUIT.startswith(cut.choices[0].message.content)

    other = await client.chat.completions.create(messages=messages("What is seven times eight?"), **ASKED)
    plain = await client.chat.completions.create(
        messages=messages("What is seven times eight?"), model="", max_tokens=6
    )
    assert "sonata" not in other.model_extra
    assert other.choices[0].message.content == plain.choices[0].message.content
    shaped = await client.chat.completions.create(
        messages=messages(DOG),
        response_format={"type": "json_schema", "json_schema": {"schema": {"const": 7}}},
        **ASKED,
    )
    assert json.loads(shaped.choices[0].message.content) == 7
    assert await runtime.memory.sessions.all() == []


async def test_lessons_are_replaced_listed_and_forgotten(http: httpx.AsyncClient) -> None:
    where = {"memory": "work"}
    for answer in (BISCUIT, WAGS):
        taught = await http.post("/v1/sonata/lessons", json={**where, "question": DOG, "answer": answer})
    assert taught.json()["replaced"]["answer"] == BISCUIT
    (listed,) = (await http.get("/v1/sonata/lessons", params=where)).json()["data"]
    assert (listed["id"], listed["answer"]) == (taught.json()["id"], WAGS)
    gone = (await http.delete("/v1/sonata/lessons", params={**where, "id": listed["id"]})).json()
    assert (gone["deleted"], gone["older_answers"]) == (True, 1)
    assert (await http.get("/v1/sonata/lessons", params=where)).json()["data"] == []
    again = await http.delete("/v1/sonata/lessons", params={**where, "id": listed["id"]})
    assert again.status_code == 404
    empty = await http.post("/v1/sonata/lessons", json={**where, "question": " ", "answer": WAGS})
    assert (empty.status_code, "question is empty" in empty.text) == (400, True)


async def test_only_memories_that_were_named_are_open(http: httpx.AsyncClient, tmp_path) -> None:
    for name in ("home", "../work", "work/../work", "/tmp", "WORK"):
        asked = {"messages": messages(DOG), "sonata": {"memory": name}}
        for refused in (
            await http.post("/v1/chat/completions", json=asked),
            await http.post("/v1/sonata/lessons", json={"memory": name, "question": DOG, "answer": BISCUIT}),
            await http.get("/v1/sonata/lessons", params={"memory": name}),
        ):
            assert (refused.status_code, "is open here" in refused.text) == (404, True)
    for name in ("", "..", "a/b", "a\\b", ".a", "a b", "a" * 41, "ä"):
        with pytest.raises(ValueError, match="not a name of a memory"):
            folder_of(name, tmp_path)
    assert folder_of("work", tmp_path) == tmp_path / "memories" / "work"
    assert folder_of("default", tmp_path) == tmp_path
