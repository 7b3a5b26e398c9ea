"""A model of diffusion in the page: its card says so, and masks are boxes that become text."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.diffusion.tiny import tiny_diffusion
from tests.page.chat_page import ANSWER_SECONDS, fresh_tab
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

SEEN = """() => {
  globalThis.seen = [];
  new MutationObserver(() => {
    const places = [...document.querySelectorAll('.canvas > span')].map(({ className }) => className);
    if (places.length) seen.push(places);
  }).observe(document.querySelector('#log'), { childList: true, subtree: true, attributes: true });
}"""


async def test_masks_are_boxes_that_become_text(browser: Browser, dist: Path, tmp_path: Path) -> None:
    site = SmallSite(dist, tmp_path / "site", tiny_diffusion(16))
    with PlainServer(site.folder) as running:
        async with fresh_tab(browser, running.url) as chat:
            await chat.open_ready("?backend=wasm&workers=1&max_tokens=40&routing=off")
            page = chat.page
            await expect(page.locator(".status-line")).to_contain_text("It writes by diffusion")
            await page.evaluate(SEEN)
            await chat.send("Hello there")
            await chat.wait_for("ready", ANSWER_SECONDS)
            seen = await page.evaluate("seen")
            assert any("mask" in places and "known" in places for places in seen)
            known = [places.count("known") for places in seen]
            assert max(known) > 1
            await expect(page.locator(".canvas")).to_have_count(0)
            said = await page.locator(".answer .body").inner_text()
            assert said.strip()
            assert chat.errors == []
