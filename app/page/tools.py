"""The tools that answers of the page may call."""

from __future__ import annotations

from app.generation.tool_loop import ToolUse
from app.memory.items import MemoryItems
from app.page.offered_tools import OfferedTools
from app.runtime import Runtime
from app.tools import tools_by_name
from app.tools.built_in import built_in_tools
from app.tools.memory_tools import file_tools, memory_tools
from app.tools.python_tool import python_run_by

PYTHON_SECONDS = 600.0
"""The time of a call of `python`. The page ends the code after 60, but may ask the user about packages before."""


async def page_tools(
    runtime: Runtime, conversation: str | None, offered: OfferedTools, *, runs_python: bool = False
) -> ToolUse:
    """Return the built-in tools, those of the memory, of the files of a stored conversation, and those that the page
    offers, except if they have the name of one of ours. runs_python: it may also run code in the page's Python
    (web/tools/python_tool.js)."""

    async def items() -> MemoryItems:
        return MemoryItems(runtime)

    async def run(code: str) -> str:
        return await offered.ask("python", "python", {"code": code})

    files = await runtime.files.files(conversation) if conversation and runs_python else []
    tools = [
        *built_in_tools(),
        *memory_tools(items),
        *(file_tools(runtime.files, conversation) if conversation else ()),
    ]
    if runs_python:
        tools.append(python_run_by(run, [file["name"] for file in files], PYTHON_SECONDS))
    return ToolUse({**{tool.name: tool for tool in offered.tools}, **tools_by_name(tools)})
