"""The model on the CPU's workers: what happens to them, and which backend the page takes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.page.chat_page import NO_SERVICE_WORKER, ChatPage
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

WASM = "?backend=wasm&max_tokens=200&routing=off&patience=6"
"""The workers' patience is a sixth of the page's: one second."""
Trouble = tuple[str, int]
STORY = "Tell me a very long story about a lighthouse."
QUESTION = "What is the capital of France?"
GENERATE = """async ([prompt, maxTokens, trouble]) => {
  const answer = sonata.engine.developer.generate({ prompt, raw: true, maxTokens });
  for (const [what, number] of trouble) await sonata.engine[what](number); // right behind the question: in its middle
  return (await answer).tokens;
}"""
CHOOSE_AT_THE_FIRST_WORDS = """(choice) => {
  const log = document.querySelector('#log');
  const menu = document.querySelector('#backend');
  const watch = new MutationObserver(() => {
    const said = log.querySelector('.answer .body')?.innerText.trim();
    if (!said) return;
    watch.disconnect();
    window.said = said;
    menu.value = choice;
    menu.dispatchEvent(new Event('change'));
  });
  watch.observe(log, { childList: true, subtree: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def tiny_query() -> str:
    return f"{WASM}&workers=2"


@pytest.fixture(scope="module")
def real_query() -> str:
    return f"{WASM}&workers=2"


@pytest_asyncio.fixture(loop_scope="session")
async def chat_without_isolation(browser: Browser, tiny_files: SmallSite) -> AsyncIterator[ChatPage]:
    with PlainServer(tiny_files.folder) as server:
        page = await browser.new_page()
        await page.add_init_script(NO_SERVICE_WORKER)  # which would isolate the page
        yield ChatPage(page, server.url)
        await page.close()


async def tokens(chat: ChatPage, *trouble: Trouble, count: int = 120) -> list[int]:
    """The likeliest tokens after a prompt. Meanwhile, methods of the engine are called with a number."""
    arguments = ["Once upon a time there was a lighthouse", count, list(trouble)]
    return await chat.page.evaluate(GENERATE, arguments)


def reason(chat: ChatPage) -> Locator:
    return chat.page.locator(".status-reason")


async def test_the_cpu_is_taken_for_a_software_gpu_until_the_menu_says_fast_which_is_the_same_with_one_worker(
    tiny_chat: ChatPage,
) -> None:
    chat = tiny_chat
    await chat.open_ready("?max_tokens=16&workers=2&routing=off")
    await expect(chat.page.locator(".status-line")).to_contain_text("on the CPU, precise")
    await expect(reason(chat)).to_contain_text(
        re.compile(r"^No GPU available, so Sonata runs on the CPU \(.*2 workers")
    )
    await chat.shows("backend", "auto")
    await chat.choose("backend", "wasm-fast")
    await chat.wait_for("loading")
    await chat.close_panel()
    await chat.wait_for("ready")
    await expect(chat.page.locator(".status-line")).to_contain_text("on the CPU, fast")
    await expect(reason(chat)).to_contain_text("2 workers")
    await chat.shows("backend", "wasm-fast")
    assert await chat.ask(QUESTION)
    of_two = await tokens(chat)
    assert await chat.page.evaluate("sonata.engine.setWorkers(1)") == 1
    assert await tokens(chat) == of_two
    assert len(of_two) == 120
    assert chat.errors == []


async def test_without_isolation_one_worker_answers_and_when_it_stops_the_page_tells_to_load_again(
    chat_without_isolation: ChatPage,
) -> None:
    chat = chat_without_isolation
    await chat.open_ready("?max_tokens=16&routing=off&patience=6")

    assert await chat.page.evaluate("crossOriginIsolated") is False
    await expect(reason(chat)).to_contain_text("(1 worker)")
    await expect(reason(chat)).to_contain_text("More workers need a server that isolates the page")
    first = await chat.ask(STORY)
    assert first
    await chat.page.click("#new-chat")
    assert await chat.ask(STORY) == first
    assert chat.errors == []

    await chat.page.evaluate("sonata.engine.killWorker(0)")
    await chat.send(QUESTION)
    assert "Load the model again" in await chat.problem(60)
    await expect(chat.page.locator("#message")).to_have_value(QUESTION)
    await chat.load_again()
    await chat.page.click("#new-chat")
    assert await chat.ask(STORY) == first


@pytest.mark.parametrize(
    "trouble",
    [("killWorker", 1), *(pytest.param(one, marks=pytest.mark.all) for one in (("killWorker", 0), ("hangWorker", 1)))],
)
async def test_an_answer_goes_on_when_a_worker_stops(ready_chat: ChatPage, trouble: Trouble) -> None:
    undisturbed = await tokens(ready_chat)

    assert await tokens(ready_chat, trouble) == undisturbed
    # Idle, between two questions:
    await ready_chat.page.evaluate("([what, number]) => sonata.engine[what](number)", list(trouble))
    assert await tokens(ready_chat) == undisturbed


@pytest.mark.all
async def test_the_real_model_answers_when_a_worker_has_stopped(real_chat: ChatPage) -> None:
    undisturbed = await tokens(real_chat)
    assert await tokens(real_chat, ("killWorker", 1)) == undisturbed
    assert await real_chat.ask(QUESTION) == "The capital of France is Paris."


async def test_the_reader_sees_nothing_of_a_worker_that_is_replaced(ready_chat: ChatPage) -> None:
    chat = ready_chat
    await chat.send(STORY)
    said = await chat.wait_for_words()
    await chat.page.evaluate("sonata.engine.killWorker(1)")

    await chat.wait_for("ready", 120)
    assert (await chat.last_answer()).startswith(said)
    assert not await chat.page.is_visible("#banner")
    assert (await chat.page.evaluate("sonata.lastAnswer.reason")) in ("end", "length", "loop")


async def test_the_number_of_workers_changes_in_the_middle_of_an_answer(ready_chat: ChatPage) -> None:
    assert await ready_chat.page.evaluate("sonata.engine.setWorkers(1)") == 1
    undisturbed = await tokens(ready_chat)

    assert len(undisturbed) == 120
    assert await tokens(ready_chat, *(("setWorkers", count) for count in (2, 3, 1, 2))) == undisturbed
    assert await ready_chat.page.evaluate("sonata.engine.setWorkers(3)") == 3
    assert await tokens(ready_chat) == undisturbed
    await ready_chat.page.evaluate("sonata.engine.setWorkers(2)")
    assert await tokens(ready_chat) == undisturbed


@pytest.mark.all
async def test_a_software_adapter_is_passed_over_for_the_cpu_until_the_menu_says_what_to_take(chat: ChatPage) -> None:
    """A choice in the menu loads the model again, keeps the conversation and the draft, and is remembered.

    With the real model: the tiny one would finish before a busy page gets its first words.
    """
    query = "?max_tokens=400&routing=off"
    await chat.open_ready(query)
    await expect(chat.page.locator(".status-line")).to_contain_text("on the CPU, precise")
    await expect(reason(chat)).to_contain_text(re.compile(r"^No GPU available, so Sonata runs on the CPU \("))
    part = await chat.open_part("Model")
    await expect(part.locator("#backend")).to_have_value("auto")
    await chat.page.evaluate(CHOOSE_AT_THE_FIRST_WORDS, "wasm-fast")
    await chat.send(STORY)
    await chat.wait_for("loading")
    await chat.wait_for("ready", 180)
    assert (await chat.last_answer()).startswith(await chat.page.evaluate("window.said"))
    await expect(chat.page.locator(".answer-footer")).to_contain_text("Interrupted")
    await expect(chat.page.locator("#log")).to_contain_text("does not know the messages above")
    await expect(chat.page.locator("#message")).to_have_value(STORY)
    await expect(chat.page.locator(".status-line")).to_contain_text("on the CPU, fast")
    await chat.page.fill("#message", "")
    assert await chat.ask("Hello.")

    await chat.open(
        f"{query}&backend=wasm"
    )  # the address takes precedence over the stored choice, until something is chosen
    part = await chat.open_part("Model")
    await expect(part.locator("#backend")).to_have_value("wasm")
    await expect(part).to_contain_text("Set by the address of this page (backend=wasm)")
    await chat.page.fill("#message", "half a thought")
    await chat.choose("backend", "wasm-fast")
    await expect(part).not_to_contain_text("Set by the address")
    assert await chat.page.input_value("#message") == "half a thought"
    await chat.page.wait_for_function("() => sessionStorage.getItem('sonata.draft') === 'half a thought'")
    await chat.page.reload()
    await chat.wait_for("ready", 180)
    await expect(chat.page.locator(".status-line")).to_contain_text("on the CPU, fast")
    await chat.shows("backend", "wasm-fast")
    await expect(chat.page.locator("#message")).to_have_value("half a thought")
    assert await chat.ask("Hello.")


async def test_kernels_that_cannot_be_had_are_a_sentence(tiny_chat: ChatPage) -> None:
    chat = tiny_chat
    await chat.page.route("**/kernels/*.wasm", lambda route: route.fulfill(status=404))
    await chat.open(WASM)
    assert "kernels could not be loaded (HTTP 404)" in await chat.problem()
    await expect(chat.way_out("Load again")).to_be_visible()


async def test_ten_questions_at_once_are_answered_in_turn(ready_chat: ChatPage) -> None:
    expected = await tokens(ready_chat, count=20)
    answers = await asyncio.gather(*(tokens(ready_chat, count=20) for _ in range(10)))
    assert answers == [expected] * 10
