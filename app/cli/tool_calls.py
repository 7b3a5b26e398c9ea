"""`sonata ask --tools FILE`: answers that call tools; with --calls only the calls, of which none is executed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.terminal import console, progress_bar
from app.cli.tool_sources import (
    BUILT_IN,
    PythonToolOption,
    ServersOption,
    YesOption,
    allow,
    opened_tools,
    tool_files,
)
from app.generation.assistant import SYSTEM_PROMPT
from py_core.backend_errors import ContextFullError
from py_core.display import shown
from py_core.loading import Model

if TYPE_CHECKING:
    from app.generation.tool_loop import ToolUse
    from app.tools import Tool
    from app.tools.tool_file import ToolFile
    from py_core.tool_calls.definitions import ToolDefinition


@dataclass(frozen=True)
class ToolOptions:
    """The tools that a model may call. `option_group` makes them options of the command."""

    tools: Annotated[
        list[Path] | None,
        typer.Option(
            "--tools", metavar="FILE.py",
            help="Functions with @tool, which answers may call; built-in for Sonata's own. May be given several "
            "times. With --calls also a JSON list of tools, as OpenAI writes them.",
        ),
    ] = None  # fmt: skip
    python: PythonToolOption = False
    mcp: ServersOption = None
    yes: YesOption = False
    tool_choice: Annotated[
        str,
        typer.Option(
            "--tool-choice", metavar="CHOICE", help="auto, none, required (at least one call), or the name of a tool."
        ),
    ] = "auto"
    calls: Annotated[
        bool,
        typer.Option(
            "--calls",
            help="Print a JSON list that has, for each question, the list of calls {name, arguments}. Nothing is run.",
        ),
    ] = False
    no_grammar: Annotated[
        bool, typer.Option("--no-grammar", help="With --calls: without the grammar that keeps calls valid.")
    ] = False

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the tools of the file; none without one. Raises ToolError, ValueError."""
        from py_core.tool_calls.definitions import check_names, tools_from  # late: other commands begin sooner

        found: list[ToolDefinition] = []
        for path in self.tools or ():
            if str(path) == BUILT_IN or path.suffix == ".py":
                found += [tool.definition for tool in known_tools(path)]
                continue
            try:
                found += tools_from(path.read_text("utf-8-sig"))
            except UnicodeDecodeError:
                raise ValueError(f"{path} is not text in UTF-8: save it as UTF-8.") from None
        check_names(found)
        return tuple(found)

    def check(self, is_shaped: bool) -> None:
        """Raises ValueError if options do not go together. is_shaped: the answers have a shape of their own."""
        if not self.calls and self.no_grammar:
            raise ValueError("--no-grammar goes with --calls: only calls that are valid are executed.")
        if self.tool_choice != "auto" and not (self.calls or self.executes):
            raise ValueError("--tool-choice chooses among tools: give --tools, --python or --mcp.")
        for path in [] if self.calls else self.tools or ():
            if path.suffix == ".json":
                raise ValueError(f"{path} has no functions to run: give --calls, or a file with @tool functions.")
        if (self.calls or self.executes) and is_shaped:
            raise ValueError("Calls have the shape of the tools: leave --schema, --grammar, --regex and --choice out.")

    @property
    def executes(self) -> bool:
        """True if answers may call tools."""
        return not self.calls and bool(self.tools or self.python or self.mcp)

    def files(self, home: Path | None) -> list[ToolFile]:
        """Load the files of tools that are executed, and ask once for what they may do. Raises ValueError, OSError."""
        if not self.executes:
            return []
        loaded = tool_files(self.tools)
        allow(loaded, home, self.yes)
        return loaded

    @asynccontextmanager
    async def opened(self, files: Sequence[ToolFile], home: Path | None, **more: Any) -> AsyncIterator[ToolUse]:
        """Offer the tools until the end of the block. home, more: as in `opened_tools`. Raises ToolError, ValueError,
        OSError."""
        from app.generation.tool_loop import ToolUse
        from py_core.tool_calls.definitions import choice_from

        built_in = any(str(path) == BUILT_IN for path in self.tools or ())
        opening = opened_tools(files, self.mcp, home, built_in=built_in, python=self.python, writes=self.yes, **more)
        async with opening as offered:
            for problem in offered.problems:
                console(stderr=True).print(problem, markup=False, soft_wrap=True)
            definitions = [tool.definition for tool in offered.tools.values()]
            yield ToolUse(offered.tools, choice_from(self.tool_choice, definitions))


def known_tools(path: Path) -> Sequence[Tool]:
    """Return the tools of a file, or the built-in ones that need no memory."""
    from app.tools.built_in import built_in_tools

    (file,) = tool_files([path]) or (None,)
    return built_in_tools() if file is None else file.tools


def call_line(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as a person reads it."""
    return f"{name}({', '.join(f'{key}: {json.dumps(value, ensure_ascii=False)}' for key, value in arguments.items())})"


NO_TOOLS = ToolOptions()


@dataclass(frozen=True)
class CalledQuestion:
    """A question with the tools that its answer may call."""

    text: str
    tools: tuple[ToolDefinition, ...]


def called_questions(asked: Sequence[Any], options: ToolOptions) -> list[CalledQuestion]:
    """Read questions: texts, or {"question": ..., "tools": [...]} with tools of their own. Raises ToolError,
    ValueError."""
    from py_core.tool_calls.definitions import choice_from, tools_from

    common, found = options.definitions(), list[CalledQuestion]()
    for number, entry in enumerate(asked, 1):
        own = isinstance(entry, dict)
        text = entry.get("question") if own else entry
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f'Question {number} is neither a text nor {{"question": ..., "tools": [...]}}.')
        tools = tools_from(entry["tools"]) if own and "tools" in entry else common
        if not tools:
            raise ValueError(f"Question {number} has no tools: give --tools FILE.json, or each question its `tools`.")
        choice_from(options.tool_choice, tools)
        found.append(CalledQuestion(text, tools))
    return found


async def call_all(
    model: Model, questions: Sequence[CalledQuestion], options: ToolOptions, max_tokens: int
) -> list[list[dict[str, Any]] | None]:
    """Return for each question its calls, or None with a sentence on standard error."""
    from app.generation.call_answer import CallStream, answer_with_calls, asked_with_tools
    from py_core.tool_calls.definitions import choice_from

    found, notes = list[list[dict[str, Any]] | None](), cache(lambda: console(stderr=True))
    with progress_bar("Answering") as bar:
        for question in bar.track(questions):
            chosen = choice_from(options.tool_choice, question.tools)
            try:
                stream = CallStream(
                    model, question.tools, chosen, max_tokens=max_tokens, is_shaped=not options.no_grammar
                )
                answer = await answer_with_calls(stream, asked_with_tools(SYSTEM_PROMPT, question.text, chosen))
            except (ValueError, ContextFullError) as error:
                notes().print(f"{shown(question.text)}: {error}", markup=False, soft_wrap=True)
                found.append(None)
                continue
            for bad in answer.bad:
                notes().print(f"{shown(question.text)}: {bad.why}", markup=False, soft_wrap=True)
            found.append([call.entry() for call in answer.calls])
    return found


def print_calls(found: Sequence[list[dict[str, Any]] | None]) -> None:
    """Print the list; exit with 1 if a question has no answer."""
    print(json.dumps(found))
    if None in found:
        raise typer.Exit(1)
