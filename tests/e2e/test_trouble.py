"""What goes wrong becomes a sentence that says what to do, and the page stays usable. The real engine, a tiny model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from chat_page import LOAD_SECONDS, NO_SERVICE_WORKER, ChatPage
from damaged_server import DamagedServer
from playwright.async_api import Browser, Route, expect

from tests.tiny_llama import TinyLlama

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

SHORT = "max_tokens=4&routing=off"
ON_THE_CPU = f"{SHORT}&backend=wasm&workers=1"


@pytest.fixture(scope="module")
def tiny_query() -> str:
    return "?backend=webgpu&max_tokens=120&routing=off"


@pytest.fixture
def chat(tiny_chat: ChatPage) -> ChatPage:
    return tiny_chat


@pytest_asyncio.fixture(loop_scope="session")
async def chat_without_webgpu(browser_without_webgpu: Browser, tiny_site: str) -> AsyncIterator[ChatPage]:
    page = await browser_without_webgpu.new_page()
    await page.add_init_script(NO_SERVICE_WORKER)
    yield ChatPage(page, tiny_site)
    await page.close()


async def typed_text_is_kept(chat: ChatPage) -> None:
    """The message box works, and sends nothing into the void."""
    await chat.page.fill("#message", "Are you there?")
    await chat.page.press("#message", "Enter")
    await expect(chat.page.locator("#message")).to_have_value("Are you there?")


async def test_a_missing_model_file(chat: ChatPage) -> None:
    await chat.open(f"?model=models/nothing.gguf&{ON_THE_CPU}")

    problem = await chat.problem()

    assert "404" in problem
    assert "nothing.gguf" in problem
    await typed_text_is_kept(chat)
    await expect(chat.way_out("Load again")).to_be_visible()


def noise_in_the_metadata(start: bytearray) -> None:
    start[200:400] = bytes(range(200))


async def test_a_damaged_model_file_is_told_until_it_is_whole(chat: ChatPage, damaged: DamagedServer) -> None:
    """First it ends early, then its header is noise. What else a header may be is in tests/formats/test_gguf.py."""
    damaged.length = damaged.size // 3
    await chat.allow_host(damaged.url)
    await chat.open(f"?model={damaged.url}&{ON_THE_CPU}")
    await chat.agree_to_model()

    problem = await chat.problem()
    assert "truncated" in problem or "ends after" in problem
    await typed_text_is_kept(chat)

    damaged.heal()
    damaged.damage = noise_in_the_metadata
    await chat.way_out("Load again").click()
    await chat.wait_for("loading")
    problem = await chat.problem()
    assert "GGUF" in problem or "model file" in problem
    assert "Something went wrong" not in problem
    assert any(word in problem.lower() for word in ("load it again", "download it again", "load again", "choose"))

    damaged.heal()
    damaged.compresses = True  # then its size is not told
    await chat.load_again()
    await expect(chat.page.locator("#message")).to_have_value("Are you there?")
    await chat.page.press("#message", "Enter")
    await chat.wait_for("ready", 180)
    assert await chat.last_answer()


@pytest.mark.all
async def test_a_byte_changed_in_the_middle_of_the_weights(chat: ChatPage, damaged: DamagedServer) -> None:
    """The header is whole; only the checksums that models.json has can tell."""
    damaged.flip_byte_at = damaged.size // 2

    async def fulfill(route: Route) -> None:
        # The model comes from the damaged server, under the site's own address.
        await route.fulfill(status=307, headers={"Location": damaged.url})

    await chat.page.route("**/models/*.gguf", fulfill)
    await chat.open(f"?{ON_THE_CPU}")

    problem = await chat.problem()

    assert "checksum" in problem
    await typed_text_is_kept(chat)


# Fine for two questions; the third would take for ever.
ENDLESS_LATER = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if messages | length > 5 %}{{ ('a' * 4000000 ~ 'b') in ('a' * 8000000) }}{% endif %}"
)


@pytest.mark.all
async def test_a_chat_goes_on_with_another_model_when_a_template_takes_for_ever(chat: ChatPage, tmp_path: Path) -> None:
    path = TinyLlama(tied=False).write(tmp_path / "endless.gguf", {"tokenizer.chat_template": ENDLESS_LATER})
    with DamagedServer(path) as server:
        await chat.allow_host(server.url)
        await chat.open(f"?model={server.url}&{ON_THE_CPU}")
        await chat.agree_to_model()
        await chat.wait_for("ready", LOAD_SECONDS)
        await chat.ask("One?")
        await chat.ask("Two?")

        await chat.send("Three?")
        problem = await chat.problem()

    assert "takes longer than 2 seconds; choose another file of this model" in problem
    await expect(chat.page.locator("#message")).to_have_value("Three?")
    await chat.way_out("Use my usual model").click()
    await chat.wait_for("loading")
    await chat.wait_for("ready", LOAD_SECONDS)
    await chat.page.press("#message", "Enter")
    await chat.wait_for("ready", 180)
    assert await chat.last_answer()
    await expect(chat.page.locator(".answer .body")).to_have_count(3)


async def test_without_webgpu_the_page_says_so_and_answers_on_the_cpu_also_when_the_gpu_was_asked_for(
    chat_without_webgpu: ChatPage,
) -> None:
    chat = chat_without_webgpu
    status = chat.page.locator(".status-line")
    await chat.open_ready(f"?{SHORT}")
    await expect(status).to_contain_text("on the CPU, precise")
    await expect(chat.page.locator(".status-reason")).to_contain_text("no WebGPU")
    await expect(chat.page.locator(".status-reason")).to_contain_text("hardware acceleration")
    assert await chat.ask("Hello.")
    assert chat.errors == []

    await chat.open(f"?{SHORT}&backend=webgpu")
    assert "no WebGPU" in await chat.problem()
    await chat.way_out("Use the CPU instead").click()
    await chat.wait_for("loading")
    await chat.wait_for("ready", 180)
    await expect(status).to_contain_text("on the CPU, precise")
    await chat.shows("backend", "wasm")


LOSE = "window.sonata.loseDevice()"
QUESTION = "What is the capital of France?"
WATCH_STATUS = """() => {
  window.said = [];
  const line = document.querySelector('.status-line');
  new MutationObserver(() => window.said.push(line.textContent)).observe(line, { childList: true });
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
GENERATE = """async (lossesAfter) => {
  let done = false, late = 0;
  const begin = performance.now();
  const answer = sonata.engine.generate('Once upon a time', { raw: true, maxTokens: 120, temperature: 0.9, seed: 3 });
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
    """In the middle of the answer, and once more before the device is back. The first answer takes the longest."""
    undisturbed, _, ms = await ready_chat.page.evaluate(GENERATE, [])
    assert len(undisturbed) == 120
    for part in (0.3, 0.1, 0.03, 0):  # sooner where the answer was there by then: it took longer before
        tokens, late, _ = await ready_chat.page.evaluate(GENERATE, [part * ms, 0])
        assert tokens == undisturbed
        if not late:
            return
    pytest.fail("Each answer was there before the device was lost.")


async def test_an_answer_goes_on_when_the_device_is_lost(ready_chat: ChatPage) -> None:
    chat = ready_chat
    undisturbed = await chat.ask(STORY)
    before = await chat.page.inner_text(".status-line")
    await chat.page.click("#new-chat")
    await chat.page.evaluate(WATCH_STATUS)
    await chat.page.evaluate(LOSE_AT_THE_FIRST_WORDS)

    assert await chat.ask(STORY) == undisturbed
    assert await chat.page.evaluate("window.said") == [
        "The graphics card was reset. The answer continues in a moment.",
        before,
    ]
    await expect(chat.page.locator("#banner")).to_be_hidden()


async def test_a_device_lost_while_nothing_happens_is_replaced_at_the_next_question_without_the_server(
    ready_chat: ChatPage,
) -> None:
    """The weights come from what the browser keeps of them."""
    chat = ready_chat
    first = await chat.ask(QUESTION)
    await chat.page.route("**/models/*.gguf", lambda route: route.abort())
    await chat.page.evaluate(LOSE)
    assert await chat.state() == "ready"

    await chat.page.click("#new-chat")
    assert await chat.ask(QUESTION) == first
    await expect(chat.page.locator("#banner")).to_be_hidden()
    await chat.page.unroute("**/models/*.gguf")


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
    )  # what was said is stored, and the model has read it


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
    no_room = {"origin": chat.site, "quotaSize": 1000}  # what the browser keeps is not damaged
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
