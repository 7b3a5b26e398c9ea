"""Answers on the page that a tool computed: the chip above them, the time of the user, and the display of a stored one.

The browser of the page lives on Kiritimati, fourteen hours ahead of UTC (`kept_pages.py`).
"""

from __future__ import annotations

import re

import pytest
from playwright.async_api import FilePayload, Locator, expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

LOCAL_TIME = "() => new Date().toTimeString().slice(0, 5)"


def chip(chat: ChatPage) -> Locator:
    return chat.page.locator(".answer").last.locator(".computed")


async def test_a_computed_answer_has_a_chip_that_says_how(ready_chat: ChatPage) -> None:
    assert await ready_chat.ask("What is 1/3 + 1/3?") == "1 / 3 + 1 / 3 ≈ 0.6666666667"
    await expect(chip(ready_chat).locator("summary")).to_have_text("Computed · arithmetic")
    await expect(chip(ready_chat).locator(".lesson-panel")).to_be_hidden()
    await chip(ready_chat).locator("summary").press("Enter")
    await expect(chip(ready_chat).locator(".lesson-panel")).to_contain_text("The exact value is the fraction 2/3")
    table = b"region,product,amount\nEast,_Tea_ | green,1.5\nWest,Cocoa,2\nEast,Tea,2.25\n"
    sales: FilePayload = {"name": "sales.csv", "mimeType": "text/csv", "buffer": table}
    await ready_chat.page.locator("#composer input[type=file]").set_input_files([sales])
    await expect(ready_chat.page.locator("#files .file-chip")).to_have_count(1)
    assert (await ready_chat.ask("amount by region")).startswith("Sum of amount by region (all 3 rows):")
    await expect(chip(ready_chat).locator("summary")).to_have_text("Computed · tables")
    await ready_chat.ask("Which product has the lowest amount?")
    cells = ready_chat.page.locator(".answer").last.locator("td")
    await expect(cells).to_have_text(["2", "_Tea_ | green", "1.5", "East"])
    assert await found_by_axe(ready_chat.page) == []


async def test_a_stored_answer_shows_it_again(ready_chat: ChatPage) -> None:
    await ready_chat.ask("5 miles in km")
    await ready_chat.page.wait_for_function("() => location.hash.includes('chat=')")
    address = await ready_chat.page.evaluate("() => location.hash")
    await ready_chat.page.click("#new-chat")
    await expect(chip(ready_chat)).to_have_count(0)
    await ready_chat.page.evaluate("hash => { location.hash = hash; }", address)
    await expect(chip(ready_chat).locator("summary")).to_have_text("Computed · units")
    await expect(ready_chat.page.locator(".answer .body")).to_have_text("5 miles are 8.04672 kilometers.")


async def test_the_time_is_that_of_the_user(ready_chat: ChatPage) -> None:
    assert await ready_chat.page.evaluate("new Date().getTimezoneOffset()") == -14 * 60
    before = await ready_chat.page.evaluate(LOCAL_TIME)
    said = re.fullmatch(r"It is (\d\d:\d\d)\.", await ready_chat.ask("What time is it?"))
    assert said is not None
    assert said[1] in (before, await ready_chat.page.evaluate(LOCAL_TIME))
    today = await ready_chat.page.evaluate(
        "() => new Intl.DateTimeFormat('en', { weekday: 'long' }).format(new Date())"
    )
    assert await ready_chat.ask("What day is today?") == await said_today(ready_chat, today)


async def said_today(ready_chat: ChatPage, weekday: str) -> str:
    date = await ready_chat.page.evaluate(
        "() => new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'long', year: 'numeric' }).format(new Date())"
    )
    return f"Today is {weekday}, {date}."
