"""`sonata memory chats`: the conversations, as in the page's side bar, through the same calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from app.chat.history.api import ConversationApi
from app.chat.history.export import UNTITLED
from app.chat.history.views import ShownConversation, StoredConversation
from app.cli.home import HomeOption, notes, opened_memory
from app.cli.memory import SHORT_ID, YesOption, agreed, date_words
from app.cli.models import JsonOption, size_words
from app.cli.terminal import console, say
from app.models.adapter_folder import write_whole
from app.native_runtime import native_router
from app.protocol import to_json
from app.runtime import Runtime, RuntimeConfig
from py_core.display import is_blank, one_line, shown

chats_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True,
    help="List, search, rename, pin, archive, export and delete conversations.",
)  # fmt: skip

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="An id of `sonata memory chats list`, or how it begins.")]
IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of `sonata memory chats list`, or how they begin.")
]
OffOption = Annotated[bool, typer.Option("--off", help="Undo it.")]


@chats_app.command("list")
def list_chats(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show all conversations: pinned ones first, then the latest, then the archive."""

    async def read() -> list[StoredConversation]:
        async with _opened(home) as chats:
            every = (await chats.conversations())["items"]
            return sorted(every, key=lambda chat: (chat["archived"], not chat["pinned"]))

    _print(asyncio.run(read()), as_json, "There are no conversations yet: `sonata chat` starts one.")


@chats_app.command()
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="What to search for.")],
    home: HomeOption = None,
    words_only: Annotated[
        bool, typer.Option("--words", help="Search for words only, not for similar meaning.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the conversations with all these words in their title or messages, then those similar in meaning."""
    asked = " ".join(words)

    async def read() -> list[StoredConversation]:
        async with _opened(home, meaning=not words_only) as chats:
            literal = (await chats.conversations(asked))["items"]
            found = {chat["id"] for chat in literal}
            similar = [] if words_only else await chats.similar_conversations(asked)
            return [*literal, *(chat for chat in similar if chat["id"] not in found)]

    _print(asyncio.run(read()), as_json, f"No conversation is about {shown(asked)}.")


@chats_app.command()
def show(id: IdArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show the messages of a conversation. JSON also has what the page shows below each answer."""

    async def read() -> tuple[str, ShownConversation]:
        async with _opened(home) as chats:
            (chat,) = await _found(chats, [id])
            return await chats.export_conversation(chat["id"], "markdown"), await chats.conversation(chat["id"])

    text, told = asyncio.run(read())
    if as_json:
        print(json.dumps(to_json(told)))
    else:
        console().print(Markdown(text, hyperlinks=False))


@chats_app.command()
def rename(
    id: IdArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title. The model never replaces it.")],
    home: HomeOption = None,
) -> None:
    """Give a conversation another title."""

    async def run() -> StoredConversation:
        async with _opened(home) as chats:
            (chat,) = await _found(chats, [id])
            await chats.rename_conversation(chat["id"], title)
            (chat,) = await _found(chats, [chat["id"]])
            return chat

    chat = asyncio.run(run())
    say(f"{chat['id'][:SHORT_ID]} is now called {shown(chat['title'])}.")


@chats_app.command()
def pin(ids: IdsArgument, off: OffOption = False, home: HomeOption = None) -> None:
    """Keep conversations at the top of the list."""
    _each(
        home, ids, "is no longer pinned" if off else "is pinned", lambda chats, id: chats.pin_conversation(id, not off)
    )


@chats_app.command()
def archive(ids: IdsArgument, off: OffOption = False, home: HomeOption = None) -> None:
    """Put conversations into the archive, at the end of the list."""
    done = "is no longer in the archive" if off else "is in the archive"
    _each(home, ids, done, lambda chats, id: chats.archive_conversation(id, not off))


@chats_app.command()
def export(
    id: IdArgument,
    out: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file to write. Without it the text is printed.")
    ] = None,
    home: HomeOption = None,
    form: Annotated[
        Literal["markdown", "json"] | None,
        typer.Option(
            help="Markdown has what is shown, JSON all branches. The default is what FILE ends in, or Markdown."
        ),
    ] = None,
    replacing: Annotated[bool, typer.Option("--replace", help="Replace an existing file of this name.")] = False,
) -> None:
    """Write one conversation as Markdown or JSON, as the page does."""
    kind = form or ("json" if out is not None and out.suffix.lower() == ".json" else "markdown")

    async def read() -> str:
        async with _opened(home) as chats:
            (chat,) = await _found(chats, [id])
            return await chats.export_conversation(chat["id"], kind)

    if out is not None and out.exists() and not replacing:
        raise ValueError(f"{out} exists already: choose another name, or use --replace.")
    text = asyncio.run(read())
    if out is None:
        say(text, end="")
        return
    data = text.encode("utf-8")
    write_whole(out, data, replacing)
    say(f"{out}: {size_words(len(data))}")


@chats_app.command()
def delete(ids: IdsArgument, home: HomeOption = None, yes: YesOption = False) -> None:
    """Delete conversations, with their messages and files. There is no undo here."""

    async def run() -> list[StoredConversation]:
        async with _opened(home) as chats:
            found = await _found(chats, ids)
            named = shown(one_line(_title(found[0]))) if len(found) == 1 else f"{len(found):,} conversations"
            if not agreed(yes, f"Delete {named} for good?"):
                return []
            await chats.remove_conversations([chat["id"] for chat in found])
            return found

    for chat in asyncio.run(run()):
        say(f"Deleted {chat['id'][:SHORT_ID]}: {_title(chat)}")


@asynccontextmanager
async def _opened(home: Path | None, *, meaning: bool = False) -> AsyncIterator[ConversationApi]:
    """The page's calls, over the memory of the folder. meaning: also for searches by meaning; if these are not
    available, a note says why. Raises StoreError, OSError, ValueError."""
    async with opened_memory(home) as memory:
        runtime = await Runtime.open(RuntimeConfig(memory=memory, router=native_router if meaning else None))
        if meaning:
            if runtime.problem is not None:
                notes.print(Text(f"Only words are searched for. {runtime.problem}", "yellow"), soft_wrap=True)
            await ConversationApi(runtime).prepare_search()
            await memory.background.settled()  # the page continues and finds more the next time; a command ends
        yield ConversationApi(runtime)


async def _found(chats: ConversationApi, given: Sequence[str]) -> list[StoredConversation]:
    """The conversations with these ids or prefixes of ids. Raises ValueError if there is none, or several."""
    every = (await chats.conversations())["items"]
    found = dict[str, StoredConversation]()
    for id in given:
        fits = [chat for chat in every if id and chat["id"].startswith(id.lower())]
        if len(fits) != 1:
            how = "Several conversations begin" if fits else "No conversation begins"
            raise ValueError(f"{how} with {shown(id)}: give an id of `sonata memory chats list`.")
        found[fits[0]["id"]] = fits[0]
    return list(found.values())


def _each(
    home: Path | None, ids: Sequence[str], done: str, change: Callable[[ConversationApi, str], Awaitable[None]]
) -> None:
    async def run() -> list[StoredConversation]:
        async with _opened(home) as chats:
            found = await _found(chats, ids)
            for chat in found:
                await change(chats, chat["id"])
            return found

    for chat in asyncio.run(run()):
        say(f"{chat['id'][:SHORT_ID]} {done}: {_title(chat)}")


def _print(found: Sequence[StoredConversation], as_json: bool, none: str) -> None:
    if as_json:
        print(json.dumps(found))
        return
    if not found:
        say(none)
        return
    table = Table("id", "conversation", "said last")
    table.add_column("messages", justify="right")
    table.add_column("state")
    for chat in found:
        state = ", ".join(name for name in ("pinned", "archived") if chat[name])
        words = Text(_title(chat))
        if snippet := chat.get("snippet"):
            words.append("\n")
            for piece, is_match in snippet["parts"]:
                words.append(piece.replace("\n", " "), "bold" if is_match else "dim")
        table.add_row(chat["id"][:SHORT_ID], words, date_words(chat["said"]), f"{chat['turns']:,}", state)
    console().print(table)


def _title(chat: StoredConversation) -> str:
    return UNTITLED if is_blank(chat["title"]) else chat["title"]
