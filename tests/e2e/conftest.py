"""A browser with the page in it, and a server of damaged model files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from chat_page import NO_SERVICE_WORKER, ChatPage
from damaged_server import DamagedServer
from plain_server import PlainServer
from playwright.async_api import Browser, BrowserContext, async_playwright
from small_site import SmallSite

from app.building.system import CHROMIUM_FLAGS, WEBGPU_FLAG


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_path: Path) -> AsyncIterator[Browser]:
    """Chromium with WebGPU."""
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
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    await page.add_init_script(NO_SERVICE_WORKER)
    yield ChatPage(page, site)
    await page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page_alone(chat: ChatPage) -> ChatPage:
    """The page with the stand-in worker."""
    await chat.use_stand_in()
    return chat


@pytest.fixture
def small(dist: Path, tmp_path: Path) -> SmallSite:
    """The site with a tiny model, where the test may change it."""
    return SmallSite(dist, tmp_path / "site")


@pytest.fixture
def server(small: SmallSite) -> Iterator[PlainServer]:
    """On this machine, as a developer has it."""
    with PlainServer(small.folder) as running:
        yield running


@pytest.fixture
def far_server(small: SmallSite) -> Iterator[PlainServer]:
    """Under a name that the service worker does not take for a developer's."""
    with PlainServer(small.folder, host="sonata.localhost") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """An empty browser, with service workers."""
    opened = await browser.new_context()
    yield opened
    await opened.close()


@pytest.fixture
def damaged(model_path: Path) -> Iterator[DamagedServer]:
    """Serves the real model, damaged as the test says."""
    with DamagedServer(model_path) as server:
        yield server


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: $SONATA_ARTIFACTS, or pytest's temporary folder."""
    root = os.environ.get("SONATA_ARTIFACTS")
    folder = (Path(root) if root else tmp_path_factory.getbasetemp()) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
