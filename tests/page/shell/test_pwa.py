"""The page as an app: content shared with it, its install button, an update under an open page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, FilePayload, async_playwright, expect

from app.building.system import CHROMIUM_FLAGS
from tests.page.chat_page import SHARE, ChatPage, share
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUERY = "?backend=wasm"


@pytest.fixture
def light(small: SmallSite) -> SmallSite:
    """Without the engine and its large files: these tests are about the page around it."""
    small.use_stand_in()
    return small


@pytest_asyncio.fixture(loop_scope="session")
async def kept(context: BrowserContext, light: SmallSite, server: PlainServer) -> AsyncIterator[ChatPage]:
    """The page, ready, with all of the site stored."""
    chat = ChatPage(await context.new_page(), server.url)
    await chat.open_ready(QUERY)
    await chat.page.wait_for_function("() => document.documentElement?.dataset.offline === 'ready'")
    yield chat


async def test_what_another_app_or_site_shares_waits_for_a_click_also_without_the_server(
    kept: ChatPage, context: BrowserContext, server: PlainServer
) -> None:
    await kept.open("?shared=yes")  # a link to something that was not shared
    await expect(kept.page.locator("#notices")).to_contain_text("What was shared did not arrive. Share it again.")

    server.stop()
    page = await context.new_page()
    form = (
        SHARE % server.url
        + "<script>document.forms[0].text.value = 'Remember this'; document.forms[0].submit()</script>"
    )
    await page.route("http://other.test/", lambda to: to.fulfill(body=form, content_type="text/html"))
    await page.goto("http://other.test/", wait_until="commit")  # its form is sent without anybody's click
    card = page.locator("dialog.ask")
    await expect(card).to_contain_text("other.test sent something to Sonata")
    await expect(card).to_contain_text("Remember this")
    await page.get_by_role("button", name="Discard").click()
    await expect(page.locator("#message")).to_have_value("")

    words = {"title": "A page", "text": "Look at this: https://a.example/b", "url": "https://a.example/b"}
    note: FilePayload = {"name": "note\u202egpj.md", "mimeType": "text/markdown", "buffer": b"# Note"}
    await share(page, server.url, [note], **words)
    await expect(card).to_contain_text("Files: note\ufffdgpj.md")
    wanted = "A page\nLook at this: https://a.example/b"
    await expect(page).not_to_have_url(re.compile("shared"))
    draft = "sessionStorage['sonata.draft'] ?? ''"
    untouched = f"[{draft}, document.querySelector('#files').hidden, document.querySelector('#message').value]"
    assert await page.evaluate(untouched) == ["", True, ""]
    assert "sonata-shared" not in await page.evaluate("caches.keys()")
    await page.get_by_role("button", name="Add", exact=True).click()
    await expect(page.locator("#message")).to_have_value(wanted)
    await expect(page.locator("#files")).to_be_visible()
    assert await page.locator("#log article").count() == 0, "nobody but the user sends it"
    await page.wait_for_function("() => sessionStorage.getItem('sonata.draft')")
    await page.reload()
    await expect(page.locator("#message")).to_have_value(wanted)  # once: it is a draft now


async def test_an_open_page_goes_on_under_a_new_service_worker_and_loads_late_modules_of_its_version(
    kept: ChatPage, light: SmallSite, server: PlainServer
) -> None:
    """Another sw.js takes over at once; files of one version stay together."""
    (panel,) = (path.relative_to(light.folder).as_posix() for path in light.folder.glob("bundle/log_panel-*.js"))
    light.write(panel, light.read(panel) + "\nexport const version = 'new';")
    light.write("sw.js", light.read("sw.js") + "\nself.marked = 'new';")
    light.publish()
    changed = """() => new Promise((resolve) => {
      navigator.serviceWorker.addEventListener('controllerchange', resolve, { once: true });
      navigator.serviceWorker.getRegistration().then((registration) => registration.update());
    })"""
    await kept.page.evaluate(changed)
    await kept.page.evaluate(
        """() => new Promise((resolve) => {
          navigator.serviceWorker.addEventListener('message', resolve, { once: true });
          navigator.serviceWorker.controller.postMessage({ kind: 'check' });
        })"""
    )
    server.stop()  # both versions are stored now
    await expect(kept.page.locator("#notices")).to_contain_text("A new version is ready")
    assert await kept.page.evaluate(f"import('./{panel}').then(({{ version }}) => version ?? 'old')") == "old"
    await kept.ask("Hello.")
    await kept.page.reload()
    await kept.wait_for("ready")
    assert await kept.page.evaluate(f"import('./{panel}').then(({{ version }}) => version ?? 'old')") == "new"
    assert kept.errors == []


async def test_chromium_can_install_it_and_the_button_is_there_while_it_offers_to(
    chromium_path: Path, light: SmallSite, server: PlainServer, tmp_path: Path
) -> None:
    server.guards = True  # otherwise the page loads twice, and does not wait for the icons of its first visit
    flags = [*CHROMIUM_FLAGS, "--bypass-app-banner-engagement-checks"]
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=chromium_path, args=flags
        )
        chat = ChatPage(await context.new_page(), server.url)
        await chat.open_ready(QUERY)
        await chat.page.wait_for_selector("#install:not([hidden])")
        await chat.page.click("#install")
        await expect(chat.page.locator("#install")).to_be_hidden()
        session = await context.new_cdp_session(chat.page)
        manifest = await session.send("Page.getAppManifest")
        errors = await session.send("Page.getInstallabilityErrors")
        said = list(chat.errors)  # while it closes, icons may still be loading
        await context.close()
    assert manifest["errors"] == []
    assert errors["installabilityErrors"] == []
    assert said == []
