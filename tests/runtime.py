"""A conversation and its runtime, over a real memory in a file: with router and learning if a test wants them."""

from __future__ import annotations

from pathlib import Path

from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.lessons.service import LearningService
from app.lessons.shipped_gate import shipped_gate
from app.routing.factory import RouterParts
from app.routing.service import RoutingService
from app.runtime import Runtime
from py_core.loading import Model
from py_core.memory.encryption import NativeCrypto
from py_core.memory.memory import Memory
from py_core.memory.sqlite import SQLiteRows
from py_core.routing.embedder import SentenceEmbedder

BASE = "ab" * 32
"""Stands for the checksum of a tiny model's file."""


async def runtime_over(
    path: Path,
    parts: RouterParts | None = None,
    model: Model | None = None,
    embedder: SentenceEmbedder | None = None,
    base_sha256: str = BASE,
) -> Runtime:
    """The memory at `path`. parts: of a router, if it routes; model and embedder: if it learns."""

    async def routing(memory: Memory) -> RoutingService:
        assert parts is not None
        return await RoutingService.open(parts.embedder, parts.data, memory, parts.kernel)

    async def learning(memory: Memory) -> LearningService:
        assert model is not None
        assert embedder is not None
        return await LearningService.open(model, base_sha256, embedder, memory, shipped_gate())

    runtime = Runtime(NativeCrypto())
    await runtime.open(lambda: SQLiteRows.open(path))
    if parts is not None:
        await runtime.route_with(routing)
    if model is not None:
        await runtime.learn_with(learning)
        assert runtime.why_not_learning is None
    return runtime


def memory_of(runtime: Runtime) -> Memory:
    assert runtime.memory is not None
    return runtime.memory


def begin_conversation(assistant: Assistant, runtime: Runtime) -> Conversation:
    """Its recorder works at once. Otherwise it waits for a pause, and whatever waits for the background with it."""
    conversation = Conversation(assistant, runtime)
    conversation.recorder.idle_seconds = 0.0
    return conversation
