"""Weights as the CPU's kernels have them, which the browser keeps beside a model: brought back whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext

from tests.page.chat_page import NO_SERVICE_WORKER, ChatPage
from tests.page.downloads.test_model_store import TOKENS, ModelTab, open_tab
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASK = """async (asked) => {
  const { ownScript } = await import('./common/own_script.js');
  const worker = new Worker(ownScript('try_weights_worker.js'), { type: 'module' });
  worker.postMessage(asked);
  return new Promise((resolve) => { worker.onmessage = ({ data }) => { worker.terminate(); resolve(data); }; });
}"""
CHANGE = """async ([sha256, changed]) => {
  const root = await navigator.storage.getDirectory();
  const folder = await (await root.getDirectoryHandle('models')).getDirectoryHandle(sha256);
  const handle = await folder.getFileHandle('tiny.gguf.weights');
  const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
  const line = new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(10)));
  const kept = {
    place: line.replace('4194304', '419e010'), version: line.replace(/"version":"./, '"version":"x'),
  };
  if (changed === 'a byte') bytes[bytes.length - 9] ^= 0x10;
  else if (changed !== 'the end') bytes.set(new TextEncoder().encode(kept[changed] ?? line.replace('{', '[')));
  const writable = await handle.createWritable();
  await writable.write(changed === 'the end' ? bytes.subarray(0, -1) : bytes);
  await writable.close();
}"""
UNTIL_KEPT = """async () => {
  while (!(await sonata.storedModels())[0]?.weights) await new Promise((resolve) => setTimeout(resolve, 200));
}"""
SUM = sum(sum(1 + i % 251 for i in range(nbytes)) for nbytes in (5 << 20, 64))
NONE = {"found": False, "filled": False, "held": False, "sum": 0}


@pytest.fixture(scope="module")
def small(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    made = SmallSite(dist, tmp_path_factory.mktemp("weights") / "site")
    for name in ("try_model_worker.js", "try_weights_worker.js"):
        shutil.copyfile(Path(__file__).with_name(name), made.folder / name)
    return made


class WeightsTab(ModelTab):
    """A tab that keeps a model, and can keep weights beside it."""

    model: dict[str, Any]

    async def ask(self, action: str, jobs: str = "jobs", changes: str = "", **more: Any) -> dict[str, Any]:
        asked = {"action": action, "model": self.model, "jobs": jobs, "changes": changes, **more}
        return await self.page.evaluate(ASK, asked)

    async def kept_bytes(self) -> int:
        (model,) = await self.stored()
        return int(model["weights"])


@pytest_asyncio.fixture(loop_scope="session")
async def tab(context: BrowserContext, server: PlainServer, small: SmallSite) -> WeightsTab:
    tab = WeightsTab((await open_tab(context, server)).page)
    tab.model = {"sha256": small.sha256, "name": "tiny.gguf", "bytes": len(small.model)}
    await tab.load()
    return tab


async def test_weights_come_back_for_the_same_jobs_only(tab: WeightsTab) -> None:
    assert await tab.ask("load") == NONE
    await tab.ask("keep")
    assert await tab.kept_bytes() > (5 << 20)
    right = {"found": True, "filled": True, "held": True, "sum": SUM}
    assert await tab.ask("load") == right
    other: list[dict[str, Any]] = [{"jobs": "others"}, {"changes": "x 2"}, {"regions": [4 << 20, 64]}]
    for one in other:
        assert await tab.ask("load", **one) == right | {"held": False, "sum": 0}, one


@pytest.mark.parametrize(
    ("changed", "found"),
    [("a byte", True), ("place", True), ("version", True), ("the end", False), ("the line", False)],
)
async def test_damaged_weights_and_those_of_other_kernels_are_left(tab: WeightsTab, changed: str, found: bool) -> None:
    await tab.ask("keep")
    await tab.page.evaluate(CHANGE, [tab.model["sha256"], changed])
    assert await tab.ask("load") == NONE | {"found": found}
    await tab.ask("keep")
    assert (await tab.ask("load"))["held"]


async def test_without_room_nothing_is_kept_and_nothing_is_left(tab: WeightsTab, server: PlainServer) -> None:
    await tab.allow(server, 3 << 20)
    await tab.ask("keep")
    assert await tab.kept_bytes() == 0
    await tab.allow(server, None)
    await tab.ask("keep")
    assert (await tab.ask("load"))["held"]


async def test_the_page_is_ready_with_kept_weights_and_says_the_same(
    context: BrowserContext, server: PlainServer
) -> None:
    await context.add_init_script(NO_SERVICE_WORKER)
    chat = ChatPage(await context.new_page(), server.url)
    await chat.open_ready("?backend=wasm&workers=2&routing=off")
    first = await chat.page.evaluate(TOKENS)
    await chat.page.evaluate(UNTIL_KEPT)
    await chat.page.reload()
    await chat.wait_for("ready", 60)
    (engine,) = [worker for worker in chat.page.workers if worker.url.endswith("/engine/worker.js")]
    marks = await engine.evaluate("performance.getEntriesByType('mark').map(({ name }) => name)")
    assert "sonata: weights filled" in marks
    assert await chat.page.evaluate(TOKENS) == first
