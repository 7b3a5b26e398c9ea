"""Tables of texts: how the text is cut, what a cell may hold, where it stands, and what the page is told."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.extraction import table
from app.extraction.columns import TableError, columns_of
from app.extraction.pieces import entries, pieces
from app.extraction.places import row_places
from app.extraction.shape import rows_grammar
from app.extraction.table import TableExtraction
from app.generation.stop_token import StopToken
from py_core.grammar.expressions import GrammarError
from py_core.grammar.kernel import GrammarKernel
from py_core.loading import Model
from tests.generation import test_assistant_thoughts
from tests.generation.test_shaped_answers import Follows, host, with_grammars

OpenModel = Callable[..., Awaitable[Model]]
NAME_AND_CITY = columns_of([{"name": "Name"}, {"name": "City"}])
LIST = "Our neighbours:\n\nMary Collins, Bath\nTomas Novak, Exeter\n"


def cut(text: str, size: int = 0) -> list[str]:
    return [text[piece.start : piece.end].strip() for piece in pieces(text, size)]


def test_an_entry_is_a_line_a_sentence_or_a_block_with_labels() -> None:
    assert cut(LIST) == ["Mary Collins, Bath", "Tomas Novak, Exeter"]
    assert cut("1. Ann (Hull)\n2. Ben (York)") == ["1. Ann (Hull)", "2. Ben (York)"]
    assert cut("Lena books rooms. Dr. Paul writes 3.5 pages by June. He ends.") == [
        "Lena books rooms.", "Dr. Paul writes 3.5 pages by June.", "He ends.",
    ]  # fmt: skip
    wrapped = f"{'word ' * 14}from\nOslo to Porto. They stayed in Lyon."
    assert cut(wrapped) == [f"{'word ' * 14}from\nOslo to Porto.", "They stayed in Lyon."]
    assert cut("Name: Ann\nCity: Hull\n\nName: Ben\nCity: York") == ["Name: Ann\nCity: Hull", "Name: Ben\nCity: York"]
    assert cut("A list:") == ["A list:"]
    assert all(end.end - end.start <= 600 for end in entries("word " * 1000))


def test_pieces_are_as_long_as_they_may_be_and_lose_nothing() -> None:
    text = "".join(f"Line {number} of the list, with some words.\n" for number in range(100))
    found = pieces(text, 500)
    assert max(piece.end - piece.start for piece in found) <= 500
    assert len(found) < 12
    lines = [line for piece in found for line in text[piece.start : piece.end].splitlines()]
    assert lines == text.splitlines()


async def allowed(text: str, columns: list[dict], cells: list[list[str]]) -> list[bool]:
    """True for each row, its cells in JSON, that the grammar of a text lets through."""
    kernel = GrammarKernel(await host(), [bytes([byte]) for byte in range(256)])
    opened, found = kernel.open(rows_grammar(text, columns_of(columns))), []
    for row in cells:
        named = zip(columns, row, strict=True)
        written = ",".join(f"{json.dumps(column['name'])}:{cell}" for column, cell in named)
        state, _ = opened.after_bytes(opened.begins, f"[{{{written}}}]".encode())
        found.append(state is not None and opened.may_end(state))
    return found


@pytest.mark.parametrize(
    ("text", "column", "right", "wrong"),
    [
        ("Möller & Co, „Süd“  in\nUlm.", {"kind": "text"}, ["Möller & Co", "Süd“ in Ulm", ""], ["Mö", "Co,", "Nord"]),
        ("books the room by May", {"kind": "text"}, ["books the room"], ["books the", "room by"]),
        ("ann@mill.example, 020 5550 101", {"kind": "text"}, ["020 5550 101"], ["ann", "example", "101", "020"]),
        ("1.310,00, 1,500 and -7, 007", {"kind": "number"}, ["1310.00", "1500", "1.500", "-7", "null"], ["310", "7"]),
        ("from 3 March 2026 to 12.04.2026", {"kind": "date"}, ["3 March 2026", "12.04.2026", ""], ["March", "from"]),
        ("by Friday", {"kind": "date"}, ["Friday"], ["Monday"]),
        ("a@b.example or c@d.example", {"kind": "email"}, ["c@d.example", ""], ["or"]),
        ("call +49 221 555-310 on 12.04.2026", {"kind": "phone"}, ["+49 221 555-310"], ["12.04.2026", "call"]),
        ("it is late", {"kind": "choice", "choices": ["open", "done"]}, ["open", "done"], ["late", ""]),
        ("東京都の山田さん", {"kind": "text"}, ["山田", "東京都"], ["大阪"]),
    ],
    ids=["text", "words", "telephone", "number", "date", "weekday", "email", "phone", "choice", "japanese"],
)  # fmt: skip
async def test_a_cell_is_of_the_text(text: str, column: dict, right: list[str], wrong: list[str]) -> None:
    is_number = column["kind"] == "number"
    cells = [[cell if is_number else json.dumps(cell, ensure_ascii=False)] for cell in (*right, *wrong)]
    assert await allowed(text, [{"name": 'A "b"', **column}], cells) == [True] * len(right) + [False] * len(wrong)


async def test_a_text_is_without_what_another_column_is_for() -> None:
    columns = [{"name": "Event"}, {"name": "Day", "kind": "date"}]
    rows = [['"The fair"', '"3 May"'], ['"fair on 3 May"', '"3 May"'], ['"3 May"', '"3 May"']]
    assert await allowed("The fair on 3 May in Bath", columns, rows) == [True, False, False]


def test_a_cell_stands_at_the_place_that_is_nearest_to_the_rest_of_its_row() -> None:
    text = "Leeds: Ann, 12.\nHull: Ann lee, 7.\nLeeds: Ben, 1,200."
    columns = columns_of([{"name": "Town"}, {"name": "Name"}, {"name": "Age", "kind": "number"}])

    def found(*cells: str) -> list[str | None]:
        row = dict(zip(("Town", "Name", "Age"), cells, strict=True))
        spans = row_places(text, row, columns)
        return [None if span is None else f"{span[0]}:{text[span[0] : span[1]]}" for span in spans]

    assert found("Leeds", "Ben", "1200") == ["34:Leeds", "41:Ben", "46:1,200"]
    assert found("Leeds", "Ann", "12") == ["0:Leeds", "7:Ann", "12:12"]
    assert found("Hull", "ANN  LEE", "") == ["16:Hull", "22:Ann lee", None]
    assert found("Lee", "Paul", "2") == ["26:lee", None, None]
    same = row_places("Lyon, Lyon", {"Name": "Lyon", "City": "Lyon"}, NAME_AND_CITY)
    assert same == [(0, 4), (6, 10)]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([], "no-columns"),
        ([{"name": " "}], "no-name"),
        ([{"name": "a" * 61}], "long-name"),
        ([{"name": "Name"}, {"name": "name "}], "same-name"),
        ([{"name": "State", "kind": "choice", "choices": ["open", " open "]}], "choices"),
        ([{"name": str(number)} for number in range(13)], "many-columns"),
    ],
)
def test_bad_columns_are_refused_with_a_sentence(given: list[dict], code: str) -> None:
    with pytest.raises(TableError) as refused:
        columns_of(given)
    assert refused.value.message.code == f"table.{code}"


SAID = {
    "Mary": '[{"Name":"Mary \U0001f3bb Collins","City":"Bath"}]',
    "Tomas": '[{"Name":"Tomas Novak","City":""}]',
    "Nobody": '[{"Name":"Nobody","City":"Nobody"}]',
    "Ann": '[{"Name":"Ann","City":"Hull"},{"Name":"Ann","City":"Hull"},{"Name":"Ann","City":"Hull"}]',
}


async def test_rows_come_one_by_one_and_stay_when_it_is_stopped(
    tiny_path: Path, open_model: OpenModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the heading, and a row whose cells are all the same."""
    monkeypatch.setattr(test_assistant_thoughts, "ANSWERS", SAID)
    model = with_grammars(await open_model(tiny_path, Follows, end_tokens=[2]))
    text = "Our neighbours:\n\nMary \U0001f3bb Collins, Bath\nTomas Novak, Exeter\nNobody\n"
    told, stop = [], StopToken()
    async for news in TableExtraction(model, text, NAME_AND_CITY).news(stop):
        told.append(news)
    assert [[cell["value"] for cell in row] for news in told for row in news["rows"]] == [
        ["Mary \U0001f3bb Collins", "Bath"], ["Tomas Novak", ""],
    ]  # fmt: skip
    wide, (row, other) = text.encode("utf-16-le"), [row for news in told for row in news["rows"]]
    for cell in (*row, other[0]):
        assert wide[2 * (cell["start"] or 0) : 2 * (cell["end"] or 0)].decode("utf-16-le") == cell["value"]
    assert (other[1]["start"], other[1]["end"]) == (None, None)
    shares = [news["done"] for news in told]
    assert (shares[-1], sorted(shares)) == (1.0, shares)

    seen = []
    async for news in TableExtraction(model, text, NAME_AND_CITY).news(stop):
        seen += news["rows"]
        stop.stop()
    assert seen == [row]


async def test_equal_rows_come_as_often_as_the_text_has_them(
    tiny_path: Path, open_model: OpenModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a model that repeats itself is ended."""
    monkeypatch.setattr(test_assistant_thoughts, "ANSWERS", SAID)
    monkeypatch.setattr(table, "SMALL", 0)
    model = with_grammars(await open_model(tiny_path, Follows, end_tokens=[2]))
    told = TableExtraction(model, "Ann in Hull, Ann in Hull", NAME_AND_CITY).news(StopToken())
    assert [[cell["start"] for cell in row] async for news in told for row in news["rows"]] == [[0, 7], [13, 20]]


async def test_a_text_that_is_empty_or_too_long_and_a_grammar_that_is_too_large(
    tiny_path: Path, open_model: OpenModel
) -> None:
    model = await open_model(tiny_path)
    for text, code in ((" \n", "table.no-text"), ("x" * 100_001, "table.long-text")):
        with pytest.raises(TableError) as refused:
            TableExtraction(model, text, NAME_AND_CITY)
        assert refused.value.message.code == code

    async def too_large(_: object) -> None:
        raise GrammarError("too large")

    model.engine.constraint_of = too_large  # type: ignore[assignment]
    with pytest.raises(TableError, match="fewer columns"):
        async for _ in TableExtraction(model, LIST, NAME_AND_CITY).news(StopToken()):
            pass
