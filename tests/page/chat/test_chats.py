"""The chats in the side bar: listed by date, searched, renamed, pinned, archived, exported, and deleted with undo."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from app.records.kinds import KINDS
from app.records.memory import Memory
from app.records.sessions import Turn
from py_core.store.encryption import NativeCrypto
from py_core.store.store import Store
from py_core.store.transfer import export
from py_core.store.volatile import VolatileRows
from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

DAY = 24 * 60 * 60
SAID = {"Basil on a windowsill": 0.0, "A trip to Lisbon": 1.0, "Rivers": 5.0, "Knots": 20.0, "Old bread": 400.0}
"""Titles of chats, and the days since their last message."""
PUT = """async ([bytes]) => sonata.engine.memory.importFile({ data: Uint8Array.from(bytes), mode: 'replace' })"""
NOON = "new Date(new Date().setHours(12, 0, 0, 0)).getTime() / 1000"


def chats(chat: ChatPage) -> Locator:
    return chat.page.locator("#chats")


def row(chat: ChatPage, title: str) -> Locator:
    return chats(chat).locator("li").filter(has=chat.page.locator(".chat-name", has_text=title))


def link(chat: ChatPage, title: str) -> Locator:
    return row(chat, title).locator("a")


def names(chat: ChatPage) -> Locator:
    return chats(chat).locator(".chat-name")


async def choose(chat: ChatPage, title: str, entry: str) -> None:
    """Choose an entry in the menu of a chat."""
    await row(chat, title).hover()
    await row(chat, title).get_by_role("button", name=f"Menu of {title}").click()
    await chat.page.get_by_role("menuitem", name=entry, exact=True).click()


@pytest_asyncio.fixture(loop_scope="session")
async def filled(ready_chat: ChatPage) -> ChatPage:
    """A page whose memory has the chats of SAID, and nothing else."""
    noon = await ready_chat.page.evaluate(NOON)
    now = [noon]
    store = await Store.open(VolatileRows(), crypto=NativeCrypto(), clock=lambda: now[0], kinds=KINDS)
    memory = await Memory.open(store)
    for title, days in SAID.items():
        now[0] = noon - days * DAY
        session = await memory.sessions.start(title)
        said = Turn("user", f"Tell me about it: {title}."), Turn("assistant", "The **harbour** is near.")
        await memory.sessions.add_turns(session.id, *said)
    await ready_chat.page.evaluate(PUT, [list(await export(store))])
    await expect(names(ready_chat)).to_have_count(len(SAID))
    return ready_chat


async def test_chats_stand_below_the_day_on_which_something_was_said(filled: ChatPage) -> None:
    month = await filled.page.evaluate(
        f"new Date(({NOON} - 400 * {DAY}) * 1000).toLocaleDateString('en', {{ month: 'long', year: 'numeric' }})"
    )
    headings = chats(filled).locator("h2")
    await expect(headings).to_have_text(["Today", "Yesterday", "Last 7 days", "Last 30 days", month])
    await expect(names(filled)).to_have_text(list(SAID))
    assert await found_by_axe(filled.page) == []


async def test_a_chat_is_opened_marked_and_has_an_address(filled: ChatPage) -> None:
    await link(filled, "Rivers").click()
    await expect(filled.page.locator(".question")).to_contain_text("Rivers")
    await expect(link(filled, "Rivers")).to_have_attribute("aria-current", "page")
    await expect(chats(filled).locator("[aria-current]")).to_have_count(1)
    await filled.page.wait_for_url(f"**#chat={await row(filled, 'Rivers').get_attribute('data-chat')}")
    await filled.page.click("#new-chat")
    await expect(chats(filled).locator("[aria-current]")).to_have_count(0)


async def test_a_chat_is_renamed_in_its_place(filled: ChatPage) -> None:
    await choose(filled, "Knots", "Rename")
    field = chats(filled).get_by_label("Title")
    await expect(field).to_be_focused()
    await field.fill("Bowlines")
    await field.press("Enter")
    await expect(names(filled).nth(3)).to_have_text("Bowlines")
    await expect(link(filled, "Bowlines")).to_be_focused()
    await filled.page.keyboard.press("F2")
    await field.fill("given up")
    await field.press("Escape")
    await expect(link(filled, "Bowlines")).to_be_focused()
    await expect(names(filled).filter(has_text="given up")).to_have_count(0)


async def test_a_pinned_chat_is_first_and_an_archived_one_at_the_end(filled: ChatPage) -> None:
    await choose(filled, "Old bread", "Pin")
    await expect(names(filled).first).to_have_text("Old bread")
    await expect(chats(filled).locator("h2").first).to_have_text("Pinned")
    await choose(filled, "Rivers", "Archive")
    await expect(row(filled, "Rivers")).to_have_count(0)
    await chats(filled).get_by_role("button", name="Archived (1)").click()
    await expect(names(filled).last).to_have_text("Rivers")
    await choose(filled, "Rivers", "Take out of the archive")
    await choose(filled, "Old bread", "Unpin")
    await expect(names(filled)).to_have_text(list(SAID))


async def test_a_deleted_chat_comes_back_with_undo(filled: ChatPage) -> None:
    await link(filled, "Rivers").click()
    await expect(filled.page.locator(".question")).to_contain_text("Rivers")
    await link(filled, "Rivers").focus()
    await filled.page.keyboard.press("Delete")
    await expect(row(filled, "Rivers")).to_have_count(0)
    await expect(filled.page.locator(".question")).to_have_count(0)
    await expect(link(filled, "Knots")).to_be_focused()
    undo = chats(filled).get_by_role("button", name="Undo")
    await expect(chats(filled).locator(".chats-removed")).to_contain_text("“Rivers” was deleted.")
    await undo.click()
    await expect(names(filled)).to_have_text(list(SAID))
    await expect(filled.page.locator(".question")).to_contain_text("Rivers")  # it was open
    await expect(undo).to_be_hidden()


async def test_several_chats_are_deleted_at_once(filled: ChatPage) -> None:
    await choose(filled, "Knots", "Select several")
    await row(filled, "Rivers").get_by_role("checkbox").check()
    several = chats(filled).get_by_role("group", name="Selected chats")
    await expect(several).to_contain_text("2 chats selected")
    assert await found_by_axe(filled.page, "#chats") == []
    await several.get_by_role("button", name="Delete").click()
    await expect(names(filled)).to_have_text(["Basil on a windowsill", "A trip to Lisbon", "Old bread"])
    await chats(filled).get_by_role("button", name="Undo").click()
    await expect(names(filled)).to_have_text(list(SAID))


async def test_a_chat_is_exported_as_markdown_and_json(filled: ChatPage) -> None:
    async with filled.page.expect_download() as markdown:
        await choose(filled, "Rivers", "Export as Markdown")
    download = await markdown.value
    assert download.suggested_filename == "Rivers.md"
    assert "# Rivers\n" in (await download.path()).read_text("utf-8")
    async with filled.page.expect_download() as as_json:
        await choose(filled, "Rivers", "Export as JSON")
    told = json.loads((await (await as_json.value).path()).read_text("utf-8"))
    assert [turn["role"] for turn in told["turns"]] == ["user", "assistant"]


async def test_chats_are_found_by_their_words_then_by_meaning(filled: ChatPage) -> None:
    await filled.routed()
    await filled.page.keyboard.press("Control+k")
    field = chats(filled).get_by_role("searchbox")
    await expect(field).to_be_focused()
    await filled.page.keyboard.type("HARBOUR knots")
    await expect(names(filled).first).to_have_text("Knots")
    await expect(chats(filled).locator("mark")).to_have_text(["Knots"])  # and "harbour" in the answer
    await field.fill("streams of water in a valley")
    await expect(chats(filled).get_by_role("heading", name="Similar in meaning")).to_be_visible()
    await expect(names(filled).first).to_have_text("Rivers")
    await filled.page.keyboard.press("Escape")
    await expect(field).to_have_value("")
    await expect(names(filled)).to_have_text(list(SAID))


async def test_the_list_is_worked_by_keys_alone(filled: ChatPage) -> None:
    await chats(filled).get_by_role("searchbox").focus()
    await filled.page.keyboard.press("ArrowDown")
    await expect(link(filled, "Basil on a windowsill")).to_be_focused()
    await filled.page.keyboard.press("End")
    await expect(link(filled, "Old bread")).to_be_focused()
    await filled.page.keyboard.press("ArrowUp")
    await expect(link(filled, "Knots")).to_be_focused()
    await filled.page.keyboard.press("Tab")  # one stop for the list: then the menu of the chat
    await filled.page.keyboard.press("Enter")
    await expect(filled.page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await filled.page.keyboard.press("ArrowUp")
    await expect(filled.page.get_by_role("menuitem", name="Delete")).to_be_focused()
    await filled.page.keyboard.press("Escape")
    await expect(row(filled, "Knots").get_by_role("button")).to_be_focused()
    await filled.page.keyboard.press("Shift+Tab")
    await filled.page.keyboard.press("Enter")
    await expect(filled.page.locator(".question")).to_contain_text("Knots")


async def test_on_a_phone_the_chats_are_in_a_drawer_that_keeps_the_focus(filled: ChatPage) -> None:
    page = filled.page
    await page.set_viewport_size({"width": 390, "height": 844})
    try:
        await expect(chats(filled)).to_be_hidden()
        await page.click("#sidebar-open")
        assert await found_by_axe(page) == []
        for _ in range(12):
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.closest('#content')") is None
        await page.keyboard.press("Escape")
        await expect(chats(filled)).to_be_hidden()
        await page.click("#sidebar-open")
        await link(filled, "Rivers").click()
        await expect(chats(filled)).to_be_hidden()
        await expect(page.locator(".question")).to_contain_text("Rivers")
    finally:
        await page.set_viewport_size({"width": 1280, "height": 800})
