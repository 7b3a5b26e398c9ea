"""The page's calls for tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from app.generation.stop_token import StopToken
from py_core.loading import Model

if TYPE_CHECKING:
    from app.extraction.views import TableColumn, TableNews


class Talk(Protocol):
    """app.page.talk.PageTalk."""

    extraction: StopToken

    def model(self) -> Model: ...
    def note_activity(self) -> None: ...


class TablesApi:
    """Each public method is a call of the page."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    async def extract(self, text: str, columns: Sequence[TableColumn]) -> AsyncIterator[TableNews]:
        """Make a table of a text, beside the conversation. One at a time: a new one ends the one before. See
        TableExtraction."""
        from app.extraction.columns import columns_of  # late: few visits make a table
        from app.extraction.table import TableExtraction

        self.stop()
        stop = self._talk.extraction = StopToken()
        table = TableExtraction(self._talk.model(), text, columns_of(columns))
        async with aclosing(table.news(stop)) as news:  # type: ignore[type-var]
            async for one in news:
                self._talk.note_activity()
                yield one

    def stop(self) -> None:
        """End the table that is made, after the present token."""
        self._talk.extraction.stop()
