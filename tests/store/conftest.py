"""Places for a memory, empty, ready to be opened and opened again; and a Chromium for those that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from py_core.store.store import Store
from tests.store.browser.page import BrowserThread, LimitedTab, Tab, Tabs
from tests.store.places import IN_THE_PAGE, SEMANTIC, Place, make_place

PLACES = [*SEMANTIC, pytest.param(IN_THE_PAGE, marks=pytest.mark.all)]


@pytest.fixture(scope="session")
def browser_thread() -> Iterator[BrowserThread]:
    thread = BrowserThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def chromium(browser_thread: BrowserThread, chromium_path: Path) -> Iterator[Browser]:
    browser = browser_thread.launch(chromium_path)
    yield browser
    browser_thread.wait(browser.close())


@pytest.fixture(scope="session")
def get_tab(request: pytest.FixtureRequest) -> Callable[[], Tab]:
    """A tab that all tests may use, opened when it is first needed."""

    def tab() -> Tab:
        tabs: Tabs = request.getfixturevalue("tabs")
        return tabs.shared()

    return tab


@asynccontextmanager
async def opened_place(backend: str, tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Place]:
    made = make_place(backend, tmp_path, get_tab)
    yield made
    for store in made.opened:
        await store.close()


@pytest_asyncio.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Place]:
    async with opened_place(request.param, tmp_path, get_tab) as made:
        yield made


@pytest_asyncio.fixture(params=PLACES)
async def lasting(request: pytest.FixtureRequest, tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Place]:
    """A place that still exists after its store was closed."""
    async with opened_place(request.param, tmp_path, get_tab) as made:
        yield made


@pytest_asyncio.fixture
async def store(place: Place) -> Store:
    return await place.open()


@pytest.fixture(scope="session")
def tabs(browser_thread: BrowserThread, chromium: Browser, site: str) -> Iterator[Tabs]:
    context = browser_thread.wait(chromium.new_context())
    yield Tabs(lambda: Tab.open(browser_thread, context, site))
    browser_thread.wait(context.close())


@pytest_asyncio.fixture
async def open_tab(tabs: Tabs) -> AsyncIterator[Callable[[], Awaitable[Tab]]]:
    """Opens a tab; the tabs of a test share a window."""
    yield tabs.open
    await tabs.end_test()


@pytest.fixture
def limited(browser_thread: BrowserThread, chromium: Browser, site: str) -> Iterator[LimitedTab]:
    """A tab of a window of its own, whose origin may store no more than the test says."""
    context = browser_thread.wait(chromium.new_context())
    tab = Tab.open(browser_thread, context, site)
    yield LimitedTab(tab, site, browser_thread.wait(context.new_cdp_session(tab.page)))
    browser_thread.wait(context.close())


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a database that no other test uses."""
    return request.node.name
