"""`--file` of `sonata chat` and `sonata ask`: files that are attached to a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from app.files.service import FileService
from app.files.text import MOST_BYTES, FileError, shown_name, too_large
from app.native_runtime import open_embedder
from app.protocol import Citation
from app.runtime import Runtime, RuntimeConfig
from py_core.routing.embedder import EmbedderError, SentenceEmbedder
from py_core.store.volatile import VolatileRows

FileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", metavar="PATH", help="A text, Markdown, code or CSV file to ask about; may be given several times."
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


def cited_words(cited: Iterable[Citation]) -> str:
    """The passages that were read: each file's name with the places in it."""
    places = dict[str, list[str]]()
    for one in cited:
        places.setdefault(one.name, []).append(one.place)
    return "; ".join(f"{name}: {', '.join(found)}" if any(found) else name for name, found in places.items())


async def attach_file(files: FileService, session: str | None, path: Path) -> str:
    """Attach a file, to a new conversation if there is none; returns its id. Raises FileError, StoreError."""
    return (await files.attach(session, path.name, "", bytes_of(path))).session


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
