"""What goes wrong becomes a sentence that says what to do, and the page stays usable. With the real engine."""

from __future__ import annotations

import struct

import pytest
from chat_page import ChatPage
from damaged_server import DamagedServer
from playwright.async_api import Browser, Route

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

SHORT = "max_tokens=4"


async def typed_text_is_kept(chat: ChatPage) -> None:
    """The message box works, and sends nothing into the void."""
    await chat.page.fill("#message", "Are you there?")
    await chat.page.press("#message", "Enter")
    assert await chat.page.input_value("#message") == "Are you there?"


async def loads_after_healing(chat: ChatPage, damaged: DamagedServer) -> None:
    damaged.heal()
    await chat.load_again()
    assert await chat.page.input_value("#message") == "Are you there?"
    await chat.page.press("#message", "Enter")
    await chat.wait_for("ready", 180)
    assert await chat.last_answer()


async def test_a_missing_model_file(chat: ChatPage) -> None:
    await chat.open("?model=models/nothing.gguf")

    problem = await chat.problem()

    assert "404" in problem
    assert "nothing.gguf" in problem
    await typed_text_is_kept(chat)
    assert await chat.way_out("Load again").is_visible()


async def test_a_truncated_model_file(chat: ChatPage, damaged: DamagedServer) -> None:
    damaged.length = damaged.size // 3
    await chat.open(f"?model={damaged.url}&{SHORT}")

    problem = await chat.problem()

    assert "truncated" in problem or "ends after" in problem
    await typed_text_is_kept(chat)
    await loads_after_healing(chat, damaged)


async def test_a_download_that_breaks_off(chat: ChatPage, damaged: DamagedServer) -> None:
    damaged.breaks_at = damaged.size // 2
    await chat.open(f"?model={damaged.url}&{SHORT}")

    problem = await chat.problem()

    assert "connection" in problem or "broke off" in problem
    await typed_text_is_kept(chat)


def not_gguf(start: bytearray) -> None:
    start[:4] = b"<htm"


def absurd_tensor_count(start: bytearray) -> None:
    struct.pack_into("<Q", start, 8, 1 << 60)


def noise_in_the_metadata(start: bytearray) -> None:
    start[200:400] = bytes(range(200))


@pytest.mark.parametrize("damage", [not_gguf, absurd_tensor_count, noise_in_the_metadata])
async def test_a_corrupted_model_file(chat: ChatPage, damaged: DamagedServer, damage) -> None:
    damaged.damage = damage
    await chat.open(f"?model={damaged.url}&{SHORT}")

    problem = await chat.problem()

    assert "GGUF" in problem or "model file" in problem
    assert "Something went wrong" not in problem
    assert any(word in problem.lower() for word in ("load it again", "download it again", "load again", "choose"))
    await typed_text_is_kept(chat)


async def test_a_byte_changed_in_the_middle_of_the_weights(chat: ChatPage, damaged: DamagedServer) -> None:
    """The header is whole; only the checksums that models.json has can tell."""
    damaged.flip_byte_at = damaged.size // 2

    async def fulfill(route: Route) -> None:
        # The model comes from the damaged server, under the site's own address.
        await route.fulfill(status=307, headers={"Location": damaged.url})

    await chat.page.route("**/models/*.gguf", fulfill)
    await chat.open()

    problem = await chat.problem()

    assert "checksum" in problem
    await typed_text_is_kept(chat)


async def test_without_webgpu_the_page_says_so_and_answers_on_the_cpu(
    browser_without_webgpu: Browser, site: str
) -> None:
    chat = ChatPage(await browser_without_webgpu.new_page(), site)
    await chat.open_ready("?max_tokens=2")

    assert "on the CPU, precise" in await chat.page.inner_text(".status-line")
    reason = await chat.page.inner_text(".status-reason")
    assert "no WebGPU" in reason
    assert "hardware acceleration" in reason
    assert await chat.ask("Hello.")
    assert chat.errors == []
    await chat.page.close()


async def test_webgpu_asked_for_where_there_is_none_offers_the_cpu(browser_without_webgpu: Browser, site: str) -> None:
    chat = ChatPage(await browser_without_webgpu.new_page(), site)
    await chat.open("?backend=webgpu")

    assert "no WebGPU" in await chat.problem()
    await chat.way_out("Use the CPU instead").click()
    await chat.wait_for("loading")
    await chat.wait_for("ready", 180)
    assert "on the CPU, precise" in await chat.page.inner_text(".status-line")
    assert await chat.page.input_value("#backend") == "wasm"
    await chat.page.close()


async def test_a_device_lost_while_nothing_happens(chat: ChatPage) -> None:
    await chat.open_ready(f"?{SHORT}&backend=webgpu")
    await chat.ask("Hello.")
    await chat.page.evaluate("window.sonata.loseDevice()")

    problem = await chat.problem()

    assert "graphics card" in problem
    assert "again" in problem
    await typed_text_is_kept(chat)
    await chat.load_again()
    assert "does not remember" in await chat.page.inner_text("#log")
    assert await chat.ask("Hello again.")


async def test_a_device_lost_in_the_middle_of_an_answer(chat: ChatPage) -> None:
    await chat.open_ready("?max_tokens=200&backend=webgpu")
    await chat.send("Tell me a very long story about a lighthouse.")
    said = await chat.wait_for_words()
    await chat.page.evaluate("window.sonata.loseDevice()")

    problem = await chat.problem()

    assert "graphics card" in problem
    assert (await chat.last_answer()).startswith(said[:5])
    assert "Interrupted" in await chat.page.inner_text(".answer-footer")
    assert await chat.page.input_value("#message") == "Tell me a very long story about a lighthouse."
    await chat.load_again()
