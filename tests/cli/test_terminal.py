"""No command passes on control sequences of a file's name, a model file or a model to the terminal."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest

from app.cli import terminal
from py_core.display import one_line, plain, shown
from tests.cli.command_line import Result, sonata
from tests.tiny.llama import TinyLlama

APP = Path(__file__).parents[2] / "app"
TITLE = "\x1b]0;owned\x07\x9b2J\x7f\r"
"""A text that would name the window, clear the screen, delete a character and overwrite the line."""


def quiet(result: Result) -> str:
    """The whole output, which must contain no control character except newlines."""
    written = result.stdout + result.stderr
    assert written.strip()
    assert plain(written) == written
    return written


@pytest.fixture(scope="module")
def hostile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose name, file name and folder contain control sequences."""
    folder = tmp_path_factory.mktemp("names") / f"folder {TITLE}\u202e"
    folder.mkdir()
    return TinyLlama(tied=False).write(folder / f"model {TITLE}.gguf", {"general.name": f"Evil {TITLE}\u202e"})


def test_names_of_files_and_models_are_shown_without_their_commands(hostile_path: Path) -> None:
    assert "Evil ␛]0;owned␇" in quiet(sonata("info", "--model", hostile_path))
    assert "Evil ␛]0;owned␇" in quiet(sonata("models", "info", hostile_path))


@pytest.mark.parametrize(
    "arguments",
    [
        (f"chat{TITLE}",),
        ("info", f"--model{TITLE}"),
        ("info", f"extra {TITLE}"),
        ("generate", "x", "--seed", TITLE),
        ("generate", "x", "--backend", f"gpu{TITLE}"),
        ("models", "info", f"nothing {TITLE}"),
        ("quantize", f"in {TITLE}", f"out {TITLE}", "--type", "Q8_0"),
        ("convert", f"folder {TITLE}", f"out {TITLE}"),
        ("models", "pull", f"model {TITLE}"),
        ("models", "rm", f"model {TITLE}"),
    ],
    ids=lambda arguments: " ".join(arguments[:2])[:20].encode("ascii", "ignore").decode().strip("\x1b\x07"),
)
def test_errors_repeat_what_was_typed_without_its_commands(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
    result = sonata(*arguments)
    assert result.returncode != 0
    quiet(result)


def test_a_file_name_that_is_no_text_is_shown(hostile_path: Path) -> None:
    path = os.fsdecode(os.fsencode(hostile_path.parent) + b"/\xff.gguf")
    os.link(hostile_path, path)
    assert "�.gguf" in quiet(sonata("info", "--model", path))


def test_what_a_model_writes_is_shown_without_its_commands(hostile_path: Path) -> None:
    options = ["x", "--raw", "--max-tokens", "200", "--temperature", "5", "--model", hostile_path, "--backend", "numpy"]
    exact = json.loads(sonata("generate", *options, "--json").stdout)["text"]
    assert plain(exact) != exact, "the model wrote no control character: choose another seed"
    shown_text = sonata("generate", *options).stdout
    assert shown_text == plain(exact) + "\n"


def test_tabs_and_newlines_of_a_text_stay(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say("a\tb\r\n\x1b[31mc", end="")
    terminal.console().print("d\n\x1b[31me")
    assert capsys.readouterr().out == "a\tb\n␛[31mcd\n␛[31me\n"


def test_rich_keeps_its_own_styles(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    terminal.console().print("[bold]\x1b[2Ja[/bold]")
    assert capsys.readouterr().out == "\x1b[1m␛[2Ja\x1b[0m\n"


def test_every_command_writes_through_this_module() -> None:
    """print() is for JSON only, and only app/cli/terminal.py makes a console of rich."""
    for path in {*(APP / "cli").glob("*.py")} - {APP / "cli" / "terminal.py"}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called = ast.unparse(node)
                assert called.startswith("print(json.dumps(") or node.func.id not in ("print", "Console"), called


def test_values_are_cut_and_quoted() -> None:
    assert shown("llama") == "'llama'"
    assert shown("x" * 200_000) == "'" + "x" * 76 + "..."
    assert shown(TITLE) == r"'\x1b]0;owned\x07\x9b2J\x7f\r'"
    assert shown(10**5000) == "a number of 16610 bits"
    assert all(
        len(shown(value)) <= 80 for value in (["y" * 99] * 9, {"k": ["z" * 999]}, list(range(10**6)), b"0" * 999)
    )
    assert one_line(f" A  name\n{TITLE} ") == "A name ␛]0;owned␇�2J␡"
    assert one_line("n" * 200_000) == "n" * 77 + "..."
