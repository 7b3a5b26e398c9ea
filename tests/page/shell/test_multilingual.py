"""A page that is not in English offers the multilingual embedder, if the site has it, and loads it only then."""

from __future__ import annotations

import json
import shutil

import pytest
from playwright.async_api import Browser, Locator, expect

from app.lessons.shipped_gate import GATE
from tests.page.chat_page import ChatPage
from tests.page.conftest import TINY_QUERY
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = [pytest.mark.all, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
FOLDER = "multilingual"


def add_multilingual(site: SmallSite) -> None:
    """MiniLM's files in the folder of the multilingual embedder: they answer as well, and are small."""
    shutil.copytree(site.folder / "embedder", site.folder / FOLDER)
    for name, source in (("routing", site.folder / "routing.safetensors"), ("gate", GATE)):
        shutil.copy(source, site.folder / FOLDER / f"{name}.safetensors")
    sizes = json.loads(site.read("sizes.json"))
    site.write("sizes.json", json.dumps(sizes | {FOLDER: 55_200_000, f"routing_{FOLDER}": sizes["routing"]}))
    site.publish()


async def open_looks(chat: ChatPage, panel: str, tab: str) -> Locator:
    """The part of the settings with the language; panel, tab: their names in the page's language."""
    await chat.page.locator("#sidebar").get_by_role("link", name=panel).click()
    await chat.side.get_by_role("tab", name=tab).click()
    return chat.part


async def test_a_german_page_offers_it_once_and_loads_it_only_if_it_is_wanted(
    browser: Browser, small: SmallSite, server: PlainServer
) -> None:
    add_multilingual(small)
    context = await browser.new_context(locale="de-DE")
    chat = ChatPage(await context.new_page(), server.url)
    await chat.open_ready(TINY_QUERY)
    offer = chat.page.locator("#notices").get_by_role("button", name="Laden (55,2 MB)")
    await expect(offer).to_be_visible()
    await chat.routed()
    assert not any(f"/{FOLDER}/" in url for url in chat.requests)

    await offer.click()
    await chat.page.wait_for_event("load")
    await chat.wait_for("ready", 120)
    await chat.routed()
    for name in ("embedder.json", "routing.safetensors", "gate.safetensors"):
        assert any(url.endswith(f"/{FOLDER}/{name}") for url in chat.requests), name
    await chat.page.reload()
    await chat.wait_for("ready", 120)
    await expect(offer).to_be_hidden()
    part = await open_looks(chat, "Einstellungen", "Aussehen")
    await expect(part.get_by_label("Mehrsprachig")).to_be_checked()
    assert chat.errors == []
    await context.close()


async def test_an_english_page_and_a_site_without_it_offer_nothing(
    browser: Browser, small: SmallSite, server: PlainServer
) -> None:
    for locale in ("de-DE", "en-GB"):
        context = await browser.new_context(locale=locale)
        chat = ChatPage(await context.new_page(), server.url)
        await chat.open_ready(TINY_QUERY)
        await chat.routed()
        assert not any(f"/{FOLDER}/" in url for url in chat.requests)
        await expect(chat.page.locator("#notices").get_by_role("button", name="MB")).to_have_count(0)
        part = await open_looks(
            chat, *(("Einstellungen", "Aussehen") if locale == "de-DE" else ("Settings", "Appearance"))
        )
        await expect(part.get_by_label("Sprache" if locale == "de-DE" else "Language")).to_be_visible()
        await expect(part.get_by_text("MB")).to_have_count(0)
        await context.close()
        if locale == "de-DE":
            add_multilingual(small)
