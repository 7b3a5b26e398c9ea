"""A model file in the page: the source from which both of the page's hosts bring weights, past Python."""

from __future__ import annotations

from typing import Any

from pyodide.ffi import JsException

from py_core.formats.gguf import GGUFError
from py_core.formats.source import FilePart
from py_core.messages_browser import js_words


class _Head:
    """The beginning of one of the files of a model."""

    def __init__(self, stream: Any, index: int, size: int) -> None:
        self._stream, self._index = stream, index
        self.size = size

    async def prefix(self, n: int) -> bytes:
        try:
            return (await self._stream.head(self._index, n)).to_bytes()
        except JsException as error:
            raise GGUFError(js_words(error)) from error


class BrowserSource:
    """A WeightStream (web/backends/weight_stream.js). Raises GGUFError, in the stream's words, if it breaks."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    @property
    def size(self) -> int | None:
        size = self.stream.size
        return size if isinstance(size, int) else None  # JavaScript's null is not Python's None

    @property
    def parts(self) -> tuple[FilePart, ...]:
        """The files of the model, if they are known."""
        found = [(part.name, int(part.start)) for part in self.stream.parts]
        ends = [*(start for _, start in found), self.size or 0][1:]
        return tuple(
            FilePart(name, _Head(self.stream, index, ends[index] - start), start)
            for index, (name, start) in enumerate(found)
        )

    async def prefix(self, n: int) -> bytes:
        try:
            return (await self.stream.prefix(n)).to_bytes()
        except JsException as error:
            raise GGUFError(js_words(error)) from error

    async def read(self, offset: int, nbytes: int) -> bytes:
        try:
            return (await self.stream.read(offset, nbytes)).to_bytes()
        except JsException as error:
            raise GGUFError(js_words(error)) from error

    async def rewind(self) -> None:
        """Read again from the start, from the browser's cache if it kept the file."""
        try:
            self.stream = await self.stream.again()
        except JsException as error:
            raise GGUFError(js_words(error)) from error
