"""Functions as tools: name, description and JSON Schema come from the function itself.

@tool(hosts=["api.example.com"])
def weather(city: str, days: int = 3) -> str:
    '''Tell the weather of a city.

    city: its name, such as Bern
    '''

weather.definition.parameters       # {"type": "object", "properties": {"city": {"type": "string", ...}, ...}, ...}
await weather.run({"city": "Bern"})
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import math
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from typing import Any, overload

from app.tools.model_tool import MOST_RESULT, NotAToolError, Tool, ToolFailure
from app.tools.shapes import Shape, hints_of, object_shape, shape_of
from py_core.display import one_line, whole_end
from py_core.tool_calls.definitions import ToolDefinition, tools_from

_LINE = re.compile(r"(?::param(?:eter)?(?: \w+)?\s+)?[*`]{0,2}(\w+)[*`]{0,2}(?: ?\([^)]*\))?:\s+(\S.*)")
_HEADING = re.compile(r"(?:Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?):?")
_HAS_THREADS = sys.platform != "emscripten"


@dataclass(frozen=True)
class FunctionTool(Tool):
    """A function that is a tool. It can still be called as what it was."""

    function: Callable[..., Any] = print

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *, name: str = ..., hosts: Iterable[str] = ..., files: Iterable[str] = ..., needs: Iterable[str] = ...
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str = "", hosts: Iterable[str] = (),
    files: Iterable[str] = (), needs: Iterable[str] = (),
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:  # fmt: skip
    """Make a function a tool. Raises NotAToolError, which names the parameter, or ToolError, if it
    cannot be one.

    name: if it is not the function's. hosts, files: what it reaches over the network, and reads or writes; the user is
    asked. needs: other needs, as in `needs_in_words`.
    """
    declared = (*(f"host:{one}" for one in hosts), *(f"file:{one}" for one in files), *needs)
    if function is None:
        return lambda given: _function_tool(given, name, declared)
    return _function_tool(function, name, declared)


def result_text(result: Any) -> str:
    """Return a function's result as a model reads it: a text as it is, nothing as "Done.", other values as JSON. At
    most MOST_RESULT characters, and a sentence if there were more. Raises ToolFailure if it is not JSON."""
    if result is None:
        return "Done."
    try:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailure(f"The result is neither a text nor JSON: {one_line(str(error))}.") from None
    if len(text) <= MOST_RESULT:
        return text
    end = whole_end(text, MOST_RESULT)
    return f"{text[:end]}\n(The result is longer: {len(text) - end:,} more characters were left out.)"


def _function_tool(function: Callable[..., Any], name: str, needs: tuple[str, ...]) -> FunctionTool:
    name = name or getattr(function, "__name__", "")
    try:
        shape = _parameters(function, name)
    except NotAToolError as error:
        raise NotAToolError(f"{name}: {error}") from None
    description = inspect.getdoc(function) or ""
    about = " ".join(description.partition("\n\n")[0].split())
    if not about or _HEADING.fullmatch(description.splitlines()[0].strip()):
        raise NotAToolError(f"{name}: There is no description: begin the docstring with what it does.")

    async def run(arguments: Mapping[str, Any]) -> str:
        given = shape.read(arguments, "")
        try:
            result = await (function(**given) if inspect.iscoroutinefunction(function) else _apart(function, given))
            return result_text(result)
        except ToolFailure:
            raise
        except (Exception, SystemExit) as error:
            raise ToolFailure(f"{name} failed: {_last_line(error, function)}") from error

    (checked,) = tools_from([ToolDefinition(name, about, shape.schema).entry()])
    return FunctionTool(checked, run, needs, function=function)


def _parameters(function: Callable[..., Any], name: str) -> Shape:
    if not inspect.isroutine(function) or inspect.isbuiltin(function):
        raise NotAToolError("@tool belongs above `def`, and this is not a function.")
    hints, told = hints_of(function, name), _told(inspect.getdoc(function) or "")
    shapes, required = dict[str, Shape](), list[str]()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise NotAToolError(f"A call names its arguments, which the parameter {parameter.name} does not allow.")
        if parameter.name == "self" and parameter.name not in hints:
            raise NotAToolError("This is a method: a tool is a function outside of a class.")
        if parameter.name not in hints:
            raise NotAToolError(
                f"The parameter {parameter.name} has no type: give it one, such as {parameter.name}: str."
            )
        shapes[parameter.name] = _with_default(parameter, hints[parameter.name], told.get(parameter.name, ""))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return object_shape(shapes, required, dict)


def _with_default(parameter: inspect.Parameter, hint: Any, description: str) -> Shape:
    """The shape of a parameter. One whose default is None is left out rather than null, so its schema has no null."""
    shape, default = shape_of(hint, parameter.name), parameter.default
    schema, told = dict(shape.schema), default.value if isinstance(default, Enum) else default
    if default is None:
        others = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
        schema = {**schema, "anyOf": others} if len(others) > 1 else others[0] if others else schema
    elif type(told) in (str, int, bool) or (type(told) is float and math.isfinite(told)):
        schema["default"] = told
    if description and "description" not in schema:
        schema["description"] = description
    return Shape(schema, shape.read)


def _told(docstring: str) -> dict[str, str]:
    """The descriptions of parameters: lines "name: text", with the deeper lines below them."""
    found, last, depth = dict[str, str](), "", 0
    for line in docstring.splitlines()[1:]:
        indent, words = len(line) - len(line.lstrip()), line.strip()
        if (begins := _LINE.fullmatch(words)) and (not last or indent <= depth):
            last, depth = begins[1], indent
            found[last] = begins[2]
        elif words and last and indent > depth:
            found[last] += f" {words}"
        elif not _HEADING.fullmatch(words):
            last = ""
    return found


async def _apart(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function that is not async in a thread of its own, if there are threads: the program can stop waiting for
    it, and end without it."""
    if not _HAS_THREADS:
        return function(**arguments)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(result) if error is None else done.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = function(**arguments)
        except BaseException as raised:
            error = raised if not isinstance(raised, StopIteration | KeyboardInterrupt) else RuntimeError(repr(raised))
        with contextlib.suppress(RuntimeError):  # the program has ended
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=work, name=f"tool {getattr(function, '__name__', '')}", daemon=True).start()
    return await done


def _last_line(error: BaseException, function: Callable[..., Any]) -> str:
    """The error as Python writes it, and the deepest line of the function's own file."""
    said = one_line(traceback.format_exception_only(error)[-1])
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")
    lines = [step.lineno for step in traceback.extract_tb(error.__traceback__) if step.filename == file]
    return f"{said} (line {lines[-1]})" if lines else said


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return value.value if isinstance(value, Enum) else str(value)
