"""Calls of tools in an answer of the page, and tools that run in its Python."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import COLOURS, found_by_axe

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


PYTHON = (
    "code => sonata.engine.conversation.callTool({ name: 'python', given: { code } }).catch((error) => error.message)"
)
STORED = """async ([code, number]) => {
  const shown = { after: null, siblings: [number], created: 0 };
  const call = { id: 'call00001', name: 'python', arguments: { code } };
  await sonata.chat.showStored([
    { ...shown, number, role: 'user', content: code, events: [] },
    { ...shown, number: number + 1, after: number, siblings: [number + 1], role: 'assistant', content: code, events: [
      { type: 'tool-called', ...call }, { type: 'tool-returned', id: call.id, result: 'old', failed: false },
      { type: 'delta', text: 'Three.' }, { type: 'done', reason: 'end', text: 'Three.', newTokens: 2 },
    ] },
  ], sonata.engine);
}"""
TABLE = """import csv
rows = [dict(row) for row in csv.DictReader(open('sales.csv'))]
open('total.txt', 'w').write('42')
rows"""


async def test_python_of_the_model_runs_in_the_python_of_the_chat_once_it_is_allowed(ready_chat: ChatPage) -> None:
    page = ready_chat.page
    part = await ready_chat.open_part("Answers")
    switch = part.get_by_role("checkbox", name="Answers run Python")
    await expect(switch).to_be_disabled()
    await part.get_by_role("checkbox", name="Answers call tools").check()
    assert "is not there" in await page.evaluate(PYTHON, "6 * 7")
    await switch.check()
    await expect(switch).to_be_checked()
    await ready_chat.close_panel()
    file = {"name": "sales.csv", "mimeType": "text/csv", "buffer": b"region,sold\nnorth,40\nsouth,2\n"}
    await page.set_input_files("input[type=file]", file)  # type: ignore[arg-type]
    await ready_chat.ask("Hello")  # it waits for the file

    assert await page.evaluate(PYTHON, "kept = 6\nprint('hi')\nkept * 7") == {"result": "hi\n42", "failed": False}
    failed = await page.evaluate(PYTHON, "print(kept)\nkept / 0")
    assert failed == {"result": "6\nLine 2: kept / 0\nZeroDivisionError: division by zero", "failed": True}

    await page.evaluate(STORED, [TABLE, 10])
    answer = page.locator(".answer").last
    await answer.locator(".call summary").click()
    await answer.get_by_role("button", name="Run again").click()
    await expect(answer.locator(".call pre").last).to_have_text(
        "region, sold\nnorth, 40\nsouth, 2\n[wrote total.txt, 2 bytes]"
    )
    await expect(answer.locator(".python-run td")).to_have_text(["north", "40", "south", "2"])
    await expect(answer.get_by_role("button", name="Save total.txt (2 B)")).to_be_visible()
    assert await found_by_axe(page, ".calls", COLOURS) == []

    await page.evaluate(STORED, ["print('begun')\nwhile True: pass", 20])
    await answer.locator(".call summary").click()
    await answer.get_by_role("button", name="Run again").click()
    await expect(answer.locator(".python-text")).to_have_text("begun\n")
    await answer.locator(".calls").get_by_role("button", name="Stop").click()
    await expect(answer.locator(".call pre").last).to_have_text("failed: It was stopped.")
    await expect(answer.locator(".python-error")).to_contain_text("You stopped the code.")

    await page.evaluate(STORED, ["import pandas", 30])
    await answer.locator(".call summary").click()
    await answer.get_by_role("button", name="Run again").click()
    await answer.get_by_role("button", name="Do not load").click()
    await expect(answer.locator(".call pre").last).to_contain_text("The packages were not loaded")
    assert ready_chat.errors == []
