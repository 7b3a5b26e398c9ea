"""A file becomes text whatever encoding it is in, or a sentence says why not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.file_text import LONGEST_NAME, MOST_CHARACTERS, PDF, FileError, shown_name, text_of

SAID = "Grüße aus Köln: 20 € für „zwei“ Bücher.\nNoch eine Zeile.\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_usual_encodings_are_recognised(encoding: str) -> None:
    assert text_of("gruss.txt", SAID.encode(encoding)) == SAID


def test_line_breaks_become_those_of_unix() -> None:
    assert text_of("a.txt", b"one\r\ntwo\rthree\n") == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("none.txt", b"", "none.txt is empty."),
        ("blank.txt", b" \n\t\n", "blank.txt is empty."),
        ("photo.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "photo.png is not text. Sonata reads no pictures."),
        ("report.docx", b"PK\x03\x04" + b"x" * 50, "save it as text, CSV or PDF"),
        ("tool.bin", bytes(range(256)) * 10, "tool.bin is not text. Sonata reads text, Markdown, code, CSV and PDF."),
        ("noise", b"text\x01\x02\x03\x04" * 50, "noise is not text."),
        ("half.txt", b"\xff\xfe\x00\xd8", "half.txt is not text."),
        ("line.txt", b"a" * 50_000_000, "it has 50.0 MB, and a file may have 4 MB"),
        ("long.txt", b"a" * (MOST_CHARACTERS + 1), "it has 1,000,001 characters, and a file may have 1,000,000"),
        ("../secret/\x1b[2J.txt", b"", "[2J.txt is empty."),
    ],
)
def test_what_is_no_text_says_what_to_do(name: str, data: bytes, said: str) -> None:
    with pytest.raises(FileError) as failure:
        text_of(name, data)
    assert said in str(failure.value)
    assert "\x1b" not in str(failure.value)


def test_a_scanned_pdf_says_that_its_pages_are_pictures() -> None:
    with pytest.raises(FileError, match=r"scan\.pdf has no text: its pages are pictures"):
        text_of("scan.pdf", b"\f\f", PDF)


@given(st.binary(max_size=400))
def test_any_bytes_are_text_or_a_sentence(data: bytes) -> None:
    try:
        said = text_of("any", data)
        said.encode()  # no half of a surrogate pair
    except FileError as error:
        said = str(error)
    assert said
    assert "\0" not in said


@given(st.text())
def test_a_shown_name_is_one_printable_line(name: str) -> None:
    shown = shown_name(name)
    assert shown
    assert shown.isprintable()
    assert len(shown) <= LONGEST_NAME
