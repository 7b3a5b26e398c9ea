"""Files of tools that the user wrote (`--tools FILE.py`), and what they may do.

A file that the user names is the user's own code: it runs in this process, without limits. What its tools declare
(`@tool(hosts=..., files=...)`) is told before the first of them runs, and asked for once as long as the file stays the
same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from app.tools.model_tool import NotAToolError, Tool, tools_by_name
from py_core.display import one_line
from py_core.messages import UserError

ALLOWED = "allowed_tools.json"
"""The file in the home with what was allowed: {sha256 of a file of tools: [needs]}."""
_EXAMPLE = "write `from app.tools import tool` and @tool above a function"


@dataclass(frozen=True)
class ToolFile:
    """A file of tools. sha256: of its bytes."""

    path: Path
    sha256: str
    tools: tuple[Tool, ...]

    @property
    def needs(self) -> list[str]:
        """The needs that its tools declare, each once."""
        return list(dict.fromkeys(need for tool in self.tools for need in tool.needs))


def load_tool_file(path: Path) -> ToolFile:
    """Run a file and return the tools in it, in their order. Raises NotAToolError, with the line of the mistake;
    OSError."""
    source = path.read_bytes()
    sha256 = hashlib.sha256(source).hexdigest()
    name = f"sonata_tools_{sha256[:16]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where dataclasses and annotations look for what the file defines
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise NotAToolError(_broken(path, error)) from error
    tools = tuple({id(one): one for one in vars(module).values() if isinstance(one, Tool)}.values())
    if not tools:
        raise NotAToolError(f"{path} has no tools: {_EXAMPLE}.")
    try:
        tools_by_name(tools)
    except UserError as error:
        raise NotAToolError(f"{path}: {error}") from None
    return ToolFile(path, sha256, tools)


class Allowed:
    """The needs that the user allowed to files of tools, kept in the home by the file's sha256."""

    def __init__(self, home: Path) -> None:
        """home: the folder of everything learned."""
        self._path = home / ALLOWED

    def lacking(self, file: ToolFile) -> list[str]:
        """Return the needs of a file that nobody allowed yet."""
        allowed = self._read().get(file.sha256, [])
        return [need for need in file.needs if need not in allowed]

    def allow(self, file: ToolFile) -> None:
        """Keep that a file may do what it declares. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps({**self._read(), file.sha256: file.needs}, indent=1)
        part = self._path.with_name(f"{ALLOWED}.{os.getpid()}.part")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as written:
                written.write(text)
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)

    def _read(self) -> dict[str, list[str]]:
        """Nothing, if the file cannot be read: then the user is asked again."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            found = json.loads(self._path.read_text("utf-8"))
            if isinstance(found, dict):
                return {key: value for key, value in found.items() if _is_texts(value)}
        return {}


def _is_texts(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str) and all(isinstance(one, str) for one in value)


def _broken(path: Path, error: BaseException) -> str:
    lines = [step.lineno for step in traceback.extract_tb(error.__traceback__) if step.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines, said = [error.lineno], f"{type(error).__name__}: {error.msg}"
    elif isinstance(error, NotAToolError | UserError):
        said = str(error).removesuffix(".")
    else:
        said = traceback.format_exception_only(error)[-1].strip().removesuffix(".")
    return f"{path}{f', line {lines[-1]}' if lines else ''}: {one_line(said) if len(said) > 200 else said}."
