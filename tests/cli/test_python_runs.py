"""`/run` of `sonata chat --python`, without a model: the code of an answer, its files and what is shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from app.cli.python_runs import PythonRuns, python_of
from tests.interpreter.programs import MEAN, SALES

ANSWER = f"So:\n\n```python\n{MEAN}```\n\n```sh\nls\n```\n\n````Py\nopen('out.txt', 'w').write('hi');\n1 / 0\n````\n"


class _Files:
    async def files(self, session: str) -> list[dict[str, str]]:
        return [{"id": "1", "name": "sales.csv"}]

    async def text(self, id: str) -> str:
        return SALES.decode()


def test_the_code_of_an_answer_is_run_with_the_files_of_its_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = PythonRuns(Console(width=80))
    runtime: Any = SimpleNamespace(files=_Files())
    conversation: Any = SimpleNamespace(turns=[SimpleNamespace(content=ANSWER)], session_id="a")

    async def run() -> None:
        await runs.run(runtime, conversation)
        await runs.run(runtime, SimpleNamespace(turns=[], session_id="a"))  # type: ignore[arg-type]
        await runs.close()

    asyncio.run(run())
    said = " ".join(capsys.readouterr().out.split())
    assert "Line 8: 1 / 0 ZeroDivisionError" in said
    assert "out.txt (2 bytes) was written to" in said
    assert "There is no Python in the last answer." in said
    assert (tmp_path / "out.txt").read_text() == "hi"
    assert not (tmp_path / "sales.csv").exists()


def test_only_blocks_of_python_are_code() -> None:
    assert python_of("```js\n1\n```\ntext") == ""
    assert python_of("```python\na\n```\n```py\nb\n```") == "a\n\nb\n"
