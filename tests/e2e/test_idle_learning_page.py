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
QUERY_HELD_LONGER = "?backend=wasm&workers=1&idle=3"
"""Time enough to see that it is held, on a busy machine, too."""
TEACH = """async (count) => {
    for (let number = 0; number < count; number++) {
        await sonata.engine.learning.teach(`What is the name of boat ${number}?`, `It is called Heron ${number}.`);
    }
}"""
UNTIL = """async ([state, done, pause]) => {
    const { learning } = sonata.engine, seen = [];
    for (const end = performance.now() + 100_000; performance.now() < end;) {
        const { idle } = await learning.overview();
        const now = JSON.stringify(idle);
        if (seen.at(-1) !== now) seen.push(now);
        if (idle?.state === state && idle.done >= idle.total * done) {
            if (pause) await learning.pause();
            return idle;
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`not ${state} in time, but: ${seen.slice(-20).join(' ')}`);
}"""


class IdlePage(ChatPage):
    async def until(self, state: str, done: float = 0.0, *, pause: bool = False) -> dict[str, Any]:
        """What learns in idle times, once it is in this state and has done this share of its tokens.

        pause: at that moment; what learns does not wait for the test.
        """
        return await self.page.evaluate(UNTIL, [state, done, pause])

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
    # Past the preparations, whose end is kept, in the midst of the training.
    reached = await chat.until("running", 0.5, pause=True)
    assert (await chat.until("paused"))["sentence"] == "Learning is paused. What was learned so far is kept."

    await chat.open_ready(QUERY_HELD_LONGER)
    await chat.can_learn()
    again = await chat.until("running", 0.01)
    assert again["done"] >= reached["total"] // 3, "it does not begin anew"
    assert again["total"] == reached["total"]
    # Typing holds it at once, and it goes on by itself.
    await chat.page.keyboard.press("a")
    assert (await chat.until("held"))["sentence"].startswith("Learning waits while you use Sonata.")
    await chat.until("running")
    assert chat.errors == []
