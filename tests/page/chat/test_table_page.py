"""Extract as table: made, sorted, edited, copied and saved, by keyboard, too. The tiny model says noise,
but each is of a line, and its cells are of that line."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import COLOURS, found_by_axe

pytestmark = pytest.mark.asyncio(loop_scope="session")

LINES = [f"{state}: order {number} of {9 - number} lamps" for number, state in enumerate(("open", "done") * 4, 1)]
TEXT = "Orders of the week:\n\n" + "\n".join(LINES)


async def attach(chat: ChatPage, text: str) -> Locator:
    """The dialog for an attached text."""
    page = chat.page
    files = [{"name": "orders.txt", "mimeType": "text/plain", "buffer": text.encode()}]
    await page.set_input_files("#composer input[type=file]", files)  # type: ignore[arg-type]
    await page.get_by_role("button", name="Extract orders.txt as table").click()
    return page.get_by_role("dialog", name="Extract as table")


async def cells_of(dialog: Locator) -> list[list[str]]:
    rows = await dialog.locator("tbody tr").all()
    return [[await cell.input_value() for cell in await row.locator("textarea").all()] for row in rows]


async def saved(chat: ChatPage, dialog: Locator, kind: str) -> str:
    async with chat.page.expect_download() as download:
        await dialog.get_by_role("button", name=f"Save as {kind}").click()
    file = await download.value
    assert file.suggested_filename == f"orders.{kind.lower()}"
    return (await asyncio.to_thread(Path(await file.path()).read_bytes)).decode("utf-8")


async def test_a_table_is_made_sorted_edited_and_saved(ready_chat: ChatPage) -> None:
    page = ready_chat.page
    dialog = await attach(ready_chat, TEXT)
    make = dialog.get_by_role("button", name="Make the table")
    await expect(dialog.get_by_label("Name of column 1")).to_be_focused()
    await expect(dialog.get_by_label("Kind of column 2")).to_have_value("email")
    await dialog.get_by_label("Name of column 2").fill("name")
    await expect(dialog.get_by_label("Kind of column 2")).to_have_value("text")
    await make.click()
    await expect(dialog.get_by_role("alert")).to_have_text("Two columns are called “name”: rename one.")
    await dialog.get_by_label("Name of column 1").fill("State")
    await dialog.get_by_label("Kind of column 1").select_option("choice")
    await dialog.get_by_label("Words to choose from for column 1").fill("open, done")
    await dialog.get_by_label("Name of column 2").fill("Number")
    await dialog.get_by_label("Kind of column 2").select_option("number")
    await dialog.get_by_label("Name of column 3").fill("What")
    await dialog.get_by_label("Kind of column 3").select_option("text")
    await make.press("Enter")
    await expect(dialog.get_by_role("button", name="Make it again")).to_be_focused()
    await expect(dialog.get_by_role("status")).to_have_text(re.compile(r"^\d rows\.$"))
    assert await found_by_axe(page, ".table-dialog") == []
    rows = await cells_of(dialog)
    for state, number, what in rows:
        assert state in ("open", "done")
        assert any(what in line and (number or "order") in line for line in LINES)
    assert await dialog.locator("tbody td[data-state=linked] textarea").count()
    for cell in await dialog.locator("tbody td[data-state=linked] textarea").all():
        await cell.focus()
        await expect(dialog.locator("mark")).to_have_text(await cell.input_value())

    remove = dialog.get_by_role("button", name="Remove row 1", exact=True)
    for _ in rows[3:]:
        await remove.click()
        await expect(remove).to_be_focused()
    await expect(dialog.get_by_role("status")).to_have_text("3 rows.")
    await dialog.get_by_label("What, row 1").fill('=1+1 "a", b')
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("What, row 2")).to_be_focused()
    await dialog.get_by_label("Number, row 2").fill("10")
    await dialog.get_by_label("Number, row 1").fill("9")
    await dialog.get_by_label("Number, row 3").fill("-2.5")
    heading = dialog.get_by_role("columnheader", name="Number")
    for direction, numbers in (("ascending", ["-2.5", "9", "10"]), ("descending", ["10", "9", "-2.5"])):
        await heading.get_by_role("button").click()
        await expect(heading).to_have_attribute("aria-sort", direction)
        assert [row[1] for row in await cells_of(dialog)] == numbers
    told = await saved(ready_chat, dialog, "CSV")
    assert told.startswith("\ufeffState,Number,What\r\n")
    shown = await cells_of(dialog)
    read = list(csv.reader(io.StringIO(told.removeprefix("\ufeff"), newline="")))
    assert read[1:] == [[cell if not cell.startswith("=") else f"'{cell}" for cell in row] for row in shown]
    objects = json.loads(await saved(ready_chat, dialog, "JSON"))
    assert [one["Number"] for one in objects] == [10, 9, -2.5]
    assert objects[1]["What"] == '=1+1 "a", b'

    await remove.click()
    await page.emulate_media(color_scheme="dark")
    assert await found_by_axe(page, ".table-dialog", COLOURS) == []
    await page.emulate_media(color_scheme="light")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await page.get_by_role("button", name="Extract orders.txt as table").click()
    await expect(dialog.locator("tbody tr")).to_have_count(2)
    assert [row[1] for row in await cells_of(dialog)] == ["9", "-2.5"]
    await page.keyboard.press("Escape")
    assert ready_chat.errors == []


async def test_a_selection_and_an_answer_can_be_made_tables(ready_chat: ChatPage) -> None:
    page, said = ready_chat.page, "Ann lives in Hull, Ben lives in York."
    await ready_chat.ask(said)
    dialog = page.get_by_role("dialog", name="Extract as table")
    await page.evaluate("getSelection().selectAllChildren(document.querySelector('.question .body'))")
    await page.locator("#chat").get_by_role("button", name="Extract as table").click()
    await expect(dialog.locator(".table-text")).to_have_text(said)
    await dialog.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="More").last.click()
    await page.get_by_role("button", name="Extract as table").click()
    await expect(dialog).to_contain_text("An answer")
    await page.keyboard.press("Escape")
    assert ready_chat.errors == []
