"""The embedder, the router and the memory natively: onnxruntime, wasmtime and SQLite, with the files of build.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.chat.page_store import BUDGET
from app.lessons.reader import FactReader
from app.lessons.service import LearningService
from app.lessons.shipped_gate import shipped_gate
from app.models.build_outputs import embedder_files, hnsw_kernel_path, routing_file
from app.paths import cache_dir
from app.routing.factory import RouterParts, build_router
from app.routing.service import RoutingService
from app.runtime import Runtime
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from py_core.loading import Model
from py_core.memory.encryption import NativeCrypto
from py_core.memory.errors import StoreError
from py_core.memory.kept_pages import KeptPages
from py_core.memory.memory import Memory
from py_core.memory.sqlite import SQLiteRows
from py_core.routing.embedder import EmbedderError, SentenceEmbedder
from py_core.routing.embedder_onnx import OnnxEncoder
from py_core.routing.router import Router
from py_core.routing.routing_data import RoutingDataError
from py_core.tokenizers.wordpiece import WordPiece


def open_embedder(threads: int = 1) -> SentenceEmbedder:
    """Raises EmbedderError, with what to do, when the embedder has not been made or is damaged."""
    files = embedder_files(cache_dir())
    for path in (files.model, files.tokenizer):
        if not path.is_file():
            raise EmbedderError(
                "site.not-built", "{path} does not exist: run `python build.py site` once to make it.", path=path
            )
    tokenizer = WordPiece.from_json(files.tokenizer.read_bytes())
    return SentenceEmbedder(tokenizer, OnnxEncoder(files.model, files.fingerprint, files.meaning_fingerprint, threads))


def native_router_parts() -> RouterParts:
    """Raises EmbedderError or RoutingDataError, with what to do, when something was not made."""
    embedder = open_embedder()
    path = routing_file(cache_dir())
    if not path.is_file():
        raise RoutingDataError(
            "site.not-built", "{path} does not exist: run `python build.py site` once to make it.", path=path
        )
    try:
        kernel: HnswKernel | None = WasmtimeHnswKernel(hnsw_kernel_path())
    except FileNotFoundError:
        kernel = None
    return RouterParts(embedder, path.read_bytes(), kernel)


async def open_router(changes: Mapping[str, Any] | None = None) -> Router:
    """A router without a memory. changes: the user's, to the agents. Raises EmbedderError or RoutingDataError."""
    parts = native_router_parts()
    return await build_router(parts.embedder, parts.data, parts.kernel, changes)


async def open_runtime(path: Path, model: Model | None = None, base_sha256: str = "") -> Runtime:
    """path: the memory's file. model: what can be taught, if any; base_sha256: of its file.

    Never fails: `problem` says what is missing, and the chat works without it.
    """
    kernel: HnswKernel | None = None
    runtime = Runtime(NativeCrypto(), kernel=lambda: kernel)

    def take_kernel(parts: RouterParts) -> None:
        nonlocal kernel
        kernel = parts.kernel

    await runtime.open(lambda: SQLiteRows.open(path))
    runtime.keep_pages(lambda: open_pages(pages_path(path)))
    await route_natively(runtime, take_kernel)
    if model is not None:
        model.name_file(base_sha256)
        await runtime.learn_with(lambda memory: open_learning(runtime, model, base_sha256, memory))
    return runtime


def pages_path(memory: Path) -> Path:
    """Where what the model has read of the conversations lies: beside the memory's file."""
    return memory.with_name(f"{memory.name}.pages")


async def tidy_pages(path: Path, memory: Memory) -> None:
    """Delete what was read of conversations that are gone, or with another key than the memory's; path: of its file."""
    with contextlib.suppress(StoreError, OSError):
        if await asyncio.to_thread(pages_path(path).exists):
            chats = {session.id for session in await memory.sessions.all()}
            pages = KeptPages(await open_pages(pages_path(path)), lambda: memory.store.lock, BUDGET)
            await pages.forget_others(chats)
            await pages.close()


async def open_pages(path: Path) -> SQLiteRows:
    """What the model has read of the conversations; anew where that cannot be opened. Raises StoreError."""
    try:
        return await SQLiteRows.open(path)
    except StoreError as error:
        if error.reason not in ("damaged", "newer"):
            raise
    for part in ("", "-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    return await SQLiteRows.open(path)


async def route_natively(runtime: Runtime, made: Callable[[RouterParts], None] = lambda parts: None) -> None:
    """Routing over the memory of `runtime`; where that fails, `problem` says why. made: is told of what it runs on."""

    async def opening(memory: Memory) -> RoutingService:
        parts = native_router_parts()
        made(parts)
        return await RoutingService.open(parts.embedder, parts.data, memory, parts.kernel)

    await runtime.route_with(opening)


async def open_learning(runtime: Runtime, model: Model, base_sha256: str, memory: Memory) -> LearningService:
    """With the embedder of the routing. Raises EmbedderError where there is none, GateError, StoreError."""
    embedder = runtime.routing.embedder if runtime.routing is not None else open_embedder()
    reader = FactReader(model, base_sha256)
    return await LearningService.open(model, base_sha256, embedder, memory, shipped_gate(), reader)
