"""Rows of lessons: the allowed contents of a file, and a sentence for each row without a lesson."""

from __future__ import annotations

import io
import json

import pytest

from app.lessons.rows import LONGEST_LINE, LessonRow, lesson_rows

GOOD = b'{"question": "Who leads Orion?", "answer": "Marta Velasco leads it."}\n'
LESSON = ("Who leads Orion?", "Marta Velasco leads it.")


def read(data: bytes) -> list[LessonRow]:
    return list(lesson_rows(io.BytesIO(data)))


def test_rows_are_read_in_order_without_empty_lines_a_mark_of_byte_order_or_other_fields() -> None:
    data = b"\xef\xbb\xbf" + GOOD + b"\n  \r\n" + b'{"question": "Q", "answer": "\\u00e9", "id": 7}'
    assert read(data) == [LessonRow(1, *LESSON), LessonRow(4, "Q", "é")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"question, answer", ["not JSON", '{"question": ']),
        (b'{"question": "Q", "answer": ', ["not JSON"]),
        (b'["Q", "A"]', ["['Q', 'A']", "not an object"]),
        (b'{"question": "Q"}', ["answer is missing"]),
        (b'{"answer": "A"}', ["question is missing"]),
        (b"{}", ["question is missing", "answer is missing"]),
        (b'{"question": "Q", "answer": 7}', ["answer is 7, not text"]),
        (b'{"question": null, "answer": "A"}', ["question is null, not text"]),
        (b'{"question": "Q", "answer": " \\n "}', ["answer is empty"]),
        (b'{"question": "", "answer": "A"}', ["question is empty"]),
        (b'{"question": "Q", "answer": "\\ud800"}', ["answer has half a character"]),
        (b'{"question": "Q", "answer": "\xff"}', ["not text in UTF-8"]),
        (b'{"question": NaN, "answer": true}', ["question is NaN, not text", "answer is true, not text"]),
        (b'{"question": "Q", "answer": "\x00"}', ["not JSON", "Invalid control character at character 30."]),
        (b"{'question': 1}", ["not JSON", "at character 2."]),
        (b"[" * 100_000, ["not JSON", "nested too deeply"]),
        (b'{"question": "' + b"Q" * LONGEST_LINE + b'", "answer": "A"}', ["over 1,000,000 bytes"]),
    ],
)
def test_a_bad_row_says_what_to_do_and_the_others_go_on(line: bytes, words: list[str]) -> None:
    first, bad, last = read(GOOD + line + b"\n" + GOOD)
    assert (first, last) == (LessonRow(1, *LESSON), LessonRow(3, *LESSON))
    assert bad.line == 2
    assert all(word in bad.error for word in words), bad.error
    assert len(bad.error) < 400


def test_a_row_whose_answer_is_bad_keeps_its_question() -> None:
    (row,) = read(json.dumps({"question": "Who?", "answer": ""}).encode())
    assert (row.question, row.answer) == ("Who?", "")


def test_a_row_is_there_before_the_next_one_is_written() -> None:
    class Pipe(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            lines.append(super().readline(size))
            return lines[-1]

    lines: list[bytes] = []
    rows = lesson_rows(Pipe(GOOD + GOOD))
    assert next(rows).question == LESSON[0]
    assert lines == [GOOD]
