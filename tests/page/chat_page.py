"""The page as its user sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from playwright.async_api import Browser, ConsoleMessage, FilePayload, Locator, Page, Route, expect

from tests.page.small_site import STAND_IN

LOAD_SECONDS = 180.0
ANSWER_SECONDS = 180.0
PATIENCE_SECONDS = 60.0
"""Timeout of assertions and clicks: the awaited state comes or never does, and a machine may be busy."""
NO_SERVICE_WORKER = "delete Navigator.prototype.serviceWorker"
"""Makes a page like one in a browser without service workers: it fetches each file from the server, as a test needs
it."""


PANEL_OF = {
    "Learning": "Learned", "Facts": "Learned", "Routing": "Learned", "Map": "Learned", "Log": "Learned",
    "Model": "Settings", "Answers": "Settings", "Settings/Learning": "Settings", "Appearance": "Settings",
    "Storage": "Settings",
    "Agents": "Agents",
}  # fmt: skip
"""The panel of each part, by name."""


async def open_part(page: Page, name: str) -> Locator:
    """Open a part of the panel that has it, by the links of the side bar and the tabs. "Settings/Learning": for a
    part whose name another panel has, too."""
    side, panel = page.locator("#panel"), PANEL_OF[name]
    if not await side.is_visible() or await side.locator("h2").first.inner_text() != panel:
        if not await page.is_visible("#sidebar"):
            if await side.is_visible():  # it covers the chat
                await side.locator(".panel-close").click()
            await page.click("#sidebar-open")
        await page.locator("#sidebar").get_by_role("link", name=panel, exact=True).click()
    if panel == name:
        part = name.lower()
    else:
        tab = side.get_by_role("tab", name=name.rpartition("/")[2], exact=True)
        await tab.click()
        part = (await tab.get_attribute("id") or "").removeprefix("panel-tab-")
    found = side.locator(f"#panel-part-{part}")
    await found.wait_for(state="attached")
    return found


SHARE = """<form method="post" enctype="multipart/form-data" action="%s/share">
  <input name="title"><textarea name="text"></textarea><input name="url"><input name="files" type="file" multiple>
  <button>Share</button></form>"""


async def share(page: Page, site: str, files: Sequence[FilePayload] = (), **words: str) -> None:
    """Share something as the system does with an installed app: send the form of the manifest."""
    await page.goto("about:blank")
    await page.set_content(SHARE % site)
    for name, text in words.items():
        await page.fill(f"[name={name}]", text)
    await page.set_input_files("[name=files]", list(files))
    await page.click("button")


async def choose_files(
    page: Page, open_chooser: Callable[[], Awaitable[None]], files: Sequence[Path | FilePayload]
) -> None:
    """Take files in the dialog that `open_chooser` opens.

    Playwright intercepts these dialogs as soon as a test waits for one, but does not wait until the browser knows: a
    key that is pressed at once may come first, and then the dialog is lost.
    """
    async with page.expect_file_chooser() as chooser:
        await page.evaluate("0")  # its answer comes after the browser knows
        await open_chooser()
    await (await chooser.value).set_files(list(files))


Seen = TypeVar("Seen", bound="ChatPage")


class ChatPage:
    """The page with all that a user can see and do."""

    def __init__(self, page: Page, site: str) -> None:
        self.page, self.site = page, site
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    async def open(self, query: str = "") -> None:
        await self.page.goto(f"{self.site}/{query}")

    async def open_ready(self, query: str = "") -> None:
        await self.open(query)
        await self.wait_for("ready", LOAD_SECONDS)

    async def begin(self, query: str) -> None:
        """Back to an empty chat and box, nothing open, no errors, for a file with its own page; `kept_pages.py` does
        more."""
        if await self.state() == "answering":
            await self.page.evaluate("document.querySelector('.stop').click()")
        if await self.state() != "ready":  # the test before failed
            await self.open_ready(query)
        await self.page.evaluate("for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close()")
        await self.page.evaluate("document.querySelector(':popover-open')?.hidePopover()")
        await self.close_panel()
        if await self.page.locator("#log article").count():
            await self.page.click("#new-chat")
        await self.page.fill("#message", "")
        self.errors.clear()

    def seen_as(self, kind: type[Seen]) -> Seen:
        """The same page, wrapped in this class."""
        other = kind.__new__(kind)
        other.__dict__ = self.__dict__
        return other

    @property
    def side(self) -> Locator:
        """The panel beside the chat."""
        return self.page.locator("#panel")

    @property
    def part(self) -> Locator:
        """The visible part in the panel."""
        return self.side.locator(".panel-part:not([hidden])")

    async def open_part(self, name: str) -> Locator:
        return await open_part(self.page, name)

    async def show_for_developers(self) -> None:
        """Open the details for developers in the part "Learning" of a panel; an earlier test may have opened them."""
        if not await self.page.locator("details.developers[open]").count():
            await self.page.get_by_text("For developers", exact=True).press("Enter")

    async def close_panel(self) -> None:
        if await self.side.is_visible():
            await self.side.locator(".panel-close").click()
            await self.side.wait_for(state="hidden")

    async def choose(self, setting: str, value: str) -> None:
        """Choose in Settings, Model: backend, context or workers. The model is loaded again; the panel stays open."""
        part = await self.open_part("Model")
        await part.locator(f"#{setting}").select_option(value)

    async def shows(self, name: str, value: str) -> None:
        """Wait until Settings, Model, says this; the panel is closed again."""
        await expect((await self.open_part("Model")).locator(f"#{name}")).to_have_value(value)
        await self.close_panel()

    async def open_model_menu(self) -> None:
        if not await self.page.is_visible("#model-menu"):
            await self.page.click("#model-chip")

    async def open_models(self) -> None:
        """In Settings, Model."""
        await self.open_model_menu()
        await self.page.click("#models-button")
        await self.page.wait_for_selector("#models")

    async def use_stand_in(self, apart: bool = False) -> None:
        """Call before `open`: a worker without a model (stand_in_worker.js).

        apart: the page's modules are served separately, so that a test can import one; it starts three times slower.
        """

        async def fulfill(route: Route) -> None:
            headers = {"Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin"}
            await route.fulfill(body=STAND_IN.read_text("utf-8"), content_type="text/javascript", headers=headers)

        await self.page.add_init_script(NO_SERVICE_WORKER)  # which would fetch the real worker
        await self.page.route("**/engine/worker.js", fulfill)
        if apart:
            main = "import '../main.js';"
            await self.page.route("**/bundle/main.js", lambda to: to.fulfill(body=main, content_type="text/javascript"))

    async def allow_host(self, url: str) -> None:
        """Call before `open`: models may come from this server, as if the user had allowed it in Settings, Model."""
        host = url.rpartition("/")[0]
        await self.page.add_init_script(f"localStorage.setItem('sonata.hosts', JSON.stringify(['{host}']))")

    async def agree_to_model(self) -> None:
        """Call after `open`: agree to a model of another site in the address."""
        await self.page.get_by_role("button", name="Open this model").click()

    async def wait_for(self, state: str, seconds: float = LOAD_SECONDS) -> None:
        """state: loading, ready, answering or failed. Fails at once, with the banner's words, if it is failed."""
        await self.page.wait_for_function(
            "wanted => [wanted, 'failed'].includes(document.documentElement?.dataset.state)",
            arg=state,
            timeout=seconds * 1000,
        )
        now = await self.state()
        assert now == state, f"{now}: {await self.page.inner_text('#banner')}"

    async def until(self, script: str) -> None:
        """Wait until a promise has a true value: `wait_for_function` counts the promise itself as true."""
        pause = "await new Promise((again) => setTimeout(again, 20))"
        waiting = self.page.evaluate(f"async () => {{ while (!(await ({script}))) {pause}; }}")
        await asyncio.wait_for(waiting, LOAD_SECONDS)

    async def routed(self, state: str = "ready") -> None:
        """Wait until the router is ready, or in another state of the memory's info."""
        await self.page.wait_for_function(
            "wanted => document.documentElement?.dataset.routing === wanted", arg=state, timeout=LOAD_SECONDS * 1000
        )

    async def can_learn(self) -> None:
        """Wait until lessons can be learned: before, a lesson waits or is only noted."""
        await self.page.wait_for_function("() => document.documentElement?.dataset.learning === 'ready'")
        await self.page.evaluate("sonata.engine.learning.learnNow({ name: 'preparation' })")
        known = "({ loops }) => !loops[0].words.join(' ').includes('gets to know this model')"
        await self.until(f"sonata.engine.learning.overview().then({known})")

    async def state(self) -> str:
        return await self.page.evaluate("document.documentElement?.dataset.state")

    async def send(self, text: str) -> None:
        await self.page.fill("#message", text)
        await self.page.press("#message", "Enter")

    async def ask(self, text: str) -> str:
        """Send a message and wait for the whole answer."""
        await self.send(text)
        await expect(self.page.locator(".queued")).to_have_count(0)
        await self.wait_for("ready", ANSWER_SECONDS)
        return await self.last_answer()

    async def ask_for_cut_off(self, text: str) -> str:
        """As `ask`, in new chats until an answer ends at its limit: the tiny model's noise may end earlier."""
        for _ in range(10):
            answer = await self.ask(text)
            if await self.page.evaluate("sonata.lastAnswer.reason") == "length":
                return answer
            await self.page.click("#new-chat")
        raise AssertionError("Ten answers in a row ended before their limit.")

    async def wait_for_words(self, seconds: float = ANSWER_SECONDS) -> str:
        """Wait until the last answer has begun."""
        await self.page.wait_for_function(
            "() => [...document.querySelectorAll('.answer .body')].at(-1)?.textContent.trim()", timeout=seconds * 1000
        )
        return await self.last_answer()

    async def last_answer(self) -> str:
        return (await self.page.locator(".answer .body").last.inner_text()).strip()

    async def problem(self, seconds: float = LOAD_SECONDS) -> str:
        """The sentence of the banner, once there is one."""
        await self.page.wait_for_selector("#banner:not([hidden])", timeout=seconds * 1000)
        return await self.page.inner_text(".banner-message")

    def way_out(self, name: str) -> Locator:
        """A button of the banner."""
        return self.page.locator("#banner").get_by_role("button", name=name, exact=True)

    async def load_again(self) -> None:
        # A software GPU first finishes the work from before the loss, and no frame is drawn meanwhile.
        await self.way_out("Load again").click(timeout=LOAD_SECONDS * 1000)
        await self.wait_for("loading")
        await self.wait_for("ready", LOAD_SECONDS)

    async def click_stop(self) -> None:
        """Nothing may come between the click and the next message: the page does not wait for its worker."""
        clicked = "() => { document.querySelector('.stop').click(); return document.documentElement?.dataset.state; }"
        assert await self.page.evaluate(clicked) == "ready"

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


@asynccontextmanager
async def fresh_tab(browser: Browser, site: str) -> AsyncIterator[ChatPage]:
    """A tab without a service worker, of a fresh browser; the caller opens the page."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    await context.add_init_script(NO_SERVICE_WORKER)
    yield ChatPage(await context.new_page(), site)
    await context.close()
