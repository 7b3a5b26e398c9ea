"""`sonata ask --tools FILE --calls`: the calls of tools with which a model answers questions. None is executed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.terminal import console, progress_bar
from app.generation.assistant import SYSTEM_PROMPT
from py_core.backend_errors import ContextFullError
from py_core.display import shown
from py_core.loading import Model

if TYPE_CHECKING:
    from py_core.tool_calls.definitions import ToolDefinition


@dataclass(frozen=True)
class ToolOptions:
    """The tools that a model may call. `option_group` makes them options of the command."""

    tools: Annotated[
        Path | None,
        typer.Option(
            "--tools", metavar="FILE.json", help="A JSON list of tools, as OpenAI writes them; for --calls."
        ),
    ] = None  # fmt: skip
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
        from py_core.tool_calls.definitions import tools_from  # late: other commands begin sooner

        if self.tools is None:
            return ()
        if self.tools.suffix == ".py":
            raise ValueError(f"{self.tools} is Python: give --calls a file with a JSON list of tools.")
        try:
            return tools_from(self.tools.read_text("utf-8-sig"))
        except UnicodeDecodeError:
            raise ValueError(f"{self.tools} is not text in UTF-8: save it as UTF-8.") from None

    def check(self, is_shaped: bool) -> None:
        """Raises ValueError if options do not go together. is_shaped: the answers have a shape of their own."""
        if not self.calls and (self.tools or self.no_grammar or self.tool_choice != "auto"):
            raise ValueError(
                "Tools are not executed here yet: give --calls to see the calls that the model wants made."
            )
        if self.calls and is_shaped:
            raise ValueError("Calls have the shape of the tools: leave --schema, --grammar, --regex and --choice out.")


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
