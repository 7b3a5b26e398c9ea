"""Runs code and tells its outputs: texts, the last value, tables, pictures, an error with its lines, written files.

This file alone runs in the page's worker (web/interpreter/python_worker.js) and in the child process (child.py), so it
needs the standard library only. It isolates nothing: the worker's origin and the child's limits do.
"""

from __future__ import annotations

import ast
import base64
import builtins
import contextlib
import errno
import importlib
import io
import json
import linecache
import os
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

MOST_TEXT = 100_000
"""Most characters of printed text of a run. What is printed after that is dropped."""
MOST_VALUE = 10_000
MOST_MESSAGE = 2_000
MOST_ROWS = 200
MOST_COLUMNS = 40
MOST_CELL = 200
MOST_FRAMES = 8
MOST_PICTURES = 20
MOST_PIXELS = 4_000_000
MOST_FILES = 100
DOTS_PER_INCH = 144
FLUSH_SECONDS = 0.1
FLUSH_CHARACTERS = 8_192
PLOTS = "matplotlib.pyplot"


@dataclass(frozen=True)
class Text:
    """Printed text. stream: stdout or stderr."""

    type: ClassVar[str] = "text"
    stream: str
    text: str


@dataclass(frozen=True)
class Cut:
    """More was printed than is shown. most: the number of characters that are."""

    type: ClassVar[str] = "cut"
    most: int


@dataclass(frozen=True)
class Value:
    """The value of the last expression, or what `display` was given, as Python writes it."""

    type: ClassVar[str] = "value"
    text: str


@dataclass(frozen=True)
class Table:
    """The first rows and columns of a table. numeric: whether each column holds numbers."""

    type: ClassVar[str] = "table"
    columns: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    row_count: int
    column_count: int


@dataclass(frozen=True)
class Picture:
    """data: the bytes of a PNG in base64."""

    type: ClassVar[str] = "picture"
    data: str


@dataclass(frozen=True)
class Failure:
    """An error. lines: where in the user's code it happened, the outermost first: [line, its text] each. reason: one of
    REASONS if the error has a cause that a sentence can name, else ""."""

    type: ClassVar[str] = "error"
    kind: str
    message: str
    lines: list[list[Any]]
    reason: str = ""


@dataclass(frozen=True)
class Files:
    """Files that the run wrote or changed, in the session's folder: [name, bytes] each."""

    type: ClassVar[str] = "files"
    files: list[list[Any]]


Output = Text | Cut | Value | Table | Picture | Failure | Files
KINDS: Mapping[str, type[Any]] = {kind.type: kind for kind in (Text, Cut, Value, Table, Picture, Failure, Files)}

REASONS = {
    "browser": "Code cannot use the browser or JavaScript here.",
    "died": "Python ended unexpectedly.",
    "disk": "There is no more room for files here.",
    "input": "Code cannot ask for input here: write the values into the code.",
    "lost": "The variables are lost: the next run starts a new Python.",
    "memory": "The code needs more memory than it may have.",
    "module": "This package is not installed here.",
    "network": "Code has no network here.",
    "process": "Code cannot start other programs here.",
    "recursion": "A function calls itself too often.",
    "stopped": "You stopped the code.",
    "time": "The code took longer than it may.",
}
"""Causes of failures that have a sentence. The page has its own (web/i18n/*/python.js)."""


class TimeLimit(BaseException):
    """Raised in the code when its time is over; no `except Exception` catches it."""


def as_json(output: Output) -> str:
    return json.dumps({"type": output.type, **asdict(output)})


def imports_of(code: str) -> list[str]:
    """The packages that code imports, anywhere in it; none if it is no Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return sorted(names)


def install_wheel(path: str, folder: str) -> str:
    """Unpack a wheel of pure Python, and import from that folder, too, after all others. Returns "", or why it cannot:
    "broken", "compiled" or "disk"."""
    import zipfile  # late: few chats have wheels

    try:
        with zipfile.ZipFile(path) as files:
            names = files.namelist()
            if not any(name.endswith(".dist-info/WHEEL") for name in names):
                return "broken"
            if any(name.endswith((".so", ".pyd", ".dll", ".dylib")) for name in names):
                return "compiled"
            files.extractall(folder)  # nothing gets out of the folder
    except OSError as error:
        return "disk" if error.errno == errno.ENOSPC else "broken"
    except Exception:  # a damaged zip has many ways to fail
        return "broken"
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    return ""


def for_model(outputs: Sequence[Output], most: int = 4_000) -> str:
    """Outputs as a text that a model reads: at most so many characters, the end of them (errors stand there)."""
    text = "\n".join(filter(None, map(_words, outputs)))
    return text if len(text) <= most else f"[...]{text[-most:]}"


def _words(output: Output) -> str:
    if isinstance(output, Text | Value):
        return output.text.rstrip("\n")
    if isinstance(output, Table):
        return "\n".join(", ".join(row) for row in [output.columns, *output.rows])
    if isinstance(output, Failure):
        return describe(output)
    if isinstance(output, Files):
        return "\n".join(f"[wrote {name}, {size} bytes]" for name, size in output.files)
    return "[a picture]" if isinstance(output, Picture) else f"[only {output.most} characters are shown]"


def describe(failure: Failure) -> str:
    """A failure as a short traceback, with the sentence of its reason."""
    lines = [f"Line {line}: {text}" if line else text for line, text in failure.lines]
    error = f"{failure.kind}: {failure.message}" if failure.kind else ""
    return "\n".join(filter(None, [*lines, error, REASONS.get(failure.reason, "")]))


class Session:
    """A Python whose variables stay from run to run."""

    def __init__(self, folder: str, tell: Callable[[str], object], forbidden: Sequence[str] = ()) -> None:
        """folder: the working folder. tell: gets each output as JSON when it is there. forbidden: packages that the
        code may not import by name."""
        self._folder, self._tell_json, self._forbidden = folder, tell, frozenset(forbidden)
        self._runs = 0
        self._printed = _Printed(self._tell)
        main = types.ModuleType("__main__")
        self._names = main.__dict__
        self._names["__builtins__"] = {**vars(builtins), "__import__": self._import, "input": _no_input}
        self._names["display"] = self._display
        sys.modules["__main__"] = main  # where pickle and dataclasses look for what the code defines
        os.environ["MPLBACKEND"] = "agg"
        warnings.filterwarnings("ignore", message=".*non-interactive")  # plt.show(): the figures are shown anyway
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background ignores it
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, _end_of_time)

    def run(self, code: str) -> None:
        """Run code; its outputs are told. Raises nothing of the code's, except an end of the process."""
        self._runs += 1
        name = f"<code {self._runs}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        before = self._written()
        self._printed.begin()
        try:
            with contextlib.redirect_stdout(self._printed.out), contextlib.redirect_stderr(self._printed.err):
                try:
                    self._execute(code, name)
                except SystemExit:
                    pass
                finally:
                    self._show_figures()
        except BaseException as error:  # also KeyboardInterrupt and TimeLimit: the session goes on
            self._tell(_failure(error, name))
        self._printed.flush()
        if changed := [
            [name, size] for name, (size, when) in self._written().items() if before.get(name) != (size, when)
        ]:
            self._tell(Files(changed))

    def _execute(self, code: str, name: str) -> None:
        body = ast.parse(code, name).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec", dont_inherit=True), self._names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), self._names)
            if not _is_artist(value):
                self._display(value)

    def _display(self, *values: object) -> None:
        """Show values as the last expression's value is shown; in the code it is called `display`."""
        for value in values:
            if value is None:
                continue
            output = _table(value) or Value(_cut(repr(_plain(value)), MOST_VALUE))
            self._printed.flush()
            self._tell(output)

    def _show_figures(self) -> None:
        plots = sys.modules.get(PLOTS)
        if plots is None:
            return
        try:
            for number in plots.get_fignums()[:MOST_PICTURES]:
                figure = plots.figure(number)
                width, height = figure.get_size_inches()
                dots = min(DOTS_PER_INCH, (MOST_PIXELS / max(width * height, 0.01)) ** 0.5)
                png = io.BytesIO()
                figure.savefig(png, format="png", dpi=dots, bbox_inches="tight")
                self._printed.flush()
                self._tell(Picture(base64.b64encode(png.getvalue()).decode()))
        finally:
            plots.close("all")

    def _written(self) -> dict[str, tuple[int, int]]:
        """The files of the folder: name -> bytes and time."""
        found = {}
        for path in _walk(self._folder):
            with contextlib.suppress(OSError):
                facts = os.lstat(path)
                found[os.path.relpath(path, self._folder)] = (facts.st_size, facts.st_mtime_ns)
        return found

    def _import(self, name: str, *args: Any, **named: Any) -> Any:
        if name.partition(".")[0] in self._forbidden:
            raise _NoBrowser(f"{name} cannot be imported here")
        return __import__(name, *args, **named)

    def _tell(self, output: Output) -> None:
        self._tell_json(as_json(output))


class _NoBrowser(ImportError):
    pass


class _NoInput(EOFError):
    pass


def _no_input(prompt: object = "") -> str:
    raise _NoInput("input() has nobody to ask")


def _end_of_time(number: int, frame: object) -> None:
    raise TimeLimit


class _Printed:
    """Printed text, told in pieces, up to a limit."""

    def __init__(self, tell: Callable[[Output], None]) -> None:
        self._tell = tell
        self._stream, self._pieces = "", list[str]()
        self._left, self._size, self._told = MOST_TEXT, 0, 0.0
        self.out, self.err = _Stream(self, "stdout"), _Stream(self, "stderr")

    def begin(self) -> None:
        self._left, self._told = MOST_TEXT, 0.0  # the first words are told at once

    def write(self, stream: str, text: str) -> None:
        if self._left <= 0 or not text:
            return
        if stream != self._stream:
            self.flush()
            self._stream = stream
        self._pieces.append(text[: self._left])
        self._left -= len(text)
        self._size += len(text)
        is_late = text.endswith("\n") and time.monotonic() - self._told > FLUSH_SECONDS
        if is_late or self._size >= FLUSH_CHARACTERS or self._left <= 0:
            self.flush()
        if self._left <= 0:
            self._tell(Cut(MOST_TEXT))

    def flush(self) -> None:
        if text := "".join(self._pieces):
            self._pieces.clear()
            self._size, self._told = 0, time.monotonic()
            self._tell(Text(self._stream, text))


class _Stream(io.TextIOBase):
    def __init__(self, printed: _Printed, name: str) -> None:
        self._printed, self._name = printed, name

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._printed.write(self._name, text)
        return len(text)


def _is_artist(value: object) -> bool:
    """True for the result of a plotting function: the picture says more than its name."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return type(first).__module__.partition(".")[0] == "matplotlib"


def _plain(value: Any) -> Any:
    """A number of numpy as a number of Python: np.float64(0.5) is 0.5."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def _table(value: object) -> Table | None:
    """A table if the value is one: a DataFrame or Series of pandas, or a list of dictionaries."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.Series):
        value = value.to_frame()
    if pandas is not None and isinstance(value, pandas.DataFrame):
        shown = value.iloc[:MOST_ROWS, :MOST_COLUMNS]
        if not isinstance(value.index, pandas.RangeIndex):
            shown = shown.set_axis([_title(name) for name in shown.columns], axis=1)
            index = value.index[:MOST_ROWS].to_frame(index=False)
            index.columns = [str(name if name is not None else "") for name in value.index.names]
            shown = pandas.concat([index, shown.reset_index(drop=True)], axis=1)
        is_number = pandas.api.types.is_numeric_dtype
        columns = [_title(name) for name in shown.columns]
        numeric = [bool(is_number(kind)) for kind in shown.dtypes]
        return _cells(columns, numeric, shown.itertuples(index=False, name=None), *value.shape)
    if not (isinstance(value, list) and value and all(isinstance(row, dict) and row for row in value)):
        return None
    names = list(dict.fromkeys(name for row in value[:MOST_ROWS] for name in row))
    rows = [[row.get(name) for name in names[:MOST_COLUMNS]] for row in value[:MOST_ROWS]]
    numeric = [
        all(isinstance(cell, int | float) or cell is None for cell in column) for column in zip(*rows, strict=True)
    ]
    return _cells([str(name) for name in names[:MOST_COLUMNS]], numeric, rows, len(value), len(names))


def _cells(columns: list[str], numeric: list[bool], rows: Any, row_count: int, column_count: int) -> Table:
    cells = [[_cell(cell) for cell in row] for row in rows]
    return Table([_cut(name, MOST_CELL) for name in columns], numeric, cells, row_count, column_count)


def _title(name: object) -> str:
    return " ".join(str(part) for part in name) if isinstance(name, tuple) else str(name)


def _cell(value: Any) -> str:
    if value is None or value != value or str(value) in ("<NA>", "NaT"):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else _cut(str(value), MOST_CELL)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _failure(error: BaseException, name: str) -> Failure:
    if isinstance(error, SyntaxError) and error.filename == name:
        lines: list[list[Any]] = [[error.lineno, (error.text or "").strip()]]
        message = error.msg
    else:
        lines = _lines(error)
        message = str(error)
    kind = "" if isinstance(error, TimeLimit | KeyboardInterrupt) else type(error).__name__.lstrip("_")
    return Failure(kind, _cut(message, MOST_MESSAGE), lines, _reason(error))


def _lines(error: BaseException) -> list[list[Any]]:
    """The lines of the code that led to the error; the first and the last ones, if there are many."""
    found: list[list[Any]] = []
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file.startswith("<code "):
            found.append([step.tb_lineno, linecache.getline(file, step.tb_lineno).strip()[:MOST_CELL]])
        step = step.tb_next
    half = MOST_FRAMES // 2
    return found if len(found) <= MOST_FRAMES else [*found[:half], [None, "\u2026"], *found[-half:]]


def _reason(error: BaseException) -> str:
    kinds: tuple[tuple[Any, str], ...] = (
        *((TimeLimit, "time"), (KeyboardInterrupt, "stopped"), (MemoryError, "memory")),
        *((RecursionError, "recursion"), (_NoBrowser, "browser"), (_NoInput, "input"), (ModuleNotFoundError, "module")),
    )
    for kind, reason in kinds:
        if isinstance(error, kind):
            return reason
    if isinstance(error, OSError) and (reason := _reason_of_system(error)):
        return reason
    said = str(error)  # of Pyodide about a fetch that the policy forbids, in the words of Chromium or Firefox
    if any(sign in said for sign in ("Failed to fetch", "NetworkError")):
        return "network"
    return "process" if "can't start new thread" in said else ""


def _reason_of_system(error: OSError) -> str:
    cause = error.reason if isinstance(getattr(error, "reason", None), OSError) else error  # type: ignore[attr-defined]
    if cause.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return "disk"
    network = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENOTCONN)
    if cause.errno in network or type(cause).__name__ in ("gaierror", "herror"):
        return "network"
    if cause.errno == errno.ENOMEM:
        return "memory"
    return "process" if cause.errno in (errno.EAGAIN, errno.ENOTSUP, errno.ENOSYS) else ""


def _walk(folder: str) -> Iterator[str]:
    """The files under a folder, at most MOST_FILES, without hidden ones."""
    count = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        for name in sorted(files):
            path = os.path.join(here, name)
            if name.startswith(".") or not os.path.isfile(path) or os.path.islink(path):
                continue
            if (count := count + 1) > MOST_FILES:
                return
            yield path
