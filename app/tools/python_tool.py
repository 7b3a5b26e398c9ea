"""The tool `python`: code that a model writes runs in the child process of app/interpreter, or in the page's Python."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.tools.functions import tool
from app.tools.model_tool import Tool, ToolFailure
from py_core.display import one_line

if TYPE_CHECKING:
    from app.interpreter.child import PythonChild


def python_tool(child: PythonChild) -> Tool:
    """Return the tool. child: keeps its variables from call to call, until it is closed. The description names the
    files that are in its folder now."""
    from app.interpreter.child import InterpreterError  # late: the page has no child processes
    from app.interpreter.session import Failure, for_model

    async def run(code: str) -> str:
        try:
            outputs = await child.run(code)
        except InterpreterError as error:
            raise ToolFailure(str(error)) from error
        said = for_model(outputs)
        if any(isinstance(output, Failure) for output in outputs):
            raise ToolFailure(said)
        return said

    return python_run_by(run, sorted(path.name for path in child.folder.iterdir()))


def python_run_by(run: Callable[[str], Awaitable[str]], files: Sequence[str], seconds: float | None = None) -> Tool:
    """Return the tool. run: runs code, and returns its outputs as a model reads them. files: names of those in its
    folder. seconds: of a call."""

    @tool(needs=["python"])
    async def python(code: str) -> str:
        """Run Python code, and return what it prints and the value of its last line. Variables stay for later calls.

        code: Python, with numpy
        """
        return await run(code) or "The code ran and printed nothing: print what is wanted."

    definition = python.definition
    about = f" Its folder has {', '.join(map(one_line, files))}." if files else ""
    definition = replace(definition, description=definition.description + about)
    return replace(python, definition=definition, seconds=seconds)
