"""Every failure becomes a sentence that says what to do, and the page stays usable. The real engine, a tiny model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from tests.page.chat_page import LOAD_SECONDS, NO_SERVICE_WORKER, ChatPage
from tests.page.damaged_server import DamagedServer
from tests.tiny.llama import TinyLlama

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

SHORT = "max_tokens=4&routing=off"
ON_THE_CPU = f"{SHORT}&backend=wasm&workers=1"


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
    """The message box works, and loses no message."""
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


@pytest.mark.all
async def test_a_damaged_model_file_is_told_until_it_is_whole(chat: ChatPage, damaged: DamagedServer) -> None:
    """First it ends early, then its header is noise. tests/formats/test_gguf.py has other broken headers."""
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
    damaged.compresses = True  # then its size is unknown
    await chat.load_again()
    await expect(chat.page.locator("#message")).to_have_value("Are you there?")
    await chat.page.press("#message", "Enter")
    await chat.wait_for("ready", 180)
    assert await chat.last_answer()


@pytest.mark.all
async def test_a_byte_changed_in_the_middle_of_the_weights(chat: ChatPage, damaged: DamagedServer) -> None:
    """The header is intact; only the checksums of models.json can tell."""
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

    assert "takes longer than 2 seconds. Choose another file of this model" in problem
    await expect(chat.page.locator("#message")).to_have_value("Three?")
    await chat.way_out("Use my usual model").click()
    await chat.wait_for("loading")
    await chat.wait_for("ready", LOAD_SECONDS)
    await chat.page.press("#message", "Enter")
    await chat.wait_for("ready", 180)
    assert await chat.last_answer()
    await expect(chat.page.locator(".answer .body")).to_have_count(3)


async def test_without_webgpu_the_page_says_so_and_answers_on_the_cpu(chat_without_webgpu: ChatPage) -> None:
    chat = chat_without_webgpu
    await chat.open_ready(f"?{SHORT}")
    await expect(chat.page.locator(".status-line")).to_contain_text("on the CPU, precise")
    await expect(chat.page.locator(".status-reason")).to_contain_text("no WebGPU")
    await expect(chat.page.locator(".status-reason")).to_contain_text("hardware acceleration")
    assert await chat.ask("Hello.")
    assert chat.errors == []


@pytest.mark.all  # test_page.py covers the button, with a lost GPU
async def test_the_cpu_is_offered_if_a_gpu_was_asked_for_and_there_is_none(chat_without_webgpu: ChatPage) -> None:
    chat = chat_without_webgpu
    await chat.open(f"?{SHORT}&backend=webgpu")
    assert "no WebGPU" in await chat.problem()
    await chat.way_out("Use the CPU instead").click()
    await chat.wait_for("loading")
    await chat.wait_for("ready", 180)
    await expect(chat.page.locator(".status-line")).to_contain_text("on the CPU, precise")
    await chat.shows("backend", "wasm")
