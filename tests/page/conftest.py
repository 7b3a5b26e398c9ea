"""A browser with the page in it, and a server of damaged model files."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Route, async_playwright, expect

from app.building.system import CHROMIUM_FLAGS, WEBGPU_FLAG
from tests.page.chat_page import PATIENCE_SECONDS, ChatPage, fresh_tab
from tests.page.damaged_server import DamagedServer
from tests.page.kept_pages import FAILED, KeptPages, Kind
from tests.page.plain_server import PlainServer
from tests.page.small_site import MODEL, SmallSite

TINY_QUERY = "?backend=wasm&workers=1&max_tokens=8"
SHARED = ("page_alone", "page_apart", "plain_chat", "ready_chat", "real_chat")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The page's tests come first. Of two workers (`--dist=worksteal`) one then runs them while the other one runs
    the rest: each page is opened once, and two browsers seldom compute at the same time. Tests that share a page of
    one kind run one after the other, and tests of the real model, which takes longest to open, form one group."""
    here = Path(__file__).parent
    own = [item for item in items if here in item.path.parents]
    uses: dict[Path, Counter[int]] = defaultdict(Counter)
    for item in own:
        names = getattr(item, "fixturenames", ())
        uses[item.path].update(number for number, name in enumerate(SHARED) if name in names)
    kind = {path: used.most_common(1)[0][0] if used else len(SHARED) for path, used in uses.items()}
    real = SHARED.index("real_chat")

    def group(item: pytest.Item) -> int:
        return real if "real_chat" in getattr(item, "fixturenames", ()) else kind[item.path]

    items[:] = sorted(own, key=group) + [item for item in items if here not in item.path.parents]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_path: Path) -> AsyncIterator[Browser]:
    """Chromium with WebGPU."""
    expect.set_options(timeout=PATIENCE_SECONDS * 1000)  # a machine may be busy: the awaited state comes, or never does
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium_path, args=[*CHROMIUM_FLAGS, WEBGPU_FLAG])
        yield running
        await running.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser_without_webgpu(chromium_path: Path) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield running
        await running.close()


@pytest_asyncio.fixture(loop_scope="session")
async def chat(browser: Browser, site: str) -> AsyncIterator[ChatPage]:
    """A fresh tab with WebGPU, without a service worker; the test opens the page."""
    async with fresh_tab(browser, site) as chat:
        yield chat


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def python_page(browser: Browser, site: str) -> AsyncIterator[Page]:
    """A page whose `runPython(source)` runs Sonata's Python in a worker (python_worker.js), without a model."""
    page, here = await browser.new_page(bypass_csp=True), Path(__file__)
    headers = {"Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin"}

    async def fulfill(route: Route) -> None:
        body = here.with_name("python_worker.js").read_text("utf-8")
        await route.fulfill(body=body, content_type="text/javascript", headers=headers)

    await page.route("**/python_worker.js", fulfill)
    await page.goto(f"{site}/THIRD_PARTY.txt")
    await page.evaluate(here.with_name("run_python.js").read_text("utf-8"))
    yield page
    await page.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kept_pages(browser: Browser) -> AsyncIterator[KeptPages]:
    """The pages that tests share; `page_alone`, `page_apart`, `ready_chat`, `plain_chat` and `real_chat` lend them."""
    pages = KeptPages(browser)
    yield pages
    await pages.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page_alone(kept_pages: KeptPages, site: str, request: pytest.FixtureRequest) -> AsyncIterator[ChatPage]:
    """The page with the stand-in worker, ready, in the state of a first visit. See `kept_pages.py`."""
    async with kept_pages.lend(Kind(site, "", stand_in=True), request.node) as chat:
        yield chat


@pytest_asyncio.fixture(loop_scope="session")
async def page_apart(kept_pages: KeptPages, site: str, request: pytest.FixtureRequest) -> AsyncIterator[ChatPage]:
    """As `page_alone`, with its modules served separately: for a test that imports one of them."""
    async with kept_pages.lend(Kind(site, "", stand_in=True, apart=True), request.node) as chat:
        yield chat


@pytest.fixture(scope="session")
def tiny_files(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    """The site with a tiny model; no test changes it."""
    return SmallSite(dist, tmp_path_factory.mktemp("tiny") / "site")


@pytest.fixture(scope="session")
def tiny_site(tiny_files: SmallSite) -> Iterator[str]:
    """The address of the site with a tiny model."""
    with PlainServer(tiny_files.folder) as running:
        running.guards = True
        yield running.url


@pytest_asyncio.fixture(loop_scope="session")
async def tiny_chat(browser: Browser, tiny_site: str) -> AsyncIterator[ChatPage]:
    """As `chat`, with a tiny model: its answers are noise, but it needs little of a CPU or a software GPU."""
    async with fresh_tab(browser, tiny_site) as chat:
        yield chat


@pytest.fixture(scope="module")
def tiny_query() -> str:
    """The address of `ready_chat`, after the site's. A module with a fixture of this name has a page of its own."""
    return TINY_QUERY


@pytest_asyncio.fixture(loop_scope="session")
async def ready_chat(
    kept_pages: KeptPages, tiny_site: str, tiny_query: str, request: pytest.FixtureRequest
) -> AsyncIterator[ChatPage]:
    """The real page, ready, with a tiny model, its memory and its router: the cheapest page for most tests.

    All tests share it, because it takes seconds to start; each begins in the state of a first visit
    (`kept_pages.py`). The answers are noise of up to 8 tokens. `await ready_chat.routed()` waits for the router.
    """
    async with kept_pages.lend(Kind(tiny_site, tiny_query), request.node) as chat:
        yield chat


@pytest_asyncio.fixture(loop_scope="session")
async def plain_chat(kept_pages: KeptPages, tiny_site: str, request: pytest.FixtureRequest) -> AsyncIterator[ChatPage]:
    """As `ready_chat`, without routing: a prompt holds the conversation, and no instructions."""
    async with kept_pages.lend(Kind(tiny_site, f"{TINY_QUERY}&routing=off"), request.node) as chat:
        yield chat


@pytest.fixture(scope="module")
def real_query() -> str:
    """The address of `real_chat`, after the site's. A module with a fixture of this name has a page of its own."""
    return "?max_tokens=200"


@pytest_asyncio.fixture(loop_scope="session")
async def real_chat(
    kept_pages: KeptPages, site: str, real_query: str, request: pytest.FixtureRequest
) -> AsyncIterator[ChatPage]:
    """As `ready_chat`, with the real model: for tests in which the words of an answer matter."""
    async with kept_pages.lend(Kind(site, real_query, is_large=True), request.node) as chat:
        yield chat


@pytest.fixture
def small(dist: Path, tmp_path: Path) -> SmallSite:
    """The site with a tiny model, which the test may change."""
    return SmallSite(dist, tmp_path / "site")


@pytest.fixture
def server(small: SmallSite) -> Iterator[PlainServer]:
    """On localhost, as for a developer."""
    with PlainServer(small.folder) as running:
        yield running


@pytest.fixture
def far_server(small: SmallSite) -> Iterator[PlainServer]:
    """Under a host name that the service worker does not count as a developer's."""
    with PlainServer(small.folder, host="sonata.localhost") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """An empty browser, with service workers."""
    opened = await browser.new_context()
    yield opened
    await opened.close()


@pytest.fixture
def damaged(tiny_files: SmallSite) -> Iterator[DamagedServer]:
    """Serves the tiny model, damaged in the way that the test sets."""
    with DamagedServer(tiny_files.folder / MODEL) as server:
        yield server


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of screenshots: $SONATA_ARTIFACTS, or pytest's temporary folder."""
    root = os.environ.get("SONATA_ARTIFACTS")
    folder = (Path(root) if root else tmp_path_factory.getbasetemp()) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
