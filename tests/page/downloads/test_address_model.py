"""?model=: anybody can make such a link, so the user is asked about a model from another site, with its name. The
worker is a stand-in, which reports its input; test_models_page.py shows that nothing is fetched before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.page.chat_page import ChatPage, fresh_tab
from tests.page.plain_server import PlainServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

THEIRS = "https://huggingface.co/somebody/Strange-GGUF/resolve/main/Strange%E2%80%AEQ4.gguf"
GIVEN = "sonata.info.given"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_chat(browser: Browser, site: str) -> AsyncIterator[ChatPage]:
    async with fresh_tab(browser, site) as chat:
        await chat.use_stand_in()
        await chat.page.goto(f"{site}/THIRD_PARTY.txt")
        yield chat


@pytest_asyncio.fixture(loop_scope="session")
async def chat(module_chat: ChatPage) -> ChatPage:
    """A tab in which the user agreed to no model of another site; the test opens the page. All tests here share it."""
    await module_chat.page.evaluate("sessionStorage.clear()")
    await module_chat.page.set_viewport_size({"width": 1280, "height": 800})
    return module_chat


def question(chat: ChatPage) -> Locator:
    return chat.page.get_by_role("dialog")


async def until_ready(chat: ChatPage) -> str:
    """The address of the model that was loaded."""
    await chat.wait_for("ready")
    return await chat.page.evaluate(GIVEN)


async def test_a_model_of_another_site_is_named_and_opened_only_where_the_user_agrees(chat: ChatPage) -> None:
    await chat.open(f"?model={THEIRS}")
    await expect(question(chat)).to_contain_text("Open a model from huggingface.co?")
    await expect(question(chat)).to_contain_text("Strange\ufffdQ4.gguf from huggingface.co")
    assert await chat.state() == "loading"
    await chat.agree_to_model()
    assert await until_ready(chat) == THEIRS
    assert "?model=https" in chat.page.url

    await chat.page.reload()  # the same tab, the same address
    assert await until_ready(chat) == THEIRS

    await chat.open(f"?model={THEIRS}".replace("Strange-", "Stranger-"))
    await expect(question(chat)).to_be_visible()
    other = await chat.page.context.new_page()
    await other.goto(f"{chat.site}/?model={THEIRS}")
    await expect(other.get_by_role("dialog")).to_be_visible()
    await other.close()


async def test_without_a_yes_the_usual_model_is_opened_and_the_address_is_as_if_there_were_no_link(
    chat: ChatPage,
) -> None:
    for key in ("Enter", "Escape", None):  # whatever the user is typing when the page opens
        await chat.page.evaluate("sessionStorage.clear()")
        await chat.open(f"?routing=off&model={THEIRS}")
        await expect(question(chat)).to_be_visible()
        if key:
            await chat.page.keyboard.press(key)
        else:
            await question(chat).get_by_role("button", name="Use my usual model").click()
        assert (await until_ready(chat)).startswith(f"{chat.site}/models/"), key
        assert chat.page.url == f"{chat.site}/?routing=off", key
        await expect(chat.page.locator("#notices")).to_contain_text("the model from huggingface.co")
    await chat.page.reload()
    assert (await until_ready(chat)).startswith(f"{chat.site}/models/")


async def test_the_button_that_agrees_waits_until_the_window_has_had_the_focus_for_a_while(chat: ChatPage) -> None:
    await chat.open(f"?model={THEIRS}")
    agree = question(chat).get_by_role("button", name="Open this model")
    await expect(agree).to_be_enabled()
    # The window comes to the front under a double click.
    comes_back = "() => { dispatchEvent(new Event('focus')); return document.querySelector('.ask .danger').disabled; }"
    assert await chat.page.evaluate(comes_back)
    await expect(agree).to_be_enabled()


async def test_in_a_frame_no_model_of_another_site_is_opened(chat: ChatPage, dist: Path) -> None:
    """On a server without the header that forbids frames."""
    frame = "(src) => document.body.append(Object.assign(document.createElement('iframe'), { src }))"
    with PlainServer(dist) as server:
        await chat.page.goto(f"{server.url}/THIRD_PARTY.txt")
        await chat.page.evaluate(frame, f"{server.url}/?model={THEIRS}")
        inside = chat.page.frame_locator("iframe")
        await expect(inside.locator("#notices")).to_contain_text("the model from huggingface.co")
        await expect(inside.locator("html[data-state=ready]")).to_be_attached()
        await expect(inside.get_by_role("dialog")).to_have_count(0)
    await chat.page.goto(f"{chat.site}/THIRD_PARTY.txt")


async def test_a_model_of_the_same_site_or_of_a_host_that_is_not_allowed_needs_no_question(chat: ChatPage) -> None:
    """The worker, which a stand-in replaces here, refuses the other host by name."""
    elsewhere = "https://huggingface.co@evil.example/x.gguf"
    for address, model in (
        ("models/mine.gguf", f"{chat.site}/models/mine.gguf"),
        (f"{chat.site}/c.gguf", f"{chat.site}/c.gguf"),
        (elsewhere, elsewhere),
    ):
        await chat.open(f"?model={address}")
        assert await until_ready(chat) == model


async def test_what_is_no_address_is_a_sentence_with_a_way_out(chat: ChatPage) -> None:
    for address in ("http://[::", "https://"):
        await chat.open(f"?model={address}")
        said = await chat.problem()
        assert said.startswith(
            f'The page\'s address asks for the model "{address}", which is not the address of a file.'
        )
    await expect(chat.way_out("Load again")).to_be_visible()
    await chat.way_out("Use my usual model").click()
    assert (await until_ready(chat)).startswith(f"{chat.site}/models/")


@pytest.mark.parametrize(
    ("width", "name"),
    [pytest.param(1280, "Qwen2.5-3B-Instruct-Q4_K_M", marks=pytest.mark.all), (390, "A" * 3000)],
    ids=["wide", "narrow"],
)
async def test_the_question_fits_on_every_screen(chat: ChatPage, screenshots: Path, width: int, name: str) -> None:
    await chat.page.set_viewport_size({"width": width, "height": 800})
    await chat.open(f"?model={THEIRS.replace('Strange%E2%80%AEQ4', name)}")
    agree = question(chat).get_by_role("button", name="Open this model")
    await expect(agree).to_be_enabled()
    for scheme in ("light", "dark"):
        await chat.page.emulate_media(color_scheme=scheme)
        await chat.page.screenshot(path=screenshots / f"ask-model-{width}-{scheme}.png")
        for found in (question(chat), agree, question(chat).get_by_role("button", name="Use my usual model")):
            box = await found.bounding_box() or {}
            assert min(box["x"], box["y"]) >= 0
            assert box["x"] + box["width"] <= width
            assert box["y"] + box["height"] <= 800
