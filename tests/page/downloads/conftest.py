from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite


@pytest.fixture
def server(small: SmallSite) -> Iterator[PlainServer]:
    """A server of a module's own `small` site. It isolates the page, so no service worker is needed."""
    with PlainServer(small.folder) as running:
        running.guards = True
        yield running
