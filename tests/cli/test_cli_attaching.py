"""`--file` of `sonata ask` and `sonata chat`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.cli.attachments import read_attachment
from app.files.text import MOST_BYTES, FileError
from tests.cli.command_line import assert_sentence, printed, sonata
from tests.page.chat.test_workbooks_page import BOOK

pytestmark = pytest.mark.usefixtures("fast_routing")

LONG = "".join(f"Room {number} has the colour number {number * 7}.\n\n" for number in range(200))


@pytest.fixture(scope="module")
def model(write_model) -> list[str]:
    """A TinyLlama for which a passage fits into a third of its context."""
    return ["--model", str(write_model(tied=False, context=4096)), "--backend", "numpy", "--max-tokens", "4"]


def test_ask_tells_which_passages_of_the_files_were_read(model: list[str], tmp_path: Path) -> None:
    rooms, key = tmp_path / "rooms.txt", tmp_path / "key.md"
    rooms.write_text(LONG, encoding="utf-8")
    key.write_text("# Keys\n\nThe key is under the mat.\n", encoding="utf-8")
    asked = ["ask", "What colour has room 151?", "--file", rooms, "--file", key, "--no-memory", "--why"]
    (answer,) = json.loads(printed(sonata(*asked, *model)))
    assert "Room 151 has the colour number 1057." in "".join(one["text"] for one in answer["passages"])
    assert {one["name"] for one in answer["passages"]} == {"rooms.txt"}


def test_a_plain_chat_answers_from_a_file_and_a_wrong_one_is_a_sentence(model: list[str], tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("The key is under the mat.", encoding="utf-8")
    typed = f"Where is the key?\n/file {tmp_path}/none.txt\n/file {tmp_path}\n/exit\n"
    said = printed(sonata("chat", "--plain", "--file", tmp_path / "key.txt", *model, stdin=typed))
    flat = " ".join(said.split())
    assert "key.txt is attached. Ask about it." in flat
    assert "From key.txt" in flat
    assert "none.txt cannot be read: No such file or directory." in flat
    assert "is a folder. Give the files in it one by one." in flat


@pytest.mark.parametrize("command", [["ask", "x"], ["chat"]])
def test_a_file_that_cannot_be_read_is_told_before_the_model_is_loaded(command: list[str], tmp_path: Path) -> None:
    large = tmp_path / "large.txt"
    large.write_bytes(b"a" * (MOST_BYTES + 1))
    assert_sentence(sonata(*command, "--file", large, "--model", "none.gguf"), "large.txt is too large: it has 4.0 MB")
    assert_sentence(sonata(*command, "--file", tmp_path / "no", "--model", "none.gguf"), "cannot be read")


def test_a_spreadsheet_is_its_first_sheet_or_a_sentence_names_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "book.xlsx").write_bytes(BOOK)
    (tmp_path / "cut.xlsx").write_bytes(BOOK[:900])
    if find_spec("openpyxl") is None:
        with pytest.raises(FileError, match="needs the package openpyxl"):
            read_attachment(tmp_path / "book.xlsx")
        return
    assert read_attachment(tmp_path / "book.xlsx") == (
        "book.csv",
        b'region,sold\n"north, east",2\nsouth,1.5\nsouth,3\n',
    )
    with pytest.raises(FileError, match="cannot be read as a spreadsheet"):
        read_attachment(tmp_path / "cut.xlsx")
