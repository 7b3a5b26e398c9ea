"""Tools over what the user keeps: the memory, and the files of a conversation."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from app.tools.functions import tool
from app.tools.model_tool import Tool, ToolFailure
from py_core.display import one_line, shown
from py_core.learning.teaching.lessons import lesson_of
from py_core.messages import UserError

if TYPE_CHECKING:
    from app.files.service import FileService
    from app.memory.items import MemoryItems

FOUND = 5
"""The most entries of a kind in a result."""
ROOM = 4_000
"""Characters of passages in a result."""
LONGEST_NOTE = 500
_USERS = re.compile(r"\bthe user['\u2019]s\b", re.IGNORECASE)


def memory_tools(opened: Callable[[], Awaitable[MemoryItems]]) -> tuple[Tool, ...]:
    """Return search_memory and keep_note. opened: returns the items of an open runtime."""

    @tool(needs=["memory"])
    async def search_memory(query: str) -> str:
        """Search what the user taught, the earlier conversations and the files, by a few words."""
        try:
            found = await (await opened()).search(query, limit=FOUND)
        except UserError as error:
            raise ToolFailure(f"The memory cannot be searched: {error}") from error
        lines = [f"Taught: {one_line(one['question'])} {one['answer']}" for one in found["lessons"]]
        lines += [f"Conversation {one['title']}{_excerpt(one)}" for one in found["conversations"]]
        lines += [f"File {one['name']}{_excerpt(one)}" for one in found["files"]]
        return "\n".join(lines) or f"The memory has nothing about {shown(query)}."

    @tool(needs=["memory-write"])
    async def keep_note(note: str) -> str:
        """Keep a sentence in the user's memory. Only if the user wants something noted or remembered."""
        if len(note) > LONGEST_NOTE:
            raise ToolFailure(f"A note may have {LONGEST_NOTE} characters, and this one has {len(note):,}.")
        told = lesson_of(_USERS.sub("my", note))
        if told is None:
            raise ToolFailure(f'{shown(note)} says nothing: write it as a sentence, such as "My dentist is Dr. Quill."')
        try:
            kept = await (await opened()).remember(told.question, told.answer)
        except UserError as error:
            raise ToolFailure(f"The note cannot be kept: {error}") from error
        old = kept["replaced"]
        instead = f' It replaces: "{one_line(old["answer"])}"' if old else ""
        return f'Noted. When the user asks "{told.question}", the answer is "{told.answer}"{instead}'

    return search_memory, keep_note


def file_tools(files: FileService, conversation: str) -> tuple[Tool, ...]:
    """Return search_files. conversation: the id of the conversation whose files it searches."""

    @tool
    async def search_files(query: str) -> str:
        """Find passages in the files that are attached to this conversation, by a few words."""
        try:
            material = await files.material(conversation, query, "", len, ROOM)
        except UserError as error:
            raise ToolFailure(f"The files cannot be searched: {error}") from error
        return material.text if material and material.text else f"The files have nothing about {shown(query)}."

    return (search_files,)


def _excerpt(entry: dict[str, Any]) -> str:
    said = entry.get("excerpt", "")
    place = f", {entry['place']}" if entry.get("place") else ""
    return f"{place}: {one_line(said)}" if said else place
