"""Learning in idle times on the page: a pause holds, and after a reload it goes on from where it came. A tiny model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from chat_page import ChatPage
from plain_server import PlainServer
from playwright.async_api import Browser
from small_site import SmallSite

from app.idle_loops import LESSONS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

QUERY = "?backend=wasm&workers=1&idle=0.1"
TEACH = """async (count) => {
    for (let number = 0; number < count; number++) {
        await sonata.engine.learning.teach(`What is the name of boat ${number}?`, `It is called Heron ${number}.`);
    }
}"""
UNTIL = """async ([state, done]) => {
    for (;;) {
        const { idle } = await sonata.engine.learning.overview();
        if (idle?.state === state && idle.done >= done) return idle;
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}"""


class IdlePage(ChatPage):
    async def until(self, state: str, done: int = 0) -> dict[str, Any]:
        """What learns in idle times, once it is in this state and has done so many tokens."""
        return await self.page.evaluate(UNTIL, [state, done])

    async def can_learn(self) -> None:
        await self.page.wait_for_function("() => document.documentElement.dataset.learning === 'ready'")


@pytest_asyncio.fixture(loop_scope="session")
async def chat(browser: Browser, dist: Path, tmp_path: Path) -> AsyncIterator[IdlePage]:
    with PlainServer(SmallSite(dist, tmp_path / "site").folder) as server:
        context = await browser.new_context()
        page = IdlePage(await context.new_page(), server.url)
        await page.open_ready(QUERY)
        await page.can_learn()
        yield page
        await context.close()


async def test_a_pause_holds_and_after_a_reload_it_goes_on_from_where_it_came(chat: IdlePage) -> None:
    assert (await chat.until("learned"))["loop"] == "background"
    await chat.page.evaluate(TEACH, LESSONS)
    first = await chat.until("running", 1)
    # Past the preparations, whose end is kept, in the midst of the training.
    reached = await chat.until("running", first["total"] // 2)
    await chat.page.evaluate("sonata.engine.learning.pause()")
    assert (await chat.until("paused"))["sentence"] == "Learning is paused. What was learned so far is kept."

    await chat.page.reload()
    await chat.wait_for("ready")
    await chat.can_learn()
    again = await chat.until("running", 1)
    assert again["done"] >= first["total"] // 3, "it does not begin anew"
    assert again["total"] == reached["total"]
    # Typing holds it at once, and it goes on by itself.
    await chat.page.keyboard.press("a")
    assert (await chat.until("held"))["sentence"].startswith("Learning waits while you use Sonata.")
    await chat.until("running")
    assert chat.errors == []
