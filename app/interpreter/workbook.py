"""The sheets of a spreadsheet (.xlsx) as CSV.

A stranger made the file, so this runs where the user's Python runs: its source is given to the page's worker
(web/interpreter/workbook.js) or to the child process (app/cli/attachments.py), which need openpyxl.

read_workbook(path, out) writes JSON: {"sheets": [[name, CSV], ...]}, or {"problem": "large" | "damaged" | "empty"}.
"""

import csv
import datetime
import io
import json
import warnings
import zipfile

MOST_UNPACKED = 100_000_000
"""The most bytes of the file's parts together, unpacked. A sheet of a million characters has some 10 MB."""
MOST_TEXT = 1_000_000
"""The most characters of a sheet: more cannot be attached."""
MOST_COLUMNS = 1_000
MOST_SHEETS = 50


class TooLargeError(Exception):
    pass


def read_workbook(path: str, out: str) -> None:
    try:
        sheets = [[name, text] for name, text in _sheets(path) if text]
        found = {"sheets": sheets} if sheets else {"problem": "empty"}
    except TooLargeError:
        found = {"problem": "large"}
    except Exception:  # whatever openpyxl stumbles over
        found = {"problem": "damaged"}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file)


def _sheets(path: str) -> list[tuple[str, str]]:
    import openpyxl  # type: ignore[import-untyped, import-not-found, unused-ignore]

    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > MOST_UNPACKED:
            raise TooLargeError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts that it leaves out
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        return [(sheet.title, _csv(sheet)) for sheet in book.worksheets[:MOST_SHEETS]]


def _csv(sheet: object) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for row in sheet.iter_rows(max_col=MOST_COLUMNS, values_only=True):  # type: ignore[attr-defined]
        cells = [_cell(value) for value in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            rows.writerow(cells)
        if text.tell() > MOST_TEXT:
            raise TooLargeError
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return str(value.date() if value.time() == datetime.time() else value.replace(microsecond=0))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)
