"""Lessons in JSON lines, {"question": "...", "answer": "..."}. Each is read by itself, and a bad line stops no
other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from py_core.display import is_blank, shown, why_not_json

LONGEST_LINE = 1_000_000
"""The most bytes of a line: far more than any model learns from."""
HALF = "has half a character (a surrogate without its other half). Write the whole character."
WANTED = 'Write each as {"question": "What is the name of my dog?", "answer": "Your dog is called Biscuit."}'

_IN_JSON = {"None": "null", "True": "true", "False": "false", "nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@dataclass(frozen=True)
class LessonRow:
    """A row, and the number of its line. error: why there is no lesson in it and what to do, "" if there is one."""

    line: int
    question: str = ""
    answer: str = ""
    error: str = ""


def open_rows(path: Path) -> BinaryIO:
    """Open a file, or standard input for "-". Raises OSError."""
    return sys.stdin.buffer if str(path) == "-" else path.open("rb")


def lesson_rows(file: BinaryIO) -> Iterator[LessonRow]:
    """Yield each row as soon as its line is there; empty lines are left out."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE)
            yield LessonRow(number, error=f"The line has over {LONGEST_LINE:,} bytes. {WANTED}.")
        elif line.strip():
            yield _row(number, line)


def _row(number: int, line: bytes) -> LessonRow:
    try:
        given = _object(line)
    except ValueError as error:
        return LessonRow(number, error=str(error))
    problems = {name: _problem(given, name) for name in ("question", "answer")}
    texts = {name: "" if problem else given[name] for name, problem in problems.items()}
    return LessonRow(number, **texts, error=" ".join(filter(None, problems.values())))


def _object(line: bytes) -> dict[str, Any]:
    """Raises ValueError, whose message says what to do."""
    try:
        given = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("The line is not text in UTF-8. Save the file as UTF-8.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The line is not JSON: {why_not_json(error)}. {WANTED}.") from None
    if not isinstance(given, dict):
        raise ValueError(f"The line is {_shown(given)}, not an object. {WANTED}.")
    return given


def _problem(given: dict[str, Any], name: str) -> str:
    if name not in given:
        return f"The {name} is missing. {WANTED}."
    if not isinstance(text := given[name], str):
        return f"The {name} is {_shown(text)}, not text. {WANTED}."
    problem = problem_of_text(text)
    return f"The {name} {problem}" if problem else ""


def _shown(value: Any) -> str:
    """Return the value as JSON writes it, if Python writes it differently."""
    said = shown(value)
    return _IN_JSON.get(said, said)


def problem_of_text(text: str) -> str:
    """Return what is wrong with a text, to stand after its name: "" for nothing."""
    if is_blank(text):
        return "is empty. Write something there."
    return "" if is_whole(text) else HALF


def is_whole(text: str) -> bool:
    """True if the text can be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
