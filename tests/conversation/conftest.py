"""A memory in a file, opened as each test wants it.

A file of tests that routes gives its own fixture `router`, one that teaches `learner`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from app import native_services
from app.native_services import open_embedder
from app.router_factory import RouterParts
from app.services import Services
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder
from tests.services import services_over

OpenServices = Callable[[], Awaitable[Services]]


@pytest.fixture(scope="module")
def parts(fast_routing: None) -> RouterParts:
    """The real router: embedder, adapter and some of the patterns."""
    return native_services.native_router_parts()


@pytest.fixture(scope="session")
def embedder(dist: Path) -> SentenceEmbedder:
    return open_embedder()


@pytest.fixture
def router() -> RouterParts | None:
    """None: nothing is routed. A file that routes gives `parts`."""
    return None


@pytest.fixture
def learner() -> Model | None:
    """None: nothing is learned. A file that teaches gives its model."""
    return None


@pytest.fixture
async def open_services(
    request: pytest.FixtureRequest, router: RouterParts | None, learner: Model | None, tmp_path: Path
) -> AsyncIterator[OpenServices]:
    """Opens the same memory each time, as another tab, or a new start of the program, does."""
    opened = list[Services]()
    embedder = None if learner is None else request.getfixturevalue("embedder")

    async def open_one() -> Services:
        opened.append(await services_over(tmp_path / "memory.sqlite", router, learner, embedder))
        return opened[-1]

    yield open_one
    for services in opened:
        if services.learning is not None:
            services.learning.close()
        await services.close()


@pytest.fixture
async def services(open_services: OpenServices) -> Services:
    return await open_services()
