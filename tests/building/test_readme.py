"""README and docs/guide/terminal.md are true: each command prints the output beside it, and the Python example runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import sonata

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TERMINAL = (ROOT / "docs" / "guide" / "terminal.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def console_lines() -> list[tuple[str, str]]:
    """(command, the output shown for it) of the terminal's page."""
    found: list[tuple[str, str]] = []
    for line in "".join(blocks("console", TERMINAL)).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        else:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


def words_of_sonata(command: str) -> Iterator[list[str]]:
    """The arguments of each `sonata` in a line of a shell."""
    line = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    line.whitespace_split = True
    words: list[str] | None = None
    for word in [*line, ";"]:
        if word == ".venv/bin/sonata":
            words = []
        elif words is not None and set(word) <= set("();<>|&"):
            yield words
            words = None
        elif words is not None:
            words.append(word)


def test_each_command_and_option_that_is_shown_exists() -> None:
    """Checking their output takes minutes."""
    shown = [words for command, _ in console_lines() for words in words_of_sonata(command)]
    assert len(shown) == 18
    for words in shown:
        result = sonata(*words, "--help")  # earlier options are parsed, and no command runs
        assert (result.returncode, "Usage: " in result.stdout) == (0, True), (words, result.stderr)
    assert sonata("generate", "x", "--no-such", "--help").returncode == 2


@pytest.mark.all
@pytest.mark.parametrize(("command", "shown"), console_lines())
def test_a_command_gives_what_is_shown(model_path: Path, tmp_path: Path, command: str, shown: str) -> None:
    command = command.replace(".venv/bin/sonata", str(Path(sys.executable).with_name("sonata")))
    # `chat` reads its lines from a terminal, here from a pipe that ends.
    ran = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, input="", capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert shown in ran.stdout


@pytest.mark.all
def test_the_python_example_answers(model_path: Path) -> None:
    (example,) = blocks("python")
    # The same on numpy, and a shorter answer: lavapipe takes 15 s for this one.
    for shown, run in (
        (
            "from py_core.backends.webgpu.backend import load_webgpu",
            "from py_core.backends.numpy.backend import load_numpy",
        ),
        ("partial(load_webgpu, WgpuHost())", "load_numpy"),
        ("Assistant(model)", "Assistant(model, max_tokens=24)"),
    ):
        assert shown in example
        example = example.replace(shown, run)
    ran = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "light" in ran.stdout


def test_the_first_two_commands_are_those_of_build_py() -> None:
    first = blocks("sh")[0].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["python build.py serve", "python build.py test"]
    helped = subprocess.run(
        [sys.executable, "build.py", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert "serve" in helped.stdout
    assert "test" in helped.stdout


def test_each_page_that_is_linked_is_there() -> None:
    missing = {
        (page.name, target)
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    }
    assert missing == set()
