"""The look of the main views: a screenshot of each, shrunk, compared with a small committed picture.

`UPDATE_LOOKS=1 python build.py test tests/page/views/test_looks.py -q` accepts their current look.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.page.chat_page import ChatPage, fresh_tab
from tests.page.panels.full_memory import SKY, furnish, open_chat
from tests.page.views.looks import MOST_DIFFERENT, check_look, difference, small_picture

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

VIEWPORTS = {"desktop": (1280, 800), "phone": (390, 844), "zoomed": (640, 400)}
"""zoomed: a window of 1280 by 800 at 200%."""
OTHER_FONT = ":root { --sans: 'DejaVu Serif', serif; --mono: 'DejaVu Sans', sans-serif }"
MOVED = {
    "a side bar that is wider": "#sidebar { width: 22rem }",
    "a column that is not in the middle": "#chat .column { margin-left: 1rem }",
    "a message box at the top": ".bottom { order: -1 }",
    "answers as narrow as questions": ".answer { width: 24rem }",
}
SET = """(text) => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  document.adoptedStyleSheets = text ? [sheet] : [];
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def full(browser: Browser, tiny_site: str) -> AsyncIterator[ChatPage]:
    """A separate page: another test's choices in a panel would be visible."""
    async with fresh_tab(browser, tiny_site) as chat:
        await chat.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        await chat.open_ready("?backend=wasm&workers=1&max_tokens=8")
        await furnish(chat)
        yield chat


async def size(chat: ChatPage, name: str) -> None:
    width, height = VIEWPORTS[name]
    await chat.page.set_viewport_size({"width": width, "height": height})


@pytest.mark.parametrize("most", [1, pytest.param(4, marks=pytest.mark.all)])
async def test_the_main_views_look_as_they_did(full: ChatPage, screenshots: Path, most: int) -> None:
    """most: the number of sizes and schemes of each view."""
    page, told = full.page, list[str]()

    async def look(view: str, *kinds: str) -> None:
        for kind in kinds[:most]:
            device, _, scheme = kind.partition(" ")
            await size(full, device)
            await page.mouse.move(0, 0)
            await page.emulate_media(color_scheme="dark" if scheme else "light")
            if problem := await check_look(page, "-".join([view, *kind.split()]), screenshots):
                told.append(problem)
        await size(full, "desktop")

    await expect(page.locator(".welcome-memory")).to_contain_text("3 facts")
    await look("empty", "desktop", "desktop dark", "phone", "zoomed")
    await open_chat(full, SKY)
    await expect(page.locator(".answer .code-keyword").first).to_be_visible()
    await page.evaluate("document.activeElement.blur()")
    await look("chat", "desktop", "desktop dark", "phone", "zoomed")
    for part in ("Facts", "Appearance"):
        panel = await full.open_part(part)
        await panel.locator(".record, fieldset, label").first.wait_for()
        await page.evaluate("document.activeElement.blur()")
        await look(part.lower(), "desktop", "phone dark")
    await full.close_panel()
    await size(full, "phone")
    await page.emulate_media(color_scheme="light")
    await page.click("#sidebar-open")
    await page.evaluate("document.activeElement.blur()")
    if problem := await check_look(page, "drawer-phone", screenshots):
        told.append(problem)
    assert told == []


@pytest.mark.all
async def test_another_font_looks_the_same_and_what_has_moved_does_not(full: ChatPage, screenshots: Path) -> None:
    await open_chat(full, SKY)
    await expect(full.page.locator(".answer .code-keyword").first).to_be_visible()
    path, how = screenshots / "look-moved.png", dict[str, float]()
    await full.page.mouse.move(0, 0)
    usual = await small_picture(full.page, path)
    for name, style in {"": OTHER_FONT, **MOVED}.items():
        await full.page.evaluate(SET, style)
        how[name] = difference(usual, await small_picture(full.page, path))
    await full.page.evaluate(SET, "")
    assert how.pop("") < MOST_DIFFERENT / 2, how
    assert min(how.values()) > MOST_DIFFERENT, how
