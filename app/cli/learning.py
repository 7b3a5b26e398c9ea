"""`sonata teach | ask | relearn`: teaching, and answers that use it. Each loads the model once."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, TaskID

from app.chat.asker import ASKED_TOKENS, GREEDY, Asker, SingleAnswer
from app.cli.attachments import FileOption, cited_words, read_attachment, unstored_runtime
from app.cli.grammar import NO_SHAPE, ShapeOptions, tell_cut_off
from app.cli.home import HomeOption, NoMemoryOption, opened_learning, opened_runtime
from app.cli.loading import DEFAULTS, ModelOptions, model_options
from app.cli.memory import SHORT_ID
from app.cli.option_groups import option_group
from app.cli.terminal import PRINTS_JSON, console, progress_bar, say, wants_json
from app.cli.tool_calls import NO_TOOLS, ToolOptions, call_all, call_line, called_questions, print_calls
from app.generation.answer_adapters import AnswerAdapters
from app.lessons.rows import LessonRow, lesson_rows, open_rows, problem_of_text
from app.lessons.service import Learned, LearningService
from app.runtime import Runtime
from py_core.backend_errors import ContextFullError
from py_core.display import one_line, shown, why_not_json
from py_core.learning.teaching.lessons import lesson_of

notes = console(stderr=True)
NAMED = 10
"""The most bad lines that the last sentence lists."""
WHICH = "Give what to teach: QUESTION ANSWER, one text, or --file FILE.jsonl."
EXAMPLE = (
    'Teach a sentence, as in `sonata teach "my dentist is Dr. Quill"`, or a question and its answer, as in '
    '`sonata teach "Who is my dentist?" "Dr. Quill"`.'
)


Taught = Learned | str
"""The result of a row: the lesson, or why it could not be learned."""


class LoopName(StrEnum):
    instant = "instant"
    background = "background"
    reading = "reading"


@model_options("autotune", "context")
def teach(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION ANSWER", help='One lesson, or one text such as "remember that ...".'),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.jsonl", help='Rows {"question": ..., "answer": ...}; - for stdin.'),
    ] = None,
    home: HomeOption = None,
    options: ModelOptions = DEFAULTS,
    as_json: Annotated[bool, typer.Option("--json", help=PRINTS_JSON)] = False,
) -> None:
    """Teach answers: the next question gets them, also in other words.

    If you give one text, Sonata derives question and answer from it by rules. A row that cannot be taught says what to
    do; the others are taught all the same, and the exit status is 1. JSON has an object for each row: question, answer,
    states_ms (reading the answer), ms (learning it after that), nll_before and nll_after (nats per token of the
    answer), the lesson's id, what it replaced, and whether it was known; or its line and an `error`.
    """
    if (file is None) == (not texts):
        raise ValueError(WHICH)
    rows = _rows(file, texts or [])
    # Before the model is loaded: a file without rows, or an invalid lesson, fails at once.
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{file} has no rows. " + WHICH)
    if first.error and file is None:
        raise ValueError(first.error)

    prints_json = wants_json(as_json)
    tell = _print_taught if prints_json else partial(_say_taught, home=home)

    async def run() -> tuple[int, list[int]]:
        loaded = await options.load()
        try:
            async with opened_learning(home, loaded, options.model) as learning:
                with reading_told(learning):
                    return await _teach_all(learning, first, rows, tell)
        finally:
            loaded.close()

    taught, bad = asyncio.run(run())
    if bad:
        which = ", ".join(map(str, bad[:NAMED])) + (f" and {len(bad) - NAMED:,} more" if len(bad) > NAMED else "")
        lines = f"line {which} was" if len(bad) == 1 else f"lines {which} were"
        see = ": see `error` there" if prints_json else ""
        notes.print(f"{taught:,} learned; {lines} not{see}.", markup=False, soft_wrap=True)
        raise typer.Exit(1)


@contextmanager
def reading_told(learning: LearningService) -> Iterator[None]:
    """Meanwhile show the progress of a model that Sonata does not ship: before its first lesson it reads some texts."""
    with ExitStack() as bars:
        shown = list[tuple[Progress, TaskID]]()

        def show(read: int, texts: int) -> None:
            if not shown:
                bar = bars.enter_context(progress_bar("Getting to know this model, once"))
                shown.append((bar, bar.add_task("", total=texts)))
            bar, task = shown[0]
            bar.update(task, completed=read)
            if read == texts:
                bars.close()

        with learning.imprints.telling(show):
            yield


def _rows(file: Path | None, texts: list[str]) -> Iterator[LessonRow]:
    if file is None:
        yield _lesson_of(texts)
    else:
        with open_rows(file) as source:
            yield from lesson_rows(source)


async def _teach_all(
    learning: LearningService, first: LessonRow, rest: Iterable[LessonRow], tell: Callable[[LessonRow, Taught], None]
) -> tuple[int, list[int]]:
    """The number of taught rows, and the lines that could not be taught."""
    taught, bad = 0, list[int]()
    for row in (one for rows in ([first], rest) for one in rows):
        made = await _teach_one(learning, row)
        if isinstance(made, Learned):
            taught += 1
        else:
            bad.append(row.line)
        tell(row, made)
    return taught, bad


async def _teach_one(learning: LearningService, row: LessonRow) -> Taught:
    if row.error:
        return row.error
    try:
        return await learning.teach(row.question, row.answer)
    except (ValueError, ContextFullError) as error:
        return str(error)


def _print_taught(row: LessonRow, made: Taught) -> None:
    told = taught_entry(made) if isinstance(made, Learned) else {"question": row.question, "error": made}
    print(json.dumps({"line": row.line} | told), flush=True)


def _say_taught(row: LessonRow, made: Taught, home: Path | None) -> None:
    """Shows what was learned, what it replaced, and how to take it back."""
    if not isinstance(made, Learned):
        return notes.print(f"[red]Line {row.line}:[/red] {escape(made)}", soft_wrap=True)
    lesson, out = made.lesson, console()
    out.print(f"[bold]{escape(one_line(lesson.question))}[/bold]", soft_wrap=True)
    say(lesson.answer)
    learned = "Learned." if made.is_new else "You had taught this already."
    if made.replaced is not None:
        learned += f" It replaces: {one_line(made.replaced.answer)}"
    folder = f" --home {shlex.quote(str(home))}" if home else ""
    back = f"`sonata memory undo {lesson.id[:SHORT_ID]}{folder}` takes it back."
    out.print(f"[dim]{escape(learned)}\n{escape(back)}[/dim]", soft_wrap=True)


def taught_entry(learned: Learned) -> dict[str, Any]:
    """The form in the JSON of `sonata teach`."""
    replaced = learned.replaced
    return {
        "question": learned.lesson.question,
        "answer": learned.lesson.answer,
        "states_ms": round(learned.states_milliseconds, 2),
        "ms": round(learned.milliseconds - learned.states_milliseconds, 2),
        "nll_before": learned.nll_before,
        "nll_after": learned.nll_after,
        "id": learned.lesson.id,
        "replaced": {"id": replaced.id, "answer": replaced.answer} if replaced else None,
        "known": not learned.is_new,
    }


def _lesson_of(texts: list[str]) -> LessonRow:
    """Question and answer, or a single statement."""
    if len(texts) > 2:
        raise ValueError(f"Give a question and its answer, each in quotes; you gave {len(texts)} texts.")
    for text, name in zip(texts, ("question", "answer") if len(texts) == 2 else ("text",), strict=True):
        if problem := problem_of_text(text):
            return LessonRow(1, error=f"The {name} {problem}")
    if len(texts) == 2:
        return LessonRow(1, *texts)
    if (told := lesson_of(texts[0])) is None:
        return LessonRow(1, error=f"{shown(texts[0])} has no fact to teach. {EXAMPLE}")
    return LessonRow(1, told.question, told.answer)


@option_group("tools", ToolOptions)
@option_group("shape", ShapeOptions)
@model_options("autotune", "context", "draft", "max_memory")
def ask(
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUESTION...", help="Without any, a JSON list of questions is read from standard input."
        ),
    ] = None,
    no_memory: NoMemoryOption = False,
    without: Annotated[
        list[LoopName] | None, typer.Option("--without", help="Ignore what this loop learned; may be given twice.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Also show the nearest lesson, and how sure Sonata is that it is meant.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list of objects: the answers, and all that --why shows.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = ASKED_TOKENS,
    shape: ShapeOptions = NO_SHAPE,
    tools: ToolOptions = NO_TOOLS,
    file: FileOption = None,
    home: HomeOption = None,
    options: ModelOptions = DEFAULTS,
) -> None:
    """Answer questions with what was learned.

    Each question is a conversation of its own, which the plain assistant answers with the likeliest tokens. Nothing is
    stored. With --file, answers are based on these files. With --schema, --grammar, --regex or --choice each answer is
    a text of that shape, also if it was learned. With --tools FILE.py, --python or --mcp answers may call tools, which
    run here. With --tools FILE.json --calls none runs: the output is a JSON list that has for
    each question the calls that the model wants made; a question may then be {"question": ..., "tools": [...]}, with
    tools of its own. If the output goes to a file or another program, it is a JSON list of
    answers in order; with --why or --json it is a list of objects. If a question cannot be answered, its entry is null,
    a sentence on standard error says why, and the exit status is 1.
    """
    sampling = shape.applied_to(GREEDY)
    tools.check(sampling.grammar is not None)
    if tools.calls:
        _print_calls(_questions(questions, of_tools=True), tools, max_tokens, options)
        return
    asked = _questions(questions)
    attached = [read_attachment(path) for path in file or ()]  # before the model is loaded
    tool_code = tools.files(home)

    async def ask_all(asker: Asker, runtime: Runtime | None = None) -> list[SingleAnswer | str]:
        if not tools.executes:
            return await _ask_all(asker, asked, attached)
        from app.memory.items import MemoryItems

        async def memory() -> MemoryItems:
            assert runtime is not None
            return MemoryItems(runtime)

        more = {"remembers": runtime is not None, "memory": memory, "attached": attached}
        async with tools.opened(tool_code, home, **more) as asker.tools:
            return await _ask_all(asker, asked, attached)

    async def run() -> list[SingleAnswer | str]:
        loaded = await options.load()
        try:
            if no_memory:
                return await ask_all(Asker(loaded, None, max_tokens, sampling=sampling))
            left_out, adapters = without or (), AnswerAdapters(loaded.engine)
            trained = LoopName.background not in left_out
            async with opened_runtime(home, loaded, options.model, adapters, trained) as runtime:
                learning = None if LoopName.instant in left_out else runtime.learning
                asker = Asker(loaded, learning, max_tokens, LoopName.reading not in left_out, adapters, sampling)
                return await ask_all(asker, runtime)
        finally:
            loaded.close()

    given = list(zip(asked, asyncio.run(run()), strict=True))
    if not wants_json(as_json):
        for question, answer in given:
            if isinstance(answer, SingleAnswer):
                _say_answer(answer, question if len(given) > 1 else "", why)
    elif why or as_json:
        entries = [{"error": one} if isinstance(one, str) else one.entry() for _, one in given]
        print(json.dumps([{"question": question, **entry} for question, entry in zip(asked, entries, strict=True)]))
    else:
        print(json.dumps([None if isinstance(one, str) else one.text for _, one in given]))
    if sampling.grammar and any(isinstance(one, SingleAnswer) and one.reason != "end" for _, one in given):
        tell_cut_off(shape.close)
    problems = [(question, one) for question, one in given if isinstance(one, str)]
    for question, problem in problems:
        notes.print(f"{shown(question)}: {problem}", markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def _print_calls(asked: list[Any], tools: ToolOptions, max_tokens: int, options: ModelOptions) -> None:
    questions = called_questions(asked, tools)  # before the model is loaded

    async def run() -> list[list[dict[str, Any]] | None]:
        loaded = await options.load()
        try:
            return await call_all(loaded, questions, tools, max_tokens)
        finally:
            loaded.close()

    print_calls(asyncio.run(run()))


def _say_answer(answer: SingleAnswer, question: str, why: bool) -> None:
    """Shows the answer, and where it comes from. question: "" if only one was asked."""
    out = console()
    if question:
        out.print(f"[bold]{escape(one_line(question))}[/bold]", soft_wrap=True)
    for call in answer.calls:
        line = f"{call_line(call['name'], call['arguments'])} → {one_line(call['result'])}"
        notes.print(f"[dim]{escape(line)}[/dim]", soft_wrap=True)
    say(answer.text)
    lesson, nearest = answer.lesson, answer.nearest if why else None
    told = []
    if lesson is not None:
        how = "Read from what you taught" if answer.read else "You taught this"
        sure = f", {nearest.confidence:.0%} sure" if nearest and nearest.lesson.id == lesson.id else ""
        told.append(f"{how}: {one_line(lesson.question)} (lesson {lesson.id[:SHORT_ID]}{sure})")
    elif nearest is not None:
        told.append(
            f"Nearest lesson: {one_line(nearest.lesson.question)} ({nearest.confidence:.0%} sure that it is meant)"
        )
    if answer.cited:
        told.append(f"From {cited_words(answer.cited)}")
    for line in told:
        out.print(f"[dim]{escape(line)}[/dim]", soft_wrap=True)


async def _ask_all(
    asker: Asker, questions: list[str], attached: Sequence[tuple[str, bytes]]
) -> list[SingleAnswer | str]:
    if not attached:
        return await _answers(asker, questions)
    runtime = await unstored_runtime()
    try:
        session: str | None = None
        for name, data in attached:
            session = (await runtime.files.attach(session, name, "", data)).session
        assert session is not None
        await runtime.files.indexed(session)
        asker.read_files(runtime.files, session)
        return await _answers(asker, questions)
    finally:
        await runtime.close()


async def _answers(asker: Asker, questions: list[str]) -> list[SingleAnswer | str]:
    """For each question its answer, or why there is none."""
    found = list[SingleAnswer | str]()
    with progress_bar("Answering") as bar:
        for question in bar.track(questions):
            try:
                if problem := problem_of_text(question):
                    raise ValueError(f"The question {problem}")
                found.append(await asker.answer(question))
            except (ValueError, ContextFullError) as error:
                found.append(str(error))
    return found


def _questions(given: list[str] | None, of_tools: bool = False) -> list[Any]:
    """Raises ValueError if standard input is not a list of texts. of_tools: or of objects, which are not read here."""
    if given:
        return given
    wanted = 'Standard input must be a JSON list of questions, such as ["What is the name of my dog?"]'
    if sys.stdin.isatty():
        raise ValueError(f"{wanted}; or give questions as arguments.")
    try:
        asked = json.loads(sys.stdin.buffer.read().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{wanted}; this is not text in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{wanted}: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{wanted}: {why_not_json(error)}.") from None
    kinds = (str, dict) if of_tools else (str,)
    if not isinstance(asked, list) or not all(isinstance(one, kinds) for one in asked):
        raise ValueError(f"{wanted}; this is {shown(asked)}.")
    return asked


@model_options("autotune", "context")
def relearn(
    home: HomeOption = None,
    options: ModelOptions = DEFAULTS,
) -> None:
    """Let a model learn everything that was taught, including what was taught to another model."""

    async def run() -> tuple[int, int]:
        loaded = await options.load()
        try:
            async with opened_learning(home, loaded, options.model) as learning:
                with progress_bar("Learning") as bar:
                    task = bar.add_task("", total=None)

                    def told(done: int, total: int) -> None:
                        bar.update(task, completed=done, total=total)

                    with learning.imprints.telling(told):
                        made = await learning.relearn(told)
                return made, sum(not one.replaced_by for one in await learning.memory.lessons.all())
        finally:
            loaded.close()

    made, lessons = asyncio.run(run())
    say(f"Learned {made:,} of {lessons:,} lessons; the model knew the others already.")
