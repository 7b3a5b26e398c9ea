"""A file of tools that was dropped onto the page. It runs in a worker of the interpreter, which is the boundary
(docs/decisions/0116): the page's own Python never imports it.

`declared` reads a file without running it, for the question to the user. `load` and `call` run it. Arguments and
results are JSON.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

from app.tools.model_tool import NotAToolError, Tool, ToolFailure
from app.tools.tool_file import load_tool_file
from py_core.display import one_line
from py_core.messages import UserError

MOST_NAMED = 128
_LIMITS = {"TimeLimit": "It took longer than it may.", "KeyboardInterrupt": "It was interrupted."}
_NO_NETWORK = " The page gives it no network."
_tools = dict[str, Tool]()


def declared(source: str) -> str:
    """Return the tools that a file defines, [{name, about, needs}]: functions with the decorator of app.tools. None if
    it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return "[]"
    named = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module in ("app.tools", "app.tools.functions")
        for alias in node.names
        if alias.name == "tool"
    }
    found = list[dict[str, Any]]()
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            function = call.func if call else decorator
            if isinstance(function, ast.Name) and function.id in named:
                about = (ast.get_docstring(node) or "").partition("\n\n")[0]
                given = {one.arg: one.value for one in (call.keywords if call else ()) if one.arg}
                name = next(_texts(given.get("name")), node.name)
                found.append({"name": one_line(name), "about": one_line(about), "needs": [*_needs(given)]})
    return json.dumps(found[:MOST_NAMED])


def load(name: str) -> str:
    """Run a file in the working folder. Returns {tools: [{name, description, parameters}]}, or {problem}: a sentence
    on why it has none."""
    try:
        with _silence():
            file = load_tool_file(Path(name))
    except (NotAToolError, UserError, OSError) as error:
        return json.dumps({"problem": str(error)})
    except BaseException as error:
        return json.dumps({"problem": f"{name}: {_limit(error)}"})
    _tools.clear()
    _tools.update({tool.name: tool for tool in file.tools})
    return json.dumps({"tools": [tool.definition.entry()["function"] for tool in file.tools]})


def call(name: str, given: str) -> str | Awaitable[str]:
    """Run a tool of the loaded file. Returns {text} or {failed}: a sentence on why there is no result."""
    tool = _tools[name]
    said = _said(tool, json.loads(given))
    if inspect.iscoroutinefunction(getattr(tool, "function", None)):
        return said
    try:  # here and now: a signal that comes while it runs can then let the worker look for a message to stop
        said.send(None)
    except StopIteration as ended:
        return str(ended.value)
    return said


async def _said(tool: Tool, arguments: dict[str, Any]) -> str:
    try:
        with _silence():
            return json.dumps({"text": await tool.run(arguments)})
    except ToolFailure as failure:
        reaches = any(need.startswith("host:") for need in tool.needs)
        return json.dumps({"failed": f"{failure}{_NO_NETWORK if reaches else ''}"})
    except BaseException as error:  # limits of time, and Stop
        return json.dumps({"failed": _limit(error)})


def _limit(error: BaseException) -> str:
    return _LIMITS.get(type(error).__name__, f"It failed: {one_line(f'{type(error).__name__}: {error}')}")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _needs(given: dict[str, ast.expr]) -> Iterator[str]:
    for keyword, kind in (("hosts", "host:"), ("files", "file:"), ("needs", "")):
        for text in _texts(given.get(keyword)):
            yield f"{kind}{one_line(text)}"


def _texts(value: ast.expr | None) -> Iterator[str]:
    """The texts of an expression, and what stands there instead of one."""
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        for item in value.elts:
            yield from _texts(item)
    elif isinstance(value, ast.Constant):
        yield str(value.value)
    elif value is not None:
        yield ast.unparse(value)
