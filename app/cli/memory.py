"""`sonata memory list | show | forget | undo | policies | export | import`: lessons and everything else learned."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from app.chat.history.files import ImportedChats, import_chats
from app.cli.home import HomeOption, opened_memory, unlocked_if_locked
from app.cli.models import JsonOption, size_words
from app.cli.terminal import console, say
from app.lessons.without_model import with_older, with_words
from app.memory.policy_words import PolicyWords, told_policies
from app.models.adapter_folder import write_whole
from app.records.kinds import counted, counts
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.policies import Policy
from app.records.sessions import KIND as SESSION
from app.records.sessions import TURN
from py_core.display import one_line, shown
from py_core.store.transfer import Imported, export, import_file

memory_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True,
    help="Show what was taught, forget it, or move everything learned to another machine.",
)  # fmt: skip

SHORT_ID = 8
"""Characters of an id in a table: enough to tell thousands of lessons apart."""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="An id of `sonata memory list`, or how it begins.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@memory_app.command("list")
def list_memory(
    home: HomeOption = None,
    history: Annotated[bool, typer.Option("--all", help="Also show lessons that newer ones replaced.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what was taught, and count what else was learned."""

    async def read() -> tuple[list[Lesson], dict[str, int], str]:
        async with opened_memory(home) as memory:
            return await memory.lessons.all(), await counts(memory.store), memory.store.place

    lessons, stored, place = asyncio.run(read())
    told = [lesson for lesson in lessons if history or not lesson.replaced_by]
    if as_json:
        print(json.dumps({"lessons": [lesson_entry(one) for one in told], "counts": stored, "file": place}))
        return
    if not told:
        say(f"Nothing has been taught yet in {place}: `sonata teach QUESTION ANSWER` does that.")
    else:
        console().print(_table(told))
    if kinds := _stored(stored):
        say(f"In {place}: {', '.join(kinds)}.")


@memory_app.command()
def show(id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show one lesson: question, answer, source, how often it answered, and what it replaced."""

    async def read() -> tuple[Lesson, list[Lesson]]:
        async with opened_memory(home) as memory:
            (found,) = await _found(memory, [id])
            return found, [lesson for lesson in await memory.lessons.all() if lesson.replaced_by == found.id]

    lesson, older = asyncio.run(read())
    if as_json:
        print(json.dumps({**lesson_entry(lesson), "replaces": [lesson_entry(one) for one in older]}))
        return
    table = Table(show_header=False)
    for name, value in lesson_entry(lesson).items():
        text = date_words(value) if name in ("created", "last_used") else str(value)
        table.add_row(name.replace("_", " "), escape(text))
    for one in older:
        table.add_row("replaces", escape(f"{one.id[:SHORT_ID]}: {one.answer}"))
    console().print(table)


@memory_app.command()
def forget(
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS...", help="Words of what was taught, or ids of `sonata memory list`."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Everything that was taught.")] = False,
    home: HomeOption = None,
    yes: YesOption = False,
) -> None:
    """Forget what was taught: answers no longer use it, and it is deleted from the files.

    Words find the lessons that have all of them in question or answer. Older answers to the same question are
    forgotten, too. If several lessons match, you are asked which.
    """
    if bool(given) == every:
        raise ValueError("Give what to forget: words of it, ids of `sonata memory list`, or --all.")

    async def run() -> list[Lesson]:
        async with opened_memory(home) as memory:
            lessons = await memory.lessons.all()
            if every:
                found = lessons if lessons and agreed(yes, f"Forget {_named(lessons)} for good?") else []
            else:
                found = _chosen(lessons, given or [], yes)
            await memory.lessons.delete(*(lesson.id for lesson in found))
            return found

    for lesson in asyncio.run(run()):
        say(f"Forgot {lesson.id[:SHORT_ID]}: {lesson.question}")


def _chosen(lessons: Sequence[Lesson], given: Sequence[str], yes: bool) -> list[Lesson]:
    """The lessons to forget, once that is agreed. given: ids or prefixes of ids, or words. Raises ValueError if none
    fits, or if the user cannot be asked which."""
    meant = with_words(lessons, " ".join(given))
    try:
        named = _of_ids(lessons, given)
    except ValueError:
        if not meant and all(any(lesson.id.startswith(id) for lesson in lessons) for id in given):
            raise
        named = []
    if named and not [lesson for lesson in meant if lesson not in named]:
        return named if agreed(yes, f"Forget {_named(named)} for good?") else []
    fits = [*named, *(lesson for lesson in meant if lesson not in named)]
    if not fits:
        raise ValueError(
            f"Nothing that was taught has all words of {shown(' '.join(given))}, and no id begins with them: "
            "`sonata memory list` shows what was taught."
        )
    for number, lesson in enumerate(fits, 1):
        older = len(with_older(lessons, [lesson])) - 1
        more = f" (and {older:,} older {'answer' if older == 1 else 'answers'})" if older else ""
        say(f"{number}. {one_line(lesson.question)}\n   {one_line(lesson.answer)}{more}")
    return with_older(lessons, [fits[at] for at in _picked(len(fits), yes)])


def _picked(count: int, yes: bool) -> list[int]:
    """The numbers of the listed lessons to forget, from 0 on."""
    if count == 1:
        return [0] if agreed(yes, "Forget it for good?") else []
    if yes or not sys.stdin.isatty():
        raise ValueError("Several match: give more words, or the id of each as `sonata memory list` shows it.")
    typed = typer.prompt("Which to forget for good? Numbers, or all; Enter forgets none", "", show_default=False)
    if typed.strip().lower() == "all":
        return list(range(count))
    picked = re.findall(r"[^\s,]+", typed)
    if not all(one.isdecimal() and 1 <= int(one) <= count for one in picked):
        raise ValueError(f"{shown(typed)} is not a list of numbers from 1 to {count}. Nothing was forgotten.")
    return [int(one) - 1 for one in picked]


@memory_app.command()
def undo(
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The lesson's id. The default is the one taught last.")
    ] = None,
    home: HomeOption = None,
    yes: YesOption = False,
) -> None:
    """Take back a lesson: it is forgotten, and what it replaced answers again."""

    async def run() -> tuple[Lesson, list[Lesson]] | None:
        async with opened_memory(home) as memory:
            lessons = [lesson for lesson in await memory.lessons.all() if not lesson.replaced_by]
            if id is None and not lessons:
                raise ValueError("There is nothing to take back: nothing was taught.")
            (found,) = lessons[-1:] if id is None else await _found(memory, [id])
            if not agreed(yes, f"Forget {_named([found])} for good?"):
                return None
            return found, await memory.lessons.undo(found.id)

    if (done := asyncio.run(run())) is not None:
        lesson, before = done
        say(f"Forgot {lesson.id[:SHORT_ID]}: {lesson.question}")
        for one in before:
            say(f"It answers again: {one.answer}")


@memory_app.command("export")
def export_memory(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    home: HomeOption = None,
    in_the_clear: Annotated[
        bool, typer.Option("--in-the-clear", help="Do not protect the file with the memory's passphrase.")
    ] = False,
    replacing: Annotated[bool, typer.Option("--replace", help="Replace an existing file of this name.")] = False,
) -> None:
    """Write everything learned into one file. If the memory has a passphrase, it protects the file, too."""

    async def made() -> bytes:
        async with opened_memory(home) as memory:
            return await export(memory.store, in_the_clear=in_the_clear)

    if out.exists() and not replacing:
        raise ValueError(f"{out} exists already: choose another name, or use --replace.")
    data = asyncio.run(made())
    write_whole(out, data, replacing)
    say(f"{out}: {size_words(len(data))}")


@memory_app.command("import")
def import_memory(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file exported by Sonata, ChatGPT or Open WebUI.")],
    home: HomeOption = None,
    replacing: Annotated[
        bool,
        typer.Option("--replace", help="Delete what is here first. Otherwise the newer version of each item stays."),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Read everything learned, or chats, from a file. A model learns what others were taught when it is next used."""
    data = source.read_bytes()

    async def run() -> Imported | ImportedChats | None:
        async with opened_memory(home) as memory:
            chats = await import_chats(memory.sessions, data, "replace" if replacing else "merge")
            if chats is not None:
                return chats
            what = ", ".join(_stored(await counts(memory.store))) or "nothing"
            if replacing and not agreed(yes, f"Delete everything in {memory.store.place} first ({what})?"):
                return None

            async def opens(passphrase: str | None) -> Imported:
                return await import_file(memory.store, data, "replace" if replacing else "merge", passphrase)

            return await unlocked_if_locked(opens, f"the file {source}")

    done = asyncio.run(run())
    if isinstance(done, ImportedChats):
        say(_told_chats(done, source))
    elif done is not None:
        unread = f" {done.left_out:,} could not be read and were left out." if done.left_out else ""
        say(f"Imported {done.written:,} records from {source}.{unread}")


def _told_chats(done: ImportedChats, source: Path) -> str:
    came = f"Imported {counted(SESSION, done.chats)} with {counted(TURN, done.messages)} from {source}."
    told = [came if done.chats else f"{source} has nothing new."]
    if done.left_out:
        what = "pictures, files, tool calls and thoughts are not imported"
        told.append(f"Left out, in whole or in part: {counted(TURN, done.left_out)} ({what}).")
    if done.unread:
        told.append(f"Could not be read: {counted(SESSION, done.unread)}.")
    return " ".join(told)


def _stored(numbers: Mapping[str, int]) -> list[str]:
    return [counted(kind, number) for kind, number in numbers.items() if number]


def lesson_entry(lesson: Lesson) -> dict[str, Any]:
    """The form in the JSON of these commands. Times are seconds since 1970."""
    names = ("id", "question", "answer", "source", "on", "replaced_by", "quality", "uses", "created", "last_used")
    return {name: getattr(lesson, name) for name in names}


@memory_app.command("policies")
def show_policies(
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="NAME", help="Reset this policy to what Sonata came with."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the policies that Sonata chose or learned: each value, how sure it is, and its source. Or reset some."""

    async def run() -> list[tuple[Policy, PolicyWords]]:
        async with opened_memory(home) as memory:
            for name in reset or []:
                if memory.policies.look(name) is None:
                    raise ValueError(f"There is no policy {shown(name)}: `sonata memory policies` lists them.")
                await memory.policies.delete(name)
            return told_policies(memory)

    told = asyncio.run(run())
    if as_json:
        print(
            json.dumps(
                [asdict(policy) | {"title": str(words.title), "words": str(words.value)} for policy, words in told]
            )
        )
        return
    if not told:
        say("Nothing has been chosen or learned yet: all policies are as Sonata came.")
        return
    table = Table("name", "what it is", "value", "certain", "who says so", "since")
    for policy, words in told:
        value = words.value if words.time is None else date_words(words.time)
        row = policy.name, words.title, value, f"{policy.confidence:.0%}", words.by, date_words(policy.changed)
        table.add_row(*(escape(str(one)) for one in row))
    console().print(table)


async def _found(memory: Memory, given: Sequence[str]) -> list[Lesson]:
    return _of_ids(await memory.lessons.all(), given)


def _of_ids(lessons: Sequence[Lesson], given: Sequence[str]) -> list[Lesson]:
    """The lessons with these ids or prefixes of ids. Raises ValueError if there is none, or several."""
    found = []
    for id in given:
        fits = [lesson for lesson in lessons if id and lesson.id.startswith(id.lower())]
        if len(fits) != 1:
            how = "Several lessons begin" if fits else "No lesson begins"
            raise ValueError(f"{how} with {shown(id)}: give an id of `sonata memory list --all`.")
        found += fits
    return list({lesson.id: lesson for lesson in found}.values())


def agreed(yes: bool, question: str) -> bool:
    """True if the user agrees to delete. Raises ValueError if the user cannot be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ValueError("Sonata cannot ask here whether to delete: confirm with --yes.")
    return typer.confirm(question)


def _named(lessons: Sequence[Lesson]) -> str:
    return shown(one_line(lessons[0].question)) if len(lessons) == 1 else f"{len(lessons):,} lessons"


def _table(lessons: Sequence[Lesson]) -> Table:
    table = Table("id", "question", "answer", "taught", "state")
    for heading in ("uses", "quality"):
        table.add_column(heading, justify="right")
    for one in lessons:
        state = "replaced" if one.replaced_by else "on" if one.on else "off"
        words = one.id[:SHORT_ID], one.question, one.answer, date_words(one.created), state
        table.add_row(*map(escape, words), str(one.uses), f"{one.quality:.0%}")
    return table


def date_words(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
