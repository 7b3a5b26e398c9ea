"""A file of tools that is attached in the page: the question, calls of its tools, and their end."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import COLOURS, found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

SHOP = b'''from app.tools import tool

@tool
def stock(article: str) -> dict[str, int]:
    """Tell how many pieces of an article are in stock."""
    print("noise")
    return {"pieces": {"scarf": 12}[article]}

@tool(hosts=["api.example.com"])
async def price(article: str) -> str:
    """Tell what an article costs."""
    from pyodide.http import pyfetch
    return await (await pyfetch("https://api.example.com/price")).string()

@tool
def files() -> list[str]:
    """List the files."""
    import os
    return sorted(os.listdir())

@tool
def hang() -> str:
    """Hang."""
    while True: pass
'''
CALL = """([name, given]) => sonata.engine.conversation.callTool({ name, given })
  .then(({ result }) => result, (error) => error.message)"""
STOP = """async () => {
  const called = sonata.engine.conversation.callTool({ name: 'hang', given: {} });
  await new Promise((resolve) => setTimeout(resolve, 300));
  await sonata.engine.conversation.stop();
  return (await called).result;
}"""


async def call(chat: ChatPage, name: str, **given: Any) -> str:
    return str(await chat.page.evaluate(CALL, [name, given]))


async def attach(chat: ChatPage, name: str, data: bytes) -> None:
    file = {"name": name, "mimeType": "text/x-python", "buffer": data}
    await chat.page.set_input_files("input[type=file]", file)  # type: ignore[arg-type]
    await expect(chat.page.locator(".file-chip[data-state=ready]", has_text=name)).to_be_visible()


async def test_tools_of_a_file_are_called_once_the_user_agrees_and_as_long_as_it_is_there(ready_chat: ChatPage) -> None:
    page = ready_chat.page
    await attach(ready_chat, "plain.py", b"from app.tools import ToolFailure\n\ndef stock(): ...\n")
    await attach(ready_chat, "shop.py", SHOP)
    question = page.get_by_role("region", name="Tools of shop.py")
    await expect(question.locator("li")).to_have_count(4)
    await expect(question).to_contain_text("They want to reach api.example.com. The page gives them no network")
    assert await found_by_axe(page, ".tool-file", COLOURS) == []
    assert "is not there" in await call(ready_chat, "stock", article="scarf")
    await question.get_by_role("button", name="Use", exact=True).click()
    await expect(question).to_be_hidden()
    await expect(page.locator(".file-tools")).to_have_count(1)

    assert await call(ready_chat, "stock", article="scarf") == '{"pieces": 12}'
    assert await call(ready_chat, "stock", article="hat") == "stock failed: KeyError: 'hat' (line 7)"
    assert (await call(ready_chat, "price", article="hat")).endswith("The page gives it no network.")
    assert await call(ready_chat, "files") == '["shop.py"]'  # it declares none, so it gets none of the chat
    assert await page.evaluate(STOP) == "It was stopped."
    assert await call(ready_chat, "stock", article="scarf") == '{"pieces": 12}'

    await page.get_by_role("button", name="Remove shop.py").click()
    await expect(page.locator(".file-tools")).to_have_count(0)
    assert "is not there" in await call(ready_chat, "stock", article="scarf")
    await attach(ready_chat, "shop.py", SHOP)  # the same file is not asked about again
    await expect(page.locator(".file-tools")).to_have_count(1)
    await expect(question).to_be_hidden()
    assert await call(ready_chat, "stock", article="scarf") == '{"pieces": 12}'
    assert ready_chat.errors == []
