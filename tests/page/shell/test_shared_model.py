"""Several tabs of one browser: one runs the model, the others use it, and another takes over when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.page.chat_page import LOAD_SECONDS, NO_SERVICE_WORKER, ChatPage
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUERY = "?backend=wasm&workers=1&max_tokens=60&routing=off"
SLOW = "?backend=numpy&max_tokens=1000&routing=off"
KEPT = "() => document.documentElement?.dataset.offline === 'ready'"
ELSEWHERE = "Another tab runs the model."
RESPOND = """async (text) => {
  const { conversation } = sonata.engine;
  let said = '';
  for await (const event of await conversation.respond({ text })) if (event.type === 'delta') said += event.text;
  return said;
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def browser_tabs(browser: Browser) -> AsyncIterator[BrowserContext]:
    opened = await browser.new_context()
    await opened.add_init_script(NO_SERVICE_WORKER)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tabs_alone(browser: Browser) -> AsyncIterator[BrowserContext]:
    """With a service worker, which keeps the site."""
    opened = await browser.new_context()
    yield opened
    await opened.close()


async def new_tab(context: BrowserContext, site: str, query: str = QUERY) -> ChatPage:
    tab = ChatPage(await context.new_page(), site)
    await tab.open_ready(query)
    return tab


def has_engine(page: Page) -> bool:
    """True if the tab has the worker with Python and the model."""
    return any(worker.url.endswith("/engine/worker.js") for worker in page.workers)


async def say_elsewhere(*expected: tuple[ChatPage, bool]) -> None:
    """Wait until the tabs say that another tab runs the model, or not."""
    for tab, wanted in expected:
        await expect(tab.page.locator(".status-tabs")).to_have_js_property("hidden", not wanted)


async def takes_over(tab: ChatPage) -> None:
    await tab.page.wait_for_function(
        "() => document.documentElement?.dataset.state === 'ready' && document.querySelector('.status-tabs').hidden",
        timeout=LOAD_SECONDS * 1000,
    )


async def test_tabs_share_a_worker_and_another_takes_over_with_the_question_that_was_being_answered(
    browser_tabs: BrowserContext, tiny_site: str
) -> None:
    first = await new_tab(browser_tabs, tiny_site, SLOW)
    second, third = await new_tab(browser_tabs, tiny_site, SLOW), await new_tab(browser_tabs, tiny_site, SLOW)
    assert [has_engine(tab.page) for tab in (first, second, third)] == [True, False, False]
    await say_elsewhere((first, False), (second, True), (third, True))
    assert not any("/pyodide/" in url or url.endswith(".gguf") for url in second.requests)

    # The same conversation, and a message in one tab is known in the other.
    await second.send("Are you there?")
    await third.send("And you?")
    for tab in (second, third):
        await tab.wait_for_words()
    # Both are being answered; stopping one does not affect the other.
    await second.click_stop()
    await second.wait_for("ready")
    assert await third.state() == "answering"

    # The leader is gone in the middle of the answer: another tab loads the model, and the question is asked again.
    await first.page.close()
    for tab in (second, third):
        await tab.page.wait_for_function("() => document.documentElement?.dataset.state === 'loading'")
    await third.wait_for("answering", LOAD_SECONDS)
    await second.wait_for("ready", LOAD_SECONDS)
    assert sorted(has_engine(tab.page) for tab in (second, third)) == [False, True]
    await third.wait_for_words()
    assert await third.page.locator(".question .body").all_inner_texts() == ["And you?"]
    await third.click_stop()
    assert (second.errors, third.errors) == ([], [])


@pytest.mark.all
async def test_answers_at_once_are_those_of_each_tab_alone(browser_tabs: BrowserContext, tiny_site: str) -> None:
    first, second = await new_tab(browser_tabs, tiny_site), await new_tab(browser_tabs, tiny_site)
    alone = [await tab.page.evaluate(RESPOND, text) for tab, text in ((first, "One"), (second, "Two"))]
    for tab in (first, second):
        await tab.page.evaluate("sonata.engine.conversation.begin()")
    at_once = await asyncio.gather(first.page.evaluate(RESPOND, "One"), second.page.evaluate(RESPOND, "Two"))
    assert list(at_once) == alone


@pytest.mark.all
async def test_a_leader_that_crashes_or_falls_silent_is_replaced_also_when_the_server_is_gone(
    tabs_alone: BrowserContext, tiny_files: SmallSite
) -> None:
    query = f"{QUERY}&patience=4"
    with PlainServer(tiny_files.folder) as server:
        first = await new_tab(tabs_alone, server.url, query)
        await first.page.wait_for_function(KEPT, timeout=LOAD_SECONDS * 1000)
        second = await new_tab(tabs_alone, server.url, query)
        answer = await second.ask("Hello")
        address = await second.page.evaluate("location.hash")
    # From here on everything is read from the browser's storage, including the model.
    session = await tabs_alone.new_cdp_session(first.page)
    async with first.page.expect_event("crash"):
        crashing = asyncio.ensure_future(session.send("Page.crash"))  # it never answers
    await second.page.bring_to_front()
    await takes_over(second)
    assert await second.last_answer() == answer
    assert await second.page.evaluate("location.hash") == address
    third = await new_tab(tabs_alone, server.url, query)
    await say_elsewhere((third, True))
    crashing.cancel()

    # The leader exists but is silent: its worker is busy for ever.
    (worker,) = (one for one in second.page.workers if one.url.endswith("/engine/worker.js"))
    stuck = asyncio.ensure_future(worker.evaluate("() => { for (;;); }"))
    await takes_over(third)
    assert await third.ask("Hello")
    await second.page.wait_for_function("() => !document.querySelector('.status-tabs').hidden")
    await second.wait_for("ready", LOAD_SECONDS)
    assert has_engine(third.page)
    stuck.cancel()


@pytest.mark.all
async def test_other_options_have_a_worker_of_their_own_and_a_menu_counts_for_all_tabs(
    browser_tabs: BrowserContext, tiny_site: str
) -> None:
    options = QUERY.replace("backend=wasm&", "")
    first, second = await new_tab(browser_tabs, tiny_site, options), await new_tab(browser_tabs, tiny_site, options)
    other = await new_tab(browser_tabs, tiny_site, f"{options}&context=128")
    await say_elsewhere((second, True), (other, False))
    await second.choose("backend", "wasm-fast")
    await takes_over(second)
    assert has_engine(second.page)
    await first.page.wait_for_function(
        "() => document.documentElement?.dataset.state === 'ready' && !document.querySelector('.status-tabs').hidden",
        timeout=LOAD_SECONDS * 1000,
    )
    assert [await tab.page.evaluate("sonata.info.features") for tab in (first, second)] == [["fast"], ["fast"]]
    assert not has_engine(first.page)
    await first.shows("backend", "wasm-fast")
