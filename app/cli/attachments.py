"""`--file` of `sonata chat` and `sonata ask`: files that are attached to a conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from app.files.service import FileService
from app.files.text import MOST_BYTES, FileError, shown_name, too_large
from app.interpreter import workbook
from app.interpreter.child import InterpreterError, PythonChild
from app.native_runtime import open_embedder
from app.protocol import Citation
from app.runtime import Runtime, RuntimeConfig
from py_core.routing.embedder import EmbedderError, SentenceEmbedder
from py_core.store.volatile import VolatileRows

WORKBOOKS = (".xlsx", ".xlsm")
FileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        metavar="PATH",
        help="A text, Markdown, code, CSV or xlsx file to ask about; may be given several times.",
    ),
]


def bytes_of(path: Path) -> bytes:
    """The contents of a file to attach. Raises FileError."""
    try:
        if path.is_dir():
            raise FileError("files.is-folder", "{path} is a folder. Give the files in it one by one.", path=path)
        if (size := path.stat().st_size) > MOST_BYTES:
            raise FileError(too_large(shown_name(path.name), size))
        return path.read_bytes()
    except OSError as error:
        raise FileError("files.unreadable", "{path} cannot be read: {why}.", path=path, why=error.strerror) from error


def read_attachment(path: Path) -> tuple[str, bytes]:
    """The name and the contents of a file to attach: of a spreadsheet, its first sheet as CSV. Raises FileError."""
    data = bytes_of(path)
    if path.suffix.lower() not in WORKBOOKS:
        return path.name, data
    if find_spec("openpyxl") is None:
        raise FileError(
            "files.no-openpyxl",
            "{name} needs the package openpyxl: pip install '.[analyst]', or save it as CSV.",
            name=path.name,
        )
    try:
        found = asyncio.run(_sheets(data, Path(workbook.__file__).read_text("utf-8")))
    except (InterpreterError, OSError, ValueError):
        found = {}  # its process has reached a limit
    if "sheets" not in found:
        raise FileError(
            "files.no-workbook",
            "{name} cannot be read as a spreadsheet: it is damaged, empty, too large, or has a password.",
            name=path.name,
        )
    return f"{path.stem}.csv", found["sheets"][0][1].encode()


async def _sheets(data: bytes, reader: str) -> dict[str, Any]:
    child = PythonChild()
    try:
        child.put("book.xlsx", data)
        await child.run(f"{reader}\nread_workbook('book.xlsx', 'sheets.json')")
        found: dict[str, Any] = json.loads(child.read("sheets.json"))
        return found
    finally:
        await child.close()


def cited_words(cited: Iterable[Citation]) -> str:
    """The passages that were read: each file's name with the places in it."""
    places = dict[str, list[str]]()
    for one in cited:
        places.setdefault(one.name, []).append(one.place)
    return "; ".join(f"{name}: {', '.join(found)}" if any(found) else name for name, found in places.items())


async def attach_file(files: FileService, session: str | None, path: Path) -> str:
    """Attach a file, to a new conversation if there is none; returns its id. Raises FileError, StoreError."""
    name, data = await asyncio.to_thread(read_attachment, path)
    return (await files.attach(session, name, "", data)).session


async def unstored_runtime() -> Runtime:
    """A runtime without agents and with a temporary memory, which holds the attached files."""

    @cache
    def embedder() -> SentenceEmbedder | None:
        try:
            return open_embedder()
        except EmbedderError as error:
            runtime.trouble(error)
            return None

    async def rows() -> VolatileRows:
        return VolatileRows()

    runtime = await Runtime.open(RuntimeConfig(rows, embedder=embedder))
    return runtime
