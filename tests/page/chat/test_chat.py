"""The whole product in a browser: Python in Pyodide, the model on the CPU's workers if there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

WATCH_LENGTHS = """() => {
  const lengths = new Set();
  const look = () => lengths.add(document.querySelector('.answer .body')?.textContent.length ?? 0);
  const observer = new MutationObserver(look);
  observer.observe(document.querySelector('#log'), { childList: true, subtree: true });
  window.seenLengths = () => {
    observer.disconnect();
    delete window.seenLengths;
    return lengths.size;
  };
}"""
STORY = "Tell me a very long story about a lighthouse."
QUESTION = "What is the capital of France?"


async def test_an_answer_streams_and_the_header_says_what_runs(real_chat: ChatPage, screenshots: Path) -> None:
    await expect(real_chat.page.locator(".status-line")).to_contain_text("on ")
    assert "Paris" in await answer_streams(real_chat, "What is the capital of France, and what is it known for?")
    await real_chat.page.screenshot(path=screenshots / "real-answer.png")


@pytest.mark.all
@pytest.mark.parametrize(("backend", "name"), [("webgpu", "on WebGPU"), ("numpy", "numpy")])
async def test_an_answer_streams_on_each_other_backend(tiny_chat: ChatPage, backend: str, name: str) -> None:
    await tiny_chat.open_ready(f"?max_tokens=100&routing=off&backend={backend}")
    await expect(tiny_chat.page.locator(".status-line")).to_contain_text(name)
    await answer_streams(tiny_chat, STORY)
    assert tiny_chat.errors == []


async def answer_streams(chat: ChatPage, question: str) -> str:
    await chat.page.evaluate(WATCH_LENGTHS)
    answer = await chat.ask(question)
    assert answer
    assert await chat.page.evaluate("seenLengths()") >= 3, "the answer came in one piece"
    await expect(chat.page.locator(".status-rate")).to_contain_text("tok/s")
    foreign = [url for url in chat.requests if not url.startswith((chat.site, "blob:", "data:"))]
    assert foreign == []
    return answer


async def test_the_second_question_continues_the_conversation_and_new_chat_forgets_it(plain_chat: ChatPage) -> None:
    chat, question = plain_chat, QUESTION

    await chat.ask(question)
    alone = await prompt_tokens(chat)
    await chat.ask(question)
    continued = await prompt_tokens(chat)
    await chat.page.click("#new-chat")
    await expect(chat.page.locator("#log article")).to_have_count(0)
    await expect(chat.page.locator("#welcome")).to_be_visible()
    await chat.ask(question)

    assert continued > alone
    assert await prompt_tokens(chat) == alone


@pytest.mark.all
async def test_stop_takes_effect_at_once_and_the_chat_goes_on(real_chat: ChatPage) -> None:
    chat = real_chat
    await chat.send(STORY)
    await chat.wait_for_words()

    await chat.click_stop()
    stopped_at = await chat.last_answer()
    await expect(chat.page.locator(".answer-footer")).to_contain_text("Stopped")
    # the model works meanwhile
    await chat.page.evaluate("sonata.engine.developer.generate({ prompt: 'Hello', maxTokens: 1 })")
    assert await chat.last_answer() == stopped_at

    assert "Paris" in await chat.ask(QUESTION)


@pytest.mark.all
async def test_stop_before_the_first_word(real_chat: ChatPage) -> None:
    await real_chat.send("How are you? " * 60)
    await real_chat.wait_for("answering")

    await real_chat.click_stop()
    assert await real_chat.ask("Hello.")


async def prompt_tokens(chat: ChatPage) -> int:
    return await chat.page.evaluate("window.sonata.lastAnswer.promptTokens")
