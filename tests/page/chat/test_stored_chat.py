"""A chat survives a reload and a change of backend, has an address of its own, and may be open in two tabs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Error, Locator, expect

from py_core.paging.page_table import PAGE
from tests.page.chat_page import ChatPage

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIRST, SECOND, THIRD = "The first question.", "The second question.", "The third question."
UNKNOWN = "#chat=0123456789abcdef0123456789abcdef"
ANOTHER_ANSWER = """async () => {
  const events = await sonata.engine.conversation.retry();
  for await (const event of events) if (event.type === 'stored') return event.answer;
}"""
"""Replaces the last answer, as "Try again" does."""
IN_ADDRESS = re.compile(r"#chat=[0-9a-f]{32}$")


PAGES_ARE_KEPT = """async () => {
    const there = (await indexedDB.databases()).find(({ name }) => name === 'sonata-pages');
    if (!there) return false;
    const request = indexedDB.open(there.name), db = await new Promise((done, fail) => {
        request.onsuccess = () => done(request.result);
        request.onerror = () => fail(request.error);
    });
    const counts = [...db.objectStoreNames].map((store) => new Promise((done) => {
        const asked = db.transaction(store).objectStore(store).count();
        asked.onsuccess = () => done(asked.result);
    }));
    const found = await Promise.all(counts);
    db.close();
    return found.some((count) => count > 1);
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def second_tab(plain_chat: ChatPage) -> AsyncIterator[ChatPage]:
    """Another tab of the same browser, ready, with an empty chat."""
    tab = ChatPage(await plain_chat.page.context.new_page(), plain_chat.site)
    await tab.page.goto(plain_chat.page.url)
    await tab.wait_for("ready")
    yield tab
    assert tab.errors == []
    await tab.page.close()


async def test_a_reload_keeps_the_chat_on_the_page_and_in_the_model(plain_chat: ChatPage) -> None:
    answer = await plain_chat.ask(FIRST)
    alone = await prompt_tokens(plain_chat)
    await stored(plain_chat)
    await plain_chat.until(f"({PAGES_ARE_KEPT})()")

    await plain_chat.page.reload()
    await expect(plain_chat.page.locator(".question .body")).to_have_text([FIRST])  # before the model is loaded
    await plain_chat.wait_for("ready")
    await expect(plain_chat.page.locator(".answer .body")).to_have_text(answer)

    await plain_chat.ask(FIRST)
    await expect(questions(plain_chat)).to_have_text([FIRST, FIRST])
    assert await prompt_tokens(plain_chat) > alone
    # The pages that the model had computed came from the disk, whole pages.
    assert await plain_chat.page.evaluate("sonata.lastAnswer.reusedTokens") >= PAGE


@pytest.mark.all  # test_models_page.py changes the model in a chat, test_wasm.py the precision
async def test_a_change_of_backend_keeps_the_chat(plain_chat: ChatPage) -> None:
    await plain_chat.ask(FIRST)
    alone = await prompt_tokens(plain_chat)
    await stored(plain_chat)
    await plain_chat.choose("backend", "wasm-fast")
    await plain_chat.wait_for("loading")
    await plain_chat.wait_for("ready")

    await expect(questions(plain_chat)).to_have_text([FIRST])
    await expect(plain_chat.page.locator(".note")).to_have_count(0)
    await plain_chat.ask(FIRST)
    assert await prompt_tokens(plain_chat) > alone


async def test_each_chat_has_an_address_and_back_and_forward_lead_to_it(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await plain_chat.ask(FIRST)
    first = await stored(plain_chat)
    await page.click("#new-chat")
    await has_address(plain_chat, "")
    await plain_chat.ask(SECOND)
    second = await stored(plain_chat)
    assert first != second

    await page.go_back()
    await expect(page.locator(".question .body")).to_have_text([FIRST])
    await has_address(plain_chat, first)
    await page.go_forward()
    await expect(page.locator(".question .body")).to_have_text([SECOND])
    await has_address(plain_chat, second)


@pytest.mark.all  # in the gate: a conversation that was deleted elsewhere (test_routing_page.py)
async def test_a_chat_that_does_not_exist_any_more_is_told(plain_chat: ChatPage) -> None:
    here = plain_chat.page.url
    await plain_chat.page.goto("about:blank")  # otherwise only the address would change
    await plain_chat.page.goto(here + UNKNOWN)
    await plain_chat.wait_for("ready")
    await expect(plain_chat.page.locator("#notices")).to_contain_text("This conversation is not in this browser")
    await has_address(plain_chat, "")
    assert await plain_chat.ask(FIRST)


@pytest.mark.all
async def test_a_chat_in_a_locked_memory_is_told_and_comes_when_it_is_unlocked(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await plain_chat.ask(FIRST)
    alone = await prompt_tokens(plain_chat)
    await stored(plain_chat)
    await page.evaluate("sonata.engine.memory.setPassphrase({ passphrase: 'a long passphrase' })")
    try:
        await page.reload()
        await plain_chat.wait_for("ready")
        await expect(page.locator("#notices")).to_contain_text("This conversation is in the locked memory: unlock")
        await expect(questions(plain_chat)).to_have_count(0)

        await page.evaluate("sonata.engine.memory.unlock({ passphrase: 'a long passphrase' })")
        await expect(page.locator(".question .body")).to_have_text([FIRST])
        await plain_chat.ask(FIRST)
        assert await prompt_tokens(plain_chat) > alone
    finally:
        await page.evaluate("sonata.engine.memory.removePassphrase({ old: 'a long passphrase' })")


async def test_what_one_tab_says_appears_in_the_other(plain_chat: ChatPage, second_tab: ChatPage) -> None:
    await plain_chat.ask(FIRST)
    url = await stored(plain_chat)
    await second_tab.page.goto(url)
    await expect(second_tab.page.locator(".question .body")).to_have_text([FIRST])

    await second_tab.ask(SECOND)
    await expect(plain_chat.page.locator(".question .body")).to_have_text([FIRST, SECOND])
    await expect(plain_chat.page.locator("#notices")).to_contain_text("open in another tab")

    answers = await plain_chat.page.locator(".answer .body").all_inner_texts()
    # Sampled until two answers look different. The shown text of noise differs from the answer: Markdown interprets
    # some of it.
    for _ in range(9):  # an answer of no words is not stored: then there is none
        replaced = await second_tab.page.evaluate(ANOTHER_ANSWER)
        if replaced and re.sub(r"\W", "", replaced) != re.sub(r"\W", "", answers[1]):
            break
    await expect(plain_chat.page.locator(".answer .body").nth(1)).not_to_have_text(answers[1])
    await expect(plain_chat.page.locator(".answer .body").first).to_have_text(answers[0])
    await expect(plain_chat.page.locator(".question .body")).to_have_text([FIRST, SECOND])

    await plain_chat.ask(THIRD)
    await expect(second_tab.page.locator(".question .body")).to_have_text([FIRST, SECOND, THIRD])
    turns = await plain_chat.page.evaluate(
        "(id) => sonata.engine.memory.conversation({ id })"
        ".then(({ turns }) => turns.map(({ role, content }) => [role, content]))",
        url.rpartition("=")[2],
    )
    assert [content for role, content in turns if role == "user"] == [FIRST, SECOND, THIRD]
    assert turns[3][1] == replaced
    assert await prompt_tokens(plain_chat) > await prompt_tokens(second_tab)  # the model has read both messages


async def test_a_chat_that_is_deleted_leaves_the_page_and_the_model(plain_chat: ChatPage, second_tab: ChatPage) -> None:
    await plain_chat.ask(FIRST)
    alone = await prompt_tokens(plain_chat)
    url = await stored(plain_chat)
    await second_tab.page.evaluate(
        "(id) => sonata.engine.memory.removeConversations({ ids: [id] })", url.rpartition("=")[2]
    )
    await expect(plain_chat.page.locator("#welcome")).to_be_visible()
    await expect(questions(plain_chat)).to_have_count(0)
    await plain_chat.ask(FIRST)
    assert await prompt_tokens(plain_chat) == alone


@pytest.mark.all  # in the gate: test_loading_panel.py, without a model
async def test_a_message_that_is_not_answered_yet_survives_a_reload(plain_chat: ChatPage) -> None:
    await plain_chat.page.reload()
    await plain_chat.page.fill("#message", FIRST)
    await plain_chat.page.press("#message", "Enter")
    await expect(plain_chat.page.locator(".queued")).to_have_count(1)
    await plain_chat.page.reload()
    await plain_chat.wait_for("ready")
    await expect(plain_chat.page.locator("#message")).to_have_value(FIRST)


async def stored(chat: ChatPage) -> str:
    """The address, once the chat has one."""
    await chat.page.wait_for_url(IN_ADDRESS)
    return chat.page.url


async def has_address(chat: ChatPage, url: str) -> None:
    """Wait until the chat on the page has this title, or none."""
    wanted = f"#{url.partition('#')[2]}" if url else ""
    await chat.page.wait_for_function("wanted => location.hash === wanted", arg=wanted)


def questions(chat: ChatPage) -> Locator:
    return chat.page.locator(".question .body")


async def prompt_tokens(chat: ChatPage) -> int:
    """The length of the last answer's prompt."""
    return await chat.page.evaluate("sonata.lastAnswer.promptTokens")


EVENTS = """async ([call, given]) => {
  const events = [];
  for await (const event of await sonata.engine.conversation[call](given)) events.push(event);
  return events;
}"""


async def test_the_engine_edits_goes_on_and_shows_another_branch(plain_chat: ChatPage) -> None:
    page = plain_chat.page

    async def events_of(call: str, **given: object) -> dict[str, dict]:
        return {event["type"]: event for event in await page.evaluate(EVENTS, [call, given])}

    await plain_chat.ask_for_cut_off(FIRST)
    await stored(plain_chat)
    edited = await events_of("respond", text=SECOND, after=None)
    chat = edited["stored"]["chat"]
    assert [edited["stored"][name] for name in ("turns", "question", "number")] == [2, 2, 3]
    context = edited["context"]
    parts = [context[name] for name in ("system", "memory", "turns", "file", "tools", "free")]
    assert sum(parts) == context["total"]
    assert context["total"] - context["free"] == edited["done"]["promptTokens"]
    assert (context["leftOut"], context["bytesPerToken"] > 0) == (0, True)

    shown = await page.evaluate("([chat]) => sonata.engine.memory.choose({ id: chat, number: 0 })", [chat])
    first = shown["turns"][1]
    assert [(turn["number"], turn["siblings"]) for turn in shown["turns"]] == [(0, [0, 2]), (1, [1])]
    longer = await events_of("continueAnswer")
    for _ in range(9):  # the first token may be the end: then nothing is stored
        if "stored" not in longer:
            longer = await events_of("continueAnswer")
    assert "stored" in longer, longer
    assert longer["stored"]["number"] == 1
    assert longer["replacement"]["text"].startswith(first["content"])
    turns = (await page.evaluate("(chat) => sonata.engine.memory.conversation({ id: chat })", chat))["turns"]
    assert [turn["content"] for turn in turns] == [FIRST, longer["replacement"]["text"]]

    refused = (await events_of("respond", text=THIRD, after=99))["failure"]
    assert (refused["kind"], refused["details"]) == ("StoreError", None)
    assert "no longer in this conversation" in refused["message"]["text"]
    with pytest.raises(Error, match="no longer in this conversation"):
        await page.evaluate("(chat) => sonata.engine.memory.choose({ id: chat, number: 99 })", chat)
