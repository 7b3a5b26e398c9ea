"""`sonata memory`: lessons are listed, shown, forgotten, and moved to another folder; also with a passphrase."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.cli.home import PASSPHRASE, opened_memory
from app.records.kinds import KINDS
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.policies import Policy
from py_core.store.passphrase import set_passphrase
from tests.cli.command_line import Result, assert_sentence, printed, sonata

DOG = Lesson("What is the name of my dog?", "Your dog is called Biscuit.", id="d09")
OLD = Lesson("Where is the spare key?", "The spare key is under the mat.", id="a01d", replaced_by="a02d")
KEY = Lesson(
    "Where is the spare key?", "The spare key hangs under the third step.", "corrected", id="a02d", quality=0.5
)


def with_memory(home: Path, work: Callable[[Memory], Awaitable[object]]) -> None:
    async def run() -> None:
        async with opened_memory(home) as memory:
            await work(memory)

    asyncio.run(run())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with three lessons, the second of which the third replaced, and a policy."""

    async def fill(memory: Memory) -> None:
        for lesson in (DOG, OLD, KEY):
            await memory.lessons.keep(lesson)
        await memory.policies.edit("learning.instant", True)

    with_memory(tmp_path / "home", fill)
    return tmp_path / "home"


@pytest.fixture
def locked(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with a passphrase that is not in the environment."""
    monkeypatch.delenv(PASSPHRASE, raising=False)
    with_memory(home, lambda memory: set_passphrase(memory.store, "correct horse", iterations=1000))
    return home


def listed(home: Path, *options: str) -> list[dict]:
    return json.loads(printed(sonata("memory", "list", "--home", home, "--json", *options)))["lessons"]


def test_a_folder_that_is_missing_is_made_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    assert "Nothing has been taught yet" in printed(sonata("memory", "list", "--home", home))
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "memory.sqlite").stat().st_mode) == 0o600


def test_a_file_is_no_folder_of_everything_learned(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert_sentence(sonata("memory", "list", "--home", tmp_path / "file"), "is a file", "choose another")
    assert (tmp_path / "file").read_text() == "mine"


def test_without_home_it_is_the_memory_of_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONATA_MEMORY", str(home / "memory.sqlite"))
    assert [lesson["id"] for lesson in json.loads(printed(sonata("memory", "list", "--json")))["lessons"]] == [
        *("d09", "a02d")
    ]


def test_list_shows_what_answers_and_with_all_what_was_replaced(home: Path) -> None:
    assert [lesson["id"] for lesson in listed(home)] == ["d09", "a02d"]
    assert [(lesson["id"], lesson["replaced_by"]) for lesson in listed(home, "--all")] == [
        *(("d09", ""), ("a01d", "a02d"), ("a02d", ""))
    ]
    shown = printed(sonata("memory", "list", "--home", home))
    assert "Biscuit" in shown
    assert "mat." not in shown
    assert "3 facts that you taught, 1 policy." in " ".join(shown.split())


def test_every_kind_of_record_is_counted_and_has_words(home: Path) -> None:
    assert json.loads(printed(sonata("memory", "list", "--home", home, "--json")))["counts"].keys() == {
        kind.name for kind in KINDS.in_use
    }


def test_policies_are_told_in_words_and_reset(home: Path) -> None:
    names = {"deep": "learning.gate.threshold", "user": "learning.deep"}

    async def learn() -> None:
        async with opened_memory(home) as memory:
            await memory.policies.set(names["deep"], 0.0, confidence=0.5, source="deep", observations=2)
            await memory.policies.edit(names["user"], True)

    asyncio.run(learn())
    told = {one["name"]: one for one in json.loads(printed(sonata("memory", "policies", "--home", home, "--json")))}
    gate = told[names["deep"]]
    assert (gate["title"], gate["words"]) == ("When a fact answers", "a score of 0.00: 50% sure")
    shown = " ".join(printed(sonata("memory", "policies", "--home", home)).split())
    assert "50%" in shown
    sonata("memory", "policies", "--reset", names["user"], "--home", home)
    left = [one["name"] for one in json.loads(printed(sonata("memory", "policies", "--home", home, "--json")))]
    assert names["user"] not in left
    assert names["deep"] in left
    assert_sentence(sonata("memory", "policies", "--reset", "nothing", "--home", home), "no policy", "lists them")


def test_show_tells_all_of_a_lesson_and_what_it_replaced(home: Path) -> None:
    told = json.loads(printed(sonata("memory", "show", "a02", "--home", home, "--json")))
    assert (told["answer"], told["source"], told["quality"]) == (KEY.answer, "corrected", 0.5)
    assert [one["answer"] for one in told["replaces"]] == [OLD.answer]
    assert OLD.answer in " ".join(printed(sonata("memory", "show", "a02d", "--home", home)).split())


@pytest.mark.parametrize("id", ["a0", "b", ""])
def test_an_id_must_be_that_of_one_lesson(home: Path, id: str) -> None:
    assert_sentence(sonata("memory", "show", id, "--home", home), "sonata memory list")
    assert_sentence(sonata("memory", "forget", "d09", id, "--home", home, "--yes"), "sonata memory list")
    assert len(listed(home, "--all")) == 3


def test_forget_deletes_a_lesson_also_from_the_files(home: Path) -> None:
    assert "dog" in printed(sonata("memory", "forget", "d0", "--home", home, "--yes"))
    assert [lesson["id"] for lesson in listed(home, "--all")] == ["a01d", "a02d"]
    assert not any(b"Biscuit" in file.read_bytes() for file in home.iterdir())


def test_forget_finds_lessons_by_words_and_asks_which_before_it_deletes(home: Path) -> None:
    def forget(*words: str, typed: str = "", terminal: bool = True) -> Result:
        return sonata("memory", "forget", *words, "--home", home, stdin=typed, terminal=terminal)

    assert_sentence(forget("door", "code", typed="y\n"), "'door code'", "sonata memory list")
    assert "Biscuit" in printed(forget("the", "name", "of", "my", "dog", typed="n\n"))
    several = printed(forget("is", typed="\n"))
    assert [line for line in several.splitlines() if line[:1].isdigit()] == [f"1. {DOG.question}", f"2. {KEY.question}"]
    assert "(and 1 older answer)" in several
    assert forget("is", typed="3\n").returncode == 1
    for unasked in (forget("is", "--yes"), forget("is", terminal=False)):
        assert "Several match" in unasked.stderr
    assert len(listed(home, "--all")) == 3
    assert "Forgot d09" in printed(forget("is", typed="1\n"))
    printed(forget("spare", "key", "--yes", terminal=False))
    assert listed(home, "--all") == []
    assert not any(b"spare" in file.read_bytes() for file in home.iterdir())


def test_a_word_that_is_also_the_beginning_of_an_id_is_asked_about(home: Path) -> None:
    async def teach(memory: Memory) -> None:
        await memory.lessons.keep(Lesson("Where is d09?", "On the left.", id="ffff"))

    with_memory(home, teach)
    asked = sonata("memory", "forget", "d09", "--home", home, "--yes")
    assert "Several match" in asked.stderr
    assert len(listed(home, "--all")) == 4


def test_nothing_is_forgotten_where_nobody_can_be_asked(home: Path) -> None:
    assert_sentence(sonata("memory", "forget", "d09", "--home", home), "--yes")
    assert_sentence(sonata("memory", "forget", "--home", home, "--yes"), "--all")
    assert_sentence(sonata("memory", "forget", "d09", "--all", "--home", home, "--yes"), "--all")
    assert len(listed(home, "--all")) == 3


def test_forget_all_leaves_no_lesson_and_all_else(home: Path) -> None:
    printed(sonata("memory", "forget", "--all", "--home", home, "--yes"))
    told = json.loads(printed(sonata("memory", "list", "--all", "--home", home, "--json")))
    assert told["lessons"] == []
    assert told["counts"]["policy"] == 1


def test_undo_lets_the_lesson_answer_again_that_was_replaced(home: Path) -> None:
    assert_sentence(sonata("memory", "undo", "--home", home), "--yes")
    said = printed(sonata("memory", "undo", "--home", home, "--yes"))  # the last lesson
    assert OLD.answer in said
    assert [(lesson["id"], lesson["replaced_by"]) for lesson in listed(home, "--all")] == [("d09", ""), ("a01d", "")]
    printed(sonata("memory", "undo", "d09", "--home", home, "--yes"))
    printed(sonata("memory", "undo", "--home", home, "--yes"))
    assert_sentence(sonata("memory", "undo", "--home", home, "--yes"), "nothing was taught")


def test_an_export_brings_everything_to_another_folder(home: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "learned", tmp_path / "other"
    printed(sonata("memory", "export", file, "--home", home))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "4 records" in printed(sonata("memory", "import", file, "--home", other))
    assert listed(other, "--all") == listed(home, "--all")

    async def kept(memory: Memory) -> None:
        policy = memory.policies.look("learning.instant")
        assert isinstance(policy, Policy)

    with_memory(other, kept)
    assert "0 records" in printed(sonata("memory", "import", file, "--home", other))


def test_export_overwrites_only_when_told_to(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert_sentence(sonata("memory", "export", tmp_path / "mine", "--home", home), "--replace")
    assert (tmp_path / "mine").read_text() == "mine"
    printed(sonata("memory", "export", tmp_path / "mine", "--home", home, "--replace"))
    assert (tmp_path / "mine").read_bytes().startswith(b'{"format": "sonata-memory"')


def test_import_replaces_everything_only_when_agreed(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "empty"
    printed(sonata("memory", "export", file, "--home", tmp_path / "empty home"))
    assert_sentence(sonata("memory", "import", file, "--home", home, "--replace"), "--yes")
    assert len(listed(home, "--all")) == 3
    printed(sonata("memory", "import", file, "--home", home, "--replace", "--yes"))
    assert listed(home, "--all") == []


def test_chats_of_another_program_are_imported_and_what_came_in_is_told(home: Path) -> None:
    file = Path(__file__).parents[1] / "chat/exports/chatgpt.json"
    command = ("memory", "import", file, "--home", home)
    told = printed(sonata(*command))
    assert f"Imported 2 conversations with 7 messages from {file}." in told
    assert "Left out, in whole or in part: 6 messages (pictures" in told
    assert "has nothing new" in printed(sonata(*command))
    assert_sentence(sonata(*command, "--replace", "--yes"), "only chats", "--replace")
    assert len(listed(home, "--all")) == 3


def test_a_file_that_is_no_export_changes_nothing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_text("hello")
    assert_sentence(sonata("memory", "import", tmp_path / "foreign", "--home", home), "not an export of Sonata")
    assert_sentence(sonata("memory", "import", tmp_path / "missing", "--home", home), "missing")
    assert len(listed(home, "--all")) == 3


def test_a_locked_memory_needs_its_passphrase(locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_sentence(sonata("memory", "list", "--home", locked), "passphrase", PASSPHRASE)
    monkeypatch.setenv(PASSPHRASE, "wrong horse")
    assert_sentence(sonata("memory", "list", "--home", locked), PASSPHRASE, "not the passphrase")
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    assert [lesson["id"] for lesson in listed(locked)] == ["d09", "a02d"]


def test_an_export_of_a_locked_memory_is_locked_unless_told_otherwise(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    closed, clear, other = tmp_path / "closed", tmp_path / "clear", tmp_path / "other"
    printed(sonata("memory", "export", closed, "--home", locked))
    printed(sonata("memory", "export", clear, "--home", locked, "--in-the-clear"))
    assert b"Biscuit" not in closed.read_bytes()
    assert b"Biscuit" in clear.read_bytes()
    monkeypatch.delenv(PASSPHRASE)
    assert_sentence(sonata("memory", "import", closed, "--home", other), "passphrase", "closed")
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    printed(sonata("memory", "import", closed, "--home", other))
    assert [lesson["id"] for lesson in listed(other)] == ["d09", "a02d"]
