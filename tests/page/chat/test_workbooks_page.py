"""A spreadsheet that is attached: its sheets become tables, and files that mean harm end with a sentence."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
OLE = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(504)


def workbook(sheets: Mapping[str, str], first: str = "") -> bytes:
    """The smallest spreadsheet with these sheets: name -> the XML of its rows. first: the first sheet's whole XML."""
    numbers = dict(enumerate(sheets, 1))
    names = "".join(f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, name in numbers.items())
    links = "".join(
        f'<Relationship Id="r{at}" Type="{OFFICE}/worksheet" Target="worksheets/s{at}.xml"/>' for at in numbers
    )
    kinds = "".join(
        f'<Override PartName="/xl/worksheets/s{at}.xml" ContentType="{TYPE}.worksheet+xml"/>' for at in numbers
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">{kinds}'
        f'<Override PartName="/xl/workbook.xml" ContentType="{TYPE}.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{links}</Relationships>',
        **{
            f"xl/worksheets/s{at}.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{sheets[name]}</sheetData></worksheet>'
            for at, name in numbers.items()
        },
    }
    return zipped(parts | ({"xl/worksheets/s1.xml": first} if first else {}))


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()


def row(*cells: str | float) -> str:
    def cell(value: str | float) -> str:
        is_text = isinstance(value, str)
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>' if is_text else f"<c><v>{value}</v></c>"

    return f"<row>{''.join(map(cell, cells))}</row>"


BOOK = workbook({
    "Sales": row("region", "sold") + row("north, east", 2.0) + row("south", 1.5) + row("south", 3),
    "Empty": "",
    "Costs": row("what", "paid") + row("rent", 300) + row("bus", 12) + row("bus", 8),
})  # fmt: skip
ENTITIES = (
    '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {to} "{f"&{of};" * 10}">' for of, to in zip("abcdefgh", "bcdefghi", strict=True))
    + f']><worksheet xmlns="{MAIN}"><sheetData>{row("&i;")}</sheetData></worksheet>'
)
ENTITIES_BOOK = workbook({"Sales": row("a")}, ENTITIES)
REFUSED = {
    "old.xls": (OLE, "old.xls is a spreadsheet in the old format."),
    "secret.xlsx": (OLE + "EncryptedPackage".encode("utf-16-le"), "secret.xlsx has a password."),
    "cut.xlsx": (BOOK[:900], "cut.xlsx cannot be read: it is damaged, or no spreadsheet."),
}
MORE_REFUSED = {
    "entities.xlsx": (ENTITIES_BOOK, "entities.xlsx cannot be read: it is damaged, or no spreadsheet."),
    "bomb.xlsx": (zipped({"xl/worksheets/s1.xml": bytes(101_000_000)}), "bomb.xlsx is too large: a sheet may have"),
    "none.xlsx": (workbook({"Empty": ""}), "none.xlsx has no cells with values."),
}


async def attach(chat: ChatPage, name: str, data: bytes) -> None:
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    await chat.page.set_input_files("#composer input[type=file]", [file])  # type: ignore[list-item]


async def check_refused(chat: ChatPage, files: Mapping[str, tuple[bytes, str]]) -> None:
    for name, (data, sentence) in files.items():
        await attach(chat, name, data)
        await expect(chat.page.locator("#notices")).to_contain_text(sentence)


async def test_sheets_become_tables_and_what_is_none_ends_with_a_sentence(plain_chat: ChatPage) -> None:
    page = plain_chat.page
    await attach(plain_chat, "book.xlsx", BOOK)
    look = page.get_by_role("region", name="A look at book.csv")
    await expect(look.locator("th")).to_have_text(["region group", "sold number"])
    await expect(look.locator("tbody tr").first.locator("td")).to_have_text(["north, east", "2"])
    await look.get_by_label("Sheet").select_option("book, Costs.csv")
    look = page.get_by_role("region", name="A look at book, Costs.csv")
    await expect(look.locator("tbody td")).to_have_text(["rent", "300", "bus", "12", "bus", "8"])
    await look.get_by_role("button", name="Close").click()
    await check_refused(plain_chat, REFUSED)
    await expect(page.locator(".file-chip")).to_have_count(2)
    assert plain_chat.errors == []


@pytest.mark.all
async def test_a_spreadsheet_that_means_harm_ends_with_a_sentence(plain_chat: ChatPage) -> None:
    await check_refused(plain_chat, MORE_REFUSED)
    await expect(plain_chat.page.locator(".file-chip")).to_have_count(0)
    assert plain_chat.errors == []
