"""Leftovers of a test on a shared page are found and reported, and the next test does not see them."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage
from tests.page.kept_pages import KeptPages

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_a_test_leaves_is_told_by_name_and_gone(kept_pages: KeptPages, page_alone: ChatPage) -> None:
    (kept,) = [one for one in kept_pages._pages.values() if one.chat is page_alone]
    page = page_alone.page
    assert await kept.put_back() == []

    await page_alone.ask("Why is the sky blue?")
    await page_alone.open_part("Appearance")
    await page.get_by_label("Dark").check(force=True)
    await page.fill("#message", "half a thou")
    await page.evaluate("window.mine = 1")
    assert await kept.put_back() == [], "what is usual is put back"
    await expect(page.locator("#log article")).to_have_count(0)
    assert await page.evaluate("window.mine") is None
    assert await page.evaluate("localStorage.length") == len(kept.first["in localStorage"])

    await page.set_viewport_size({"width": 390, "height": 844})
    await page.emulate_media(color_scheme="dark")
    await page.evaluate("console.error('oh'); document.body.append(document.createElement('dialog'))")
    await page.evaluate("document.querySelector('body > dialog').showModal()")
    await (await page.context.new_page()).goto(f"{page_alone.site}/THIRD_PARTY.txt")
    left = await kept.put_back()
    assert [line.split(":")[0] for line in left] == [
        "the console said", "a tab", "a viewport", "a dialog", "an emulated medium",
    ]  # fmt: skip
    assert await kept.put_back() == []
    assert not kept.is_spoilt
    with pytest.raises(AssertionError, match="use a fresh one"):
        await page.add_init_script("1")

    # These need a new page.
    await page.route("**/nothing", lambda route: route.abort())
    page.on("dialog", lambda dialog: dialog.accept())
    assert await kept.put_back() == ["a route", "a listener for dialog"]
    assert kept.is_spoilt
