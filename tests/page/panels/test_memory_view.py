"""The chip on each answer and the panels, over the real engine with a tiny model, router and IndexedDB."""

from __future__ import annotations

import asyncio
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from app.records.kinds import KINDS
from app.records.memory import Memory
from app.records.sessions import Turn
from py_core.learning.trajectories import Trajectory
from py_core.store.encryption import NativeCrypto
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.store.transfer import export
from py_core.store.volatile import VolatileRows
from tests.page.chat_page import ChatPage
from tests.page.small_site import SmallSite
from tests.store.places import ANY_BODY

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

QUESTION = "the login page takes for ever, what can i do"
ALIKE = "our login page takes for ever, what can we do about it"
MANY = 1000
KEPT_SIZE = """async () => {
  const { formatBytes } = await import('./common/format.js');
  for (;;) {
    const [{ bytes, weights }] = await sonata.storedModels();
    if (weights) return [bytes, formatBytes(bytes + weights)];
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}"""
"""The bytes of the kept model, and its size with the weights that are kept beside it."""
SIZES = ((1280, 800), (390, 844), (320, 568))

DELETE_A_PATTERN = """(id) => new Promise((resolve, reject) => {
  const request = indexedDB.open('sonata-memory');
  request.onerror = () => reject(request.error);
  request.onsuccess = () => {
    const transaction = request.result.transaction('rows', 'readwrite');
    transaction.objectStore('rows').delete(['pattern', id]);
    transaction.oncomplete = () => {
      request.result.close();
      resolve();
    };
  };
})"""


class MemoryPage(ChatPage):
    """The chat, the panel beside it, and the page's access to the memory."""

    async def memory(self, call: str, **given: Any) -> Any:
        return await self.page.evaluate("([call, given]) => sonata.engine.memory[call](given)", [call, given])

    async def policies(self) -> list[str]:
        """The policies of tests, by name."""
        names = [policy["name"] for policy in await self.memory("policies")]
        return [name for name in names if name.startswith("tests.")]

    @property
    def view(self) -> Locator:
        return self.side

    @property
    def panel(self) -> Locator:
        return self.part

    @property
    def rows(self) -> Locator:
        return self.panel.locator(".record")

    def row(self, text: str) -> Locator:
        return self.rows.filter(has_text=text)

    def button(self, name: str) -> Locator:
        return self.panel.get_by_role("button", name=name, exact=True)

    async def show(self, tab: str) -> None:
        await self.open_part(tab)

    async def close(self) -> None:
        await self.close_panel()

    @property
    def chip(self) -> Locator:
        """The chip of the last answer."""
        return self.page.locator(".route").last

    async def send_to_another(self) -> str:
        """Correct the last answer's chip; returns the agent's title."""
        now = await self.chip.locator("summary").inner_text()
        other = "Planner" if now.startswith("Tester") else "Tester"
        await self.chip.locator("summary").click()
        group = self.chip.get_by_role("group", name="Send similar messages to")
        await group.get_by_role("button", name=other, exact=True).click()
        return other


@pytest_asyncio.fixture(loop_scope="session")
async def chat(ready_chat: ChatPage) -> MemoryPage:
    await ready_chat.routed()
    return ready_chat.seen_as(MemoryPage)


@pytest.fixture(scope="module")
def big_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with 60 conversations and a log of MANY requests."""
    path = tmp_path_factory.mktemp("export") / "big.sonata"

    async def make() -> bytes:
        memory = await Memory.open(await Store.open(VolatileRows(), crypto=NativeCrypto(), kinds=KINDS))
        for number in range(60):
            session = await memory.sessions.start(f"Conversation {number}")
            said = Turn("user", f"What is {number} plus {number}?"), Turn("assistant", f"The sum is **{2 * number}**.")
            await memory.sessions.add_turns(session.id, *said)
        for number in range(MANY):
            error = "DeviceLostError: The graphics card was reset." if number % 200 == 199 else None
            stages = {"embed": 5.0, "prefill": 100.0, "decode": 300.0 + number % 7}
            route = {"confidence": 0.9, "ranked": [["coder", 0.9]]}
            made = Trajectory(f"a{number}", f"Request {number}", "", agent="coder", stages=stages, route=route)
            rating = 0.25 if error else None
            memory.trajectories.record(replace(made, backend="wasm", error=error, rating=rating, learnable=False))
        await memory.writer.flush()
        return await export(memory.store)

    path.write_bytes(asyncio.run(make()))
    return path


# ---- the frame ----


async def test_the_view_is_loaded_when_it_is_opened(page_apart: ChatPage) -> None:
    def asked() -> bool:
        return any("/panels/panel_frame.js" in url for url in page_apart.requests)

    await page_apart.page.reload()
    await page_apart.wait_for("ready")
    assert not asked()
    async with page_apart.page.expect_request("**/panels/panel_frame.js"):
        await page_apart.page.click("[data-panel=learned]")
    assert asked()


async def test_the_view_is_worked_by_keyboard(chat: MemoryPage) -> None:
    await chat.page.focus("[data-panel=learned]")
    await chat.page.keyboard.press("Enter")
    await expect(chat.panel).to_contain_text("You have taught nothing yet")
    await expect(chat.page.locator("#panel-tab-lessons")).to_be_focused()
    await chat.page.keyboard.press("ArrowRight")
    await expect(chat.panel).to_contain_text("What was learned stays until you forget it")
    await chat.page.keyboard.press("ArrowRight")
    await expect(chat.panel).to_contain_text("There are no patterns yet")
    await expect(chat.view.get_by_role("tab", name="Routing")).to_be_focused()
    await chat.page.keyboard.press("End")
    await expect(chat.panel).to_contain_text("The log is empty")
    await chat.page.keyboard.press("Escape")
    await expect(chat.view).to_be_hidden()
    await expect(chat.page.locator("[data-panel=learned]").first).to_be_focused()


# ---- the chip ----


async def test_the_chip_says_why_and_one_click_corrects_it(chat: MemoryPage) -> None:
    await chat.ask(QUESTION)
    before = await chat.chip.locator("summary").inner_text()
    assert re.fullmatch(r"[\w ]+", before), before
    await chat.chip.locator("summary").click()
    why = chat.chip.locator(".route-panel")
    await expect(why.locator("q")).to_have_count(3)
    await expect(why).to_contain_text(re.compile(r"\d+% similar"))
    await expect(why).to_contain_text(re.compile(r"Decided in [\d.]+ ms: embed [\d.]+ .s, search"))
    await chat.page.keyboard.press("Escape")
    await expect(why).to_be_hidden()

    other = await chat.send_to_another()
    await expect(chat.chip.locator("summary")).to_have_text(f"Similar messages will go to {other}")
    await chat.ask(ALIKE)
    await expect(chat.chip.locator("summary")).to_have_text(other)
    await chat.chip.locator("summary").click()
    first = chat.chip.locator(".route-neighbours li").first
    await expect(first).to_contain_text(QUESTION)
    await expect(first).to_contain_text("your correction")


async def test_after_a_correction_the_other_agent_answers_this_message_too(chat: MemoryPage) -> None:
    await chat.page.click("#new-chat")
    await chat.ask("my bread keeps falling flat in the oven")
    other = await chat.send_to_another()
    await chat.chip.get_by_role("button", name=f"Answer again as {other}").click()
    await expect(chat.chip.locator("summary")).to_have_text(f"{other} · your choice")
    await expect(chat.page.locator(".answer .variants-place")).to_have_text("2 / 2")
    await chat.wait_for("ready")
    await expect(chat.page.locator(".question")).to_have_count(1)


async def test_undo_takes_a_correction_back(chat: MemoryPage) -> None:
    question = "my tomatoes keep catching blight, every single year"
    await chat.ask(question)
    before = await chat.chip.locator("summary").inner_text()
    await chat.send_to_another()
    undo = chat.chip.get_by_role("button", name="Undo")
    await undo.wait_for()
    learned = await chat.memory("patterns", search=question)
    assert question in [item["text"] for item in learned["items"]]

    await undo.click()
    await expect(chat.chip.locator("summary")).to_have_text(before)
    learned = await chat.memory("patterns", search=question)
    assert question not in [item["text"] for item in learned["items"]]


async def test_that_was_right_is_noted_in_the_log(chat: MemoryPage) -> None:
    await chat.ask("write a function that reverses a string")
    await chat.chip.locator("summary").click()
    await chat.chip.get_by_role("button", name="That was right").click()
    await expect(chat.chip.locator(".route-outcome")).to_have_text("Thanks, noted")
    log = await chat.memory("log", search="reverses a string")
    assert log["items"][0]["quality"] == 1


async def test_the_plain_assistant_is_quiet_and_its_words_agree_with_its_numbers(chat: MemoryPage) -> None:
    await chat.page.click("#new-chat")
    await chat.ask("Now make day 2 rainy.")
    await expect(chat.chip.locator("summary")).to_have_text("Assistant")
    await chat.chip.locator("summary").click()
    reason = await chat.chip.locator(".route-reason").inner_text()
    none = r"No agent was likely enough, so the plain assistant answered\."
    told = none + r" The likeliest agent is ([\w -]+) \(([\d.]+)%\)\."
    said = re.fullmatch(told, reason)
    assert said, reason
    await expect(chat.chip.get_by_role("heading", name="Most likely agents")).to_be_visible()
    first = chat.chip.locator(".route-ranked li").first
    await expect(first).to_contain_text(re.compile(rf"^\s*{said[1]}\s*{said[2]}%\s*$"))
    shown = [float(share.removesuffix("%")) for share in await chat.chip.locator(".route-share").all_inner_texts()]
    assert max(shown) == float(said[2])


async def test_a_follow_up_says_so(chat: MemoryPage) -> None:
    await chat.page.click("#new-chat")
    await chat.ask("plan a four day trip to Lisbon with two kids")
    await expect(chat.chip.locator("summary")).to_have_text("Planner")
    await chat.ask("Now make day 2 rainy.")
    await expect(chat.chip.locator("summary")).to_have_text("Planner · follow-up")
    await chat.chip.locator("summary").click()
    await expect(chat.chip.locator(".route-reason")).to_contain_text("looks like a follow-up, so Planner continues")


# ---- patterns ----


async def test_a_pattern_is_searched_by_meaning_edited_and_deleted(chat: MemoryPage) -> None:
    await chat.memory("correct", id="", text="translate this letter into danish", agent="documenter")
    await chat.memory("correct", id="", text="water the plants on the balcony", agent="devops")
    await chat.show("Routing")
    await chat.panel.get_by_role("searchbox").fill("put this letter into another language")
    await expect(chat.rows.first).to_contain_text("translate this letter into danish")
    await expect(chat.rows.first).to_contain_text("similar")
    await expect(chat.row("water the plants")).to_have_count(0)

    row = chat.rows.first
    await row.get_by_role("button", name="Edit").click()
    await row.get_by_label("Request").fill("   ")
    await row.get_by_role("button", name="Save").click()
    await expect(row.get_by_role("alert")).not_to_be_empty()
    await row.get_by_label("Request").fill("translate this letter into swedish")
    await row.get_by_label("Agent").select_option(label="Researcher")
    await row.get_by_role("button", name="Save").click()
    changed = chat.row("translate this letter into swedish")
    await expect(changed).to_contain_text("Researcher")
    await expect(chat.row("danish")).to_have_count(0)

    await changed.get_by_role("button", name="Delete").click()
    await chat.page.keyboard.press("Escape")  # not sure after all
    await expect(changed).to_be_visible()
    await changed.get_by_role("button", name="Delete").click()
    await changed.get_by_role("button", name="Delete").click()
    await expect(changed).to_have_count(0)
    texts = [item["text"] for item in (await chat.memory("patterns"))["items"]]
    assert "translate this letter into swedish" not in texts
    assert "water the plants on the balcony" in texts


async def test_several_patterns_are_deleted_at_once(chat: MemoryPage) -> None:
    for day in ("monday", "tuesday", "sunday"):
        await chat.memory("correct", id="", text=f"remind me of the bins on {day}", agent="planner")
    await chat.show("Routing")
    await chat.panel.get_by_role("searchbox").fill("remind me of the bins")
    await expect(chat.rows.first).to_contain_text("similar")  # search results are shown, and the selection is cleared
    for day in ("monday", "tuesday"):
        await chat.row(f"bins on {day}").get_by_role("checkbox").check()
    await chat.button("Delete 2 patterns").click()
    await chat.panel.locator(".records-bulk").get_by_role("button", name="Delete", exact=True).click()
    await expect(chat.row("bins on monday")).to_have_count(0)
    await expect(chat.row("bins on tuesday")).to_have_count(0)
    await expect(chat.row("bins on sunday")).to_have_count(1)


async def test_what_is_typed_stays_when_the_memory_changes(chat: MemoryPage) -> None:
    text = "paint the fence green"
    await chat.memory("correct", id="", text=text, agent="planner")
    await chat.show("Routing")
    await chat.panel.get_by_role("searchbox").fill("")
    await chat.row(text).get_by_role("button", name="Edit").click()
    await chat.panel.get_by_label("Request").fill("half a thou")
    await chat.memory("correct", id="", text=text, agent="tester")  # in another tab, say
    await chat.memory("correct", id="", text="mow the lawn at noon", agent="planner")
    await expect(chat.row("mow the lawn at noon")).to_be_visible()  # both have arrived then
    await chat.page.keyboard.type("ght")
    await expect(chat.panel.get_by_label("Request")).to_have_value("half a thought")
    await chat.button("Cancel").click()
    await expect(chat.row(text)).to_contain_text("Tester")


# ---- small screens ----


@pytest.mark.parametrize(
    "looks",
    [
        [("light", SIZES[-1])],
        pytest.param([*(("light", size) for size in SIZES), ("dark", SIZES[1])], marks=pytest.mark.all),
    ],
    ids=["smallest", "each"],
)
async def test_everything_fits_the_screen(
    chat: MemoryPage, screenshots: Path, looks: list[tuple[Any, tuple[int, int]]]
) -> None:
    await chat.memory("correct", id="", text="does it fit on a small screen", agent="tester")
    await chat.ask(QUESTION)
    for scheme, (width, height) in looks:
        await chat.page.emulate_media(color_scheme=scheme)
        await chat.page.set_viewport_size({"width": width, "height": height})
        await chat.chip.locator("summary").click()
        await chat.chip.locator(".route-panel").wait_for()
        await shoot(chat, screenshots / f"memory-chip-{width}-{scheme}.png")
        await chat.page.keyboard.press("Escape")  # on a small screen it covers the button of the side bar
        for tab in ("Routing", "Log", "Storage"):
            await chat.show(tab)
            await chat.panel.locator(".record, .counts").first.wait_for()
            await shoot(chat, screenshots / f"memory-{tab.lower()}-{width}-{scheme}.png")
        await chat.close()
    await chat.page.set_viewport_size({"width": 1280, "height": 800})
    await chat.page.emulate_media(color_scheme="light")


async def shoot(chat: MemoryPage, path: Path) -> None:
    await chat.page.screenshot(path=path)
    # A new size takes some frames.
    await chat.page.wait_for_function(
        "() => [document.documentElement, ...document.querySelectorAll('.top, .route-panel, .panel-body')]"
        ".every((node) => node.scrollWidth <= node.clientWidth)"
    )


# ---- the log, and much of everything ----


async def test_a_big_memory_is_shown_a_page_at_a_time(chat: MemoryPage, big_export: Path) -> None:
    await chat.show("Storage")
    await chat.panel.get_by_label("Exported file").set_input_files(big_export)
    await chat.button("Import").click()
    came = f"Imported {60 + 120 + MANY:,} items."
    await expect(chat.panel.get_by_text(came)).to_be_visible(timeout=60_000)

    await chat.show("Log")
    await expect(chat.panel.get_by_text(f"{MANY:,} requests", exact=True)).to_be_visible()
    await expect(chat.rows).to_have_count(25)
    await expect(chat.panel.locator(".statistics")).to_contain_text("50% of requests take less than")
    await chat.panel.get_by_label("Show").select_option(label="Errors")
    await expect(chat.rows).to_have_count(5)
    await expect(chat.rows.first).to_contain_text("The graphics card was reset.")
    await expect(chat.rows.first).to_contain_text("decode 30")
    await expect(chat.rows.first).to_contain_text("quality 25%")
    await chat.rows.first.get_by_role("button", name="Delete").click()
    await chat.rows.first.get_by_role("button", name="Delete").click()
    await expect(chat.rows).to_have_count(4)

    chats = chat.page.locator("#chats")
    await chats.get_by_role("searchbox").fill("Conversation 17")
    await expect(chats.locator(".chat-link").first).to_contain_text("Conversation 17")
    await chats.get_by_role("searchbox").fill("SUM")  # a word that occurs only in answers
    await expect(chats.locator(".chat-snippet mark").first).to_have_text("sum")
    await chats.get_by_role("searchbox").fill("")
    await expect(chats.locator(".chat-link")).to_have_count(60)


# ---- storage ----


async def test_export_delete_all_and_import_with_a_passphrase(chat: MemoryPage, tmp_path: Path) -> None:
    text = "count the sheep on the hill"
    await chat.memory("correct", id="", text=text, agent="optimizer")
    await chat.show("Storage")
    await chat.panel.get_by_label("Passphrase of the file (optional)").fill("of the file")
    async with chat.page.expect_download() as downloading:
        await chat.button("Export to a file").click()
    download = await downloading.value
    file = tmp_path / download.suggested_filename
    await download.save_as(file)
    before = await chat.memory("counts")
    assert before["pattern"] > 0

    told = await chat.panel.locator(".counts dt").all_inner_texts()
    assert {"facts that you taught", "trainings", "parts of learned adapters"} <= set(told)
    assert len(told) == len(before)
    await chat.button("Delete everything…").click()
    question = chat.page.get_by_role("dialog", name="Delete everything?")
    await expect(question).to_contain_text(f"{before['pattern']} pattern")
    await question.get_by_role("button", name="Cancel").click()
    assert await chat.memory("counts") == before
    await chat.button("Delete everything…").click()
    await question.get_by_role("button", name="Delete everything").click()
    await expect(chat.panel.get_by_text("Everything was deleted.")).to_be_visible()
    after = await chat.memory("counts")
    assert [after[kind] for kind in ("pattern", "session", "trajectory")] == [0, 0, 0]

    await chat.panel.get_by_label("Exported file").set_input_files(file)
    secret = chat.panel.get_by_label("Passphrase of the file", exact=True)
    await expect(secret).to_be_hidden()
    await chat.button("Import").click()
    await expect(secret).to_be_visible()
    await secret.fill("wrong")
    await chat.button("Import").click()
    await expect(chat.panel.get_by_role("alert").filter(has_text="Wrong passphrase")).to_be_visible()
    await secret.fill("of the file")
    await chat.button("Import").click()
    await expect(chat.panel.get_by_text(re.compile(r"Imported [\d,]+ items?\.$"))).to_be_visible(timeout=60_000)
    restored = await chat.memory("counts")
    assert {kind: restored[kind] for kind in ("pattern", "session", "trajectory")} == {
        kind: before[kind] for kind in ("pattern", "session", "trajectory")
    }
    await chat.close()
    await chat.ask(text)
    await expect(chat.chip.locator("summary")).to_have_text(re.compile("^Optimizer"))


async def test_a_foreign_file_is_refused_with_a_sentence_and_chats_of_elsewhere_come_in(
    chat: MemoryPage, tmp_path: Path
) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not an export")
    await chat.show("Storage")
    await chat.panel.get_by_label("Exported file").set_input_files(foreign)
    await chat.button("Import").click()
    await expect(chat.panel.get_by_role("alert").filter(has_text="This is not an export of Sonata")).to_be_visible()
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.write(Path(__file__).parents[2] / "chat/exports/chatgpt.json", "conversations.json")
    await chat.panel.get_by_label("Exported file").set_input_files(archive)
    await chat.button("Import").click()
    told = chat.panel.get_by_role("status").filter(has_text="Imported 2 conversations with 7 messages.")
    await expect(told).to_contain_text("6 messages were left out, in whole or in part")
    await expect(chat.page.get_by_role("link", name="Watering plan")).to_be_visible()


DAMAGE = """() => new Promise((resolve, reject) => {
  const opening = indexedDB.open('sonata-memory');
  opening.onsuccess = () => {
    const transaction = opening.result.transaction('rows', 'readwrite');
    const body = new TextEncoder().encode('{"value": 1');
    const times = { created: 1, updated: 1, version: 1 };
    transaction.objectStore('rows').put({ kind: 'policy', id: 'damaged', body, fields: [], ...times });
    transaction.oncomplete = () => { opening.result.close(); resolve(); };
    transaction.onerror = () => reject(transaction.error);
  };
})"""


@pytest.mark.all
async def test_bad_records_are_told_left_out_and_deleted(chat: MemoryPage, tmp_path: Path) -> None:
    """One in an imported file, and one in the browser itself, which is found when the memory is reopened."""
    file = tmp_path / "bad.sonata"

    async def make() -> bytes:
        store = await Store.open(VolatileRows(), crypto=NativeCrypto(), kinds=ANY_BODY)
        good = {"value": 1, "confidence": 1.0, "source": "user", "last_used": 0.0, "observations": 0, "changed": 0.0}
        await store.put_many([Record("policy", "tests.good", good), Record("policy", "tests.bad", {**good, "x": 1})])
        return await export(store)

    file.write_bytes(await make())
    await chat.show("Storage")
    await chat.panel.get_by_label("Exported file").set_input_files(file)
    await chat.button("Import").click()
    said = "Imported 1 item. 1 could not be read and was left out."
    await expect(chat.panel.get_by_text(said)).to_be_visible()
    assert await chat.policies() == ["tests.good"]

    await chat.page.evaluate(DAMAGE)
    await chat.page.reload()
    await chat.wait_for("ready")
    await chat.routed()
    await expect(chat.page.locator("#notices")).to_contain_text("cannot be read, and are left out")
    await chat.show("Storage")
    assert await chat.policies() == ["tests.good"]
    await expect(chat.panel.get_by_text("1 item cannot be read.")).to_be_visible()
    async with chat.page.expect_download():
        await chat.button("Export to a file").click()
    await expect(chat.panel.get_by_text("1 could not be read and was left out.")).to_be_visible()
    await chat.button("Delete unreadable items").click()
    await chat.button("Delete").first.click()
    await expect(chat.panel.get_by_text("1 item cannot be read.")).to_have_count(0)
    assert await chat.policies() == ["tests.good"]
    assert (await chat.memory("info"))["unreadable"] == 0


async def test_policies_and_models_are_listed_and_changed(chat: MemoryPage, tiny_files: SmallSite) -> None:
    await chat.memory("editPolicy", name="tests.share", value=0.5)
    await chat.show("Learning")
    await chat.show_for_developers()
    row = chat.row("tests.share")
    await row.get_by_role("button", name="Edit").click()
    await row.get_by_label("tests.share").fill("0.75")
    await row.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("0.75")
    await row.get_by_role("button", name="Delete").click()
    await row.get_by_role("button", name="Delete").click()
    await expect(row).to_have_count(0)
    assert "tests.share" not in [policy["name"] for policy in await chat.memory("policies")]
    await chat.memory("editPolicy", name="learning.gate.threshold", value=0.0)
    row = chat.row("When a fact answers")
    await expect(row).to_contain_text("a score of 0.00: 50% sure")
    await expect(row).to_contain_text("100% certain")
    await expect(row).to_contain_text("set by you")
    await row.get_by_role("button", name="Reset").click()
    await row.get_by_role("button", name="Reset").click()
    await expect(row).to_have_count(0)

    nbytes, size = await chat.page.evaluate(KEPT_SIZE)
    assert nbytes == len(tiny_files.model)
    await chat.show("Storage")
    model = chat.row(".gguf")
    await expect(model).to_contain_text(size)
    await expect(
        chat.panel.get_by_text(
            re.compile(rf"^Chats and what was learned: [\d.]+ [kM]?B\. Models and adapters: {size}\.")
        )
    ).to_be_visible()
    await model.get_by_role("button", name="Delete").click()
    await model.get_by_role("button", name="Delete").click()
    await expect(model).to_have_count(0)
    assert await chat.page.evaluate("sonata.storedModels()") == []
    await expect(chat.panel.get_by_text(re.compile(r"Models and adapters: 0 B\."))).to_be_visible()


async def test_a_passphrase_locks_every_panel_and_holds_messages_up_until_it_is_typed(chat: MemoryPage) -> None:
    await chat.memory("correct", id="", text="a secret request", agent="planner")
    deleted = await chat.memory("correct", id="", text="a request that something else deletes", agent="planner")
    await chat.page.fill("#message", "a secret draft")
    await chat.page.wait_for_function("() => sessionStorage.getItem('sonata.draft')")
    await chat.show("Storage")
    await chat.button("Set a passphrase").click()
    for label in ("New passphrase", "Repeat passphrase"):
        await chat.panel.get_by_label(label).fill("o")
    await chat.button("Save").click()
    await expect(chat.panel.get_by_role("alert").filter(has_text="Use at least 8 characters")).to_be_visible()
    await chat.panel.get_by_label("New passphrase").fill("open sesame")
    await chat.panel.get_by_label("Repeat passphrase").fill("open sesam")
    await chat.button("Save").click()
    await expect(chat.panel.get_by_role("alert").filter(has_text="passphrases differ")).to_be_visible()
    await chat.panel.get_by_label("Repeat passphrase").fill("open sesame")
    await chat.button("Save").click()
    await expect(chat.panel.get_by_text("The memory is now encrypted.")).to_be_visible(timeout=60_000)
    await chat.page.wait_for_function("() => !('sonata.draft' in sessionStorage)")
    await expect(chat.page.locator("#message")).to_have_value("a secret draft")
    await chat.page.fill("#message", "")  # or the passphrase's field takes the focus

    await chat.button("Lock now").click()
    field = chat.page.locator("#memory-lock").get_by_label("Passphrase")
    await expect(field).to_be_focused()
    await chat.wait_for("ready")
    await chat.routed()
    await chat.send("a message that is sent while the memory is locked")
    assert "The memory is locked." in await chat.problem()
    assert await chat.state() == "ready", "it is not answered"
    await chat.way_out("Unlock").click()
    await expect(field).to_be_focused()
    passphrase = chat.view.get_by_label("Passphrase", exact=True)
    await expect(chat.view.get_by_role("heading", name="Unlock the memory")).to_be_visible()
    await chat.show("Routing")
    await passphrase.fill("wrong")
    await chat.page.keyboard.press("Enter")
    await expect(chat.view.get_by_role("alert").filter(has_text="Wrong passphrase")).to_be_visible()
    await expect(passphrase).to_have_value("wrong")
    await expect(chat.panel).to_have_count(0)
    await chat.page.evaluate(DELETE_A_PATTERN, deleted["pattern"])
    await passphrase.fill("open sesame")
    await chat.page.keyboard.press("Enter")
    await expect(chat.row("a secret request")).to_be_visible()
    await expect(field).to_be_hidden()
    await chat.wait_for_words()
    await expect(chat.page.locator("#chat-title")).to_contain_text("while the memory is locked")
    assert await chat.page.title() == "Sonata"  # because the browser keeps it in its history

    await chat.show("Storage")
    await expect(chat.panel).to_contain_text(
        "still sees how many items there are of each kind, their ids, times and sizes"
    )
    warned = chat.panel.get_by_text("Something other than Sonata changed the memory: 1 pattern is missing.")
    await expect(warned).to_be_visible()
    await chat.button("Do not warn again").click()
    await expect(warned).to_be_hidden()
    assert (await chat.memory("info"))["suspicion"] is None
    await chat.button("Remove").click()
    await chat.panel.get_by_label("Current passphrase").fill("open sesame")
    await chat.button("Remove").click()
    await expect(chat.panel.get_by_text("is no longer encrypted")).to_be_visible(timeout=60_000)
    assert not (await chat.memory("info"))["encrypted"]


@pytest.mark.all  # test_a_passphrase_locks_every_panel_and_holds_messages_up_until_it_is_typed has one, too
async def test_a_memory_whose_passphrase_is_lost_can_be_deleted(chat: MemoryPage) -> None:
    await chat.memory("correct", id="", text="nobody can read this any more", agent="planner")
    await chat.memory("setPassphrase", passphrase="lost for ever")
    await chat.page.reload()
    await chat.wait_for("ready")
    await chat.routed()
    await chat.show("Storage")
    await expect(chat.view.get_by_role("heading", name="Unlock the memory")).to_be_visible()
    await expect(chat.button("Export to a file")).to_be_hidden()
    await chat.button("Delete everything…").click()
    question = chat.page.get_by_role("dialog", name="Delete everything?")
    await expect(question).to_contain_text("and its passphrase")
    await question.get_by_role("button", name="Delete everything").click()
    await expect(chat.button("Set a passphrase")).to_be_visible()
    info = await chat.memory("info")
    assert (info["state"], info["encrypted"]) == ("ready", False)
    assert (await chat.memory("counts"))["pattern"] == 0
