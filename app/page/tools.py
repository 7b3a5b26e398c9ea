"""The tools that answers of the page may call."""

from __future__ import annotations

from app.generation.tool_loop import ToolUse
from app.memory.items import MemoryItems
from app.page.offered_tools import OfferedTools
from app.runtime import Runtime
from app.tools import tools_by_name
from app.tools.built_in import built_in_tools
from app.tools.memory_tools import file_tools, memory_tools


def page_tools(runtime: Runtime, conversation: str | None, offered: OfferedTools) -> ToolUse:
    """Return the built-in tools, those of the memory, of the files of a stored conversation, and those that the page
    offers, except if they have the name of one of ours."""

    async def items() -> MemoryItems:
        return MemoryItems(runtime)

    files = file_tools(runtime.files, conversation) if conversation else ()
    ours = tools_by_name([*built_in_tools(), *memory_tools(items), *files])
    return ToolUse({**{tool.name: tool for tool in offered.tools}, **ours})
