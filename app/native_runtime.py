"""The embedder, the router and the memory natively: onnxruntime, wasmtime and SQLite, with the files of build.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.chat.context_store import BUDGET
from app.chat.kept_pages import KeptPages
from app.consolidation.idle_work import OnlyOne
from app.generation.answer_adapters import AnswerAdapters
from app.lessons.reader import FactReader
from app.models.build_outputs import embedder_files, hnsw_kernel_path, multilingual_files, routing_file
from app.paths import cache_dir
from app.records.memory import Memory
from app.routing.factory import RouterParts, build_router
from app.runtime import Learner, Runtime, RuntimeConfig
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from py_core.loading import Model
from py_core.routing.embedder import EmbedderError, SentenceEmbedder
from py_core.routing.embedder_onnx import OnnxEncoder
from py_core.routing.router import Router
from py_core.routing.routing_data import RoutingDataError
from py_core.store.errors import StoreError
from py_core.store.sqlite import SQLiteRows
from py_core.tokenizers.unigram import Unigram
from py_core.tokenizers.wordpiece import WordPiece


def open_embedder(threads: int = 1, multilingual: bool = False) -> SentenceEmbedder:
    """multilingual: the embedder for other languages than English, if it was fetched.

    Raises EmbedderError, with what to do, when the embedder has not been made or is damaged.
    """
    files = multilingual_files(cache_dir()) if multilingual else embedder_files(cache_dir())
    for path in (files.model, files.tokenizer):
        if not path.is_file() and multilingual:
            raise EmbedderError(
                "embedder.not-fetched",
                "There is no multilingual embedder yet: run `python build.py models multilingual` once.",
            )
        if not path.is_file():
            raise EmbedderError(
                "site.not-built", "{path} does not exist: run `python build.py site` once to make it.", path=path
            )
    tokenizer = (Unigram if multilingual else WordPiece).from_json(files.tokenizer.read_bytes())
    encoder = OnnxEncoder(files.model, files.fingerprint, files.meaning_fingerprint, threads)
    return SentenceEmbedder(tokenizer, encoder, is_multilingual=multilingual)


def native_router_parts(multilingual: bool = False) -> RouterParts:
    """multilingual: as in `open_embedder`. Raises EmbedderError or RoutingDataError, with what to do, when something
    was not made."""
    embedder = open_embedder(multilingual=multilingual)
    path = routing_file(cache_dir(), multilingual)
    if not path.is_file():
        raise RoutingDataError(
            "site.not-built", "{path} does not exist: run `python build.py site` once to make it.", path=path
        )
    try:
        kernel: HnswKernel | None = WasmtimeHnswKernel(hnsw_kernel_path())
    except FileNotFoundError:
        kernel = None
    return RouterParts(embedder, path.read_bytes(), kernel)


async def native_router() -> RouterParts:
    """As `native_router_parts`, for RuntimeConfig."""
    return native_router_parts()


async def open_router(changes: Mapping[str, Any] | None = None, multilingual: bool = False) -> Router:
    """A router without a memory. changes: the user's, to the agents. multilingual: as in `open_embedder`. Raises
    EmbedderError or RoutingDataError."""
    parts = native_router_parts(multilingual)
    return await build_router(parts.embedder, parts.data, parts.kernel, changes)


async def open_runtime(
    path: Path, model: Model | None = None, base_sha256: str = "", adapters: AnswerAdapters | None = None,
    uses_trained: bool = True, only_one: OnlyOne | None = None,
) -> Runtime:  # fmt: skip
    """path: the memory's file. model: the model that can be taught, if any, as in Learner.

    Never fails: `problem` says what is missing, and the chat works without it.
    """
    learner = None if model is None else native_learner(model, base_sha256, adapters, uses_trained, only_one)
    return await Runtime.open(
        RuntimeConfig(
            lambda: SQLiteRows.open(path), pages=lambda: open_pages(pages_path(path)), router=native_router,
            learner=learner,
        )
    )  # fmt: skip


def native_learner(
    model: Model, base_sha256: str, adapters: AnswerAdapters | None = None, uses_trained: bool = True,
    only_one: OnlyOne | None = None,
) -> Learner:  # fmt: skip
    """A model that is taught, as in Learner, with the reader and the embedder of the files of build.py."""
    reader = FactReader(model, base_sha256)
    return Learner(model, base_sha256, adapters, uses_trained, only_one, reader=reader, embedder=open_embedder)


def pages_path(memory: Path) -> Path:
    """Return the path of the stored keys and values of conversations, beside the memory's file."""
    return memory.with_name(f"{memory.name}.pages")


async def tidy_pages(path: Path, memory: Memory) -> None:
    """Delete the stored pages of deleted conversations, or under another key than the memory's; path: of its file."""
    with contextlib.suppress(StoreError, OSError):
        if await asyncio.to_thread(pages_path(path).exists):
            chats = {session.id for session in await memory.sessions.all()}
            pages = KeptPages(await open_pages(pages_path(path)), lambda: memory.store.lock, BUDGET)
            await pages.forget_others(chats)
            await pages.close()


async def open_pages(path: Path) -> SQLiteRows:
    """Open the stored keys and values of conversations, or replace them if they cannot be opened. Raises StoreError."""
    try:
        return await SQLiteRows.open(path)
    except StoreError as error:
        if error.reason not in ("damaged", "newer"):
            raise
    for part in ("", "-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    return await SQLiteRows.open(path)
