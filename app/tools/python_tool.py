"""The tool `python`: code that a model writes runs in the child process of app/interpreter."""

from __future__ import annotations

from dataclasses import replace

from app.interpreter.child import InterpreterError, PythonChild
from app.interpreter.session import Failure, for_model
from app.tools.functions import tool
from app.tools.model_tool import Tool, ToolFailure
from py_core.display import one_line


def python_tool(child: PythonChild) -> Tool:
    """Return the tool. child: keeps its variables from call to call, until it is closed. The description names the
    files that are in its folder now."""

    @tool(needs=["python"])
    async def python(code: str) -> str:
        """Run Python code, and return what it prints and the value of its last line. Variables stay for later calls.

        code: Python, with numpy
        """
        try:
            outputs = await child.run(code)
        except InterpreterError as error:
            raise ToolFailure(str(error)) from error
        said = for_model(outputs)
        if any(isinstance(output, Failure) for output in outputs):
            raise ToolFailure(said)
        return said or "The code ran and printed nothing: print what is wanted."

    if not (names := sorted(path.name for path in child.folder.iterdir())):
        return python
    definition = python.definition
    about = f"{definition.description} Its folder has {', '.join(map(one_line, names))}."
    return replace(python, definition=replace(definition, description=about))
