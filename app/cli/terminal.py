"""The commands' output to a terminal: names of files, strings of model files and models' answers are plain text there.

A terminal obeys control characters: "ESC ] 0 ; ..." names its window, others overwrite earlier output or type for the
user. So all output goes through `console` or `say`, and JSON through json.dumps, which escapes them. Usage errors come
from typer, which escapes them, too.
"""

from __future__ import annotations

import sys

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn
from rich.segment import Segment

from py_core.display import plain

PRINTS_JSON = "Print JSON, as is done anyway if the output goes to a file or another program."


def say(text: object, end: str = "\n") -> None:
    """Write a text to standard output at once, unchanged except for control characters."""
    print(plain(str(text)), end=plain(end), flush=True)


def wants_json(as_json: bool) -> bool:
    """True if a command prints JSON: with --json, or if its output does not go to a terminal."""
    return as_json or not sys.stdout.isatty()


def console(stderr: bool = False) -> Console:
    """rich on standard output, or on standard error: for tables and styles, without control characters in the text."""
    made = Console(stderr=stderr, highlight=False)
    made.push_render_hook(_PlainText())
    return made


def progress_bar(what: str) -> Progress:
    """A progress bar on standard error, while that is a terminal; it disappears when the work is done."""
    notes = console(stderr=True)
    columns = (what, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)


class _PlainText(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Plain(one) for one in renderables]


class _Plain:
    """The same without control characters in its text; rich's own stay."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._inner)
