"""Answers on the page that a tool computed: the chip above them, the time of the user, and what a stored one shows.

The tests share a page of a browser that lives on Kiritimati, fourteen hours ahead of UTC.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from accessibility import found_by_axe
from chat_page import ChatPage
from playwright.async_api import Browser, Locator, expect

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

QUERY = "?backend=wasm&workers=1&max_tokens=8"
LOCAL_TIME = "() => new Date().toTimeString().slice(0, 5)"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def island(browser: Browser, tiny_site: str) -> AsyncIterator[ChatPage]:
    context = await browser.new_context(timezone_id="Pacific/Kiritimati")
    chat = ChatPage(await context.new_page(), tiny_site)
    await chat.open_ready(QUERY)
    yield chat
    await context.close()


def chip(chat: ChatPage) -> Locator:
    return chat.page.locator(".answer").last.locator(".computed")


async def test_a_computed_answer_has_a_chip_that_says_how(island: ChatPage) -> None:
    assert await island.ask("What is 1/3 + 1/3?") == "1 / 3 + 1 / 3 ≈ 0.6666666667"
    await expect(chip(island).locator("summary")).to_have_text("Computed · arithmetic")
    await expect(chip(island).locator(".lesson-panel")).to_be_hidden()
    await chip(island).locator("summary").press("Enter")
    await expect(chip(island).locator(".lesson-panel")).to_contain_text("The exact value is the fraction 2/3")
    assert await found_by_axe(island.page) == []


async def test_a_stored_answer_shows_it_again(island: ChatPage) -> None:
    await island.begin(QUERY)
    await island.ask("5 miles in km")
    await island.page.wait_for_function("() => location.hash.includes('chat=')")
    address = await island.page.evaluate("() => location.hash")
    await island.page.click("#new-chat")
    await expect(chip(island)).to_have_count(0)
    await island.page.evaluate("hash => { location.hash = hash; }", address)
    await expect(chip(island).locator("summary")).to_have_text("Computed · units")
    assert await island.last_answer() == "5 miles are 8.04672 kilometers."


async def test_the_time_is_that_of_the_user(island: ChatPage) -> None:
    await island.begin(QUERY)
    before = await island.page.evaluate(LOCAL_TIME)
    said = re.fullmatch(r"It is (\d\d:\d\d)\.", await island.ask("What time is it?"))
    assert said is not None
    assert said[1] in (before, await island.page.evaluate(LOCAL_TIME))
    today = await island.page.evaluate("() => new Intl.DateTimeFormat('en', { weekday: 'long' }).format(new Date())")
    assert await island.ask("What day is today?") == await said_today(island, today)


async def said_today(island: ChatPage, weekday: str) -> str:
    date = await island.page.evaluate(
        "() => new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'long', year: 'numeric' }).format(new Date())"
    )
    return f"Today is {weekday}, {date}."
