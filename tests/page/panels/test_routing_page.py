"""Routing and memory on the page: a correction is learned, lasts without a server, and travels in an export."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, expect

from tests.page.chat_page import NO_SERVICE_WORKER, ChatPage, choose_files
from tests.page.plain_server import PlainServer
from tests.page.views.accessibility import found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

QUERY = "?backend=wasm&workers=1&max_tokens=4"
CRASH = "why does my page crash when I scroll"
SIMILAR = "my page crashes whenever i scroll down, why?"
FAR = "write a sql query that counts the orders of each month"


@pytest_asyncio.fixture(loop_scope="session")
async def chat(ready_chat: ChatPage) -> ChatPage:
    """The page with its router."""
    await ready_chat.routed()
    return ready_chat


async def open_page(context: BrowserContext, url: str, query: str = QUERY) -> ChatPage:
    """A tab with the page, its memory and its router ready."""
    chat = ChatPage(await context.new_page(), url)
    await chat.open_ready(query)
    await chat.routed()
    return chat


async def kept(chat: ChatPage) -> None:
    await chat.page.wait_for_function("() => document.documentElement?.dataset.offline === 'ready'")


async def stored(chat: ChatPage, wanted: str) -> None:
    """Wait until the conversations equal `wanted`: an answer is stored a moment after it ends."""
    await chat.until(f"sonata.engine.memory.conversations().then(({{ items }}) => ({wanted})(items))")


async def agent_of(chat: ChatPage, text: str) -> str:
    """Ask, and read the chip of the answer."""
    await chat.ask(text)
    return (await chip(chat).inner_text()).split(" · ")[0]


def chip(chat: ChatPage) -> Locator:
    return chat.page.locator(".answer .route summary").last


def chosen(chat: ChatPage) -> Locator:
    """The agent that answers in the chat."""
    return chat.page.get_by_label("Who answers in this chat")


async def correct(chat: ChatPage, agent: str) -> None:
    """Correct the route with the chip of the last answer."""
    await chip(chat).click()
    await chat.page.locator(".answer .route").last.get_by_role("button", name=agent, exact=True).click()
    await chat.page.locator(".answer .route summary", has_text=f"go to {agent}").last.wait_for()


async def open_storage(chat: ChatPage) -> Locator:
    panel = await chat.open_part("Storage")
    await panel.get_by_role("button", name="Export to a file").wait_for()
    return panel


@pytest.mark.all
async def test_a_corrected_route_is_followed_also_after_a_reload_without_the_server(
    context: BrowserContext, server: PlainServer
) -> None:
    chat = await open_page(context, server.url)
    assert await agent_of(chat, CRASH) == "Debugger"
    await correct(chat, "Tester")
    assert await agent_of(chat, SIMILAR) == "Tester"
    await kept(chat)
    server.stop()

    await chat.page.reload()
    await chat.wait_for("ready")
    await chat.routed()

    assert await agent_of(chat, SIMILAR) == "Tester"
    assert await agent_of(chat, FAR) == "Coder"
    assert chat.errors == []


@pytest.mark.all  # test_memory_view.py covers export, deletion and import, too
async def test_export_delete_all_and_import_bring_the_same_routes(chat: ChatPage, tmp_path: Path) -> None:
    assert await agent_of(chat, CRASH) == "Debugger"
    await correct(chat, "Tester")
    panel = await open_storage(chat)
    async with chat.page.expect_download() as downloading:
        await panel.get_by_role("button", name="Export to a file").click()
    file = tmp_path / "memory.sonata"
    await (await downloading.value).save_as(file)

    await panel.get_by_role("button", name="Delete everything…").click()
    await chat.page.get_by_role("button", name="Delete everything", exact=True).click()
    await panel.get_by_text("Everything was deleted.").wait_for()
    await chat.close_panel()
    assert await agent_of(chat, SIMILAR) == "Debugger"

    panel = await open_storage(chat)
    await panel.locator("input[type=file]").set_input_files(file)
    await panel.get_by_role("button", name="Import", exact=True).click()
    await panel.get_by_text(re.compile("^Imported")).wait_for()
    await chat.close_panel()
    assert await agent_of(chat, SIMILAR) == "Tester"
    assert await agent_of(chat, FAR) == "Coder"


@pytest.mark.all
async def test_a_correction_in_one_tab_counts_in_the_other(chat: ChatPage) -> None:
    other = await open_page(chat.page.context, chat.site)
    assert await agent_of(chat, CRASH) == "Debugger"
    await correct(chat, "Tester")
    assert await agent_of(other, SIMILAR) == "Tester"
    await other.page.close()


async def test_who_answers_is_chosen_for_a_chat_kept_with_it_and_seen_in_every_tab(chat: ChatPage) -> None:
    choice = chosen(chat)
    await choice.select_option("planner")  # before anything is stored
    await chat.page.reload()
    await chat.wait_for("ready")
    await expect(choice).to_have_value("planner")
    await chat.ask(CRASH)
    await expect(chip(chat)).to_have_text("Planner · for this chat")
    await chip(chat).click()
    panel = chat.page.locator(".route-panel:popover-open")
    await expect(panel).to_contain_text("You chose Planner for this chat.")
    await expect(panel.get_by_role("button")).to_have_count(0)  # nothing was routed: there is nothing to correct
    assert await found_by_axe(chat.page) == []
    await chat.page.wait_for_function("() => location.hash.includes('chat=')")

    other = await open_page(chat.page.context, chat.site, await chat.page.evaluate("location.search + location.hash"))
    await expect(chosen(other)).to_have_value("planner")
    await chosen(other).select_option("tester")
    await expect(choice).to_have_value("tester")
    await other.page.evaluate("sonata.engine.memory.removeAgent({ id: 'tester' })")
    await expect(choice).to_have_value("")
    await expect(chat.page.locator("#notices")).to_contain_text("The agent that you chose for this chat was removed.")
    await other.page.evaluate("sonata.engine.memory.restoreAgent({ id: 'tester' })")
    await expect(choice).to_have_value("tester")
    await expect(chat.page.locator("#notices p")).to_have_count(0)
    await other.page.close()

    await (await chat.open_part("Answers")).get_by_label("Choose agents automatically").uncheck()
    await chat.close_panel()
    await expect(choice).to_have_value("tester")  # the chat has its own
    await chat.page.click("#new-chat")
    await expect(choice).to_have_value("assistant")
    await chat.ask(CRASH)
    await expect(chip(chat)).to_have_text("Assistant")

    await chat.page.click("#new-chat")
    await expect(choice).to_have_value("assistant")
    await choice.select_option("coder")
    file = {"name": "a.txt", "mimeType": "text/plain", "buffer": b"A file begins this chat."}
    await choose_files(chat.page, lambda: chat.page.get_by_label("Attach files").first.click(), [file])
    await chat.page.wait_for_function("() => location.hash.includes('chat=')")
    await chat.until(
        "sonata.engine.memory.agentChoice({ id: location.hash.match(/chat=([^&]+)/)[1] })"
        ".then((it) => it.chosen === 'coder')"
    )
    await expect(choice).to_have_value("coder")


@pytest.mark.all
async def test_without_the_router_the_plain_assistant_answers_and_the_page_says_why(
    context: BrowserContext, server: PlainServer
) -> None:
    server.instead["routing.safetensors"] = b"not the router"
    await context.add_init_script(NO_SERVICE_WORKER)
    chat = ChatPage(await context.new_page(), server.url)
    await chat.open_ready(QUERY)
    await chat.routed("failed")
    await expect(chat.page.locator("#notices")).to_contain_text("routing data")
    await chat.ask(CRASH)
    await expect(chat.page.locator(".answer .route")).to_have_count(0)


@pytest.mark.all  # test_memory_view.py covers locking and unlocking, too
async def test_a_passphrase_locks_the_memory_and_nothing_is_lost(chat: ChatPage) -> None:
    assert await agent_of(chat, CRASH) == "Debugger"
    await correct(chat, "Tester")
    await chat.page.evaluate("sonata.engine.memory.setPassphrase({ passphrase: 'a long way' })")
    await chat.page.reload()
    await chat.wait_for("ready")
    await chat.routed()
    await chat.send(SIMILAR)
    await chat.way_out("Chat without the memory").click()
    await chat.wait_for("answering")
    await chat.wait_for("ready")
    await expect(chat.page.locator(".answer .route summary").last).to_contain_text("Debugger")
    unlock = chat.page.locator("#memory-lock")
    await unlock.get_by_label("Passphrase").fill("a wrong way")
    await unlock.get_by_role("button", name="Unlock").click()
    await unlock.get_by_text("Wrong passphrase").wait_for()
    await unlock.get_by_label("Passphrase").fill("a long way")
    await unlock.get_by_role("button", name="Unlock").click()
    await expect(unlock).to_be_hidden()
    await (await chat.open_part("Routing")).get_by_text(CRASH).wait_for()
    await chat.close_panel()
    assert await agent_of(chat, SIMILAR) == "Tester"
    await stored(chat, "items => items.length === 2")

    # The conversation from before the reload can be continued.
    await chat.page.locator(".chat-link", has_text=CRASH).click()
    await chat.page.locator(".question", has_text=CRASH).wait_for()
    await chat.ask("And why?")
    await stored(chat, f"items => items.some(({{ title, turns }}) => title === '{CRASH}' && turns === 4)")
    await chat.page.evaluate("sonata.engine.memory.removePassphrase({ old: 'a long way' })")


async def test_a_conversation_that_was_deleted_elsewhere_is_told(chat: ChatPage) -> None:
    answer = await chat.ask(CRASH)
    await chat.page.locator(".chat-link").first.wait_for()
    await chat.page.click("#new-chat")
    # deleted a moment before the click: the list does not know yet
    await chat.page.evaluate(
        """async () => {
          const [{ id }] = (await sonata.engine.memory.conversations()).items;
          await sonata.engine.memory.removeConversations({ ids: [id] });
          document.querySelector(`[data-chat="${id}"] a`)?.click();
        }"""
    )
    await chat.page.locator("#notices", has_text="it was deleted").wait_for()
    await expect(chat.page.locator("#log")).not_to_contain_text(answer)
