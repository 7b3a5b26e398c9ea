"""The models that the browser keeps: resumed, checked, shared between tabs, deleted. Mostly without Python in the
page (try_model_worker.js), because its start takes longer than all the rest."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Error, Page, async_playwright, expect

from app.building.system import CHROMIUM_FLAGS
from tests.page.chat_page import NO_SERVICE_WORKER, ChatPage
from tests.page.plain_server import PlainServer
from tests.page.small_site import MODEL, PIECE_BYTES, SmallSite

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

QUERY = "?backend=wasm&workers=1&routing=off"
NO_ROOM = "There is no room in this browser to store the model"
TOKENS = """() => sonata.engine.developer
  .generate({ prompt: 'Once upon a time', raw: true, maxTokens: 20 }).then((made) => made.tokens)"""
BEGIN = """async (model) => {
  const { chooseModel } = await import('./storage/model_list.js');
  const { ownScript } = await import('./common/own_script.js');
  const worker = new Worker(ownScript('try_model_worker.js'), { type: 'module' });
  window.worker = worker;
  window.done = 0;
  window.result = new Promise((resolve) => {
    worker.onmessage = ({ data }) => {
      if ('done' in data) window.done = data.done;
      else if ('hashed' in data) window.hashed = data.hashed;
      else resolve(data);
    };
  });
  worker.postMessage(model ?? await chooseModel(null));
}"""
STORE = "async ([call, ...args]) => (await import('./storage/model_store.js'))[call](...args)"
UNTIL_STORED = """async (nbytes) => {
  const { storedModels } = await import('./storage/model_store.js');
  for (;;) {
    const [model, ...others] = await storedModels();
    if (model?.bytes === nbytes && !others.length) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}"""
FLIP = """async ([sha256, name, offset]) => {
  const root = await navigator.storage.getDirectory();
  const folder = await (await root.getDirectoryHandle('models')).getDirectoryHandle(sha256);
  const handle = await folder.getFileHandle(name);
  const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
  bytes[offset] ^= 0x10;
  const writable = await handle.createWritable();
  await writable.write(bytes);
  await writable.close();
}"""

FILE_FOR_FOLDER = """async (name) => {
  const root = await navigator.storage.getDirectory();
  await (await root.getDirectoryHandle('models', { create: true })).getFileHandle(name, { create: true });
}"""


# Holds the file open like a tab that loads it, until it is called again.
HOLD = """async (file) => {
  if (window.holding) return window.holding.terminate();
  const { ownScript } = await import('./common/own_script.js');
  window.holding = new Worker(ownScript('hold.js'));
  const held = new Promise((resolve, reject) => Object.assign(window.holding, { onmessage: resolve, onerror: reject }));
  window.holding.postMessage(file);
  await held;
}"""
HOLD_JS = """onmessage = async ({ data: [sha256, mode] }) => {
  const root = await navigator.storage.getDirectory();
  const folder = await (await root.getDirectoryHandle('models')).getDirectoryHandle(sha256);
  await (await folder.getFileHandle('tiny.gguf')).createSyncAccessHandle({ mode });
  postMessage('held');
};"""


class ModelTab:
    """A tab that can load the model."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def begin(self, model: dict[str, Any] | None = None) -> None:
        """model: another model than the site's, in the form of model_source.js."""
        await self.page.evaluate(BEGIN, model)

    async def result(self) -> dict[str, Any]:
        """{digest, error, notice}"""
        return await self.page.evaluate("window.result")

    async def load(self) -> dict[str, Any]:
        await self.begin()
        return await self.result()

    async def hashed(self) -> int:
        """Number of SHA-256 digests that the last load computed."""
        return await self.page.evaluate("window.hashed")

    async def load_from(self, url: str, nbytes: int) -> dict[str, Any]:
        """A model of this size, by its address."""
        await self.begin({"url": url, "hosts": [url[: url.index("/", 8)]], "bytes": nbytes})
        return await self.result()

    async def end(self) -> None:
        """End the worker, as when the page is closed."""
        await self.page.evaluate("window.worker.terminate()")

    async def stored(self) -> list[dict[str, Any]]:
        return await self.page.evaluate(STORE, ["storedModels"])

    async def remove(self, sha256: str) -> bool:
        return await self.page.evaluate(STORE, ["removeModel", sha256])

    async def until_stored(self, nbytes: int) -> None:
        """Wait until this much of the model is stored."""
        await self.page.evaluate(UNTIL_STORED, nbytes)

    async def break_off(self, server: PlainServer, nbytes: int) -> None:
        """Load until the connection breaks after this number of bytes."""
        server.holds[MODEL] = server.breaks[MODEL] = nbytes
        await self.begin()
        await self.until_stored(nbytes // PIECE_BYTES * PIECE_BYTES)
        server.holds.clear()
        assert "connection was lost" in (await self.result())["error"]
        server.breaks.clear()

    async def allow(self, server: PlainServer, nbytes: int | None) -> None:
        """Set the page's storage quota; None: as usual."""
        self.session = await self.page.context.new_cdp_session(self.page)  # it ends with the session
        quota = {} if nbytes is None else {"quotaSize": nbytes}
        await self.session.send("Storage.overrideQuotaForOrigin", {"origin": server.url, **quota})


async def open_tab(context: BrowserContext, server: PlainServer) -> ModelTab:
    page = await context.new_page()
    await page.goto(f"{server.url}/THIRD_PARTY.txt")
    return ModelTab(page)


@pytest.fixture(scope="module")
def small(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    """The site with a tiny model, which no test here changes. Each test has its own server, and so its own store."""
    made = SmallSite(dist, tmp_path_factory.mktemp("store") / "site")
    shutil.copyfile(Path(__file__).with_name("try_model_worker.js"), made.folder / "try_model_worker.js")
    made.write("hold.js", HOLD_JS)
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def tab(context: BrowserContext, server: PlainServer) -> ModelTab:
    return await open_tab(context, server)


@pytest.fixture
def whole(small: SmallSite) -> dict[str, Any]:
    """The store's entry of the complete model."""
    return {"sha256": small.sha256, "name": "tiny.gguf", "bytes": len(small.model), "weights": 0, "complete": True}


@pytest.fixture
def good(small: SmallSite) -> dict[str, Any]:
    """The result of loading it."""
    return {"digest": small.sha256, "error": None, "size": len(small.model), "notice": None}


@pytest.fixture
def asked(server: PlainServer) -> Callable[[], list[int]]:
    """The first byte of each request for the model."""
    return lambda: [request.start for request in server.asked if request.path == MODEL]


# --- in the page ---


@pytest.mark.all
async def test_the_page_downloads_a_model_once_and_goes_on_where_it_broke_off(
    context: BrowserContext, server: PlainServer, whole, asked
) -> None:
    await context.add_init_script(NO_SERVICE_WORKER)
    chat = ChatPage(await context.new_page(), server.url)
    server.holds[MODEL] = server.breaks[MODEL] = 3 * PIECE_BYTES
    await chat.open(QUERY)
    await ModelTab(chat.page).until_stored(3 * PIECE_BYTES)
    server.holds.clear()
    assert "connection was lost" in await chat.problem()
    server.breaks.clear()
    await chat.load_again()
    first = await chat.page.evaluate(TOKENS)
    assert await chat.page.evaluate("sonata.storedModels()") == [whole]

    await chat.page.reload()
    await chat.wait_for("ready", 60)

    assert await chat.page.evaluate(TOKENS) == first
    assert await chat.page.inner_text("#notices") == ""
    assert asked() == [0, 3 * PIECE_BYTES]
    # A deleted model stays in use until the next load.
    assert await chat.page.evaluate("(sha256) => sonata.removeModel(sha256)", whole["sha256"])
    assert await chat.page.evaluate(TOKENS) == first
    assert await chat.page.evaluate("sonata.storedModels()") == []


@pytest.mark.all
async def test_the_page_tells_that_there_is_no_room_and_keeps_no_model_that_it_has_by_its_address_alone(
    context: BrowserContext, server: PlainServer, tab: ModelTab
) -> None:
    await tab.allow(server, 1000)
    await context.add_init_script(NO_SERVICE_WORKER)
    chat = ChatPage(await context.new_page(), server.url)
    await chat.open_ready(QUERY)
    await expect(chat.page.locator("#notices")).to_contain_text(NO_ROOM)
    assert await chat.page.evaluate(TOKENS)
    await tab.allow(server, None)
    await chat.open_ready(f"{QUERY}&model={MODEL}")
    assert await chat.page.evaluate("sonata.storedModels()") == []
    assert await chat.page.inner_text("#notices") == ""


# --- interruptions ---


@pytest.mark.parametrize(
    ("ranges", "nbytes"),
    [
        (True, 3 * PIECE_BYTES + 100),
        (False, PIECE_BYTES),
        pytest.param(False, 3 * PIECE_BYTES + 100, marks=pytest.mark.all),
        pytest.param(True, PIECE_BYTES, marks=pytest.mark.all),
    ],
)
async def test_a_download_goes_on_where_it_broke_off(
    tab: ModelTab, server: PlainServer, whole, good, asked, ranges: bool, nbytes: int
) -> None:
    server.ranges = ranges
    await tab.break_off(server, nbytes)
    checked = nbytes // PIECE_BYTES * PIECE_BYTES
    assert await tab.stored() == [whole | {"bytes": checked, "complete": False}]

    assert await tab.load() == good

    assert asked() == [0, checked if ranges else 0]
    assert await tab.stored() == [whole]
    assert await tab.load() == good
    assert len(asked()) == 2


@pytest.mark.all
async def test_a_browser_that_was_killed_goes_on_where_it_was(
    chromium_path: Path, server: PlainServer, good, whole, asked, tmp_path: Path
) -> None:
    server.holds[MODEL] = 2 * PIECE_BYTES
    profile = tmp_path / "profile"
    async with async_playwright() as playwright:

        async def launch() -> BrowserContext:
            options = {"executable_path": chromium_path, "args": CHROMIUM_FLAGS}
            return await playwright.chromium.launch_persistent_context(profile, **options)

        tab = await open_tab(await launch(), server)
        await tab.begin()
        await tab.until_stored(2 * PIECE_BYTES)
        session = await tab.page.context.new_cdp_session(tab.page)
        with pytest.raises(Error, match="closed"):
            await session.send("Browser.crash")
        server.holds.clear()
        again = await launch()
        tab = await open_tab(again, server)
        assert await tab.load() == good
        assert await tab.stored() == [whole]
        await again.close()
    assert asked() == [0, 2 * PIECE_BYTES]


async def test_a_worker_that_was_ended_goes_on_where_it_was(tab: ModelTab, server: PlainServer, good, asked) -> None:
    server.holds[MODEL] = 2 * PIECE_BYTES
    await tab.begin()
    await tab.until_stored(2 * PIECE_BYTES)
    await tab.end()
    server.holds.clear()
    assert await tab.load() == good
    assert asked() == [0, 2 * PIECE_BYTES]


async def test_a_model_whose_name_only_is_missing_needs_no_network(
    tab: ModelTab, server: PlainServer, small: SmallSite, good, whole
) -> None:
    """The machine was switched off between the last byte and the renaming."""
    assert await tab.load() == good
    await tab.page.evaluate(
        """async (sha256) => {
          const root = await navigator.storage.getDirectory();
          const folder = await (await root.getDirectoryHandle('models')).getDirectoryHandle(sha256);
          await (await folder.getFileHandle('tiny.gguf')).move('tiny.gguf.part');
        }""",
        small.sha256,
    )
    assert await tab.stored() == [whole | {"complete": False}]
    server.asked.clear()
    assert await tab.load() == good
    assert [request.path for request in server.asked if request.path == MODEL] == []
    assert await tab.stored() == [whole]


# --- damage ---


@pytest.mark.parametrize("piece", [pytest.param(0, marks=pytest.mark.all), 2])
async def test_a_wrong_checksum_is_refused_and_nothing_wrong_is_kept(
    tab: ModelTab, server: PlainServer, small: SmallSite, good, whole, piece: int
) -> None:
    damaged = bytearray(small.model)
    damaged[piece * PIECE_BYTES + 5000] ^= 1
    server.instead[MODEL] = bytes(damaged)

    assert "checksum" in (await tab.load())["error"]
    assert [(part["bytes"], part["complete"]) for part in await tab.stored()] == [(piece * PIECE_BYTES, False)]
    server.instead.clear()
    assert await tab.load() == good
    assert await tab.stored() == [whole]


async def test_a_truncated_file_is_told(tab: ModelTab, server: PlainServer, small: SmallSite) -> None:
    server.instead[MODEL] = small.model[: 2 * PIECE_BYTES + 60_000]
    said = (await tab.load())["error"]
    assert "ends after 0.2 MB" in said  # with an incomplete piece
    assert "truncated" in said
    assert all(not part["complete"] for part in await tab.stored())


async def test_a_file_that_changed_between_the_halves_is_downloaded_from_its_beginning(
    tab: ModelTab, server: PlainServer, small: SmallSite, good, asked
) -> None:
    await tab.break_off(server, 3 * PIECE_BYTES)
    server.instead[MODEL] = bytes(len(small.model))
    assert "checksum" in (await tab.load())["error"]
    assert await tab.stored() == []
    server.instead.clear()
    assert await tab.load() == good
    assert asked() == [0, 3 * PIECE_BYTES, 0]


@pytest.mark.parametrize("loads", [pytest.param(1, marks=pytest.mark.all), 2])
async def test_a_kept_model_that_is_damaged_is_replaced(
    tab: ModelTab, small: SmallSite, good, whole, asked, loads: int
) -> None:
    """The first load comes from the network, the second makes the sums, the third checks them."""
    for _ in range(loads):
        assert await tab.load() == good
    await tab.page.evaluate(FLIP, [small.sha256, "tiny.gguf", 2 * PIECE_BYTES + 7])

    assert await tab.load() == good
    assert asked() == [0, 2 * PIECE_BYTES]
    assert await tab.stored() == []
    assert await tab.load() == good
    assert await tab.stored() == [whole]


async def test_a_kept_model_is_hashed_once_and_then_checked_by_sums_that_cost_less(
    tab: ModelTab, small: SmallSite, good, whole, asked
) -> None:
    pieces = -(-len(small.model) // PIECE_BYTES)
    hashed = []
    for _ in range(4):
        assert await tab.load() == good
        hashed.append(await tab.hashed())
    assert hashed == [pieces, pieces, 0, 0]
    assert asked() == [0]
    assert await tab.stored() == [whole], "the sums are no model"


@pytest.mark.parametrize(
    "at", [pytest.param(0, marks=pytest.mark.all), 8 + 2 * 8]
)  # their own sum, that of the third piece
async def test_sums_that_are_damaged_are_made_again_and_the_model_stays(
    tab: ModelTab, small: SmallSite, good, whole, asked, at: int
) -> None:
    for _ in range(2):
        await tab.load()
    await tab.page.evaluate(FLIP, [small.sha256, "tiny.gguf.sums", at])
    hashed = []
    for _ in range(2):
        assert await tab.load() == good
        hashed.append(await tab.hashed())
    assert hashed == [-(-len(small.model) // PIECE_BYTES), 0]
    assert asked() == [0]


async def test_sums_of_another_file_are_noticed_at_the_first_piece_that_differs(
    tab: ModelTab, small: SmallSite, good, asked
) -> None:
    """They are complete, with a correct sum of their own, but the sum of one piece is different."""
    for _ in range(2):
        await tab.load()
    # Opened as a document, this file has a worker's policy, which allows the test to compile hash-wasm's modules.
    await tab.page.goto(tab.page.url.replace("THIRD_PARTY.txt", "try_model_worker.js"))
    await tab.page.evaluate(
        """async (model) => {
          const { readSums } = await import('./storage/model_store.js');
          const { xxhash64 } = await import('./vendor/hash-wasm.mjs');
          const sums = await readSums(model);
          sums[1 + 2] ^= 1n;
          sums[0] = BigInt(`0x${await xxhash64(new Uint8Array(sums.buffer, 8))}`);
          const root = await navigator.storage.getDirectory();
          const folder = await (await root.getDirectoryHandle('models')).getDirectoryHandle(model.sha256);
          const writable = await (await folder.getFileHandle(`${model.name}.sums`)).createWritable();
          await writable.write(sums);
          await writable.close();
        }""",
        {"sha256": small.sha256, "name": "tiny.gguf"},
    )
    hashed = []
    for _ in range(2):
        assert await tab.load() == good
        hashed.append(await tab.hashed())
    assert hashed == [-(-len(small.model) // PIECE_BYTES) - 2, 0]
    assert asked() == [0]


async def test_a_part_that_is_damaged_goes_on_before_the_damage(
    tab: ModelTab, server: PlainServer, small: SmallSite, good, whole, asked
) -> None:
    await tab.break_off(server, 3 * PIECE_BYTES)
    await tab.page.evaluate(FLIP, [small.sha256, "tiny.gguf.part", PIECE_BYTES + 7])
    assert await tab.load() == good
    assert asked() == [0, PIECE_BYTES]
    assert await tab.stored() == [whole]


# --- tabs, room, deleting ---


async def test_two_tabs_download_it_once(
    context: BrowserContext, tab: ModelTab, server: PlainServer, good, whole, asked
) -> None:
    server.holds[MODEL] = PIECE_BYTES
    other = await open_tab(context, server)
    await asyncio.gather(tab.begin(), other.begin())
    await tab.until_stored(PIECE_BYTES)
    server.holds.clear()
    assert await asyncio.gather(tab.result(), other.result()) == [good, good]
    assert asked() == [0]
    assert await tab.stored() == [whole]


async def test_a_tab_shows_how_far_the_other_is_and_takes_over_when_that_is_closed(
    context: BrowserContext, tab: ModelTab, server: PlainServer, good, whole, asked
) -> None:
    server.holds[MODEL] = PIECE_BYTES
    await tab.begin()
    await tab.until_stored(PIECE_BYTES)
    other = await open_tab(context, server)
    await other.begin()
    await other.page.wait_for_function(f"() => window.done === {PIECE_BYTES}")
    assert asked() == [0]
    await tab.page.close()
    server.holds.clear()

    assert await other.result() == good
    assert asked() == [0, PIECE_BYTES]
    assert await other.stored() == [whole]


@pytest.mark.parametrize("before", [pytest.param(0, marks=pytest.mark.all), PIECE_BYTES])
async def test_without_room_it_comes_from_the_network_and_nothing_is_left(
    tab: ModelTab, server: PlainServer, good, whole, asked, before: int
) -> None:
    """There is no room from the beginning, or from the second piece on."""
    if before:
        server.holds[MODEL] = before
        await tab.begin()
        await tab.until_stored(before)
        await tab.allow(server, 1000)
        server.holds.clear()
    else:
        await tab.allow(server, 1000)
        await tab.begin()
    result = await tab.result()
    assert result | {"notice": None} == good
    assert NO_ROOM in result["notice"]["text"]
    assert await tab.stored() == []
    assert asked() == [0]
    await tab.allow(server, None)
    assert await tab.load() == good
    assert await tab.stored() == [whole]


async def test_where_the_store_is_damaged_a_model_comes_from_the_network_and_the_page_says_so(
    tab: ModelTab, server: PlainServer, small: SmallSite, good, asked
) -> None:
    await tab.page.evaluate(FILE_FOR_FOLDER, small.sha256)
    result = await tab.load()
    assert result | {"notice": None} == good
    assert NO_ROOM in result["notice"]["text"]
    assert asked() == [0]


async def test_a_model_that_is_deleted_is_downloaded_again(tab: ModelTab, small: SmallSite, good, whole, asked) -> None:
    assert await tab.remove(small.sha256), "there is nothing to delete, and that is no error"
    assert await tab.load() == good
    assert await tab.remove(small.sha256)
    assert await tab.stored() == []
    assert await tab.load() == good
    assert await tab.stored() == [whole]
    assert asked() == [0, 0]


@pytest.mark.parametrize("mode", [pytest.param("read-only", marks=pytest.mark.all), "readwrite"])
async def test_a_kept_model_is_loaded_in_two_tabs_at_once_and_not_deleted_meanwhile(
    context: BrowserContext, tab: ModelTab, server: PlainServer, small: SmallSite, good, whole, asked, mode: str
) -> None:
    """If one tab has it exclusively, the other reads slices, like a browser without modes of handles."""
    await tab.load()
    await tab.page.evaluate(HOLD, [small.sha256, mode])
    other = await open_tab(context, server)
    assert await other.load() == good
    assert asked() == [0]
    assert await other.remove(small.sha256) is False
    assert await other.stored() == [whole]
    await tab.page.evaluate(HOLD, [small.sha256, mode])
    assert await other.remove(small.sha256)
    assert await other.stored() == []


async def test_a_model_that_is_being_downloaded_is_not_deleted(
    tab: ModelTab, server: PlainServer, small: SmallSite, good, whole
) -> None:
    server.holds[MODEL] = PIECE_BYTES
    await tab.begin()
    await tab.until_stored(PIECE_BYTES)
    assert await tab.remove(small.sha256) is False
    server.holds.clear()
    assert await tab.result() == good
    assert await tab.stored() == [whole]


# --- models by their addresses ---


async def test_a_compressed_answer_of_another_site_is_read_whole(
    tab: ModelTab, server: PlainServer, small: SmallSite, good
) -> None:
    """The browser does not reveal that it was compressed, but reports the compressed length."""
    with PlainServer(small.folder) as other:
        other.headers |= {"Content-Encoding": "gzip", "Access-Control-Allow-Origin": "*"}
        other.instead[MODEL] = gzip.compress(small.model)
        result = await tab.load_from(f"{other.url}/{MODEL}", len(small.model))
    assert result == good | {"size": None}


async def test_a_model_in_several_files_is_refused_where_a_part_is_not_as_long_as_its_server_said(
    tab: ModelTab, server: PlainServer, small: SmallSite
) -> None:
    names = [f"model-0000{number}-of-00002.gguf" for number in (1, 2)]
    with PlainServer(small.folder) as other:
        other.headers |= {"Access-Control-Allow-Origin": "*"}
        other.instead |= {names[0]: small.model[:100_000], names[1]: small.model[100_000:]}
        url = f"{other.url}/{names[1]}"
        good = await tab.load_from(url, len(small.model))
        assert (good["digest"], good["size"]) == (small.sha256, len(small.model))
        other.told[names[0]] = 90_000
        longer = (await tab.load_from(url, len(small.model)))["error"]
        other.told[names[0]] = 110_000
        shorter = (await tab.load_from(url, len(small.model)))["error"]
    said = f"{names[0]} does not have the length that its server announced"
    assert longer == f"{said} (90000 bytes). Download all parts, then open them in Settings, Model."
    assert shorter == f"{said} (110000 bytes). Download all parts, then open them in Settings, Model."
