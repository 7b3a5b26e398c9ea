"""Calls of functions: questions of BFCL v4, by category: calls that can be read, the right function, right arguments.

    python -m tests.bench function_calls [--model NAME] [--limit N] [--half dev|test] [--category NAME]... [--all]
        [--no-grammar] [--tool-choice required] [--backend NAME] [--at-once N] [--data WHEEL] [--json FILE]
    python -m tests.bench function_calls --site OUT [--limit N] [--half dev|test] [--category NAME]...
    python -m tests.bench function_calls --table RESULT.json [--category NAME]... [--json FILE]

Answers are greedy, of one turn, and nothing is executed. A question of `irrelevance` is right if nothing is called. The
halves are the questions with even and odd numbers: prompts and forms are chosen on `dev`, and reported on `test`.
`--site` lays out a page with Sonata and wllama, which answer the same messages in turns, for a machine with a GPU and a
browser; `--table` judges the answers that it sends to /result.
Machines without a network need the wheel of bfcl-eval beside them (--data), and the model's file (--model PATH).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from app.cli.loading import BackendChoice, ModelOptions
from app.cli.terminal import progress_bar
from app.generation.assistant import SYSTEM_PROMPT
from app.generation.call_answer import CallStream, answer_with_calls, asked_with_tools
from py_core.loading import Model
from py_core.tool_calls.definitions import ToolError, choice_from, tools_from
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.bench.tool_calls.bfcl import CATEGORIES, MORE, PACKAGE, Question, archive, questions, verdict


@dataclass(frozen=True)
class Result:
    """parses: the answer is text and calls, maybe of a tool that is not there, and nothing else that looks like a call.
    why: of what does not, or of a schema that is refused."""

    id: str
    category: str
    parses: bool
    name: bool
    right: bool
    calls: list[dict[str, Any]]
    text: str
    why: str
    new_tokens: int
    prompt_tokens: int
    seconds: float


async def ask(model: Model, question: Question, options: Any) -> Result:
    begin = time.perf_counter()
    try:
        tools = tools_from(question.tools)
        chosen, is_shaped = choice_from(options.tool_choice, tools), not options.no_grammar
        stream = CallStream(model, tools, chosen, max_tokens=options.max_tokens, is_shaped=is_shaped)
    except ToolError as error:
        return Result(question.id, question.category, False, False, False, [], "", str(error), 0, 0, 0.0)
    said = [message for message in question.messages if message["role"] == "system"]
    others = [message for message in question.messages if message["role"] != "system"]
    system = "\n".join((options.system, *(message["content"] for message in said)))
    answer = await answer_with_calls(stream, [{"role": "system", "content": system}, *others])
    calls = [call.entry() for call in answer.calls]
    found = verdict(question, calls)
    return Result(
        question.id, question.category, all(one.tool for one in answer.bad), found.name, found.right, calls,
        answer.text,
        "; ".join(str(one.why) for one in answer.bad), answer.new_tokens, answer.prompt_tokens,
        time.perf_counter() - begin,
    )  # fmt: skip


async def run(options: Any, asked: Sequence[Question]) -> list[Result]:
    loading = ModelOptions(model=options.model, backend=BackendChoice(options.backend), context=options.context)
    model, several, done = await loading.load(), asyncio.Semaphore(options.at_once), list[Result]()
    try:
        with progress_bar("Answering") as bar:
            task = bar.add_task("", total=len(asked))

            async def one(question: Question) -> Result:
                async with several:
                    result = await ask(model, question, options)
                bar.advance(task)
                done.append(result)
                write_figures(options, [asdict(one) for one in done])  # a run that is ended has its figures
                return result

            return list(await asyncio.gather(*map(one, asked)))
    finally:
        model.close()


def table_of(results: Sequence[Result], title: str) -> Table:
    table = Table("category", "questions", "parses, %", "right function, %", "right, %", "tokens", "s", title=title)
    for category in dict.fromkeys(result.category for result in results):
        of_it = [result for result in results if result.category == category]
        count = len(of_it)
        shares = (100 * sum(getattr(one, key) for one in of_it) / count for key in ("parses", "name", "right"))
        means = (sum(one.new_tokens for one in of_it) / count, sum(one.seconds for one in of_it) / count)
        table.add_row(category, str(count), *(f"{share:.1f}" for share in shares), f"{means[0]:.0f}", f"{means[1]:.1f}")
    return table


def lay_out_page(folder: Path, asked: Sequence[Question], system: str, max_tokens: int) -> None:
    """The built site, the page, wllama's modules and the questions, one of each category after the other."""
    from tests.bench.engine.gpu_browser import lay_out  # late: it needs a browser's driver

    lay_out(folder)
    places = {one.id: [other.id for other in asked if other.category == one.category].index(one.id) for one in asked}
    in_turns = sorted(asked, key=lambda one: places[one.id])
    questions = [{"id": one.id, "messages": one.messages, "tools": one.tools} for one in in_turns]
    told = {"questions": questions, "system": system, "most": max_tokens}
    (folder / "function_questions.json").write_text(json.dumps(told), "utf-8")


def judged(result: dict[str, Any], known: Sequence[Question]) -> dict[str, list[Result]]:
    """The results of the page's answers by engine."""
    by_id, found = {question.id: question for question in known}, dict[str, list[Result]]()
    for answer in result["answers"]:
        question, calls = by_id[answer["id"]], answer["calls"]
        said, why = verdict(question, calls), "; ".join(one["why"] for one in answer["bad"])
        made = Result(
            question.id, question.category, all(one["tool"] for one in answer["bad"]), said.name, said.right, calls,
            answer["text"], why, answer["tokens"], 0, answer["seconds"],
        )  # fmt: skip
        found.setdefault(answer["engine"], []).append(made)
    return found


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--site", type=Path, metavar="OUT", help="only lay the page out, in this folder")
    parser.add_argument("--table", type=Path, metavar="RESULT", help="only judge these answers of the page")
    parser.add_argument("--model", type=Path, help="a name or a path; the usual model otherwise")
    parser.add_argument("--limit", type=int, help="the most questions of a category")
    parser.add_argument("--half", choices=("dev", "test"), help="all questions otherwise")
    parser.add_argument("--category", action="append", choices=CATEGORIES + MORE, help="the first four otherwise")
    parser.add_argument("--all", action="store_true", help="all categories")
    parser.add_argument("--no-grammar", action="store_true", help="answers without a grammar")
    parser.add_argument("--tool-choice", choices=("auto", "required"), default="auto")
    parser.add_argument("--backend", choices=[choice.value for choice in BackendChoice], default="auto")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="conversations that run together")
    usual = asked_with_tools(SYSTEM_PROMPT, "")[0]["content"]
    parser.add_argument("--system", default=usual, help="the system message, to try others")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--context", type=int, help="the longest conversation in tokens")
    parser.add_argument("--data", type=Path, metavar="WHEEL", help=f"the file of {PACKAGE}")
    options = parser.parse_args()
    if options.table:
        result = json.loads(options.table.read_text("utf-8"))
        by_engine = judged(result, [one for name in CATEGORIES + MORE for one in questions(archive(), name)])
        write_figures(options, {name: [asdict(one) for one in found] for name, found in by_engine.items()})
        print_tables(*(table_of(found, f"BFCL v4, {name}") for name, found in by_engine.items()))
        return int(bool(result["errors"]))
    wheel, asked = options.data or archive(), list[Question]()
    for category in options.category or (CATEGORIES + MORE if options.all else CATEGORIES):
        found = questions(wheel, category)
        if options.half:
            found = found[options.half == "test" :: 2]
        asked += found[: options.limit]
    if options.site:
        lay_out_page(options.site, asked, options.system, options.max_tokens)
        return 0
    results = asyncio.run(run(options, asked))
    how = "without a grammar" if options.no_grammar else "with a grammar"
    print_tables(table_of(results, f"BFCL v4, {options.model or 'the usual model'}, {how}"))
    return 0
