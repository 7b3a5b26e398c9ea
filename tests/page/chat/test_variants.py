"""Other answers and edited messages: variants side by side, over the real engine with a tiny model."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import found_by_axe

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIRST, SECOND, OTHER = "The first question.", "The second question.", "Another question."


def questions(chat: ChatPage) -> Locator:
    return chat.page.locator(".question .body")


def place(root: Locator) -> Locator:
    return root.locator(".variants-place")


async def stored(chat: ChatPage) -> None:
    """Wait until the page knows where the last message is stored."""
    await expect(chat.page.locator(".question").last.get_by_role("button", name="Edit")).to_be_attached()
    await expect(chat.page.locator(".answer").last.get_by_role("button", name="Good")).to_be_attached()


async def ask(chat: ChatPage, text: str) -> str:
    answer = await chat.ask(text)
    await stored(chat)
    return answer


async def test_any_answer_can_be_tried_again_and_the_variants_are_switched(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await ask(plain_chat, FIRST)
    await ask(plain_chat, SECOND)
    first = page.locator(".answer").first

    await first.get_by_role("button", name="Try again").first.click()
    await expect(questions(plain_chat)).to_have_text([FIRST])  # the messages below belong to the other answer
    await expect(place(first)).to_have_text("2 / 2")
    await plain_chat.wait_for("ready")

    await first.get_by_role("button", name="Earlier version").press("Enter")
    await expect(questions(plain_chat)).to_have_text([FIRST, SECOND])
    await expect(place(first)).to_have_text("1 / 2")
    await expect(first.get_by_role("button", name="Later version")).to_be_focused()
    told = await page.evaluate("() => sonata.engine.memory.conversation({ id: location.hash.split('chat=')[1] })")
    assert [turn["content"] for turn in told["turns"]][::2] == [FIRST, SECOND]

    await page.click("#new-chat")
    await expect(questions(plain_chat)).to_have_count(0)
    await page.go_back()  # as after a reload: from what is stored
    await expect(questions(plain_chat)).to_have_text([FIRST, SECOND])
    await expect(place(first)).to_have_text("1 / 2")


async def test_a_message_is_edited_and_the_earlier_version_stays(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await ask(plain_chat, FIRST)
    await ask(plain_chat, SECOND)
    question = page.locator(".question").first
    await question.hover()
    await question.get_by_role("button", name="Edit").click()
    box = question.get_by_role("textbox", name="Edit")
    await expect(box).to_be_focused()
    await expect(box).to_have_value(FIRST)
    assert await found_by_axe(page, "#log") == []
    await box.fill(OTHER)
    await box.press("Enter")

    await expect(questions(plain_chat)).to_have_text([OTHER])
    await stored(plain_chat)
    await expect(place(question)).to_have_text("2 / 2")
    await question.get_by_role("button", name="Earlier version").press("Enter")
    await expect(questions(plain_chat)).to_have_text([FIRST, SECOND])
    await question.get_by_role("button", name="Later version").press("Enter")
    await expect(questions(plain_chat)).to_have_text([OTHER])

    await ask(plain_chat, SECOND)  # continues behind the shown version
    await expect(questions(plain_chat)).to_have_text([OTHER, SECOND])


async def test_arrow_up_in_an_empty_box_edits_the_last_message_and_escape_leaves_it(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await page.press("#message", "ArrowUp")
    await expect(page.locator("#message")).to_be_focused()  # there is no such entry
    await ask(plain_chat, FIRST)
    await ask(plain_chat, SECOND)
    await page.focus("#message")
    await page.keyboard.type("x")
    await page.keyboard.press("ArrowUp")
    await expect(page.locator("#message")).to_be_focused()
    await page.fill("#message", "")
    await page.keyboard.press("ArrowUp")
    box = page.get_by_role("textbox", name="Edit")
    await expect(box).to_have_value(SECOND)
    await page.keyboard.press("Escape")
    await expect(box).to_have_count(0)
    await expect(questions(plain_chat)).to_have_text([FIRST, SECOND])


async def test_the_menu_of_an_answer_has_its_figures_and_goes_by_keyboard(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await ask(plain_chat, FIRST)
    more = page.locator(".answer").last.get_by_role("button", name="More")
    await more.press("Enter")
    menu = page.get_by_role("dialog", name="More")
    names = await menu.locator("dt").all_inner_texts()
    assert names == ["Written", "Speed", "First word after", "Read", "Reading speed", "Context used"]
    await expect(menu.locator("dd").first).to_have_text("8 tokens")
    assert await found_by_axe(page) == []
    await page.keyboard.press("Escape")
    await expect(menu).to_have_count(0)
    await expect(more).to_be_focused()
    await more.click()
    await more.click()
    await expect(menu).to_have_count(0)


async def test_what_is_tried_again_while_another_answer_comes_takes_its_place(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await ask(plain_chat, FIRST)
    await plain_chat.send(SECOND)
    await page.locator(".answer").first.get_by_role("button", name="Try again").first.press("Enter")
    await expect(questions(plain_chat)).to_have_text([FIRST])
    await plain_chat.wait_for("ready")
    await expect(place(page.locator(".answer").first)).to_have_text("2 / 2")
    await expect(questions(plain_chat)).to_have_text([FIRST])


async def test_an_answer_that_was_cut_off_goes_on_in_its_place(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    answer = page.locator(".answer").last
    before = after = ""
    while len(after) == len(before):  # the tiny model's noise may end with the first token of the continuation
        await page.click("#new-chat")
        before = await plain_chat.ask_for_cut_off(FIRST)
        await stored(plain_chat)
        await expect(answer.locator(".answer-ending")).to_contain_text("Stopped at the length limit.")
        await page.evaluate("sonata.lastAnswer.isOld = true")
        await answer.locator(".answer-ending").get_by_role("button", name="Continue").click()
        await page.wait_for_function("() => !sonata.lastAnswer.isOld")
        await plain_chat.wait_for("ready")
        await expect(answer.locator(".answer-footer")).to_have_count(1)
        await expect(place(answer)).to_have_count(0)  # the same answer, longer
        after = await page.evaluate("sonata.lastAnswer.text")
        assert after.startswith(before)
    await expect(questions(plain_chat)).to_have_text([FIRST])
    await page.reload()
    await expect(questions(plain_chat)).to_have_text([FIRST])
    await plain_chat.wait_for("ready")
    await plain_chat.page.wait_for_function(
        "text => [...document.querySelectorAll('.answer .body')].at(-1)?.innerText.trim() === text", arg=after.strip()
    )


async def test_the_bar_of_the_context_says_what_is_in_the_prompt(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    bar = page.locator("#context-bar")
    await expect(bar).to_be_hidden()
    await ask(plain_chat, FIRST)
    await page.click("#new-chat")
    await ask(plain_chat, SECOND)
    await bar.press("Enter")
    card = page.get_by_role("dialog", name="What the model reads")
    await expect(card.locator(".context-parts dt")).to_have_text(["Instructions", "Conversation", "Free"])
    parts = [int(one.split()[0].replace(",", "")) for one in await card.locator(".context-parts dd").all_inner_texts()]
    total = int((await card.locator("h2").first.inner_text()).split(" of ")[1].split()[0].replace(",", ""))
    assert sum(parts) == total
    held = card.locator(".context-held")
    await expect(held).to_contain_text("of memory")
    owners = ["Model", "Computing", "Conversations", "Kept for chats that begin alike", "Room for more"]
    await expect(held.locator("dt")).to_have_text(owners)
    await expect(card).to_contain_text("1,000 more tokens of context take")
    assert await found_by_axe(page) == []
    await page.keyboard.press("Escape")
    await expect(bar).to_be_focused()
    await page.click("#new-chat")
    await expect(bar).to_be_hidden()
