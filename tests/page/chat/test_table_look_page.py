"""A table that is dropped on the page: its columns and first rows, questions that are answered without the model, and
one that the model answers with Python."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.page.chat.test_files_page import DROP
from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import COLOURS, found_by_axe

pytestmark = pytest.mark.asyncio(loop_scope="session")

SALES = "region,month,sold\nnorth,2026-01,10\nsouth,2026-01,4\nnorth,2026-02,20\nsouth,2026-02,5\n<b>,2026-02,1\n"


@pytest.mark.all
async def test_a_table_shows_its_columns_and_questions_that_fit(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await page.evaluate(DROP, [["sales.csv"], SALES])
    look = page.get_by_role("region", name="A look at sales.csv")
    await expect(look.locator("th")).to_have_text(["region group", "month date", "sold number"])
    await expect(look.locator("tbody tr").first.locator("td")).to_have_text(["north", "2026-01", "10"])
    await expect(look.locator("header p")).to_have_text("sales.csv 5 rows, 3 columns")
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert await found_by_axe(page, ".table-look", COLOURS) == []
    await page.emulate_media(color_scheme="light")
    assert await found_by_axe(page, ".table-look") == []
    await expect(look.locator(".look-questions button")).to_have_text(
        ["average sold by region", "sold per month", "count rows by region"]
    )
    await look.get_by_role("button", name="average sold by region").click()
    await expect(look).to_have_count(0)
    await expect(page.locator(".answer td")).to_have_text(["north", "15", "south", "4.5", "<b>", "1"])
    await page.evaluate(DROP, [["more.csv"], SALES])
    look = page.get_by_role("region", name="A look at more.csv")
    await look.get_by_role("button", name="Close").click()
    await expect(look).to_have_count(0)
    await page.evaluate(DROP, [["note.txt"], "no table"])
    await expect(page.locator(".file-chip")).to_have_count(3)
    assert plain_chat.errors == []


async def test_a_question_in_words_becomes_code_that_runs_at_once_and_only_once(real_chat: ChatPage) -> None:
    page = real_chat.page
    await page.evaluate(DROP, [["sales.csv"], SALES])
    look = page.get_by_role("region", name="A look at sales.csv")
    await look.get_by_label("Your question about sales.csv").fill("mean of sold by region")
    await look.get_by_role("button", name="Analyse with Python").click()
    code = page.locator(".answer .code-block pre")
    await expect(code).to_contain_text("df = pd.read_csv('sales.csv', parse_dates=['month'])")
    question = page.get_by_role("group", name="Packages to load")
    await expect(question).to_contain_text("pandas 3.0.2, ")  # nobody has clicked on Run
    await expect(look.locator("table")).to_be_hidden()
    await expect(look.get_by_label("Your question about sales.csv")).to_have_value("")
    await question.get_by_role("button", name="Do not load").click()
    await expect(page.locator(".python-problem")).to_have_text("The packages were not loaded, so the code was not run.")
    await page.click("#new-chat")
    await expect(code).to_have_count(0)
    await page.locator("#chats a").first.click()
    await expect(code).to_contain_text("df = pd.read_csv('sales.csv', parse_dates=['month'])")
    await page.get_by_role("button", name="sales.csv", exact=True).click()
    await expect(look.locator("tbody tr").first.locator("td")).to_have_text(["north", "2026-01", "10"])
    await expect(page.locator(".python-run")).to_have_count(0)  # what is stored is not run
    assert await found_by_axe(page, ".table-look, .file-chip") == []
    await look.get_by_role("button", name="Close").click()
    assert real_chat.errors == []
