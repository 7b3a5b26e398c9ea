"""`sonata memory chats`: conversations are listed, searched, renamed, pinned, archived, exported and deleted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.chat.history.api import ConversationApi
from app.cli.home import PASSPHRASE, opened_memory
from app.records.sessions import Turn
from app.runtime import Runtime, RuntimeConfig
from py_core.store.passphrase import set_passphrase
from tests.cli.command_line import assert_sentence, printed, sonata

pytestmark = pytest.mark.usefixtures("fast_routing")

FIRST, LATER = Turn("user", "How do I tie a bowline?"), Turn("assistant", "Make a **small** loop first.")
CHATS = {"Knots": [FIRST, LATER], "Lisbon": [Turn("user", "Which trams climb the hills?")]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with two conversations: Lisbon is the later one."""

    async def fill() -> None:
        async with opened_memory(tmp_path / "home") as memory:
            for title, turns in CHATS.items():
                session = await memory.sessions.start(title)
                await memory.sessions.add_turns(session.id, *turns)

    asyncio.run(fill())
    return tmp_path / "home"


def chats(home: Path, *arguments: str | Path) -> str:
    return printed(sonata("memory", "chats", *arguments, "--home", home))


def listed(home: Path, *asked: str) -> list[dict[str, Any]]:
    return json.loads(chats(home, *(asked or ("list",)), "--json"))


def titles(home: Path, *asked: str) -> list[str]:
    return [chat["title"] for chat in listed(home, *asked)]


def id_of(home: Path, title: str) -> str:
    (id,) = (chat["id"] for chat in listed(home) if chat["title"] == title)
    return id


def test_they_are_listed_as_in_the_side_bar_and_what_is_pinned_archived_and_renamed_is_kept(home: Path) -> None:
    assert titles(home) == ["Lisbon", "Knots"]
    assert "is pinned: Knots" in chats(home, "pin", id_of(home, "Knots")[:6])
    assert titles(home) == ["Knots", "Lisbon"]
    chats(home, "archive", id_of(home, "Knots"))
    assert titles(home) == ["Lisbon", "Knots"]
    table = " ".join(chats(home, "list").split())
    assert "pinned, archived" in table
    for command in ("archive", "pin"):
        chats(home, command, id_of(home, "Knots"), "--off")
    assert [(chat["pinned"], chat["archived"]) for chat in listed(home)] == [(False, False)] * 2
    assert "Bowline and others" in chats(home, "rename", id_of(home, "Knots"), " Bowline  and others ")
    assert [(chat["title"], chat["titled"]) for chat in listed(home)][1] == ("Bowline and others", "user")
    assert_sentence(sonata("memory", "chats", "rename", id_of(home, "Lisbon"), " ", "--home", home), "Type a title.")


def test_a_search_finds_words_in_messages_and_then_what_means_the_same(home: Path) -> None:
    assert titles(home, "search", "--words", "small", "loop") == ["Knots"]
    assert "small loop" in " ".join(chats(home, "search", "--words", "loop").replace("**", "").split())
    assert titles(home, "search", "--words", "streetcar") == []
    assert titles(home, "search", "streetcar")[0] == "Lisbon"  # nothing of the sort is written there
    assert "No conversation is about" in chats(home, "search", "--words", "streetcar")


def test_show_and_export_give_what_the_page_gives(home: Path, tmp_path: Path) -> None:
    id = id_of(home, "Knots")

    async def of_the_page(form: Any) -> str:
        async with opened_memory(home) as memory:
            runtime = await Runtime.open(RuntimeConfig(memory=memory))
            return await ConversationApi(runtime).export_conversation(id, form)

    markdown, everything = (asyncio.run(of_the_page(form)) for form in ("markdown", "json"))
    assert chats(home, "export", id[:8]) == markdown
    assert chats(home, "export", id, "--form", "json") == everything
    for name, text in (("chat.md", markdown), ("chat.json", everything)):
        assert name in chats(home, "export", id, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    again = sonata("memory", "chats", "export", id, tmp_path / "chat.md", "--home", home)
    assert_sentence(again, "choose another name, or use --replace")
    chats(home, "export", id, tmp_path / "chat.md", "--form", "json", "--replace")
    assert (tmp_path / "chat.md").read_text(encoding="utf-8") == everything
    assert LATER.content.replace("**", "") in " ".join(chats(home, "show", id).split())
    assert [turn["content"] for turn in json.loads(chats(home, "show", id, "--json"))["turns"]] == [
        *(FIRST.content, LATER.content)
    ]


def test_delete_asks_and_deletes_also_from_the_files(home: Path) -> None:
    id = id_of(home, "Knots")
    assert_sentence(sonata("memory", "chats", "delete", id, "--home", home), "confirm with --yes")
    assert "Deleted" in chats(home, "delete", id[:7], "--yes")
    assert titles(home) == ["Lisbon"]
    assert not any(b"bowline" in file.read_bytes() for file in home.iterdir())


@pytest.mark.parametrize("id", ["zz", ""])
def test_an_id_must_be_that_of_one_conversation(home: Path, id: str) -> None:
    for command in (("show", id), ("delete", id, "--yes"), ("pin", id), ("export", id), ("rename", id, "x")):
        assert_sentence(sonata("memory", "chats", *command, "--home", home), "sonata memory chats list")
    assert len(listed(home)) == 2


def test_an_encrypted_memory_asks_for_its_passphrase(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lock() -> None:
        async with opened_memory(home) as memory:
            await set_passphrase(memory.store, "correct horse", iterations=1000)

    asyncio.run(lock())
    monkeypatch.delenv(PASSPHRASE, raising=False)
    assert_sentence(sonata("memory", "chats", "list", "--home", home), PASSPHRASE)
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    assert titles(home) == ["Lisbon", "Knots"]
