"""Files in the page: attached in every way, read for answers, cited, removed, and restored after a reload."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import FilePayload, Locator, expect

from tests.page.chat.small_pdf import note, packed_pdf, placed_pdf, small_pdf, text_field, thick_pdf
from tests.page.chat_page import ANSWER_SECONDS, ChatPage, choose_files
from tests.page.views.accessibility import found_by_axe

pytestmark = pytest.mark.asyncio(loop_scope="session")

FILLER = "The weather was mild, the paths were dry, and visitors walked from one bed to the next without any hurry."
GARDEN = small_pdf([[FILLER] * 20, ["The head gardener of the park", "is called Ottilie Brandt."], [FILLER] * 20])
FOUND = (  # the drawing of a page, and its text
    ([(72, 660, "Third."), (72, 680, "Second."), (72, 700, "First.")], "First.\nSecond.\nThird."),
    (
        [
            *((72, 700, "Item"), (182, 700, "Q1"), (292, 700, "Q2"), (402, 700, "Q3")),
            *((72, 682, "Lamp"), (188, 682, "12"), (402, 682, "7"), (72, 664, "Chair"), (292, 664, "3")),
            (72, 646, "These are all."),
        ],
        "Item\tQ1\tQ2\tQ3\nLamp\t12\t\t7\nChair\t\t3\nThese are all.",
    ),
    (
        [
            (72, 700, "Two columns of a paper"),
            *((72, 680, "The boat to the island"), (330, 680, "The museum is closed on")),
            *((72, 666, "leaves at six, and in"), (330, 666, "all of the holidays and")),
            (72, 652, "winter not at all."),
        ],
        "Two columns of a paper\nThe boat to the island\nleaves at six, and in\nwinter not at all.\n"
        "The museum is closed on\nall of the holidays and",
    ),
)
SAID_BESIDE = "\nMoved to 9 March\nAsk Ines\npermit: KX-4471"
DRAWN = placed_pdf(
    [drawn for drawn, _ in FOUND],
    [text_field("permit", "KX-4471"), note("FreeText", "Moved to 9 March"), note("Text", "Ask Ines")],
)
ENDLESS = packed_pdf(b"q 1 0 0 1 0 0 cm Q " * 10**5, pages=999)  # a page takes much of a second
KEY = b"The key of the shed is under the blue pot."
LARGE = b"\n\n".join(b"Bed %d has %d tulips." % (number, number * 7) + FILLER.encode() for number in range(3000))
TEXT_OF_LAST = """async (chat) => {
  const { files } = sonata.engine;
  return files.text({ id: (await files.files({ chat })).at(-1).id });
}"""
DROP = """([names, text]) => {
  const data = new DataTransfer();
  for (const name of names) data.items.add(new File([text], name));
  document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
PASTE = """(text) => {
  const data = new DataTransfer(), box = document.querySelector('#message');
  data.setData('text/plain', text);
  box.focus();
  if (box.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }))) {
    document.execCommand('insertText', false, text);
  }
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def chat(ready_chat: ChatPage) -> ChatPage:
    return ready_chat


def chips(chat: ChatPage) -> Locator:
    return chat.page.locator("#files .file-chip")


def payload(name: str, data: bytes, type: str = "") -> FilePayload:
    return {"name": name, "mimeType": type, "buffer": data}


async def attach(chat: ChatPage, *files: FilePayload) -> None:
    await chat.page.locator("#composer input[type=file]").set_input_files(files)


async def test_a_pdf_is_read_by_its_pages_and_the_answer_cites_the_right_one(real_chat: ChatPage) -> None:
    chat = real_chat
    await attach(chat, payload("garden.pdf", GARDEN, "application/pdf"), payload("drawn.pdf", DRAWN))
    await expect(chips(chat)).to_have_count(2)
    await expect(chat.page.locator(".file-chip[data-state=ready]")).to_have_count(2)
    await chat.page.wait_for_url("**#chat=*")
    text = await chat.page.evaluate(TEXT_OF_LAST, chat.page.url.rpartition("#chat=")[2])
    assert text == "\n\n".join(said + SAID_BESIDE for _, said in FOUND)

    assert "Ottilie" in await chat.ask("What is the head gardener called?")
    citation = chat.page.locator(".citation", has_text="garden.pdf")
    await expect(citation.first).to_contain_text("page 2")
    await citation.first.click()
    await expect(chat.page.locator(".citation-text")).to_contain_text("is called Ottilie Brandt.")
    assert await found_by_axe(chat.page) == []

    await chat.page.click("#new-chat")
    await expect(chips(chat)).to_have_count(0)
    await chat.page.go_back()  # as after a reload: from what is stored
    await expect(chips(chat)).to_have_count(2)
    await expect(citation.first).to_contain_text("page 2")


async def test_a_file_is_attached_asked_about_and_removed_with_the_keyboard_alone(chat: ChatPage) -> None:
    keyboard = chat.page.keyboard
    assert await chat.page.evaluate("document.querySelector('a, button, input, textarea').id") == "skip"
    await chat.page.focus("#skip")
    await keyboard.press("Enter")
    await expect(chat.page.locator("#message")).to_be_focused()
    assert "#message" not in chat.page.url
    await keyboard.press("Shift+Tab")
    await expect(chat.page.locator("#composer .attach")).to_be_focused()
    await choose_files(chat.page, lambda: keyboard.press("Enter"), [payload("key.txt", KEY)])
    await expect(chat.page.locator(".file-chip[data-state=ready]")).to_have_count(1)
    await expect(chat.page.locator("#message")).to_be_focused()
    await keyboard.type("Where is the key?")
    await keyboard.press("Enter")
    await expect(chat.page.locator(".citation")).to_have_text(["1key.txt"])
    await chat.wait_for("ready", ANSWER_SECONDS)

    await chat.page.locator(".citation").focus()
    await keyboard.press("Enter")
    await expect(chat.page.locator(".citation-text")).to_have_text(KEY.decode())  # a whole file: its text is fetched
    await keyboard.press("Enter")
    await expect(chat.page.locator(".citation-text")).to_be_hidden()

    await chat.page.get_by_role("button", name="Remove key.txt").focus()
    await keyboard.press("Enter")
    await expect(chips(chat)).to_have_count(0)
    await chat.ask("And now?")
    await expect(chat.page.locator(".answer").last.locator(".citation")).to_have_count(0)


async def test_dropped_files_are_attached_and_models_open_as_models(chat: ChatPage) -> None:
    await chat.page.evaluate(DROP, [["notes.md", "other.gguf"], "# Notes\n\nBuy seeds."])
    await expect(chat.page.locator("#models")).to_be_visible()
    await expect(chat.page.locator(".models-problems")).not_to_be_empty()
    await chat.close_panel()
    await expect(chips(chat)).to_have_count(1)
    await expect(chips(chat)).to_contain_text("notes.md")

    await chat.page.evaluate(DROP, [["sha256-2d9a"], "GGUF".ljust(4_100_000)])  # as Ollama keeps models
    await expect(chat.page.locator("#models")).to_be_visible()
    await expect(chips(chat)).to_have_count(1)
    await chat.close_panel()
    await attach(chat, payload("sha256-2d9a", b"GGUF".ljust(4_100_000)))
    await expect(chat.page.locator("#notices")).to_contain_text("It is a model: open it in Settings, Model.")


async def test_a_long_text_that_is_pasted_can_become_a_file(chat: ChatPage) -> None:
    await chat.page.evaluate(PASTE, "A long line of a letter. " * 100)
    notice = chat.page.locator("#notices", has_text="You pasted 2,500 characters")
    await expect(notice).to_be_visible()
    await notice.get_by_role("button", name="Attach it").click()
    await expect(chat.page.locator("#message")).to_have_value("")
    await expect(chips(chat)).to_contain_text("Pasted text.txt")


async def test_a_message_waits_until_the_files_are_read(chat: ChatPage) -> None:
    page, waiting = chat.page, chat.page.locator(".waiting")
    await attach(chat, payload("key.txt", KEY))
    await chat.send("Where is the key?")
    await expect(page.locator(".citation")).to_have_text(["1key.txt"])

    await attach(chat, payload("large.txt", LARGE))
    await chat.send("Goodbye, Wolfgang!")
    await expect(waiting).to_contain_text("Reading large.txt")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#message")).to_have_value("Goodbye, Wolfgang!")
    await page.press("#message", "Enter")
    await page.get_by_role("button", name="Send without it").click()
    await expect(page.locator(".citation-note")).to_contain_text("no word of your message was found in it")
    await chat.wait_for("ready", ANSWER_SECONDS)

    await chat.send("And the rake?")
    await expect(waiting).to_contain_text("Reading large.txt")
    await attach(chat, payload("empty.txt", b""))
    await expect(page.locator("#notices")).to_contain_text("empty.txt is empty.")
    await page.get_by_role("button", name="Remove large.txt").click()
    await expect(waiting).to_contain_text("empty.txt could not be read, so your message was not sent.")
    await attach(chat, payload("other.txt", KEY))
    await expect(page.locator(".queued")).to_have_count(0)
    await expect(page.locator(".answer:not([aria-busy])")).to_have_count(3)

    await attach(chat, payload("larger.txt", LARGE))
    await chat.send("And the pot?")
    await expect(waiting).to_contain_text("Reading larger.txt")
    await page.click("#new-chat")
    await expect(page.locator("#message")).to_have_value("")
    await page.fill("#message", "Elsewhere")
    await page.go_back()
    await expect(page.locator("#message")).to_have_value("And the pot?")  # it belongs to that chat
    await page.click("#new-chat")
    await expect(page.locator("#message")).to_have_value("Elsewhere")


UNREADABLE = (
    ("scan.pdf", small_pdf([[], []]), "scan.pdf has no text: its pages are pictures."),
    ("form.pdf", placed_pdf([[]], [text_field("permit", "")]), "form.pdf is a form without values and without text."),
    ("thick.pdf", thick_pdf(), "thick.pdf has 1,000,000,000 pages, and a file may have 5,000."),
    (
        "packed.pdf",
        packed_pdf(b" " * 2**26 + b"q"),
        "packed.pdf was not read: it takes too long or unpacks to too much.",
    ),
    ("broken.pdf", b"%PDF-1.4\nnothing", "broken.pdf cannot be read: it is damaged, or not a PDF."),
    ("photo.png", b"\x89PNG\r\n\x1a\n" + bytes(50), "photo.png is not text. Sonata cannot read pictures."),
    ("line.txt", b"a" * 4_000_001, "line.txt is too large: a file may have 4 MB."),
)


async def test_what_cannot_be_read_says_why_and_is_not_attached(chat: ChatPage) -> None:
    for number, (name, data, said) in enumerate(UNREADABLE):
        await attach(chat, payload(name, data))
        await expect(chat.page.locator("#notices")).to_contain_text(said)
        await expect(chips(chat)).to_have_count(number)
        await attach(chat, payload(f"key{number}.txt", KEY + name.encode()))
        await expect(chat.page.locator("#notices")).not_to_contain_text(said)
        await expect(chips(chat)).to_have_count(number + 1)

    await attach(chat, payload("endless.pdf", ENDLESS))
    await chat.page.click("#new-chat")
    await attach(chat, payload("other.txt", KEY))  # it does not wait for the other chat's
    await expect(chips(chat)).to_have_count(1)
    await expect(chips(chat)).to_have_attribute("data-state", "ready")
    await chat.page.go_back()
    await expect(chips(chat)).to_have_count(len(UNREADABLE) + 1)
    await chat.page.get_by_role("button", name="Remove endless.pdf").click()
    await expect(chips(chat)).to_have_count(len(UNREADABLE))
    await expect(chat.page.locator("#notices")).not_to_contain_text("endless.pdf")
