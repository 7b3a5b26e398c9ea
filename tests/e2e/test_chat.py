"""The whole product in a browser: Python in Pyodide, the model on the CPU's workers where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_page import ChatPage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

SHORT = "?max_tokens=8"
LONG = "?max_tokens=200"


@pytest.mark.parametrize(
    ("backend", "name"), [("auto", "on "), ("wasm", "on the CPU, precise"), ("webgpu", "on WebGPU"), ("numpy", "numpy")]
)
async def test_an_answer_streams_and_the_header_says_what_runs(
    chat: ChatPage, site: str, screenshots: Path, backend: str, name: str
) -> None:
    await chat.open_ready(f"{SHORT}&backend={backend}")
    assert name in await chat.page.inner_text(".status-line")

    await chat.page.evaluate(
        """() => {
          window.lengths = new Set();
          const look = () => window.lengths.add(document.querySelector('.answer .body')?.textContent.length ?? 0);
          new MutationObserver(look).observe(document.querySelector('#log'), { childList: true, subtree: true });
        }"""
    )
    answer = await chat.ask("Why is the sky blue?")

    await chat.page.screenshot(path=screenshots / f"real-answer-{backend}.png")
    assert answer
    assert len(await chat.page.evaluate("[...window.lengths]")) >= 3, "the answer came in one piece"
    assert "tok/s" in await chat.page.inner_text(".status-rate")
    assert chat.errors == []
    foreign = [url for url in chat.requests if not url.startswith((site, "blob:", "data:"))]
    assert foreign == []


async def test_the_second_question_continues_the_conversation_and_new_chat_forgets_it(chat: ChatPage) -> None:
    await chat.open_ready(SHORT)
    question = "What is the capital of France?"

    await chat.ask(question)
    alone = await prompt_tokens(chat)
    await chat.ask(question)
    continued = await prompt_tokens(chat)
    await chat.page.click("#new-chat")
    assert await chat.page.locator("#log article").count() == 0
    assert await chat.page.is_visible("#welcome")
    await chat.ask(question)

    assert continued > alone
    assert await prompt_tokens(chat) == alone
    assert chat.errors == []


@pytest.mark.parametrize("backend", ["auto", "webgpu"])
async def test_stop_takes_effect_at_once_and_the_chat_goes_on(chat: ChatPage, backend: str) -> None:
    # Another agent would read all of it again, for a minute without a GPU.
    await chat.open_ready(f"{LONG}&backend={backend}&routing=off")
    await chat.send("Tell me a very long story about a lighthouse.")
    await chat.wait_for_words()

    assert await chat.click_stop_and_time() < 200
    stopped_at = await chat.last_answer()
    await chat.page.wait_for_timeout(1500)

    assert await chat.last_answer() == stopped_at
    assert "Stopped" in await chat.page.inner_text(".answer-footer")

    await chat.send("Thank you.")
    assert await chat.wait_for_words()
    await chat.page.click(".stop")
    assert chat.errors == []


async def test_stop_before_the_first_word(chat: ChatPage) -> None:
    await chat.open_ready(SHORT)
    await chat.send("How are you? " * 60)
    await chat.page.wait_for_timeout(100)

    assert await chat.click_stop_and_time() < 200
    assert await chat.ask("Hello.")
    assert chat.errors == []


async def test_a_reload_keeps_what_was_typed_and_starts_again(chat: ChatPage) -> None:
    await chat.open_ready(SHORT)
    await chat.page.fill("#message", "half a thought")
    await chat.page.wait_for_timeout(400)

    await chat.page.reload()
    await chat.wait_for("ready", 180)

    assert await chat.page.input_value("#message") == "half a thought"
    assert await chat.ask("Hello.")
    assert chat.errors == []


async def test_no_task_of_the_page_takes_over_50_ms_while_tokens_stream(chat: ChatPage) -> None:
    await chat.open_ready("?max_tokens=16")
    assert await chat.long_tasks_while_asking("Give me three ideas for a rainy Sunday.") == []


async def prompt_tokens(chat: ChatPage) -> int:
    return await chat.page.evaluate("window.sonata.lastAnswer.promptTokens")
