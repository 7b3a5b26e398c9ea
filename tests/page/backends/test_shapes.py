"""Answers of a shape in the page, where Python in Pyodide calls the grammars' kernel."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import Page

from tests.grammar.hostile_schemas import HOSTILE, refusal_of
from tests.grammar.test_kernel import open_kernel
from tests.page.chat_page import ChatPage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

GENERATE = (
    "(options) => sonata.engine.developer.generate({ prompt: 'Hello', maxTokens: 200, temperature: 1, ...options })"
)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["ä", 2]}, "b": {"type": "string", "maxLength": 4}},
    "required": ["a", "b"],
}


async def test_an_answer_has_its_shape(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    made = await page.evaluate(GENERATE, {"regex": "[a-c]{3}-(ja|nein)"})
    assert re.fullmatch("[a-c]{3}-(ja|nein)", made["text"])
    made = await page.evaluate(GENERATE, {"schema": json.dumps(SCHEMA | {"additionalProperties": False})})
    answer = json.loads(made["text"])
    assert answer["a"] in ("ä", 2)
    assert len(answer["b"]) <= 4
    assert made["reason"] == "end"
    cut = await page.evaluate(GENERATE, {"schema": json.dumps(SCHEMA), "maxTokens": 3, "close": True})
    assert json.loads(cut["text"]).keys() == {"a", "b"}
    assert cut["reason"] == "length"
    assert "not supported" in await said(page, regex="(a)\\1")
    assert await said(page, schema='{"not":' * 5000 + "{}" + "}" * 5000) == "the schema is nested too deeply"
    assert plain_chat.errors == []


async def said(page: Page, **shape: str) -> str:
    """The sentence that refuses a shape, or the answer."""
    return await page.evaluate(
        f"(options) => ({GENERATE})(options).then((made) => made.text, (error) => error.message)",
        {"maxTokens": 8, **shape},
    )


@pytest.mark.all
async def test_a_hostile_schema_is_refused_with_the_same_sentence_as_natively(plain_chat: ChatPage) -> None:
    kernel = open_kernel([bytes([byte]) for byte in range(256)])
    for name, schema in HOSTILE.items():
        told = await said(plain_chat.page, schema=schema)
        refusal = refusal_of(kernel, schema)
        assert not refusal or told == refusal, name
    assert plain_chat.errors == []
