"""The tools that answers of the page may call."""

from __future__ import annotations

from app.generation.tool_loop import ToolUse
from app.memory.items import MemoryItems
from app.runtime import Runtime
from app.tools import tools_by_name
from app.tools.built_in import built_in_tools
from app.tools.memory_tools import file_tools, memory_tools


def page_tools(runtime: Runtime, conversation: str | None) -> ToolUse:
    """Return the built-in tools, those of the memory, and of the files of a stored conversation."""

    async def items() -> MemoryItems:
        return MemoryItems(runtime)

    files = file_tools(runtime.files, conversation) if conversation else ()
    return ToolUse(tools_by_name([*built_in_tools(), *memory_tools(items), *files]))
