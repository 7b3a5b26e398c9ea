"""A chat survives a reload and a change of backend, has an address of its own, and may be open in two tabs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from chat_page import ChatPage
from playwright.async_api import Error, expect

from py_core.backends.page_table import PAGE

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=60_000)  # Python starts before a stored chat is shown

FIRST, SECOND, THIRD = "The first question.", "The second question.", "The third question."
UNKNOWN = "#chat=0123456789abcdef0123456789abcdef"
ANOTHER_ANSWER = """async () => {
  const events = await sonata.engine.respond('', { again: true });
  for await (const event of events) if (event.type === 'stored') return event.answer;
}"""
"""Takes the place of the last answer, as "Try again" does."""
IN_ADDRESS = re.compile(r"#chat=[0-9a-f]{32}$")


@pytest.fixture(scope="module")
def tiny_query() -> str:
    """Without routing, whose instructions would be part of a prompt's length."""
    return "?backend=wasm&workers=1&max_tokens=8&routing=off"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_second_tab(module_chat: ChatPage, tiny_query: str) -> AsyncIterator[ChatPage]:
    tab = ChatPage(await module_chat.page.context.new_page(), module_chat.site)
    await tab.open_ready(tiny_query)
    yield tab
    await tab.page.close()


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
async def second_tab(module_second_tab: ChatPage, tiny_query: str) -> AsyncIterator[ChatPage]:
    """Another tab of the same browser, ready, with an empty chat."""
    await module_second_tab.begin(tiny_query)
    yield module_second_tab
    assert module_second_tab.errors == []


async def test_a_reload_keeps_the_chat_on_the_page_and_in_the_model(ready_chat: ChatPage) -> None:
    answer = await ready_chat.ask(FIRST)
    alone = await prompt_tokens(ready_chat)
    await stored(ready_chat)
    await ready_chat.page.wait_for_function(PAGES_ARE_KEPT)

    await ready_chat.page.reload()
    await expect(ready_chat.page.locator(".question .body")).to_have_text([FIRST])  # before the model is loaded
    await ready_chat.wait_for("ready")
    assert await ready_chat.last_answer() == answer

    await ready_chat.ask(FIRST)
    assert await questions(ready_chat) == [FIRST, FIRST]
    assert await prompt_tokens(ready_chat) > alone
    # What the model had read came from the disk: whole pages of it.
    assert await ready_chat.page.evaluate("sonata.lastAnswer.reusedTokens") >= PAGE


async def test_a_change_of_backend_keeps_the_chat(ready_chat: ChatPage) -> None:
    await ready_chat.ask(FIRST)
    alone = await prompt_tokens(ready_chat)
    await stored(ready_chat)
    await ready_chat.choose("backend", "wasm-fast")
    await ready_chat.wait_for("loading")
    await ready_chat.wait_for("ready")

    assert await questions(ready_chat) == [FIRST]
    await expect(ready_chat.page.locator(".note")).to_have_count(0)
    await ready_chat.ask(FIRST)
    assert await prompt_tokens(ready_chat) > alone


async def test_each_chat_has_an_address_and_back_and_forward_lead_to_it(ready_chat: ChatPage) -> None:
    page = ready_chat.page
    await ready_chat.ask(FIRST)
    first = await stored(ready_chat)
    await page.click("#new-chat")
    assert await address(ready_chat) == ""
    await ready_chat.ask(SECOND)
    second = await stored(ready_chat)
    assert first != second

    await page.go_back()
    await expect(page.locator(".question .body")).to_have_text([FIRST])
    assert first.endswith(await address(ready_chat))
    await page.go_forward()
    await expect(page.locator(".question .body")).to_have_text([SECOND])
    assert second.endswith(await address(ready_chat))


async def test_a_chat_that_does_not_exist_any_more_is_told(ready_chat: ChatPage, tiny_query: str) -> None:
    await ready_chat.page.goto("about:blank")  # or the address alone would change
    await ready_chat.open_ready(tiny_query + UNKNOWN)
    await expect(ready_chat.page.locator("#notices")).to_contain_text("This conversation is not in this browser")
    assert await address(ready_chat) == ""
    assert await ready_chat.ask(FIRST)


async def test_a_chat_in_a_locked_memory_is_told_and_comes_when_it_is_unlocked(ready_chat: ChatPage) -> None:
    page = ready_chat.page
    await ready_chat.ask(FIRST)
    alone = await prompt_tokens(ready_chat)
    await stored(ready_chat)
    await page.evaluate("sonata.engine.memory.setPassphrase('a long passphrase')")
    try:
        await page.reload()
        await ready_chat.wait_for("ready")
        await expect(page.locator("#notices")).to_contain_text("This conversation is in the locked memory: unlock")
        assert await questions(ready_chat) == []

        await page.evaluate("sonata.engine.memory.unlock('a long passphrase')")
        await expect(page.locator(".question .body")).to_have_text([FIRST])
        await ready_chat.ask(FIRST)
        assert await prompt_tokens(ready_chat) > alone
    finally:
        await page.evaluate("sonata.engine.memory.removePassphrase('a long passphrase')")


async def test_what_one_tab_says_appears_in_the_other(ready_chat: ChatPage, second_tab: ChatPage) -> None:
    await ready_chat.ask(FIRST)
    url = await stored(ready_chat)
    await second_tab.page.goto(url)
    await expect(second_tab.page.locator(".question .body")).to_have_text([FIRST])

    await second_tab.ask(SECOND)
    await expect(ready_chat.page.locator(".question .body")).to_have_text([FIRST, SECOND])
    await expect(ready_chat.page.locator("#notices")).to_contain_text("open in another tab")

    answers = await ready_chat.page.locator(".answer .body").all_inner_texts()
    replaced = answers[1]
    for _ in range(5):  # it is drawn at random, and may be the same once more
        if replaced == answers[1]:
            said = await second_tab.page.evaluate(ANOTHER_ANSWER)
            replaced = said.replace("\r", "").replace("\0", "")  # HTML has neither
    assert replaced != answers[1]
    await expect(ready_chat.page.locator(".answer .body")).to_have_text([answers[0], replaced])
    await expect(ready_chat.page.locator(".question .body")).to_have_text([FIRST, SECOND])

    await ready_chat.ask(THIRD)
    await expect(second_tab.page.locator(".question .body")).to_have_text([FIRST, SECOND, THIRD])
    turns = await ready_chat.page.evaluate(
        "async (id) => (await sonata.engine.memory.conversation(id)).turns.map(({ role, content }) => [role, content])",
        url.rpartition("=")[2],
    )
    assert [content for role, content in turns if role == "user"] == [FIRST, SECOND, THIRD]
    assert await prompt_tokens(ready_chat) > await prompt_tokens(second_tab)  # the model has read both


async def test_a_chat_that_is_deleted_leaves_the_page_and_the_model(ready_chat: ChatPage, second_tab: ChatPage) -> None:
    await ready_chat.ask(FIRST)
    alone = await prompt_tokens(ready_chat)
    url = await stored(ready_chat)
    await second_tab.page.evaluate("(id) => sonata.engine.memory.removeConversations([id])", url.rpartition("=")[2])
    await expect(ready_chat.page.locator("#welcome")).to_be_visible()
    assert await questions(ready_chat) == []
    await ready_chat.ask(FIRST)
    assert await prompt_tokens(ready_chat) == alone


async def test_a_message_that_is_not_answered_yet_survives_a_reload(ready_chat: ChatPage) -> None:
    await ready_chat.page.reload()
    await ready_chat.page.fill("#message", FIRST)
    await ready_chat.page.press("#message", "Enter")
    await expect(ready_chat.page.locator(".queued")).to_have_count(1)
    await ready_chat.page.reload()
    await ready_chat.wait_for("ready")
    await expect(ready_chat.page.locator("#message")).to_have_value(FIRST)
    await ready_chat.page.fill("#message", "")


async def stored(chat: ChatPage) -> str:
    """The address, once the chat has one of its own."""
    await chat.page.wait_for_url(IN_ADDRESS)
    return chat.page.url


async def address(chat: ChatPage) -> str:
    """Of the chat on the page: "#chat=ID", or nothing."""
    return await chat.page.evaluate("location.hash")


async def questions(chat: ChatPage) -> list[str]:
    return await chat.page.locator(".question .body").all_inner_texts()


async def prompt_tokens(chat: ChatPage) -> int:
    """How long the prompt of the last answer was."""
    return await chat.page.evaluate("sonata.lastAnswer.promptTokens")


EVENTS = """async ([call, ...given]) => {
  const events = [];
  for await (const event of await sonata.engine[call](...given)) events.push(event);
  return events;
}"""


async def test_the_engine_edits_goes_on_and_shows_another_branch(ready_chat: ChatPage) -> None:
    page = ready_chat.page

    async def events_of(*call: object) -> dict[str, dict]:
        return {event["type"]: event for event in await page.evaluate(EVENTS, call)}

    await ready_chat.ask_for_cut_off(FIRST)
    await stored(ready_chat)
    edited = await events_of("respond", SECOND, {"after": None})
    chat = edited["stored"]["chat"]
    assert [edited["stored"][name] for name in ("turns", "question", "number")] == [2, 2, 3]
    context = edited["context"]
    parts = [context[name] for name in ("system", "memory", "turns", "file", "tools", "free")]
    assert sum(parts) == context["total"]
    assert context["total"] - context["free"] == edited["done"]["promptTokens"]
    assert (context["leftOut"], context["bytesPerToken"] > 0) == (0, True)

    shown = await page.evaluate("([chat]) => sonata.engine.memory.choose(chat, 0)", [chat])
    first = shown["turns"][1]
    assert [(turn["number"], turn["siblings"]) for turn in shown["turns"]] == [(0, [0, 2]), (1, [1])]
    longer = await events_of("continueAnswer")
    for _ in range(9):  # what is drawn first may be the end: then nothing is stored
        if "stored" not in longer:
            longer = await events_of("continueAnswer")
    assert "stored" in longer, longer
    assert longer["stored"]["number"] == 1
    assert longer["done"]["text"].startswith(first["content"])
    turns = (await page.evaluate("(chat) => sonata.engine.memory.conversation(chat)", chat))["turns"]
    assert [turn["content"] for turn in turns] == [FIRST, longer["done"]["text"]]

    refused = (await events_of("respond", THIRD, {"after": 99}))["error"]
    assert (refused["kind"], refused["details"]) == ("StoreError", None)
    assert "not in this conversation any more" in refused["message"]
    with pytest.raises(Error, match="not in this conversation any more"):
        await page.evaluate("(chat) => sonata.engine.memory.choose(chat, 99)", chat)
