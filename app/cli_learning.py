"""`sonata teach | ask | relearn`: what a person teaches, and answers with it. Each loads the model once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, TaskID

from app.asking import Asker
from app.cli_attaching import FileOption, bytes_of, unstored_services
from app.cli_home import HomeOption, NoMemoryOption, opened_learning, opened_services
from app.cli_loading import (
    AutotuneOption,
    BackendChoice,
    BackendOption,
    ContextOption,
    DraftOption,
    MaxMemoryOption,
    Precision,
    PrecisionOption,
    load,
)
from app.cli_model_file import ModelOption
from app.learning_service import Learned, LearningService
from app.lesson_rows import LessonRow, lesson_rows, open_rows, problem_of_text
from app.terminal import console, progress_bar, say
from py_core.backends.base import ContextFullError
from py_core.learning.teaching import lesson_of
from py_core.showing import shown, why_not_json

notes = console(stderr=True)
ASKED_TOKENS = 256
"""An answer's length, at most, unless told otherwise: small models sometimes do not find an end."""
NAMED = 10
"""Bad lines that the last sentence names."""
WHICH = "Say what to teach: QUESTION ANSWER, one text, or --file FILE.jsonl."


class Loop(StrEnum):
    instant = "instant"
    background = "background"
    reading = "reading"
    style = "style"


def teach(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION ANSWER", help='One lesson; or one text, such as "remember that ...".'),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.jsonl", help='Rows {"question": ..., "answer": ...}; - for stdin.'),
    ] = None,
    home: HomeOption = None,
    model: ModelOption = None,
    backend: BackendOption = BackendChoice.auto,
    precision: PrecisionOption = Precision.precise,
    autotune: AutotuneOption = True,
    context: ContextOption = None,
) -> None:
    """Teach answers: the next question gets them, in other words, too. Prints a JSON object a row.

    It has question, answer, states_ms (the model reads the answer), ms (it is learned, once that is done), nll_before
    and nll_after (nats a token of the answer), the lesson's id, what it replaced, and whether it was known. Of one text
    Sonata makes question and answer by rules. A row that cannot be taught has its line and an `error` that says what to
    do; the others are taught all the same, and the exit status is 1.
    """
    if (file is None) == (not texts):
        raise ValueError(WHICH)
    rows = _rows(file, texts or [])
    # Before the model is loaded: a file without rows, or one lesson that is none, costs no second.
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{file} has no rows. " + WHICH)
    if first.error and file is None:
        raise ValueError(first.error)

    async def run() -> bool:
        loaded = await load(model, backend, precision, autotune, context)
        try:
            async with opened_learning(home, loaded, model) as learning:
                with reading_told(learning):
                    return await _teach_all(learning, first, rows)
        finally:
            loaded.close()

    if not asyncio.run(run()):
        raise typer.Exit(1)


@contextmanager
def reading_told(learning: LearningService) -> Iterator[None]:
    """Meanwhile show how far a model is that Sonata does not ship: before its first lesson it reads some texts."""
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


async def _teach_all(learning: LearningService, first: LessonRow, rest: Iterable[LessonRow]) -> bool:
    """Whether all could be taught; which could not is said on stderr, too."""
    taught, bad = 0, list[int]()
    for row in (one for rows in ([first], rest) for one in rows):
        told = await _teach_one(learning, row)
        if "error" in told:
            bad.append(row.line)
        else:
            taught += 1
        print(json.dumps(told), flush=True)
    if bad:
        which = ", ".join(map(str, bad[:NAMED])) + (f" and {len(bad) - NAMED:,} more" if len(bad) > NAMED else "")
        lines = f"line {which} was" if len(bad) == 1 else f"lines {which} were"
        notes.print(f"{taught:,} learned; {lines} not: see `error` there.", markup=False, soft_wrap=True)
    return not bad


async def _teach_one(learning: LearningService, row: LessonRow) -> dict[str, Any]:
    if row.error:
        return {"line": row.line, "question": row.question, "error": row.error}
    try:
        return {"line": row.line} | taught_entry(await learning.teach(row.question, row.answer))
    except (ValueError, ContextFullError) as error:
        return {"line": row.line, "question": row.question, "error": str(error)}


def taught_entry(learned: Learned) -> dict[str, Any]:
    """As in the JSON of `sonata teach`."""
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
    """Question and answer, or one text that tells something."""
    if len(texts) > 2:
        raise ValueError(f"Give a question and its answer, each in quotes; these are {len(texts)} texts.")
    for text, name in zip(texts, ("question", "answer") if len(texts) == 2 else ("text",), strict=True):
        if problem := problem_of_text(text):
            return LessonRow(1, error=f"The {name} {problem}")
    if len(texts) == 2:
        return LessonRow(1, *texts)
    if (told := lesson_of(texts[0])) is None:
        return LessonRow(1, error=f"{shown(texts[0])} tells nothing. Give a question and its answer, each in quotes.")
    return LessonRow(1, told.question, told.answer)


def ask(
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION...", help="Without any, standard input has a JSON list of them."),
    ] = None,
    no_memory: NoMemoryOption = False,
    without: Annotated[
        list[Loop] | None, typer.Option("--without", help="Leave out what this loop learned; may be given twice.")
    ] = None,
    why: Annotated[
        bool,
        typer.Option("--why", "--json", help="A list of objects: also which lesson answered, and how sure that is."),
    ] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most new tokens of an answer.")] = ASKED_TOKENS,
    file: FileOption = None,
    home: HomeOption = None,
    model: ModelOption = None,
    backend: BackendOption = BackendChoice.auto,
    precision: PrecisionOption = Precision.precise,
    autotune: AutotuneOption = True,
    context: ContextOption = None,
    draft: DraftOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Answer questions with what was learned; prints a JSON list of answers, in their order.

    Each question is a conversation of its own, answered by the plain assistant with the likeliest tokens; nothing of it
    is stored. With --file the answers come from these files. A question that cannot be answered has null in the list, a
    sentence on standard error says why, and the exit status is 1.
    """
    asked = _questions(questions)
    attached = [(path, bytes_of(path)) for path in file or ()]  # before the model is loaded

    async def run() -> list[dict[str, Any]]:
        loaded = await load(model, backend, precision, autotune, context, draft=draft, max_memory=max_memory)
        try:
            if no_memory:
                return await _ask_all(Asker(loaded, None, max_tokens), asked, attached)
            async with opened_services(home, loaded, model) as services:
                left_out = without or ()
                learning = None if Loop.instant in left_out else services.learning
                asker = Asker(loaded, learning, max_tokens, reads=Loop.reading not in left_out)
                if Loop.background not in left_out:
                    await services.consolidate_with(asker.assistant.adapters, asker.assistant.adapters.use_learned)
                if Loop.style not in left_out:
                    await services.style_with(asker.assistant.adapters.use_style)
                return await _ask_all(asker, asked, attached)
        finally:
            loaded.close()

    told = asyncio.run(run())
    print(
        json.dumps(
            [{"question": q, **one} for q, one in zip(asked, told, strict=True)]
            if why
            else [one.get("answer") for one in told]
        )
    )
    for question, one in zip(asked, told, strict=True):
        if "error" in one:
            notes.print(f"{shown(question)}: {one['error']}", markup=False, soft_wrap=True)
    if any("error" in one for one in told):
        raise typer.Exit(1)


async def _ask_all(asker: Asker, questions: list[str], attached: Sequence[tuple[Path, bytes]]) -> list[dict[str, Any]]:
    if not attached:
        return await _answers(asker, questions)
    services = await unstored_services()
    try:
        session: str | None = None
        for path, data in attached:
            session = (await services.files.attach(session, path.name, "", data)).session
        assert session is not None
        await services.files.indexed(session)
        asker.read_files(services.files, session)
        return await _answers(asker, questions)
    finally:
        await services.close()


async def _answers(asker: Asker, questions: list[str]) -> list[dict[str, Any]]:
    found = []
    with progress_bar("Answering") as bar:
        for question in bar.track(questions):
            try:
                if problem := problem_of_text(question):
                    raise ValueError(f"The question {problem}")
                found.append((await asker.answer(question)).entry())
            except (ValueError, ContextFullError) as error:
                found.append({"error": str(error)})
    return found


def _questions(given: list[str] | None) -> list[str]:
    """Raises ValueError where standard input is no list of texts."""
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
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
        raise ValueError(f"{wanted}; this is {shown(asked)}.")
    return asked


def relearn(
    home: HomeOption = None,
    model: ModelOption = None,
    backend: BackendOption = BackendChoice.auto,
    precision: PrecisionOption = Precision.precise,
    autotune: AutotuneOption = True,
    context: ContextOption = None,
) -> None:
    """Let a model learn everything that was taught, also to another model: questions and answers are kept as text."""

    async def run() -> tuple[int, int]:
        loaded = await load(model, backend, precision, autotune, context)
        try:
            async with opened_learning(home, loaded, model) as learning:
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
    say(f"Learned {made:,} of {lessons:,} lessons; the model knew the others.")
