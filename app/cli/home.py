"""Shared by the commands that learn: the folder of everything learned, its passphrase, and the open runtime over it."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.markup import escape

from app.cli.terminal import console
from app.generation.answer_adapters import AnswerAdapters
from app.lessons.service import LearningService
from app.models.cache import model_path, sha256_of_model
from app.native_runtime import open_runtime, tidy_pages
from app.paths import memory_path
from app.records.kinds import KINDS
from app.records.memory import Memory
from app.runtime import Runtime
from app.stage import State
from py_core.loading import Model
from py_core.store.encryption import NativeCrypto
from py_core.store.errors import StoreError
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store

T = TypeVar("T")
PASSPHRASE = "SONATA_PASSPHRASE"
notes = console(stderr=True)

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="DIR",
        help="The folder of everything learned. The default is that of $SONATA_MEMORY, or ~/.local/share/sonata.",
    ),
]  # fmt: skip

NoMemoryOption = Annotated[
    bool, typer.Option("--no-memory", help="Do not open the memory, and use nothing that was learned.")
]


def home_memory(home: Path | None) -> Path:
    """The memory's file. The folder of --home is made if it is missing, for its owner only.

    Raises OSError, ValueError.
    """
    path = memory_path(home)
    if home is not None:
        if path.parent.exists() and not path.parent.is_dir():
            raise ValueError(f"{path.parent} is a file, but --home takes a folder: choose another one.")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def someone_types() -> bool:
    """True if a passphrase can be asked for: standard input may be a pipe, as long as errors go to a terminal."""
    return sys.stdin.isatty() or sys.stderr.isatty()


async def with_passphrase(opens: Callable[[str], Awaitable[T]], what: str) -> T:
    """The result of `opens` with $SONATA_PASSPHRASE, or with typed passphrases until one is right. what: the protected
    thing.

    Raises StoreError: "passphrase" if $SONATA_PASSPHRASE is wrong, "locked" if none is given.
    """
    if (given := os.environ.get(PASSPHRASE)) is not None:
        try:
            return await opens(given)
        except StoreError as error:
            if error.reason == "passphrase":
                raise StoreError(
                    "passphrase",
                    "cli.wrong-passphrase",
                    "${variable} is not the passphrase of {what}.",
                    variable=PASSPHRASE,
                    what=what,
                ) from error
            raise
    while someone_types() and (typed := _typed(f"Passphrase of {what}: ")):
        try:
            return await opens(typed)
        except StoreError as error:
            if error.reason != "passphrase":
                raise
            notes.print(f"[yellow]{escape(str(error))}[/yellow]", soft_wrap=True)
    raise StoreError(
        "locked",
        "cli.locked",
        "A passphrase protects {what}. Set ${variable}, or type it in a terminal.",
        what=what,
        variable=PASSPHRASE,
    )


async def unlocked_if_locked(opens: Callable[[str | None], Awaitable[T]], what: str) -> T:
    """The result of `opens` without a passphrase; if a passphrase protects it, as `with_passphrase`."""
    try:
        return await opens(None)
    except StoreError as error:
        if error.reason != "locked":
            raise
    return await with_passphrase(opens, what)


def _typed(question: str) -> str:
    # asyncio's own handler would only end the program after the line.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return getpass.getpass(question)
    except EOFError:
        return ""
    finally:
        signal.signal(signal.SIGINT, before)


@asynccontextmanager
async def opened_memory(home: Path | None) -> AsyncIterator[Memory]:
    """The memory without model and router. Raises StoreError, OSError, ValueError."""
    path = home_memory(home)
    rows = await SQLiteRows.open(path)
    try:
        memory = await Memory.open(await _unlocked(rows))
    except BaseException:
        await rows.close()
        raise
    try:
        yield memory
        await tidy_pages(path, memory)
    finally:
        await memory.close()


async def _unlocked(rows: SQLiteRows) -> Store:
    async def opens(passphrase: str | None) -> Store:
        return await Store.open(rows, passphrase, kinds=KINDS, crypto=NativeCrypto())

    return await unlocked_if_locked(opens, f"the memory {rows.place}")


@asynccontextmanager
async def opened_learning(home: Path | None, model: Model, given: Path | None) -> AsyncIterator[LearningService]:
    """The lessons that a model has learned, as `opened_runtime`."""
    async with opened_runtime(home, model, given) as runtime:
        assert runtime.learning is not None
        yield runtime.learning


@asynccontextmanager
async def opened_runtime(
    home: Path | None, model: Model, given: Path | None, adapters: AnswerAdapters | None = None,
    uses_trained: bool = True,
) -> AsyncIterator[Runtime]:  # fmt: skip
    """The memory, unlocked, with the model's learned lessons. given: the value of `--model`. adapters, uses_trained: as
    in Learner.

    Raises ValueError, with what to do, if it cannot be stored or recalled; StoreError, OSError.
    """
    path = home_memory(home)
    runtime = await open_runtime(path, model, sha256_of_model(model_path(given)), adapters, uses_trained)
    try:
        if runtime.memory_stage.state == State.LOCKED:
            await with_passphrase(runtime.unlock, f"the memory {path}")
        if not runtime.memory.store.persistent or runtime.learning is None:
            raise ValueError(runtime.problem or f"Nothing can be learned in {path}: choose another folder with --home.")
        yield runtime
    finally:
        await runtime.close()
