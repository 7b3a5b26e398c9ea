"""The page as the build joined it, with the stand-in in the place of its engine: it starts in a third of the time that
the modules take one by one (`ChatPage.use_stand_in`), and a test may still import one of them for itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chat_page import ChatPage, fresh_tab
from playwright.async_api import Browser, Route
from small_site import STAND_IN

HEADERS = {"Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin"}


async def use_joined_stand_in(chat: ChatPage) -> None:
    """Before `open`, in a tab without a service worker."""

    async def fulfill(route: Route) -> None:
        await route.fulfill(body=STAND_IN.read_text("utf-8"), content_type="text/javascript", headers=HEADERS)

    await chat.page.route("**/engine/worker.js", fulfill)


@asynccontextmanager
async def joined_stand_in_tab(browser: Browser, site: str) -> AsyncIterator[ChatPage]:
    async with fresh_tab(browser, site) as chat:
        await use_joined_stand_in(chat)
        yield chat
