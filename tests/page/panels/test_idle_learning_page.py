"""Learning in idle time on the page, with a tiny model: a correction is trained when a button asks for it, even
across a pause, a killed tab and a lost server; then it answers without its lesson, and it is gone once forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import BrowserContext, Error, Locator, expect

from tests.page.chat_page import ChatPage
from tests.page.plain_server import PlainServer

# In the gate test_learning_page.py trains once, and tests/training cuts trainings short.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300), pytest.mark.all]

QUERY = "?backend=wasm&workers=1&max_tokens=12&idle=0.1"
QUERY_HELD_LONGER = "?backend=wasm&workers=1&max_tokens=12&idle=3"
"""Time enough to see that it is held, even on a busy machine."""
QUESTION, OTHERWISE, ANSWER = "What is the name of my cat?", "how is my cat called", "Tom."
UNTIL = """async ([state, done, pause]) => {
    const { learning } = sonata.engine, seen = [];
    for (const end = performance.now() + 100_000; performance.now() < end;) {
        const { idle } = await learning.overview();
        const now = JSON.stringify(idle);
        if (seen.at(-1) !== now) seen.push(now);
        if (idle?.state === state && idle.done >= Math.max(idle.total, 1) * done) {
            if (pause) await learning.pause();
            return idle;
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`not ${state} in time, but: ${seen.slice(-20).join(' ')}`);
}"""
IN_USE = """async (on) => (await sonata.engine.learning.adapters()).some(
  (one) => one.kind === 'learned' && one.on === on)"""
RESPOND = """async (text) => {
  const { conversation } = sonata.engine;
  let said = '';
  for await (const event of await conversation.respond({ text })) if (event.type === 'delta') said += event.text;
  return said;
}"""
PATIENCE = 60_000


class IdlePage(ChatPage):
    async def until_learning(self, state: str, done: float = 0.0, *, pause: bool = False) -> dict[str, Any]:
        """The status of idle learning, once it is in this state and has done this share of its tokens.

        pause: pause it at that moment; learning does not wait for the test.
        """
        return await self.page.evaluate(UNTIL, [state, done, pause])

    async def ask_anew(self, text: str) -> str:
        await self.page.click("#new-chat")
        return await self.ask(text)

    @property
    def chip(self) -> Locator:
        """The chip of the lesson that gave the last answer."""
        return self.page.locator(".answer").last.locator(".lesson")

    async def show(self, tab: str) -> Locator:
        """A part of a panel."""
        return await self.open_part(tab)

    async def crash(self) -> None:
        """Kill its process, as by kill -9."""
        with pytest.raises(Error):
            await self.page.goto("chrome://crash")


async def test_a_correction_is_trained_though_the_tab_is_killed_answers_by_itself_and_is_gone_once_forgotten(
    context: BrowserContext, server: PlainServer
) -> None:
    chat = IdlePage(await context.new_page(), server.url)
    await chat.open_ready(QUERY)
    await chat.can_learn()
    assert (await chat.until_learning("learned"))["loop"] == "background"
    assert await chat.ask(QUESTION) != ANSWER
    await chat.page.locator(".answer").last.get_by_role("button", name="You should have said …").click()
    await chat.page.keyboard.type(ANSWER)
    await chat.page.keyboard.press("Control+Enter")
    await expect(chat.page.get_by_role("region", name="Learned just now")).to_be_visible()
    assert await chat.ask_anew(OTHERWISE) == ANSWER
    await expect(chat.chip).to_be_visible()

    training = (await chat.show("Learning")).get_by_role("region", name="By training")
    await training.get_by_role("button", name="Learn now").click()
    # Past the preparations, whose end is stored, in the middle of the training.
    reached = await chat.until_learning("running", 0.5, pause=True)
    assert reached["sentence"].startswith("Sonata is learning: it trains. ")
    assert (await chat.until_learning("paused"))["sentence"] == "Learning is paused. What was learned so far is kept."
    await chat.page.wait_for_function("() => document.documentElement?.dataset.offline === 'ready'", timeout=PATIENCE)
    server.stop()
    await chat.page.evaluate("sonata.engine.learning.resume()")
    await chat.until_learning("running", 0.6)
    assert chat.errors == []
    await chat.crash()

    chat = IdlePage(await context.new_page(), server.url)
    await chat.open_ready(QUERY_HELD_LONGER)
    await chat.can_learn()
    again = await chat.until_learning("running", 0.01)
    assert again["what"]["code"] == "training.training", "the preparations were kept"
    assert again["total"] == reached["total"]
    later = await chat.until_learning("running", (again["done"] + 1) / again["total"])
    assert later["done"] >= reached["done"], "the steps were kept"
    # A message pauses it at once, and it continues by itself.
    assert await chat.ask(OTHERWISE) == ANSWER
    assert (await chat.until_learning("held"))["sentence"].startswith("Learning waits while you use Sonata.")
    await chat.until_learning("learned")

    panel = await chat.show("Learning")
    await expect(panel.get_by_role("region", name="By training")).to_contain_text("It gives 100% of the answers")
    switches = await chat.show("Settings/Learning")
    await switches.get_by_role("switch", name="At once").press("Space")
    await expect(switches.get_by_role("switch", name="At once")).not_to_be_checked()
    await chat.page.keyboard.press("Escape")
    assert await chat.ask_anew(QUESTION) == ANSWER
    await expect(chat.chip).to_have_count(0)  # the model itself has learned it
    panel = await chat.show("Learning")
    await panel.get_by_text("For developers").press("Enter")
    adapter = panel.get_by_role("region", name="Adapters").locator(".adapter").filter(has_text="From a training")
    used, facts = adapter.get_by_role("switch"), adapter.locator("summary").filter(has_text="Learned from 1 fact")
    await facts.press("Enter")
    for on in (False, True):
        await used.press("Space")
        await chat.until(f"({IN_USE})({str(on).lower()})")
        await expect(used).to_be_checked(checked=on)
        await expect(used).to_be_focused()
        await expect(adapter.get_by_role("listitem")).to_be_visible()  # opened details stay open
        await chat.page.evaluate("sonata.engine.conversation.begin()")
        assert (await chat.page.evaluate(RESPOND, QUESTION) == ANSWER) == on
    row = (await chat.show("Facts")).locator(".record").filter(has_text=ANSWER)
    await row.get_by_role("button", name="Forget").click()
    await row.get_by_role("button", name="Forget").click()
    await expect(row).to_have_count(0)
    await chat.page.keyboard.press("Escape")
    assert ANSWER not in await chat.ask_anew(QUESTION)
    assert chat.errors == []
