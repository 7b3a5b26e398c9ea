"""Calls of tools in an answer of the page, and tools that run in its Python."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

CALL = "given => sonata.engine.conversation.callTool({ name: 'calculate', given }).catch((error) => error.message)"
OFFER = """() => sonata.tools.offer(
  'test', ['echo', 'broken', 'slow'].map((name) => ({ name, description: '', parameters: { type: 'object' } })),
  async (name, given, signal) => {
    if (name === 'broken') throw Object.assign(new Error('It is broken.'), { stack: undefined });
    if (name === 'slow') await new Promise((resolve) => {
      window.begun();
      signal.onabort = () => { window.aborted = true; resolve(); };
    });
    return { text: JSON.stringify(given) };
  })"""
CALL_OWN = (
    """name => sonata.engine.conversation.callTool({ name, given: { say: 'hello' } }).catch((error) => error.message)"""
)
STOP = """async () => {
  const begun = new Promise((resolve) => { window.begun = resolve; });
  const called = sonata.engine.conversation.callTool({ name: 'slow', given: {} });
  await begun;
  await sonata.engine.conversation.stop();
  const told = [await called, await new Promise((resolve) => setTimeout(() => resolve(window.aborted), 50))];
  delete window.begun;
  delete window.aborted;
  return told;
}"""
TWICE = """() => sonata.tools.offer('other', [{ name: 'echo', description: '', parameters: {} }], () => {})
  .catch((error) => error.message)"""


async def test_a_call_opens_to_its_result_and_runs_again(page_alone: ChatPage) -> None:
    page = page_alone.page
    await page_alone.ask("Use a tool")
    calls = page.locator(".answer").last.locator(".call")
    await expect(calls.first.locator("summary")).to_contain_text('calculate expression: "17 * 23"')
    await expect(calls.nth(1)).to_have_attribute("data-state", "failed")
    await expect(calls.first.locator("pre")).to_be_hidden()
    await calls.first.locator("summary").press("Enter")
    await expect(calls.first.locator("pre")).to_have_text("<b>391</b>")
    await calls.first.get_by_role("button", name="Run again").click()
    await expect(calls.first.locator("pre").last).to_have_text("392")
    assert await found_by_axe(page) == []


@pytest.mark.all
async def test_a_running_call_is_stopped(page_alone: ChatPage) -> None:
    await page_alone.page.fill("#message", "Use a tool that waits")
    await page_alone.page.press("#message", "Enter")
    await page_alone.page.locator(".calls").get_by_role("button", name="Stop").first.click()
    calls = page_alone.page.locator(".answer").last.locator(".call")
    await expect(calls.locator("pre")).to_have_text(["It was stopped.", "It was stopped."])
    await expect(page_alone.page.locator(".calls").get_by_role("button", name="Stop")).to_have_count(0)


async def test_tools_run_in_the_page_once_they_are_switched_on(ready_chat: ChatPage) -> None:
    page, given = ready_chat.page, {"expression": "17 * 23"}
    assert "is not there" in await page.evaluate(CALL, given)
    await page.evaluate(OFFER)
    part = await ready_chat.open_part("Answers")
    await part.get_by_role("checkbox", name="Answers call tools").check()
    await expect(part.get_by_role("status")).not_to_be_empty()
    assert "391" in (await page.evaluate(CALL, given))["result"]
    assert (await page.evaluate(CALL, {"expression": 3}))["failed"]
    echo = {"result": '{"say":"hello"}', "failed": False}
    assert await page.evaluate(CALL_OWN, "echo") == echo  # the page runs it
    assert await page.evaluate(CALL_OWN, "broken") == {"result": "It is broken.", "failed": True}
    assert await page.evaluate(STOP) == [{"result": "It was stopped.", "failed": True}, True]
    assert "Two tools are called echo" in await page.evaluate(TWICE)
    await page.evaluate("sonata.tools.withdraw('test')")
    assert "is not there" in await page.evaluate(CALL_OWN, "echo")
    await ready_chat.close_panel()
    await ready_chat.ask("Is it warm?")  # the tiny model has no room for tools
