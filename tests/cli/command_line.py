"""`sonata` for the tests: in this process, or the installed program in its own process."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest
import typer.main

from app.cli import main as cli

SONATA = Path(sys.executable).with_name("sonata")

# Reading the commands' type hints takes a tenth of a second, and gives the same result each time.
_commands = cache(typer.main.get_command)

Result = subprocess.CompletedProcess[str]


class Keyboard(io.TextIOWrapper):
    """Standard input of a terminal."""

    def isatty(self) -> bool:
        return True


class Screen(io.StringIO):
    """Standard output of a terminal."""

    def isatty(self) -> bool:
        return True


def sonata(*arguments: str | Path, stdin: str = "", terminal: bool = False) -> Result:
    """Run the program with these arguments, in this process: the same `main`, without a second for the start.

    terminal: `stdin` is typed there, and the output is shown there.
    """
    command = ["sonata", *map(str, arguments)]
    out, err = (Screen if terminal else io.StringIO)(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", command)
        patch.setattr(typer.main, "get_command", _commands)
        patch.setattr(sys, "stdin", (Keyboard if terminal else io.TextIOWrapper)(io.BytesIO(stdin.encode()), "utf-8"))
        patch.setenv("TERM", "dumb")  # otherwise a terminal gets colours
        patch.setenv("COLUMNS", "80")  # otherwise tables are as wide as the terminal that the tests run in
        try:
            cli.main()
            status = 0
        except SystemExit as ended:
            status = ended.code
    return Result(command, status, out.getvalue(), err.getvalue())


def sonata_process(*arguments: str | Path, stdin: str | None = None) -> Result:
    """Run the installed program to its end. Its standard input is closed unless there is text for it."""
    command = [str(SONATA), *map(str, arguments)]
    given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300, **given)


def printed(result: Result) -> str:
    assert (result.returncode, "Error" in result.stderr) == (0, False), result.stderr
    return result.stdout


def assert_sentence(result: Result, *words: str) -> None:
    """Asserts exit status 1, no output, and one sentence that contains these words."""
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert all(word in lines[0] for word in words), lines[0]
