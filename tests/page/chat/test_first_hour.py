"""A day with Sonata, on the real model: a new user's questions, a conversation for each finding of the first hour."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import FilePayload, Locator, expect

from tests.page.chat_page import ChatPage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900), pytest.mark.all]

SOFTWARE = re.compile("Coder|Debugger|DevOps|Optimizer|Refactorer|Architect|Tester|Reviewer|Documenter|Security")
SALES = "region,product,amount\n" + "".join(
    f"{('East', 'West', 'North')[at % 3]},{('Tea', 'Cocoa')[at % 2]},{at}\n" for at in range(1, 121)
)


@pytest.fixture(scope="module")
def real_query() -> str:
    return "?backend=wasm&max_tokens=24"


def answer(chat: ChatPage) -> Locator:
    return chat.page.locator(".answer").last


async def ask_anew(chat: ChatPage, text: str) -> str:
    await chat.page.click("#new-chat")
    return await chat.ask(text)


async def test_everyday_messages_stay_out_of_the_hands_of_software_agents(real_chat: ChatPage) -> None:
    await real_chat.routed()
    for text in (
        "My cat does not eat, what can it be?",
        "What notice do I have to give as the tenant?",
        "Schreibe eine kurze Mail an meinen Vermieter: Die Heizung ist kaputt.",
        "Übersetze ins Englische: Ich habe morgen leider keine Zeit.",
        "Make a table of the planets",
    ):
        assert await ask_anew(real_chat, text)
        await expect(answer(real_chat).locator(".route-chip")).not_to_have_text(SOFTWARE)
        await expect(answer(real_chat).locator(".route-chip")).not_to_contain_text("sure")
    await real_chat.page.locator("#agent-choice select").select_option("planner")
    await real_chat.ask("Make a plan for Sunday.")
    await expect(answer(real_chat).locator(".route-chip")).to_have_text("Planner · for this chat")
    await real_chat.page.locator("#agent-choice select").select_option("")


async def test_the_memory_is_talked_to(real_chat: ChatPage) -> None:
    await real_chat.page.wait_for_function("() => document.documentElement?.dataset.learning === 'ready'")
    code, dentist = "What is the door code of the office?", "Who is my dentist?"
    assert "4471" in await ask_anew(real_chat, "Please remember: the door code of the office is 4471.")
    assert "Dr. Quill" in await real_chat.ask("Remember that Peter is allergic to nuts and my dentist is Dr. Quill.")
    assert "4471" in await real_chat.ask(code)
    assert "4471" not in await real_chat.ask("Forget the door code of the office.")
    assert "4471" not in await real_chat.ask(code)
    assert "Dr. Bauer" in await real_chat.ask("No, that is wrong. My dentist is Dr. Bauer now.")
    assert await ask_anew(real_chat, dentist) == "Your dentist is Dr. Bauer."
    await real_chat.ask("What do you know about me?")
    await expect(answer(real_chat).locator(".lesson-row")).to_have_count(2)
    assert "Dr. Quill" in await ask_anew(real_chat, "Merke dir, dass mein Zahnarzt Dr. Quill heißt.")
    assert await real_chat.ask("Wie heißt mein Zahnarzt?") == "Dein Zahnarzt heißt Dr. Quill."
    await real_chat.ask("Vergiss alles")
    await answer(real_chat).get_by_role("button", name="Forget all of these").click()
    await expect(answer(real_chat).locator(".lesson-row:not(.forgotten)")).to_have_count(0)
    await real_chat.ask("I live in Lisbon and am allergic to peanuts.")
    await expect(answer(real_chat).locator(".lesson-offer")).to_contain_text("You are allergic to peanuts.")
    await answer(real_chat).get_by_role("button", name="Not in this chat").click()
    await real_chat.ask("My name is Anna.")
    await expect(answer(real_chat).locator(".lesson-offer")).to_have_count(0)


async def test_a_table_is_computed_as_soon_as_it_is_read_and_sums_of_everyday_life_are_exact(
    real_chat: ChatPage,
) -> None:
    await real_chat.page.click("#new-chat")
    table: FilePayload = {"name": "sales.csv", "mimeType": "text/csv", "buffer": SALES.encode()}
    await real_chat.page.locator("#composer input[type=file]").set_input_files([table])
    assert "120" in await real_chat.ask("How many rows are there?")
    assert "2,380" in await real_chat.ask("What is the total amount of West?")
    await expect(answer(real_chat).locator(".lesson-chip")).to_have_text("Computed · tables")
    assert "3 hours" in await ask_anew(real_chat, "It leaves 9:40 and arrives 13:05, how long does it take?")
    assert "5.6" in await real_chat.ask("3 apples cost 2.40, what do 7 cost?")
    assert {"2", "3"} <= set(re.findall(r"\w+", await real_chat.ask("x^2-5x+6=0")))


async def test_it_says_of_itself_what_is_true(real_chat: ChatPage) -> None:
    assert (await ask_anew(real_chat, "What can you do?")).startswith("I chat with you")
    assert "device" in await real_chat.ask("Who are you?")
    assert "Remember that" in await real_chat.ask("How do I teach you something?")
    assert (await real_chat.ask("Is this private?")).startswith("Yes.")
    await answer(real_chat).get_by_role("link", name="Storage").click()
    await expect(real_chat.part).to_be_visible()
    await real_chat.close_panel()
