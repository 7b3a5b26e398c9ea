"""A memory in a file, opened as each test needs it.

A file of tests that routes defines its own fixture `router`, and one that teaches `learner`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from app import native_runtime
from app.native_runtime import open_embedder
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder
from tests.runtime import runtime_over

OpenRuntime = Callable[[], Awaitable[Runtime]]


@pytest.fixture(scope="module")
def parts(fast_routing: None) -> RouterParts:
    """The real router: embedder, adapter and some of the patterns."""
    return native_runtime.native_router_parts()


@pytest.fixture(scope="session")
def embedder(dist: Path) -> SentenceEmbedder:
    return open_embedder()


@pytest.fixture
def router() -> RouterParts | None:
    """None: nothing is routed. A file that routes returns `parts`."""
    return None


@pytest.fixture
def learner() -> Model | None:
    """None: nothing is learned. A file that teaches returns its model."""
    return None


@pytest.fixture
async def open_runtime(
    request: pytest.FixtureRequest, router: RouterParts | None, learner: Model | None, tmp_path: Path
) -> AsyncIterator[OpenRuntime]:
    """Opens the same memory each time, like another tab, or a restart of the program."""
    opened = list[Runtime]()
    embedder = None if learner is None else request.getfixturevalue("embedder")

    async def open_one() -> Runtime:
        opened.append(await runtime_over(tmp_path / "memory.sqlite", router, learner, embedder))
        return opened[-1]

    yield open_one
    for runtime in opened:
        await runtime.close()


@pytest.fixture
async def runtime(open_runtime: OpenRuntime) -> Runtime:
    return await open_runtime()
