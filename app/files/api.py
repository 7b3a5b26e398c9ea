"""The page's calls about the files of its conversations, as plain data; web/files/client.js makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.files.service import FileService

if TYPE_CHECKING:
    from app.files.views import Attached, AttachedFile, TableLook


class FilesApi:
    """Each public method is a call of the page."""

    def __init__(self, files: FileService) -> None:
        self._files = files

    async def attach(self, data: bytes, chat: str | None, name: str, type: str, size: int) -> Attached:
        """Keep a file of a conversation, None: of a new one. data: of a PDF, the text of its pages in UTF-8 with a form
        feed between two. size: bytes of the file itself. See FileService.attach."""
        file = await self._files.attach(chat, name, type, data, size)
        return {"chat": file.session, "id": file.id}

    async def files(self, chat: str) -> list[AttachedFile]:
        return await self._files.files(chat)

    async def detach(self, ids: Sequence[str]) -> None:
        await self._files.detach(*ids)

    async def text(self, id: str) -> str:
        return await self._files.text(id)

    async def look(self, id: str) -> TableLook | None:
        """The first look at a file that is a table; None for another. See look_at."""
        from app.files.look import look_at  # late: few files are tables

        table = await self._files.table(id)
        return None if table is None else look_at(table)
