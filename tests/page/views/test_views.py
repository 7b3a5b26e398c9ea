"""Every view of the page: axe finds nothing wrong in any of them, and everything can be done by keyboard alone.

The tests share a page with a memory that has a little of everything (full_memory.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import FilePayload, Locator, expect

from tests.page.chat_page import PANEL_OF, ChatPage, choose_files
from tests.page.panels.full_memory import RICH, furnish, open_chat
from tests.page.views.accessibility import COLOURS, found_by_axe
from tests.page.views.keyboard import Keys

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
HEADINGS = """() => [...document.querySelectorAll('#log .answer:last-of-type .body :is(h1, h2, h3, h4, h5, h6)')]
  .map(({ tagName }) => tagName)"""


@pytest_asyncio.fixture(loop_scope="session")
async def full(ready_chat: ChatPage) -> AsyncIterator[ChatPage]:
    await ready_chat.page.emulate_media(color_scheme="light", reduced_motion="reduce")
    await furnish(ready_chat)
    yield ready_chat
    await ready_chat.page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    await ready_chat.page.emulate_media(color_scheme="light", reduced_motion="no-preference")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.all)])
async def test_axe_finds_nothing_in_any_view(full: ChatPage, scheme: Any) -> None:
    """In light mode by every rule, in dark mode by the rules about colours."""
    page, found = full.page, dict[str, list[str]]()
    await page.emulate_media(color_scheme=scheme)

    async def look(view: str, root: str | None = None) -> None:
        """Look at the elements of this selector, or at the whole page."""
        if wrong := await found_by_axe(page, root, () if scheme == "light" else COLOURS):
            found[view] = wrong

    await look("empty chat")

    await open_chat(full, RICH)
    answer = page.locator(".answer").last
    await expect(answer.locator(".code-keyword").first).to_be_visible()
    await expect(answer.locator(".code-removed")).to_have_text("-b")
    await expect(answer.locator("math")).to_have_count(2)
    await expect(answer.locator(".variants-place")).to_have_text("2 / 2")
    await expect(answer.locator(".citation")).to_have_count(2)
    assert await page.evaluate(HEADINGS) == ["H3", "H4", "H3", "H4"], "as deep as they stand, whatever the model wrote"
    await look("chat")
    await answer.locator(".citation").first.press("Enter")
    await answer.locator(".thought summary").press("Enter")
    await page.locator(".computed summary").press("Enter")
    await look("computed chip, passage and thought", "#log")
    await page.keyboard.press("Escape")
    await answer.locator(".route-chip").press("Enter")
    await expect(answer.locator(".route-panel")).to_be_visible()
    await look("route chip", ".route-panel")
    await page.keyboard.press("Escape")
    await answer.get_by_role("link", name="Rayleigh scattering").press("Enter")
    await look("link question", ".link-question")
    await page.keyboard.press("Escape")
    await answer.get_by_role("button", name="More").press("Enter")
    await look("menu of an answer", ".answer-menu")
    await page.keyboard.press("Escape")
    await answer.get_by_role("button", name="You should have said …").press("Enter")
    await page.locator(".question").last.get_by_role("button", name="Edit").press("Enter")
    await look("forms", "#log")
    await page.keyboard.press("Escape")
    await full.open_model_menu()
    await look("model menu", "#model-menu")
    await page.keyboard.press("Escape")

    await page.locator("#chats a").first.focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await look("menu of a chat", "#sidebar")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("gladly")
    await expect(page.locator("#chats mark").first).to_be_visible()
    await look("search", "#sidebar")
    await page.keyboard.press("Escape")

    for name in PANEL_OF:
        part = await full.open_part(name)
        await part.locator("> *").first.wait_for(state="attached")
        await expect(full.side.get_by_role("alert")).to_have_count(0)
        await look(name, "#panel")
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await look("panel on a phone")
    await full.close_panel()
    await look("chat on a phone")
    await page.click("#sidebar-open")
    await look("drawer", "#sidebar")
    await page.keyboard.press("Escape")
    assert found == {}


async def test_everything_is_done_by_keyboard_alone(full: ChatPage) -> None:
    page, keys = full.page, Keys(full.page)
    message, answer, question = page.locator("#message"), page.locator(".answer").last, page.locator(".question").last
    await full.routed()
    await keys.begin()

    def button(name: str) -> Locator:
        return answer.get_by_role("button", name=name, exact=True)

    await keys.press("Control+Shift+O")
    await expect(message).to_be_focused()
    await stop_an_answer(full, keys)
    await keys.press("Control+Shift+O")
    await keys.type("Hello?")
    await keys.press("Enter")
    await full.wait_for_words()
    await full.wait_for("ready")
    await expect(message).to_be_focused()
    await keys.use(button("Copy the answer"), "Shift+Tab")
    await keys.use(button("Try again").last)  # in the row of actions
    await full.wait_for("ready")
    await expect(answer.locator(".variants-place")).to_have_text("2 / 2")
    await keys.use(button("Earlier version"))
    await expect(answer.locator(".variants-place")).to_have_text("1 / 2")
    await keys.go_to(button("Good"))
    await keys.press("Enter")
    await expect(button("Good")).to_have_attribute("aria-pressed", "true")
    await keys.use(button("Bad"))
    await expect(button("Bad")).to_have_attribute("aria-pressed", "true")
    await keys.use(button("You should have said …"))
    await keys.type("Ahoy.")
    await keys.use(page.get_by_role("button", name="Teach", exact=True))
    await expect(answer.locator(".learned")).to_be_focused()  # "Noted" if the model was not prepared

    await keys.go_to(message)
    await keys.press("ArrowUp")
    await keys.type(" Edited")
    await keys.press("Enter")
    await full.wait_for("ready")
    await expect(question.locator(".body")).to_contain_text("Edited")
    await keys.use(question.get_by_role("button", name="Earlier version"), "Shift+Tab")
    await expect(question.locator(".body")).not_to_contain_text("Edited")
    await keys.go_to(message)
    await keys.type("And more?")
    await keys.press("Enter")
    await full.wait_for("ready")
    await expect(page.get_by_role("button", name="Continue")).to_have_count(1)  # only the last answer can be continued
    await keys.use(page.get_by_role("button", name="Continue"), "Shift+Tab")
    await full.wait_for("ready")

    await keys.go_to(page.get_by_role("button", name="Attach files"))
    files = [FilePayload(name="key.txt", mimeType="text/plain", buffer=b"A pot.")]
    await choose_files(page, lambda: page.keyboard.press("Enter"), files)
    await keys.use(page.get_by_role("button", name="Remove key.txt"), "Shift+Tab")
    await expect(page.locator(".file-chip")).to_have_count(0)
    await expect(message).to_be_focused()

    for panel in ("Settings", "Agents", "Learned"):  # each link is above the previous one
        link = page.locator("#sidebar").get_by_role("link", name=panel)
        if panel == "Settings":
            await keys.press("Control+,")
        else:
            await keys.use(link, "Shift+Tab")
        await expect(full.side).to_be_visible()
        for name in [name for name, of in PANEL_OF.items() if of == panel and name != panel]:
            await keys.go_to(full.side.get_by_role("tab", name=name.rpartition("/")[2], exact=True), "ArrowRight")
            await expect(full.part.locator("> *").first).to_be_attached()
        await keys.press("Escape")
        await expect(full.side).to_be_hidden()
        await expect(message if panel == "Settings" else link).to_be_focused()

    await keys.use(page.locator("#model-chip"))
    await expect(page.locator("#model-menu")).to_be_visible()
    await keys.press("Tab", "Escape")
    await keys.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await keys.press("Escape")
    await expect(page.locator("#model-chip")).to_be_focused()

    await keys.press("Control+k")
    await keys.type("knots")
    await expect(page.locator("#chats h2").first).to_have_text("With these words")
    await keys.press("ArrowDown", "F2")
    await keys.type("Bowlines")
    await keys.press("Enter", "Tab", "Enter")
    await keys.go_to(page.get_by_role("menuitem", name="Pin"), "ArrowDown")
    await keys.press("Enter")
    await keys.press("Control+k", "Escape")
    await expect(page.locator("#chats h2").first).to_have_text("Pinned")
    await keys.press("ArrowDown", "Delete")
    await expect(page.locator("#chats .chat-name", has_text="Bowlines")).to_have_count(0)
    await keys.use(page.get_by_role("button", name="Undo"))
    await expect(page.locator("#chats .chat-name").first).to_have_text("Bowlines")
    await keys.press("Enter")
    await expect(question.locator(".body")).to_have_text("Tell me: Knots.")
    await expect(message).to_be_focused()
    await keys.end()


async def stop_an_answer(chat: ChatPage, keys: Keys) -> None:
    """Ask until an answer was stopped before its end."""
    for _ in range(5):
        await keys.type("Hello?")
        await chat.page.keyboard.press("Enter")
        await keys.press("Escape")
        await chat.wait_for("ready")
        if await chat.page.locator(".answer").last.locator(".ending", has_text="Stopped.").count():
            return
        await keys.press("Control+Shift+O")
    raise AssertionError("no answer was slow enough to be stopped")
