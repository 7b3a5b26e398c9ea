"""Answers of a shape in the page, where Python in Pyodide calls the grammars' kernel."""

from __future__ import annotations

import json
import re

import pytest

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
    refused = await page.evaluate(
        f"(options) => ({GENERATE})(options).catch((error) => error.message)", {"regex": "(a)\\1"}
    )
    assert "not supported" in refused
    assert plain_chat.errors == []
