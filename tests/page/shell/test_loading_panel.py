"""While the model loads: every byte is counted, a stage runs at any time, and messages wait for their answer."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import Page, expect

from tests.page.chat_page import ChatPage
from tests.page.small_site import MODEL

pytestmark = pytest.mark.asyncio(loop_scope="session")

WATCH = """
  window.seen = [];
  new MutationObserver(() => {
    const panel = document.querySelector('#loading');
    if (!panel || panel.hidden || document.readyState === 'loading') return; // its stages may not be parsed yet
    const stages = [...panel.querySelectorAll('[data-stage]')];
    const running = stages.filter((li) => li.dataset.state === 'running').map((li) => li.dataset.stage);
    seen.push({ running, bytes: panel.querySelector('.loading-bytes').textContent });
  }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
"""


QUERY = "?backend=wasm&workers=1"


async def test_all_bytes_of_what_is_wanted_are_counted_and_a_stage_runs_at_any_time(
    tiny_chat: ChatPage,
) -> None:
    page = tiny_chat.page
    await page.add_init_script(WATCH)
    await tiny_chat.open_ready(QUERY)
    seen = await page.evaluate("seen")

    assert all(moment["running"] for moment in seen)
    assert {stage for moment in seen for stage in moment["running"]} == {"python", "model", "routing", "setup"}
    sizes = json.loads(await text_of(page, "sizes.json"))
    del sizes["snapshot"]  # its checksum
    model = int(
        await page.evaluate(f"fetch('{MODEL}', {{ method: 'HEAD' }}).then((r) => r.headers.get('Content-Length'))")
    )
    total = f"{(sum(sizes.values()) + model) / 1e6:.1f} MB"
    assert sum(sizes.values()) > 50e6
    assert any(moment["bytes"].endswith(f" of {total}") for moment in seen)

    await expect(page.locator("#notices")).not_to_contain_text("of context")


@pytest.mark.all
async def test_a_context_that_the_address_asks_for_is_told_in_memory(tiny_chat: ChatPage) -> None:
    page = tiny_chat.page
    await page.add_init_script(WATCH)
    await tiny_chat.open_ready(f"{QUERY}&routing=off&context=512")
    said = await page.inner_text("#notices")
    assert re.search(r"needs [\d.]+ MB for 512 tokens of context: weights [\d.]+ MB, keys and values", said), said
    seen = await page.evaluate("seen")
    counted = [moment["running"] for moment in seen if moment["bytes"]]
    assert counted
    assert all(running and "routing" not in running for running in counted)


@pytest.mark.all
async def test_a_model_that_may_not_take_what_it_needs_says_so_and_loads_once_it_may(tiny_chat: ChatPage) -> None:
    await tiny_chat.open(f"{QUERY}&routing=off&memory=1")
    assert "The limit that you chose is 1.0 MB." in await tiny_chat.problem()
    await tiny_chat.way_out("Let it take more memory").click()
    await tiny_chat.wait_for("ready")
    assert "memory=" not in tiny_chat.page.url


async def test_messages_sent_while_the_model_loads_are_answered_in_turn(page_alone: ChatPage) -> None:
    await page_alone.open("?model=held")
    await page_alone.send("First, sections")
    await page_alone.send("Second")
    queued = page_alone.page.locator(".queued .body")
    await expect(queued).to_have_text(["First, sections", "Second"])
    await expect(page_alone.page.locator(".waiting").first).to_contain_text("Waiting for the model")
    await expect(page_alone.page.locator("#message")).to_have_value("")

    await let_it_load(page_alone)
    await page_alone.wait_for("answering")
    await expect(page_alone.page.locator(".answer[aria-busy]")).to_have_count(0)
    answers = page_alone.page.locator(".answer .body")
    assert [text.split()[0] for text in await answers.all_inner_texts()] == ["Part", "The"]
    await expect(queued).to_have_count(0)


async def test_a_message_that_waits_can_be_taken_back(page_alone: ChatPage) -> None:
    await page_alone.open("?model=held")
    await page_alone.send("Not this one")
    await page_alone.page.get_by_role("button", name="Cancel").click()
    await expect(page_alone.page.locator("#message")).to_have_value("Not this one")
    await let_it_load(page_alone)
    await page_alone.wait_for("ready")
    await expect(page_alone.page.locator("#log article")).to_have_count(0)


async def test_a_message_that_is_not_answered_yet_survives_a_reload(page_alone: ChatPage) -> None:
    await page_alone.open("?model=held")
    await page_alone.send("Not yet")
    await expect(page_alone.page.locator(".queued")).to_have_count(1)
    await page_alone.page.reload()
    await expect(page_alone.page.locator("#message")).to_have_value("Not yet")
    top = "document.querySelector('.cards').getBoundingClientRect().top"
    before = await page_alone.page.evaluate(top)
    await let_it_load(page_alone)
    await page_alone.wait_for("ready")
    assert await page_alone.page.evaluate(top) == before, "nothing jumps when the panel goes"
    await expect(page_alone.page.locator("#message")).to_have_value("Not yet")


async def test_an_example_may_be_chosen_while_the_model_loads(page_alone: ChatPage) -> None:
    await page_alone.open("?model=held")
    await page_alone.page.click("text=Write some code")
    await expect(page_alone.page.locator("#message")).to_be_focused()
    await let_it_load(page_alone)
    await page_alone.page.locator(".answer strong", has_text="Rayleigh").wait_for()


async def let_it_load(chat: ChatPage) -> None:
    """Release the model that the stand-in worker holds back. It listens once it has reported a part of the model."""
    await chat.page.wait_for_function("() => document.querySelector('#loading .loading-bytes')?.textContent")
    assert await chat.state() == "loading"
    await chat.page.evaluate("new BroadcastChannel('stand-in').postMessage('load')")


async def text_of(page: Page, name: str) -> str:
    return await page.evaluate("(name) => fetch(name).then((response) => response.text())", name)
