"""`sonata bench humaneval`: answers become programs, which run in a process with limits."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.bench import humaneval
from app.bench.humaneval import Problem, Tried, program_of, read_problems, tried
from tests.cli.command_line import assert_sentence, printed, sonata
from tests.diffusion.tiny import write_diffusion

PROMPT = '''from math import isqrt

def twice(x: int) -> int:
    return 2 * x


def root(x: int) -> int:
    """The whole root of x."""
'''
CHECK = "def check(candidate):\n    assert candidate(17) == 4\n    assert candidate(0) == 0\n"
ROOTS = Problem("Test/0", PROMPT, "root", CHECK)
RIGHT = "return isqrt(twice(x) // 2)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl.gz"
    path.write_bytes(gzip.compress(f"{json.dumps(vars(ROOTS) | {'canonical_solution': RIGHT})}\n".encode()))
    return path


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (f"Here it is:\n```python\ndef root(x):\n    {RIGHT}\n```\nIt is right.", ""),
        (f"```\n    {RIGHT}\n```", ""),
        (f"    {RIGHT}\n", ""),
        ("```python\nx = 1\n```\n```python\ndef root(x):\n    return isqrt(x)", ""),
        ("```python\ndef root(x):\n    return x\n```", "AssertionError"),
        ("I cannot do that.", "SyntaxError"),
        ("```python\ndef root(x):\n    while True:\n        pass\n```", "time"),
        ("```python\nimport os\ndef root(x):\n    os._exit(0)\n```", "died"),
    ],
)
async def test_the_code_of_an_answer_is_tested(answer: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(humaneval, "LIMITS", replace(humaneval.LIMITS, seconds=0.5))

    async def said(question: str) -> str:
        assert question.endswith(f"{ROOTS.prompt.rstrip()}\n```")
        return answer

    (found,) = await tried([ROOTS], said)
    assert isinstance(found, Tried)
    assert (found.task_id, found.answer) == ("Test/0", answer)
    assert (why in found.why) if why else not found.why, found.why


def test_what_stands_before_the_function_is_there_for_an_answer_that_has_it_whole() -> None:
    program = program_of(ROOTS, "```python\ndef root(x):\n    return 1\n```")
    assert program.startswith("from math import isqrt\ndef twice")
    assert program.count("def root") == 1


def test_the_command_says_how_many_pass_and_what_is_no_problem(file: Path, tmp_path: Path) -> None:
    model = ["--backend", "numpy", "--model", str(write_diffusion(tmp_path / "tiny.gguf", 32))]
    told = json.loads(printed(sonata("bench", "humaneval", *model, "--problems", str(file), "--json")))
    assert {key: told[key] for key in ("passed", "of", "share")} == {"passed": 0, "of": 1, "share": 0.0}
    assert told["tried"][0]["why"]
    assert "0 of 1 pass" in printed(sonata("bench", "humaneval", *model, "--problems", str(file)))
    (tmp_path / "other.jsonl").write_text('{"task_id": 1}\n')
    assert_sentence(sonata("bench", "humaneval", *model, "--problems", str(tmp_path / "other.jsonl")), "no problems in")
    assert read_problems(file) == [ROOTS]
