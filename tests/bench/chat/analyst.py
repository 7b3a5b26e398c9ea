"""Questions about tables, answered by code that a model writes and that is run: how many come out right.

    python -m tests.bench analyst [--model 0.5b|1.5b|NAME] [--part test|dev] [--plain] [--only TEXT] [--backend NAME]
        [--show] [--json FILE]

The questions and their answers are in tests/bench/data/analyst/tasks.toml. The prompt is the page's
(app/files/analysis.py), the first answer is greedy, the code is run in the child process of `sonata chat --python`, and
an error is sent back as "Fix it" does, at most three times. An answer is right if what the code shows has each number,
the names in their order, and a figure if a chart was asked for. --plain: the model reads the whole file with the
question, as in a chat, and writes all of the code.

It needs pandas and matplotlib: pip install '.[analyst]'. `python build.py models 0.5b 1.5b` fetches the models.
"""

from __future__ import annotations

import asyncio
import re
import time
import tomllib
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from app.building.larger_models import larger_model_names
from app.chat.answerers import RETRY_TEMPERATURE
from app.cli.loading import BackendChoice, ModelOptions
from app.cli.python_runs import python_of
from app.files.analysis import analysis_of
from app.files.material import Material, whole_text
from app.generation.assistant import Assistant
from app.interpreter.child import Limits, PythonChild
from app.interpreter.session import Failure, Output, Picture, describe, for_model
from app.protocol import Done
from py_core.sampling import SamplingParams
from py_core.tools.table import read_table
from tests.bench.reporting import options_of, print_tables, write_figures

FOLDER = Path(__file__).parents[1] / "data" / "analyst"
MOST_FIXES = 3
MOST_NUMBERS = 40
"""Code that shows more numbers than these does not answer a question."""
LIMITS = Limits(seconds=60)


@dataclass(frozen=True)
class Result:
    """fixes: how often an error was sent back. first: it was right without that. why: what is missing."""

    question: str
    right: bool
    first: bool
    fixes: int
    why: str
    seconds: float
    tokens: int
    rounds: list[dict[str, str]]


def missing(task: dict[str, Any], outputs: list[Output]) -> str:
    """Name something that the outputs lack; "" if they are right."""
    if any(isinstance(output, Failure) for output in outputs):
        return "error"
    shown = for_model(outputs, 100_000)
    found = [float(number.replace(",", "")) for number in re.findall(r"-?\d[\d,]*(?:\.\d+)?", shown)]
    if len(found) > MOST_NUMBERS:
        return f"{len(found)} numbers"
    for number in task["numbers"]:
        forms = number if isinstance(number, list) else [number]
        if not any(is_same(form, one) for form in forms for one in found):
            return f"{forms[0]} is not there"
    at = -1
    for word in task.get("words", ()):
        if (at := shown.find(word, at + 1)) < 0:
            return f"{word} is not there, or not in its place"
    if task.get("chart") and not any(isinstance(output, Picture) for output in outputs):
        return "no figure"
    return ""


def is_same(wanted: float, found: float) -> bool:
    """True if `found` is the number, or the number rounded to two places, or to one if it is not below ten."""
    places = 4 if abs(wanted) < 0.1 else 2 if abs(wanted) < 10 else 1
    return abs(wanted - found) <= 0.5 * 10**-places + 1e-9


def fix_message(question: str, code: str, failure: Failure) -> str:
    """The message of "Fix it" in the page (web/interpreter/python_runs.js)."""
    fix = "This code ends with an error. Correct it, and write the whole code again."
    return f"{question}\n\n{fix}\n\n```python\n{code.rstrip()}\n```\n\n```text\n{describe(failure)}\n```"


async def ask(assistant: Assistant, task: dict[str, Any], is_plain: bool) -> Result:
    begin, rounds, tokens = time.perf_counter(), list[dict[str, str]](), 0
    path = FOLDER / task["file"]
    table = read_table(path.name, path.read_text("utf-8"))
    assert table is not None
    analysis, text, why = analysis_of(table, "", task["question"]), task["question"], ""
    child = PythonChild(LIMITS)
    try:
        child.put(path.name, path.read_bytes())
        for fix in range(1 + MOST_FIXES):
            sampling = SamplingParams(temperature=RETRY_TEMPERATURE, seed=fix) if fix else None
            if is_plain:
                read = Material(whole_text(path.name, path.read_text("utf-8")), 0, (), is_whole=True)
                asked = f"{text}\n\nWrite Python with pandas that reads {path.name}, and print the answer."
                saying = assistant.respond(asked, before=[], material=read, sampling=sampling)
            else:
                saying = assistant.analyse(text, analysis, before=[], sampling=sampling)
            async for event in saying:
                if isinstance(event, Done):
                    answer, tokens = event.text, tokens + event.new_tokens
            outputs = await child.run(code := python_of(answer))
            why = missing(task, outputs)
            rounds.append({"code": code, "shown": for_model(outputs), "why": why})
            failures = [output for output in outputs if isinstance(output, Failure)]
            if not failures:
                break
            text = fix_message(task["question"], code, failures[0])
    finally:
        await child.close()
    fixes = len(rounds) - 1
    return Result(
        task["question"], not why, not why and not fixes, fixes, why, time.perf_counter() - begin, tokens, rounds
    )


async def run(options: Any) -> list[Result]:
    tasks = tomllib.loads((FOLDER / "tasks.toml").read_text("utf-8"))[options.part]
    name = options.model
    path = Path(f"qwen2.5-coder-{name}" if name in larger_model_names() else name)
    model = await ModelOptions(model=path, backend=BackendChoice(options.backend)).load()
    assistant, results = Assistant(model), list[Result]()
    try:
        for task in tasks:
            if options.only not in task["question"]:
                continue
            results.append(result := await ask(assistant, task, options.plain))
            write_figures(options, [asdict(one) for one in results])
            print("right" if result.right else f"wrong ({result.why})", result.fixes, task["question"], flush=True)
            if options.show:
                for one in result.rounds:
                    print(one["code"], one["shown"], sep="\n---\n", end="\n======\n", flush=True)
    finally:
        assistant.close()
        model.close()
    return results


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--model", default="0.5b", help="0.5b, 1.5b, a name or a path")
    parser.add_argument("--part", choices=("test", "dev"), default="test")
    parser.add_argument("--plain", action="store_true", help="the whole file is read, and no code is given")
    parser.add_argument("--only", default="", help="questions with this text")
    parser.add_argument("--show", action="store_true", help="show the code, and what it prints")
    parser.add_argument("--backend", choices=[choice.value for choice in BackendChoice], default="auto")
    options = parser.parse_args()
    if find_spec("pandas") is None or find_spec("matplotlib") is None:
        print("pandas and matplotlib are needed: pip install '.[analyst]'")
        return 1
    results = asyncio.run(run(options))
    title = f"Analyst, {options.model}, {options.part}{', plain' if options.plain else ''}"
    table = RichTable("question", "right", "first try", "fixes", "tokens", "s", title=title)
    for one in results:
        table.add_row(
            one.question, "yes" if one.right else one.why, "yes" if one.first else "", str(one.fixes), str(one.tokens),
            f"{one.seconds:.0f}",
        )  # fmt: skip
    right, first = sum(one.right for one in results), sum(one.first for one in results)
    table.add_row(f"of {len(results)}", str(right), str(first), "", "", "", style="bold")
    print_tables(table)
    return 0
