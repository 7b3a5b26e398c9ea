"""The models of Settings: models from a hub on this machine, from the file picker, dropped on the page; one chat."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.formats.split_gguf import split_gguf
from tests.models.large_model import write_large
from tests.models.local_hub import LocalHub, running_hub
from tests.page.chat_page import ChatPage, choose_files, fresh_tab
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite
from tests.page.views.accessibility import found_by_axe
from tests.tiny.llama import TinyLlama

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

QUERY = "?backend=wasm&workers=1&max_tokens=8&routing=off"
REPOSITORY, FILE = "someone/Other-GGUF", "Other-Q4_K_M.gguf"
PART = "Parts-Q4_K_M-00001-of-00003.gguf"
ENTRY = {"title": "Other", "repository": REPOSITORY, "file": FILE, "licence": "MIT", "good_at": "Noise"}
TOKENS = """() => sonata.engine.developer
  .generate({ prompt: 'Once upon a time', raw: true, maxTokens: 20 }).then((made) => made.tokens)"""
EMPTY_MODEL = "sonata.storedModels().then((models) => models.some(({ bytes }) => !bytes))"
DROP = """async ([text, name]) => {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  const event = new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true });
  document.querySelector('#log').dispatchEvent(event);
  return event.defaultPrevented;
}"""
UNTIL_KEPT = """async (nbytes) => {
  const enough = (models) => models.some(({ bytes }) => bytes >= nbytes);
  while (!enough(await sonata.storedModels())) await new Promise((resolve) => setTimeout(resolve, 20));
}"""
CLOSE_LISTS = "for (const part of document.querySelectorAll('#models details')) part.open = false"
FORGET = """async () => {
  localStorage.clear();
  for (const { sha256 } of await sonata.storedModels()) await sonata.removeModel(sha256);
}"""


@pytest.fixture(scope="module")
def other_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model than the site's, of some megabytes."""
    folder = tmp_path_factory.mktemp("other")
    return TinyLlama(hidden=256, ffn=1024, layers=5, seed=7, tied=False).write(folder / "My Model.gguf")


@pytest.fixture(scope="module")
def other(other_path: Path) -> bytes:
    return other_path.read_bytes()


@pytest.fixture(scope="module")
def part_paths(other_path: Path) -> list[Path]:
    """The same model in three files."""
    return split_gguf(other_path, other_path.parent, 3, "Parts-Q4_K_M")


@pytest.fixture(scope="module")
def running() -> Iterator[LocalHub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def hub(running: LocalHub, other: bytes, part_paths: list[Path]) -> LocalHub:
    """The hub, without errors and without recorded requests."""
    files = {FILE: other} | {path.name: path.read_bytes() for path in part_paths}
    fresh = LocalHub(files={REPOSITORY: files}, url=running.url, files_url=running.files_url)
    vars(running).update(vars(fresh))
    return running


@pytest.fixture(scope="module")
def address(dist: Path, running: LocalHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site whose list has a model of the hub, the same in three files, and one that the hub lacks."""
    files = SmallSite(dist, tmp_path_factory.mktemp("models") / "site")
    parts = ENTRY | {"name": "parts", "title": "In three", "file": PART}
    gone = ENTRY | {"name": "gone", "title": "Gone", "file": "Gone.gguf"}
    catalog = {"hub": running.url, "hosts": running.hosts, "models": [ENTRY | {"name": "other"}, parts, gone]}
    files.write("model_catalog.json", json.dumps(catalog))
    with PlainServer(files.folder) as server:
        server.guards = True
        yield server.url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def real_page(browser: Browser, address: str) -> AsyncIterator[ChatPage]:
    async with fresh_tab(browser, address) as chat:
        await chat.open_ready(QUERY)
        yield chat


@pytest_asyncio.fixture(loop_scope="session")
async def chat(real_page: ChatPage, hub: LocalHub) -> ChatPage:
    """The page with the site's model, ready, and no other stored. The tests here share it."""
    chat = real_page
    await chat.begin(QUERY)
    await chat.page.evaluate(CLOSE_LISTS)
    if "&model=" in chat.page.url or await chat.page.evaluate("localStorage.getItem('sonata.model')"):
        await chat.page.evaluate(FORGET)
        await chat.open_ready(QUERY)
    return chat


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stand_in_page(browser: Browser, address: str) -> AsyncIterator[ChatPage]:
    async with fresh_tab(browser, address) as chat:
        await chat.use_stand_in()
        await chat.open_ready()
        yield chat


@pytest_asyncio.fixture(loop_scope="session")
async def page_alone(stand_in_page: ChatPage, hub: LocalHub) -> ChatPage:
    """The page with the stand-in worker, which runs any model: for the list, and for the models that the browser
    keeps."""
    await stand_in_page.page.evaluate(FORGET)
    await stand_in_page.page.set_viewport_size({"width": 1280, "height": 800})
    await stand_in_page.open_ready()
    return stand_in_page


def models(chat: ChatPage) -> Locator:
    return chat.page.locator("#models")


def row(chat: ChatPage, title: str) -> Locator:
    return models(chat).get_by_role("listitem").filter(has_text=title)


async def open_list(chat: ChatPage) -> None:
    await chat.open_models()
    await expect(models(chat)).to_contain_text("used by this page")  # the last one that appears by itself
    await models(chat).get_by_text("More models, from huggingface.co").click()
    await expect(row(chat, "Gone")).to_be_visible()


async def press(chat: ChatPage, name: str) -> None:
    await models(chat).get_by_role("button", name=name, exact=True).click()


async def pick(chat: ChatPage, paths: list[Path]) -> None:
    """Open files by the picker."""
    if not await models(chat).is_visible():
        await chat.open_models()
    await choose_files(chat.page, lambda: press(chat, "Open a file"), paths)


async def until_ready_again(chat: ChatPage) -> None:
    await chat.wait_for("loading")
    await chat.wait_for("ready", 60)


async def problem(chat: ChatPage) -> str:
    line = models(chat).get_by_role("alert")
    await expect(line).to_be_visible(timeout=30_000)
    return await line.inner_text()


async def test_a_model_of_the_list_is_stopped_continued_used_and_deleted_in_one_chat(
    chat: ChatPage, hub: LocalHub, other: bytes, screenshots: Path
) -> None:
    size = len(other)
    first = await chat.page.evaluate(TOKENS)
    await chat.ask("Hello there")
    assert hub.listings == []  # nothing is asked before the user wants the list
    await chat.open_models()
    await expect(row(chat, "The model of this page")).to_contain_text(re.compile("Tiny.*In use"))
    assert hub.listings == []
    await models(chat).get_by_text("More models, from huggingface.co").click()
    await expect(row(chat, "Gone")).to_contain_text("gone from the hub")
    await expect(row(chat, "Other")).to_contain_text(f"{size / 1e6:.1f} MB · MIT · Noise")

    hub.gate, hub.gate_at = threading.Event(), 2_000_000
    await press(chat, "Download Other")
    words = models(chat).locator(".models-progress-words")
    await expect(words).to_contain_text(f"MB of {size / 1e6:.1f} MB, ")
    await expect(words).to_contain_text("left")
    await chat.page.screenshot(path=screenshots / "models-download.png")
    await press(chat, "Stop")
    await expect(row(chat, "Other").last).to_contain_text("Continue")
    await expect(row(chat, "Other").first).to_contain_text("not complete")
    hub.gate.set()
    hub.gate = None
    await press(chat, "Continue Other")
    await press(chat, "Use Other")
    assert hub.asked[-1][1] not in (None, "bytes=0-")

    await until_ready_again(chat)
    await expect(chat.page.locator(".status-line")).to_contain_text("Other")
    second = await chat.page.evaluate(TOKENS)
    assert second != first
    await expect(chat.page.locator(".question .body")).to_have_text("Hello there")
    assert await chat.page.locator(".note").count() == 0  # the model has read the conversation
    await chat.ask("And now?")
    assert await chat.page.evaluate("sonata.lastAnswer.promptTokens") > 20
    await expect(chat.page.locator(".question")).to_have_count(2)

    await chat.open_models()
    await press(chat, "Use Tiny")
    await until_ready_again(chat)
    assert await chat.page.evaluate(TOKENS) == first
    await row(chat, "Other").get_by_role("button", name="Delete").click()
    await row(chat, "Other").get_by_role("group").get_by_role("button", name="Delete").click()
    await expect(row(chat, "Other")).to_have_count(1)
    await expect(row(chat, "Other")).to_contain_text("Download")
    assert [model["name"] for model in await chat.page.evaluate("sonata.storedModels()")] == ["tiny.gguf"]


@pytest.mark.all
async def test_a_model_in_several_files_is_one_model(chat: ChatPage, hub: LocalHub, part_paths: list[Path]) -> None:
    second, third = (path.name for path in part_paths[1:])
    data = part_paths[1].read_bytes()
    size = sum(path.stat().st_size for path in part_paths)
    hub.listed[second] = {"lfs": {"oid": hashlib.sha256(data).hexdigest()}}
    hub.files[REPOSITORY][second] = data[:-1] + bytes([data[-1] ^ 1])  # damaged on the hub
    await open_list(chat)
    await expect(row(chat, "In three")).to_contain_text(f"{size / 1e6:.1f} MB")
    await press(chat, "Download In three")
    assert f"{second} is not the file that was listed: its checksum is wrong" in await problem(chat)
    await expect(row(chat, "In three").first).to_contain_text(f" of {size / 1e6:.1f} MB, not complete")
    kept = [model["bytes"] for model in await chat.page.evaluate("sonata.storedModels()") if not model["complete"]]
    assert kept == [part_paths[0].stat().st_size]  # the correct part

    hub.files[REPOSITORY][second] = data
    hub.asked.clear()
    hub.cuts = [len(data) // 2]
    await press(chat, "Continue In three")
    await press(chat, "Use In three")
    await until_ready_again(chat)
    assert [name for name, _ in hub.asked] == [second, second, third]
    assert hub.asked[0][1] is None
    in_parts = await chat.page.evaluate(TOKENS)

    await pick(chat, [part_paths[2], part_paths[0]])
    assert f"Part 2 of 3 of this model is missing: {second}." in await problem(chat)
    await pick(chat, [part_paths[2], part_paths[0], part_paths[1]])
    await until_ready_again(chat)
    stored = await chat.page.evaluate("sonata.storedModels()")
    assert sorted(model["bytes"] for model in stored)[-1] == size
    assert len(stored) == 2  # the site's, and this one, which was stored already

    await chat.open_models()  # the list is still open
    await models(chat).get_by_label("Another file there").fill(f"{hub.url}/{REPOSITORY}/resolve/main/{FILE}")
    await press(chat, "Download")
    await press(chat, f"Use {FILE[:-5]}")
    await until_ready_again(chat)
    assert await chat.page.evaluate(TOKENS) == in_parts


@pytest.mark.all
async def test_a_redirect_to_a_host_that_is_not_listed_is_refused_until_the_user_allows_it(
    chat: ChatPage, hub: LocalHub
) -> None:
    with running_hub() as stranger:
        stranger.files = hub.files
        hub.redirect_to = stranger.files_url
        await open_list(chat)
        await press(chat, "Download Other")
        assert "which is not on the list of hosts" in await problem(chat)
        assert not await chat.page.evaluate(EMPTY_MODEL)

        # The same for a model in the page's address, until the user allows the host.
        first = await chat.page.evaluate(TOKENS)
        hub.asked.clear()
        stranger.asked.clear()
        # Any part of a model in several files identifies all of it.
        await chat.open(f"{QUERY}&model={hub.url}/{REPOSITORY}/resolve/main/{PART.replace('00001', '00002')}")
        await expect(chat.page.get_by_role("dialog")).to_contain_text(hub.url.removeprefix("http://"))
        assert hub.asked == []
        await chat.agree_to_model()
        host = stranger.files_url
        refused = f"redirects to {host[7:]}, which is not on the list of hosts that models may come from."
        assert f"{refused} If you trust it, allow it in Settings, Model." in await chat.problem()
        await chat.open_models()
        await models(chat).get_by_text("Hosts that models may come from").click()
        await expect(models(chat).get_by_text(hub.url)).to_be_visible()
        await models(chat).get_by_label("Another host").fill("no host")
        await press(chat, "Allow")
        assert '"no host" is not a host that models can come from' in await problem(chat)
        await models(chat).get_by_label("Another host").fill(host)
        await press(chat, "Allow")
        await expect(models(chat).get_by_role("alert")).to_be_hidden()
        await chat.close_panel()
        await chat.load_again()
        assert await chat.page.evaluate(TOKENS) != first
        names = [PART.replace("00001", f"0000{number}") for number in (1, 2, 3)]
        assert sorted({name for name, _ in stranger.asked}) == names
        await chat.open_models()
        await press(chat, f"Remove {host}")
        await expect(models(chat).get_by_text(host)).to_be_hidden()
        assert await chat.page.evaluate("localStorage.getItem('sonata.hosts')") == "[]"


async def test_files_that_are_no_models_are_refused_and_the_model_stays(
    chat: ChatPage, other: bytes, tmp_path: Path
) -> None:
    first = await chat.page.evaluate(TOKENS)
    await chat.page.evaluate(DROP, [base64.b64encode(b"%PDF-1.7 some text").decode(), "letter.gguf"])
    assert "etter.gguf is not a GGUF file (it does not begin with GGUF)" in await problem(chat)
    # The others are refused by their headers, before they are copied: a model that cannot fit, and a damaged one.
    await pick(chat, [write_large(tmp_path / "large.gguf")])
    said = await problem(chat)
    assert re.match(r"Large needs \d\.\d\d GB for 8192 tokens of context", said)
    assert (
        "The CPU kernels can use at most 4.29 GB of memory, however much the machine has. A Q5_K_M file of this" in said
    )
    await chat.close_panel()
    damaged = bytearray(other)
    at = damaged.index(b"llama.block_count") + len(b"llama.block_count") + 4
    damaged[at] = 77  # missing blocks
    await chat.page.evaluate(DROP, [base64.b64encode(damaged).decode(), "damaged.gguf"])
    await expect(models(chat).get_by_role("alert")).to_contain_text("not a complete model", timeout=30_000)
    assert [model["name"] for model in await chat.page.evaluate("sonata.storedModels()")] == ["tiny.gguf"]
    assert await chat.page.evaluate(TOKENS) == first


@pytest.mark.all
async def test_a_dropped_file_is_read_as_it_is_where_there_is_no_room_and_one_that_fails_has_a_way_back(
    chat: ChatPage, other: bytes
) -> None:
    first = await chat.page.evaluate(TOKENS)
    await chat.ask("Hello there")
    session = await chat.page.context.new_cdp_session(chat.page)
    await session.send("Storage.overrideQuotaForOrigin", {"origin": chat.site, "quotaSize": 1_000_000})
    assert await chat.page.evaluate(DROP, [base64.b64encode(other).decode(), "dropped.gguf"])
    await expect(chat.page.locator(".status-line")).to_contain_text("Dropped", timeout=90_000)
    await chat.wait_for("ready", 60)
    assert await chat.page.evaluate(TOKENS) != first
    assert await chat.page.inner_text(".question .body") == "Hello there"
    assert "dropped.gguf" not in [model["name"] for model in await chat.page.evaluate("sonata.storedModels()")]
    await session.detach()  # there is room again

    strange = other.replace(b"\x04\0\0\0\0\0\0\0gpt2", b"\x04\0\0\0\0\0\0\0gptX")
    await chat.page.evaluate(DROP, [base64.b64encode(strange).decode(), "strange.gguf"])
    assert "gptX" in await chat.problem()
    assert "Strange.gguf" in [model["name"] for model in await chat.page.evaluate("sonata.storedModels()")]
    await chat.way_out("Use the model of this page").click()
    await until_ready_again(chat)
    assert await chat.page.evaluate(TOKENS) == first


# --- the list alone ---


async def test_a_download_survives_broken_connections_and_a_reload(
    page_alone: ChatPage, hub: LocalHub, other: bytes
) -> None:
    chat = page_alone
    hub.cuts = [1_000_000, 500_000]
    hub.gate, hub.gate_at = threading.Event(), 300_000
    await open_list(chat)
    await press(chat, "Download Other")
    await chat.page.evaluate(UNTIL_KEPT, 300_000)
    await chat.page.reload()
    hub.gate.set()
    hub.gate = None
    await chat.wait_for("ready")
    await open_list(chat)
    await press(chat, "Continue Other")
    await expect(row(chat, "Other").get_by_role("button", name="Use Other")).to_be_visible(timeout=60_000)
    kept = {"sha256": hashlib.sha256(other).hexdigest(), "name": "other.gguf", "bytes": len(other), "complete": True}
    (stored,) = await chat.page.evaluate("sonata.storedModels()")
    assert stored | {"weights": 0} == kept | {"weights": 0}
    starts = [int(asked[6:-1]) if asked else 0 for _, asked in hub.asked]
    assert starts[0] == 0
    assert len(starts) >= 3
    assert min(starts[1:]) >= 300_000


async def test_a_host_that_is_not_listed_is_refused_until_the_user_allows_it(
    page_alone: ChatPage, hub: LocalHub
) -> None:
    chat = page_alone
    with running_hub() as stranger:
        stranger.files = hub.files
        hub.redirect_to = host = stranger.files_url
        await open_list(chat)
        await press(chat, "Download Other")
        assert f"redirects to {host[7:]}, which is not on the list of hosts" in await problem(chat)
        stranger.asked.clear()
        assert not await chat.page.evaluate(EMPTY_MODEL)
        await models(chat).get_by_text("Hosts that models may come from", exact=True).click()
        await models(chat).get_by_label("Another host").fill(host)
        await press(chat, "Allow")
        await press(chat, "Download Other")
        await expect(row(chat, "Other").get_by_role("button", name="Use Other")).to_be_visible(timeout=60_000)
        assert {name for name, _ in stranger.asked} == {FILE}
        await press(chat, f"Remove {host}")
        await expect(models(chat).get_by_text(host)).to_be_hidden()
        assert await chat.page.evaluate("localStorage.getItem('sonata.hosts')") == "[]"


async def test_what_the_hub_did_not_list_is_thrown_away(page_alone: ChatPage, hub: LocalHub) -> None:
    hub.listed[FILE] = {"lfs": {"oid": "ab" * 32}}
    await open_list(page_alone)
    await press(page_alone, "Download Other")
    assert "checksum is wrong" in await problem(page_alone)
    assert await page_alone.page.evaluate("sonata.storedModels()") == []


async def test_a_hub_that_cannot_be_reached_is_a_sentence_and_no_list(page_alone: ChatPage, hub: LocalHub) -> None:
    nobody = {"hub": "http://localhost:9", "hosts": ["localhost:9"], "models": [ENTRY | {"name": "other"}]}
    await page_alone.page.route("**/model_catalog.json", lambda route: route.fulfill(json=nobody))
    try:
        await page_alone.open_models()
        await models(page_alone).get_by_text("More models, from huggingface.co").click()
        await expect(models(page_alone)).to_contain_text("localhost:9 cannot be reached, so no sizes are known")
        await expect(models(page_alone).get_by_text("size unknown")).to_be_hidden()
    finally:
        await page_alone.page.unroute("**/model_catalog.json")


async def test_a_file_is_opened_by_the_picker_and_kept_until_it_is_deleted(
    page_alone: ChatPage, other_path: Path, hub: LocalHub
) -> None:
    chat = page_alone
    await pick(chat, [other_path])
    await expect(chat.page.locator(".status-line")).to_contain_text("My Model")
    await chat.wait_for("ready")
    await chat.page.reload()
    await chat.wait_for("ready")
    await expect(chat.page.locator(".status-line")).to_contain_text("My Model")
    await chat.open_models()
    await expect(row(chat, "My Model")).to_contain_text("In use")
    await expect(models(chat).locator(".models-room")).to_contain_text("left")
    assert hub.listings == []
    choices, menu = chat.page.locator("#model-choices"), chat.page.locator("#model-menu")
    for running, other in (("My Model", "Tiny"), ("Tiny", "My Model")):
        await chat.open_model_menu()
        await expect(choices.locator("[aria-current]")).to_contain_text(running)
        await choices.get_by_role("button", name=other).click()
        await expect(menu).to_be_hidden()
        await expect(chat.page.locator(".status-line")).to_contain_text(other)

    assert await chat.page.evaluate("sonata.removeModel(localStorage.getItem('sonata.model'))")  # as in another tab
    await chat.page.reload()
    await chat.wait_for("ready")
    await expect(chat.page.locator("#notices")).to_contain_text("no longer in this browser")
    await expect(chat.page.locator(".status-line")).to_contain_text("Tiny")


async def test_one_model_is_recommended_by_what_was_measured(page_alone: ChatPage) -> None:
    models = [("Small", 4e8), ("Middle", 1e9), ("Huge", 9e9)]
    offered = [{"name": title, "title": title, "bytes": size} for title, size in models]
    advise = "async (given) => (await import('./panels/models/advice.js')).advise(...given)"
    for measured, said in (
        ({"tokS": 400, "bytes": 1e8}, "Middle: 1.0 GB, about 30 words a second"),
        ({"tokS": 60, "bytes": 1e8}, "Small: 400.0 MB, about 11 words a second"),
        ({"tokS": 10, "bytes": 1e8}, None),
        ({"tokS": 400, "bytes": 9e8}, None),
        (None, None),
    ):
        sentence = f"Your computer can run {said}, much better answers." if said else None
        assert await page_alone.page.evaluate(advise, [measured, offered, 8e9]) == sentence, measured


async def test_it_fits_on_every_screen(page_alone: ChatPage, screenshots: Path) -> None:
    chat = page_alone
    for width, schemes in ((1280, ("dark", "light")), (390, ("light", "dark"))):
        await chat.page.set_viewport_size({"width": width, "height": 800})
        await open_list(chat)
        for scheme in schemes:
            await chat.page.emulate_media(color_scheme=scheme)
            await chat.page.screenshot(path=screenshots / f"models-{width}-{scheme}.png")
        for name in ("Open a file", "Add an adapter", "Download Other"):
            button = models(chat).get_by_role("button", name=name, exact=True)
            await button.scroll_into_view_if_needed()
            box = await button.bounding_box() or {}
            assert min(box["x"], box["y"]) >= 0
            assert box["x"] + box["width"] <= width
            assert box["y"] + box["height"] <= 800
        assert await found_by_axe(chat.page) == []  # light in the wide window, dark in the narrow one
        await chat.page.evaluate(CLOSE_LISTS)
        await chat.close_panel()
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await chat.page.evaluate(overflow) == 0
        await chat.page.screenshot(path=screenshots / f"models-closed-{width}.png")


@pytest.mark.all
@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
async def test_axe_finds_nothing_in_the_other_colours(page_alone: ChatPage, width: int, scheme: Any) -> None:
    await page_alone.page.set_viewport_size({"width": width, "height": 800})
    await page_alone.page.emulate_media(color_scheme=scheme)
    await open_list(page_alone)
    assert await found_by_axe(page_alone.page) == []
