"""Finds what the files of a stored conversation say to a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.chat.chat_question import ChatQuestion
from app.chat.conversation_tree import ConversationTree
from app.files.material import Material
from app.generation.assistant import Assistant, user_message
from py_core.loading import Model
from py_core.routing.agents import Agent
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.runtime import Runtime

SHARE = 1 / 3
"""The most of the context that files may take."""
BESIDE = 192
"""Tokens of a prompt in addition to the message and its files: the system message, the least answer, and the
template."""
SMALL_WIDTH = 1024
"""A model with narrower hidden states (up to about half a billion parameters) loses the thread in a long text:"""
WHOLE_AT_MOST = 512
"""it reads files of more tokens by their passages, even if the whole file would fit. So does a larger one on a CPU: it
would take minutes until the first words (docs/decisions/0066)."""
LEAST_ROOM = 64
"""If the context has less room, nothing of the files is read: the message is nearly as long as that."""


async def consult(
    runtime: Runtime, assistant: Assistant, kept: ConversationTree, asked: ChatQuestion, agent: Agent | None
) -> Material | None:
    """Return None if the conversation has no files, or nothing in them belongs to the message. Never fails: errors go
    to the runtime, and the message is answered without files."""
    if kept.session is None or not asked.text.strip():
        return None
    if (room := room_for_files(assistant.model, asked.text, agent)) < LEAST_ROOM:
        return None
    path = [] if asked.after is None else kept.branches.path(asked.after)
    earlier = [turn.content for turn in path if turn.role == "user"]
    before = earlier[-2:-1] if asked.again else earlier[-1:]
    try:
        return await runtime.files.material(
            kept.session.id,
            asked.text,
            before[0] if before else "",
            counting(assistant.model),
            room,
            whole_room(assistant.model, room),
        )
    except (EmbedderError, StoreError) as error:
        runtime.trouble(error)
        return None


def room_for_files(model: Model, text: str, agent: Agent | None = None) -> int:
    """Return the most tokens of attached files that a message leaves room for: SHARE of the context, or less."""
    limit = model.engine.context_length
    if model.tokenizer.exceeds(text, limit):
        return 0
    return min(int(SHARE * limit), limit - BESIDE - counting(model)(user_message(text, agent)["content"]))


def whole_room(model: Model, room: int) -> int:
    """Return the most tokens of files that are read as a whole for any question."""
    reads_passages = model.config.hidden_size < SMALL_WIDTH or model.engine.capabilities.software
    return min(room, WHOLE_AT_MOST) if reads_passages else room


def counting(model: Model) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text."""
    return lambda text: len(model.tokenizer.encode(text))
