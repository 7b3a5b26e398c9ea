"""The page with the model on a GPU: it answers as numpy does, and continues after a loss of the device. A tiny
model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import Route, expect

from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.page.chat_page import LOAD_SECONDS, ChatPage
from tests.page.damaged_server import DamagedServer
from tests.page.small_site import MODEL, SmallSite
from tests.tiny.llama import TinyLlama

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

SHORT = "max_tokens=4&routing=off"


@pytest.fixture(scope="module")
def tiny_query() -> str:
    return "?backend=webgpu&max_tokens=48&routing=off"


@pytest.fixture
def chat(tiny_chat: ChatPage) -> ChatPage:
    return tiny_chat


GENERATE = "([prompt, maxTokens]) => sonata.engine.developer.generate({ prompt, raw: true, maxTokens })"
LOGITS = """async (prompt) => {
  const bytes = await sonata.engine.developer.logits({ prompt, raw: true });
  return Array.from(new Float32Array(bytes.buffer));
}"""


async def test_on_webgpu_a_tiny_model_says_what_numpy_says(ready_chat: ChatPage, tiny_files: SmallSite) -> None:
    """Over passes of many rows and pages of keys and values."""
    model = await load_model(FileSource(tiny_files.folder / MODEL), load_numpy, native_renderer())
    for prompt, count in (("Once upon a time", 8), ("Tell me a very long story about a lighthouse. " * 5, 20)):
        answer = await ready_chat.page.evaluate(GENERATE, [prompt, count])
        assert len(answer["tokens"]) == count
        sequence = model.backend.new_sequence()
        await model.backend.prefill(sequence, answer["promptTokens"])
        expected = await model.backend.logits(sequence)
        got = np.array(await ready_chat.page.evaluate(LOGITS, prompt), np.float32)
        np.testing.assert_allclose(got, expected, atol=0.01)
        for token in answer["tokens"]:
            logits = await model.backend.logits(sequence)
            assert logits[token] > logits.max() - 0.02
            await model.backend.prefill(sequence, [token])
        model.backend.free(sequence)


LOSE = "window.sonata.loseDevice()"
QUESTION = "What is the capital of France?"
WATCH_STATUS = """() => {
  const line = document.querySelector('.status-line'), said = [];
  const watch = new MutationObserver(() => said.push(line.textContent));
  watch.observe(line, { childList: true });
  window.endWatch = () => {
    watch.disconnect();
    delete window.endWatch;
    return said;
  };
}"""
LOSE_AT_THE_FIRST_WORDS = """() => {
  const log = document.querySelector('#log');
  const watch = new MutationObserver(() => {
    if (!log.querySelector('.answer .body')?.textContent.trim()) return;
    watch.disconnect();
    sonata.loseDevice();
  });
  watch.observe(log, { childList: true, subtree: true, characterData: true });
}"""
STORY = "Tell me a very long story about a lighthouse."
GENERATE_AND_LOSE = """async (lossesAfter) => {
  let done = false, late = 0;
  const begin = performance.now();
  const prompt = 'Once upon a time';
  const answer = sonata.engine.developer.generate({ prompt, raw: true, maxTokens: 120, temperature: 0.9, seed: 3 });
  answer.then(() => { done = true; });
  for (const ms of lossesAfter) {
    await new Promise((resolve) => setTimeout(resolve, ms));
    if (done) late += 1;
    await sonata.engine.loseDevice();
  }
  return [(await answer).tokens, late, performance.now() - begin];
}"""


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[DamagedServer]:
    """Serves a tiny model with random weights in float32."""
    model = TinyLlama(formats=("F32",), embedding_format="F32", tied=False)
    with DamagedServer(model.write(tmp_path / "tiny.gguf")) as server:
        yield server


@pytest.mark.all
async def test_drawn_tokens_are_the_same_when_the_device_is_lost(ready_chat: ChatPage) -> None:
    """In the middle of the answer, and again before the device is back. The first answer takes the longest."""
    undisturbed, _, ms = await ready_chat.page.evaluate(GENERATE_AND_LOSE, [])
    assert len(undisturbed) == 120
    for part in (0.3, 0.1, 0.03, 0):  # earlier if the answer was there by then: it took longer before
        tokens, late, _ = await ready_chat.page.evaluate(GENERATE_AND_LOSE, [part * ms, 0])
        assert tokens == undisturbed
        if not late:
            return
    pytest.fail("Each answer was there before the device was lost.")


async def test_an_answer_goes_on_when_the_device_is_lost_without_the_server(ready_chat: ChatPage) -> None:
    """The weights come from the browser's storage."""
    chat = ready_chat
    undisturbed = await chat.ask(STORY)
    before = await chat.page.inner_text(".status-line")
    await chat.page.route("**/models/*.gguf", lambda route: route.abort())
    await chat.page.click("#new-chat")
    await chat.page.evaluate(WATCH_STATUS)
    await chat.page.evaluate(LOSE_AT_THE_FIRST_WORDS)

    assert await chat.ask(STORY) == undisturbed
    assert await chat.page.evaluate("endWatch()") == [
        "The graphics card was reset. The answer continues in a moment.",
        before,
    ]
    await expect(chat.page.locator("#banner")).to_be_hidden()
    await chat.page.unroute("**/models/*.gguf")


@pytest.mark.all
async def test_a_device_lost_while_nothing_happens_is_replaced_at_the_next_question_without_the_server(
    ready_chat: ChatPage,
) -> None:
    chat = ready_chat
    first = await chat.ask(QUESTION)
    await chat.page.route("**/models/*.gguf", lambda route: route.abort())
    await chat.page.evaluate(LOSE)
    assert await chat.state() == "ready"

    await chat.page.click("#new-chat")
    assert await chat.ask(QUESTION) == first
    await expect(chat.page.locator("#banner")).to_be_hidden()
    await chat.page.unroute("**/models/*.gguf")


@pytest.mark.all
async def test_a_device_that_cannot_be_replaced_is_told_and_the_cpu_goes_on(chat: ChatPage, tiny_query: str) -> None:
    await chat.page.route("**/engine/worker.js", only_one_adapter)
    await chat.open_ready(tiny_query)
    await chat.page.evaluate(LOSE_AT_THE_FIRST_WORDS)
    await chat.send(STORY)

    problem = await chat.problem()

    assert "graphics card" in problem
    assert "again" in problem
    assert await chat.last_answer()
    await expect(chat.page.locator(".answer-footer")).to_contain_text("Interrupted")
    await expect(chat.page.locator("#message")).to_have_value(STORY)
    await expect(chat.way_out("Load again")).to_be_visible()
    await chat.way_out("Use the CPU instead").click(timeout=LOAD_SECONDS * 1000)  # the software GPU is still busy
    await chat.wait_for("loading")
    await chat.wait_for("ready", LOAD_SECONDS)
    await expect(chat.page.locator("#log")).to_contain_text("Interrupted")
    await expect(chat.page.locator("#log")).not_to_contain_text(
        "does not know"
    )  # the conversation is stored, and the model has read it


async def only_one_adapter(route: Route) -> None:
    """As on a machine whose graphics card does not come back."""
    response = await route.fetch()
    script = await response.text()
    asked = "return await navigator.gpu"
    assert asked in script
    once = script.replace(asked, "if (self.asked) return null;\n  self.asked = true;\n  return await navigator.gpu")
    await route.fulfill(response=response, body=once)


@pytest.mark.all
async def test_weights_that_come_back_damaged_are_told(chat: ChatPage, damaged: DamagedServer) -> None:
    async def fulfill(route: Route) -> None:
        await route.fulfill(status=307, headers={"Location": damaged.url})

    await chat.page.route("**/models/*.gguf", fulfill)
    await chat.page.goto(f"{chat.site}/THIRD_PARTY.txt")
    no_room = {"origin": chat.site, "quotaSize": 1000}  # the stored model is not damaged
    session = await chat.page.context.new_cdp_session(chat.page)
    await session.send("Storage.overrideQuotaForOrigin", no_room)
    await chat.open_ready(f"?{SHORT}&backend=webgpu")
    damaged.flip_byte_at = damaged.size // 2
    await chat.page.evaluate(LOSE)
    await chat.send(QUESTION)

    assert "checksum" in await chat.problem()
    await expect(chat.page.locator("#message")).to_have_value(QUESTION)


@pytest.mark.all
async def test_a_model_by_its_address_comes_back_and_is_told_where_it_has_changed(
    chat: ChatPage, tiny: DamagedServer
) -> None:
    await chat.allow_host(tiny.url)
    await chat.open(f"?{SHORT}&backend=webgpu&model={tiny.url}")
    await chat.agree_to_model()
    await chat.wait_for("ready", 180)
    first = await chat.ask(QUESTION)
    await chat.page.evaluate(LOSE)
    await chat.page.click("#new-chat")
    assert await chat.ask(QUESTION) == first
    assert chat.errors == []

    tiny.length = tiny.size // 2
    await chat.page.evaluate(LOSE)
    await chat.send(QUESTION)
    assert "has changed" in await chat.problem()
    await expect(chat.page.locator("#message")).to_have_value(QUESTION)
