"""A conversation and its runtime, over a real memory in a file: with router and learning if a test wants them."""

from __future__ import annotations

from pathlib import Path

from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.routing.factory import RouterParts
from app.runtime import Learner, Runtime, RuntimeConfig
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder
from py_core.store.sqlite import SQLiteRows

BASE = "ab" * 32
"""Stands for the checksum of a tiny model's file."""


async def runtime_over(
    path: Path,
    parts: RouterParts | None = None,
    model: Model | None = None,
    embedder: SentenceEmbedder | None = None,
    base_sha256: str = BASE,
) -> Runtime:
    """The memory at `path`. parts: those of a router, if it routes; model and embedder: if it learns."""

    async def router() -> RouterParts:
        assert parts is not None
        return parts

    learner = None if model is None else Learner(model, base_sha256, embedder=lambda: embedder)
    config = RuntimeConfig(lambda: SQLiteRows.open(path), router=None if parts is None else router, learner=learner)
    runtime = await Runtime.open(config)
    assert runtime.learning_stage.why is None
    return runtime


def begin_conversation(assistant: Assistant, runtime: Runtime) -> Conversation:
    """Makes its recorder work at once. Otherwise it waits for a pause, and so does everything that waits for the
    background."""
    conversation = Conversation(assistant, runtime)
    conversation.recorder.idle_seconds = 0.0
    return conversation
