"""Adapters on the page: added, chosen, kept in the browser's files, saved and deleted."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from app.cli.adapters import base_at
from app.models.adapter_import import BaseModel
from py_core.adapters.files import export_peft, read_details, write_adapter
from tests.page.chat_page import ChatPage, choose_files
from tests.page.small_site import MODEL, SmallSite
from tests.tiny.adapters import drawn, write_gguf_adapter
from tests.tiny.llama import TinyLlama

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

STORE = "'/storage/adapter_store.js'"
STORED = f"import({STORE}).then(({{ storedAdapters }}) => storedAdapters())"
DROP = """([text, name]) => {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  const event = new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true });
  document.querySelector('#log').dispatchEvent(event);
}"""
HOLD_LOCK = """() => new Promise((held) => {
  navigator.locks.request('sonata-adapters', () => new Promise((resolve) => {
    window.releaseLock = () => { delete window.releaseLock; resolve(); };
    held();
  }));
})"""
FOLDER = """const root = await navigator.storage.getDirectory();
const folder = await root.getDirectoryHandle('adapters', { create: true });
const write = async (folder, name, text) => {
  const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
  await file.write(text);
  await file.close();
};
const namesOf = async (folder) => {
  const names = [];
  for await (const name of folder.keys()) names.push(name);
  return names;
};"""


@pytest.fixture(scope="module")
def base(tiny_files: SmallSite) -> BaseModel:
    return base_at(tiny_files.folder / MODEL)


@pytest.fixture(scope="module")
def pirate(base: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_file(tmp_path_factory.mktemp("own") / "x.safetensors", base, 1, "Pirate talk")


@pytest.fixture(scope="module")
def cut(pirate: Path) -> Path:
    """The same, truncated."""
    path = pirate.with_name("cut.safetensors")
    path.write_bytes(pirate.read_bytes()[:-9])
    return path


@pytest.fixture(scope="module")
def peft(base: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The two files that PEFT writes."""
    folder = tmp_path_factory.mktemp("peft")
    for name, data in export_peft(drawn(base.graph, 2), base.config, base.graph).items():
        (folder / name).write_bytes(data)
    return sorted(folder.iterdir())


@pytest_asyncio.fixture(loop_scope="session")
async def chat(plain_chat: ChatPage) -> ChatPage:
    return plain_chat


def own_file(path: Path, base: BaseModel, seed: int, name: str, rank: int = 4) -> Path:
    """A file in Sonata's own format, for this model."""
    adapter = replace(drawn(base.graph, seed, rank), name=name, base_sha256=base.sha256)
    path.write_bytes(write_adapter(adapter, base.config, base.graph))
    return path


def row(chat: ChatPage, name: str) -> Locator:
    return chat.page.locator(".models-adapters").get_by_role("listitem").filter(has_text=name)


def model_line(chat: ChatPage) -> Locator:
    return chat.page.locator(".status-line")


async def open_list(chat: ChatPage) -> None:
    if not await chat.page.locator("#models").is_visible():
        await chat.open_models()


async def pick(chat: ChatPage, *paths: Path) -> None:
    await open_list(chat)
    add = chat.page.get_by_role("button", name="Add an adapter")
    await choose_files(chat.page, add.click, paths)


async def press(chat: ChatPage, name: str) -> None:
    await chat.page.locator("#models").get_by_role("button", name=name, exact=True).click()


async def refused(chat: ChatPage, *words: str) -> None:
    """A sentence says why, and nothing was kept or changed."""
    problem = chat.page.locator("#models").get_by_role("alert")
    for word in words:
        await expect(problem).to_contain_text(word)
    assert await chat.page.evaluate(STORED) == []
    await expect(model_line(chat)).not_to_contain_text(" with ")


async def other_tab(chat: ChatPage) -> Page:
    """An empty tab of the site, which can use the page's storage modules."""
    page = await chat.page.context.new_page()
    await page.goto(f"{chat.site}/THIRD_PARTY.txt")
    return page


async def answer(chat: ChatPage) -> str:
    """The model's answer to Hello in a new chat."""
    await chat.page.evaluate("for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close()")
    await chat.page.click("#new-chat")
    return await chat.ask("Hello")


async def test_an_adapter_is_added_answers_survives_a_reload_and_is_deleted(
    chat: ChatPage, pirate: Path, peft: list[Path], screenshots: Path
) -> None:
    plain = await answer(chat)
    chat.requests.clear()
    await pick(chat, pirate)
    await expect(row(chat, "pirate-talk")).to_contain_text("In use")
    await expect(model_line(chat)).to_contain_text("Tiny with pirate-talk on the CPU")
    await chat.close_panel()
    first = await chat.ask("And now?")
    await expect(chat.page.locator(".question")).to_have_count(2)  # the conversation continues
    changed = await answer(chat)
    assert changed != plain
    await pick(chat, *peft)
    await expect(row(chat, "In use")).to_contain_text("adapter")
    for width, scheme in ((1280, "dark"), (390, "light")):
        await chat.page.set_viewport_size({"width": width, "height": 800})
        await chat.page.emulate_media(color_scheme=scheme)
        await chat.page.screenshot(path=screenshots / f"adapters-{width}-{scheme}.png")
        box = await row(chat, "pirate-talk").get_by_role("button", name="Delete").bounding_box() or {}
        assert box["x"] + box["width"] <= width
    await chat.page.set_viewport_size({"width": 1280, "height": 800})
    assert await answer(chat) not in (plain, changed, first)
    assert [url for url in chat.requests if not url.startswith(chat.site)] == []

    await open_list(chat)
    await press(chat, "Use pirate-talk")
    await expect(model_line(chat)).to_contain_text("with pirate-talk")
    await chat.page.reload()
    await chat.wait_for("ready")
    assert await answer(chat) == changed
    await open_list(chat)
    async with chat.page.expect_download() as download:
        await press(chat, "Save pirate-talk")
    saved = read_details(await asyncio.to_thread((await (await download.value).path()).read_bytes))
    assert (saved.name, saved.rank) == ("pirate-talk", 4)
    await press(chat, "Use No adapter")
    await expect(row(chat, "No adapter")).to_contain_text("In use")
    assert await answer(chat) == plain
    await open_list(chat)
    await press(chat, "Use pirate-talk")
    await expect(row(chat, "pirate-talk")).to_contain_text("In use")  # the list is drawn again then
    await row(chat, "pirate-talk").get_by_role("button", name="Delete").click()
    await row(chat, "pirate-talk").get_by_role("group").get_by_role("button", name="Delete").click()
    await expect(row(chat, "pirate-talk")).to_have_count(0)
    await expect(row(chat, "No adapter")).to_contain_text("In use")
    assert [facts["name"] for facts in await chat.page.evaluate(STORED)] == ["adapter"]
    assert await answer(chat) == plain


async def test_an_adapter_of_llama_cpp_is_told_from_a_model_when_it_is_dropped_on_the_page(
    chat: ChatPage, base: BaseModel, tmp_path: Path
) -> None:
    data = write_gguf_adapter(drawn(base.graph, 3), tmp_path / "Sailor.gguf").read_bytes()
    await chat.page.evaluate(DROP, [base64.b64encode(data).decode(), "Sailor.gguf"])
    await expect(row(chat, "sailor")).to_contain_text("In use")
    await expect(model_line(chat)).to_contain_text("with sailor")
    # The same file is kept once, and another file of this name gets another name.
    await chat.page.evaluate(DROP, [base64.b64encode(data).decode(), "Sailor.gguf"])
    other = write_gguf_adapter(drawn(base.graph, 4), tmp_path / "Sailor.gguf").read_bytes()
    await chat.page.evaluate(DROP, [base64.b64encode(other).decode(), "Sailor.gguf"])
    await expect(model_line(chat)).to_contain_text("with sailor-2")
    # An adapter that is too large to be used is made smaller, and the list says so.
    large = write_gguf_adapter(drawn(base.graph, 5, rank=24), tmp_path / "Large.gguf").read_bytes()
    await chat.page.evaluate(HOLD_LOCK)  # as another tab that adds one, too
    await chat.page.evaluate(DROP, [base64.b64encode(large).decode(), "Large.gguf"])
    adding = chat.page.get_by_text("Adding the adapter")
    await expect(adding).to_be_visible()
    await chat.page.evaluate("releaseLock()")
    await expect(row(chat, "large")).to_contain_text("made smaller, which changed ")
    await expect(adding).to_be_hidden()


async def test_what_cannot_be_used_is_refused_in_a_sentence(
    chat: ChatPage, cut: Path, peft: list[Path], base: BaseModel, tmp_path: Path
) -> None:
    before = await answer(chat)
    await pick(chat, cut)
    await refused(chat, "The safetensors file is", "Download it again")
    await pick(chat, peft[1])
    await refused(chat, "adapter_config.json")
    await pick(chat, peft[0])
    await refused(chat, "Choose the files of one adapter")
    other = await asyncio.to_thread(lambda: base_at(TinyLlama(ffn=128).write(tmp_path / "other.gguf")))
    await pick(chat, own_file(tmp_path / "other.safetensors", other, 1, "other"))
    await refused(chat, "it was made for another model")
    same_shape = replace(base, sha256="ab" * 32)
    await pick(chat, own_file(tmp_path / "same.safetensors", same_shape, 1, "same"))
    await refused(chat, "The adapter 'same' was made for another model: for")
    assert await answer(chat) == before


async def test_what_another_tab_deletes_answers_no_more_here(chat: ChatPage, pirate: Path) -> None:
    plain = await answer(chat)
    await pick(chat, pirate)
    await expect(model_line(chat)).to_contain_text("with pirate-talk")
    (facts,) = await chat.page.evaluate(STORED)
    other = await other_tab(chat)
    await other.evaluate(f"(sum) => import({STORE}).then((store) => store.removeAdapter(sum))", facts["sha256"])
    await expect(model_line(chat)).not_to_contain_text(" with ")
    await expect(chat.page.locator("#notices")).to_contain_text("is no longer in this browser")
    await expect(row(chat, "pirate-talk")).to_have_count(0)
    assert await answer(chat) == plain
    await chat.page.wait_for_function("() => localStorage.getItem('sonata.adapters') === '{}'")
    await other.close()


async def test_a_full_disk_keeps_what_was_there_and_says_so(
    chat: ChatPage, pirate: Path, base: BaseModel, tmp_path: Path
) -> None:
    await pick(chat, pirate)
    await expect(model_line(chat)).to_contain_text("with pirate-talk")
    kept = await chat.page.evaluate(STORED)
    session = await chat.page.context.new_cdp_session(chat.page)
    await session.send("Storage.overrideQuotaForOrigin", {"origin": chat.site, "quotaSize": 1_000_000})
    await pick(chat, own_file(tmp_path / "large.safetensors", base, 5, "large", rank=16))
    problem = chat.page.locator("#models").get_by_role("alert")
    await expect(problem).to_contain_text("There is no room in this browser to keep the adapter large (0.7 MB)")
    await session.detach()  # there is room again
    assert await chat.page.evaluate(STORED) == kept
    names = f"async () => {{ {FOLDER} return namesOf(folder); }}"
    assert await chat.page.evaluate(names) == [kept[0]["sha256"]]
    await expect(model_line(chat)).to_contain_text("with pirate-talk")


async def test_what_a_closed_tab_left_is_cleaned_up_and_what_is_damaged_can_still_be_saved_and_deleted(
    chat: ChatPage, pirate: Path, peft: list[Path]
) -> None:
    await pick(chat, pirate)
    await expect(model_line(chat)).to_contain_text("with pirate-talk")
    (facts,) = await chat.page.evaluate(STORED)
    # A tab was closed while it wrote; a disk damaged a file, and then its facts.
    damage = f"""async (sum) => {{ {FOLDER}
      await write(await folder.getDirectoryHandle('cd'.repeat(32), {{ create: true }}), 'half.safetensors', 'half');
      await write(await folder.getDirectoryHandle(sum), 'pirate-talk.safetensors', 'other bytes');
    }}"""
    await chat.page.evaluate(damage, facts["sha256"])
    assert await chat.page.evaluate(STORED) == [facts]
    await press(chat, "Save pirate-talk")
    problem = chat.page.locator("#models").get_by_role("alert")
    await expect(problem).to_contain_text("pirate-talk in this browser is damaged. Delete it, then add its file again.")
    await pick(chat, *peft)
    await expect(model_line(chat)).to_contain_text("with adapter")
    assert len(await chat.page.evaluate(f"async () => {{ {FOLDER} return namesOf(folder); }}")) == 2
    await pick(chat, pirate)
    await expect(model_line(chat)).to_contain_text("with pirate-talk")
    async with chat.page.expect_download():
        await press(chat, "Save pirate-talk")
    forget = f"""async (sum) => {{ {FOLDER}
      await write(await folder.getDirectoryHandle(sum), 'adapter.json', '{{"sha256":');
    }}"""
    for stored in await chat.page.evaluate(STORED):
        await chat.page.evaluate(forget, stored["sha256"])
    await chat.close_panel()
    await open_list(chat)
    await expect(row(chat, "pirate-talk")).to_contain_text("for another model")
    async with chat.page.expect_download():
        await press(chat, "Save adapter")
    await row(chat, "pirate-talk").get_by_role("button", name="Delete").click()
    await row(chat, "pirate-talk").get_by_role("group").get_by_role("button", name="Delete").click()
    await expect(row(chat, "pirate-talk")).to_have_count(0)


async def test_delete_everything_counts_adapters_and_deletes_them(chat: ChatPage, pirate: Path) -> None:
    await pick(chat, pirate)
    await expect(model_line(chat)).to_contain_text("with pirate-talk")
    await chat.close_panel()
    await chat.open_part("Storage")
    await chat.page.get_by_role("button", name="Delete everything…").click()
    question = chat.page.get_by_role("dialog", name="Delete everything?")
    await expect(question).to_contain_text("1 adapter and your changes to agents")
    await expect(question).to_contain_text("save the adapters in Settings, Model")
    await question.get_by_role("button", name="Delete everything").click()
    await expect(model_line(chat)).not_to_contain_text(" with ")
    await chat.until(f"{STORED}.then((all) => !all.length)")
