"""Passages cover a text in its order, are never too long, and name their place."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.passages.chunks import (
    CHUNK_BYTES,
    LONGEST_PLACE,
    OVERLAP_BYTES,
    Chunk,
    Kind,
    each_chunk,
    kind_of,
    place_of_all,
)

KINDS = get_args(Kind)
PARTS = (
    "A sentence of some words. ", "word ", "\n", "\n\n", "# One\n", "## Two words\n", "```\n", "a,b,c\n", '"x\ny",',
    "=====\n", "def run():\n    return 1\n", "x" * 700, "漢字の文。" * 60, "\f", "🙂" * 50, "\u0301", "\x00", "\ud800",
    " " * 300,
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PARTS), max_size=80).map("".join))


def chunks_of(text: str, kind: Kind) -> list[Chunk]:
    return list(each_chunk(text, kind))


def bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_every_character_is_in_a_passage_and_none_is_too_long(kind: Kind, text: str) -> None:
    chunks = chunks_of(text, kind)
    covered = bytearray(len(text))
    for chunk in chunks:
        assert 0 <= chunk.start < chunk.end <= len(text)
        assert bytes_of(chunk.text(text)) <= CHUNK_BYTES
        assert text[chunk.start : chunk.end].strip()
        assert 0 < len(chunk.place) <= LONGEST_PLACE
        covered[chunk.start : chunk.end] = b"\1" * (chunk.end - chunk.start)
        head = chunk.head.rstrip("\n")
        if (begins := text.find(head)) >= 0:
            covered[begins : begins + len(head)] = b"\1" * len(head)
    left_out = "".join(character for character, seen in zip(text, covered, strict=True) if not seen)
    assert not left_out.strip()


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_passages_are_in_order_and_overlap_by_no_more_than_is_said(kind: Kind, text: str) -> None:
    chunks = chunks_of(text, kind)
    for one, after in pairwise(chunks):
        assert one.start < after.start
        assert one.end < after.end
        assert after.start > one.end or bytes_of(text[after.start : one.end]) <= OVERLAP_BYTES


def test_a_long_paragraph_is_cut_after_a_sentence_and_begins_again_with_one() -> None:
    text = " ".join(f"This is the sentence with the number {number}." for number in range(60))
    chunks = chunks_of(text, "text")
    assert len(chunks) > 3
    for one, after in pairwise(chunks):
        assert one.text(text).rstrip().endswith(".")
        assert after.text(text).startswith("This is")
        assert 0 < one.end - after.start <= OVERLAP_BYTES


def test_passages_of_paragraphs_do_not_overlap() -> None:
    text = "\n\n".join(f"Paragraph {number} " + "says a little. " * 20 for number in range(6))
    chunks = chunks_of(text, "text")
    assert all(one.end == after.start for one, after in pairwise(chunks))


def test_markdown_is_cut_at_headings_which_are_its_places() -> None:
    text = (
        "Before.\n\n# Setup\n\n## Linux\n\nRun it.\n\n```sh\n# no heading\n```\n\n"
        "## Windows\n\nClick.\n\nTitle\n=====\n\nEnd.\n"
    )
    assert [(chunk.place, chunk.text(text).split("\n")[0]) for chunk in chunks_of(text, "markdown")] == [
        ("line 1", "Before."), ("Setup > Linux", "# Setup"), ("Setup > Windows", "## Windows"), ("Title", "Title"),
    ]  # fmt: skip


def test_code_is_cut_where_functions_and_classes_begin() -> None:
    body = "    value = compute_something(value)\n" * 9
    text = "".join(f"def function_{number}(value):\n{body}\n\n" for number in range(6))
    chunks = chunks_of(text, "code")
    assert all(chunk.text(text).startswith("def ") for chunk in chunks)
    assert chunks[0].place == "lines 1-10"
    assert chunks[1].place == "lines 13-22"


def test_a_table_repeats_its_first_row_and_counts_rows_as_a_spreadsheet_does() -> None:
    text = "name,city\n" + "".join(f"Person {number},Town {number}\n" for number in range(2, 80))
    chunks = chunks_of(text, "table")
    assert len(chunks) > 2
    assert all(chunk.text(text).startswith("name,city\nPerson ") for chunk in chunks)
    first = chunks[0].text(text).splitlines()
    assert chunks[0].place == f"rows 2-{len(first)}"
    assert first[-1] == f"Person {len(first)},Town {len(first)}"


def test_a_line_break_between_quotes_ends_no_row() -> None:
    text = 'name,said\nAnn,"one\ntwo"\nBob,"three"\n'
    (chunk,) = chunks_of(text, "table")
    assert chunk.place == "rows 2-3"


def test_a_quote_within_a_cell_quotes_nothing() -> None:
    rows = [f"pipe {number},{number}{quote} wide\n" for number, quote in enumerate(["", '"', "", '"', '"'] * 20)]
    text = "item,size\n" + "".join(rows)
    chunks = chunks_of(text, "table")
    assert [
        row for chunk in chunks for row in chunk.text("item,size\n" + "".join(rows)).splitlines(keepends=True)[1:]
    ] == rows
    assert chunks[-1].place.endswith("-101")


@pytest.mark.parametrize(
    ("above", "first"),
    [
        ("sep=;\n", 2),
        ('"SEP=;"\n', 2),
        ("Account: 12, main\nFrom;2026-01-01\n\n", 5),
        ("Report;;\n", 3),
        ('"A\nB"\n\n', 4),
    ],
)
def test_what_stands_above_the_names_of_the_columns_is_not_repeated(above: str, first: int) -> None:
    text = (
        above + "Date;Shop;Amount\n" + "".join(f'2026-01-02;"Shop {number}, Ulm";{number},50\n' for number in range(60))
    )
    chunks = [chunk for chunk in chunks_of(text, "table") if chunk.head]
    assert {chunk.head for chunk in chunks} == {"Date;Shop;Amount\n"}
    assert chunks[0].place.startswith(f"rows {first}-")
    assert sum(chunk.text(text).count("Ulm") for chunk in chunks) == 60


@pytest.mark.parametrize("columns", [12, 40, 5000])
def test_cells_stand_below_the_names_of_their_columns_however_many_there_are(columns: int) -> None:
    rows = [[f"a long name of column {number}" for number in range(columns)]]
    rows += [[f"value {number} of {row}" for number in range(columns)] for row in range(3)]
    text = "".join(",".join(row) + "\n" for row in rows)
    for chunk in chunks_of(text, "table"):
        names, *cells = (line.split(",") for line in chunk.text(text).splitlines())
        for name, cell in zip(names, cells[0], strict=False) if chunk.head else ():
            assert not cell or name.rsplit(" ", 1)[1] == cell.split()[1]
    (last,) = (chunk for chunk in chunks_of(text, "table") if f"value {columns - 1} of 2" in chunk.text(text))
    assert f"column {columns - 1}" in last.head
    assert "value 0 of 2" in last.text(text)


WORST = (  # text that a careless pattern reads repeatedly
    "# a" + " " * 30_000 + "b\n", "." * 30_000, "export " * 4_000, "export\n" * 4_000, "pub(" * 8_000, "pub(\n" * 8_000,
    ("." + '"' * 9) * 3_000, "\n \t" * 10_000, '"' * 30_000, '",\n' * 10_000, "," * 30_000, '"a,"a' * 6_000,
    "=" * 30_000,
    "# " + "#" * 30_000 + "x\n", "a-" * 15_000, "a\u00ad\n" * 10_000,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_texts_are_cut(kind: Kind) -> None:
    """One of them took minutes; a hang ends at the suite's time limit."""
    for text in WORST:
        assert chunks_of(f"{text}x", kind)


def test_a_heading_is_its_words() -> None:
    text = "## One ##  \nx\n# a      b#\nx\n#no\n# ###\nx\n# \nx\n"
    assert [chunk.place for chunk in chunks_of(text, "markdown")] == ["One", "a b", "###"]


def test_pages_are_the_places_of_what_has_page_breaks() -> None:
    text = "First page.\fSecond page.\f\fFourth page."
    assert [chunk.place for chunk in chunks_of(text, "text")] == ["page 1", "page 2", "page 4"]
    assert place_of_all(text, "text") == "pages 1-4"
    assert [chunk.place for chunk in chunks_of("A PDF of one page.", kind_of("a.pdf"))] == ["page 1"]
    assert place_of_all("A PDF of one page.", kind_of("a.pdf")) == "page 1"
    assert not place_of_all("A text.", "text")


def test_a_line_without_end_says_from_which_character_a_passage_is() -> None:
    chunks = chunks_of("a" * 3000, "text")
    assert chunks[0].place == "line 1"
    assert chunks[1].place == f"line 1, character {chunks[1].start + 1:,}"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("notes.MD", "markdown"),
        ("a.csv", "table"),
        ("a.b.py", "code"),
        ("README", "text"),
        ("x.txt", "text"),
        ("md", "text"),
    ],
)
def test_the_name_says_how_a_file_is_cut(name: str, kind: Kind) -> None:
    assert kind_of(name) == kind
