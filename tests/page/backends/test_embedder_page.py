"""The sentence embedder in Chromium: the same vectors as natively, made in a worker of its own."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route

from app.native_runtime import open_embedder

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

TEXTS = [
    "",
    "Hello",
    "fix the login bug please",
    "can you look over my pull request before I merge it",
    "Schreib mir ein Gedicht über das Meer 🌊",
    "why is this query slow? SELECT * FROM orders o JOIN customers c ON c.id = o.customer",
    "the nightly job crashes since tuesday, here is the log: " + "ERROR connection reset by peer; " * 80,
]
OPEN = """async () => {
  const { Embedder } = await import('./routing/embedder.js');
  globalThis.embedder = await Embedder.open(new URL('./embedder/', location.href).href);
}"""
PYTHON = """async () => {
  const { bootPython } = await import('./engine/python_runtime.js');
  const { browser_embedder } = (globalThis.python = await bootPython()).pyimport('py_core.routing.embedder_browser');
  globalThis.ofPython = browser_embedder(embedder);
}"""
EMBED = """async (texts) => {
  const vectors = await ofPython.embed(python.toPy(texts));
  return [vectors.shape.toJs(), [...vectors.tobytes().toJs()]];
}"""

MEANINGS = """async (texts) => {
  const meanings = await ofPython.meanings(python.toPy(texts));
  const bytes = (array) => [...array.tobytes().toJs()];
  return Array.from(meanings, ({ ids, states, vector }) => [bytes(ids), bytes(states), bytes(vector)]);
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(browser: Browser, site: str) -> AsyncIterator[Page]:
    """A page of the site with the embedder open, for all tests that do not close it."""
    async with blank_page(browser, site) as page:
        await page.evaluate(OPEN)
        yield page


@asynccontextmanager
async def blank_page(browser: Browser, site: str) -> AsyncIterator[Page]:
    # The page itself may not compile WebAssembly; here it runs Python.
    page = await browser.new_page(bypass_csp=True)
    await page.goto(f"{site}/THIRD_PARTY.txt")
    yield page
    await page.close()


async def failure(page: Page, script: str, argument: Any = None) -> str:
    return await page.evaluate(
        f"async (argument) => {{ try {{ await ({script})(argument); }} "
        "catch (error) { return `${error.name}: ${error.message}`; } return 'nothing'; }",
        argument,
    )


def fulfilling(answer: dict[str, Any]) -> Callable[[Route], Awaitable[None]]:
    """For page.route: answers each request this way."""

    async def fulfill(route: Route) -> None:
        await route.fulfill(**answer)

    return fulfill


async def test_vectors_and_meanings_are_the_native_ones(page: Page) -> None:
    await page.evaluate(PYTHON)
    native = open_embedder()
    shape, content = await page.evaluate(EMBED, TEXTS)
    assert shape == [len(TEXTS), 384]
    vectors = np.frombuffer(bytes(content), np.float32).reshape(shape)
    expected = await native.embed(TEXTS)
    # a number that is rounded to the other of two bytes changes all that follow
    assert (vectors * expected).sum(1).min() > 0.995
    assert await page.evaluate("ofPython.fingerprint") == native.fingerprint

    found = await page.evaluate(MEANINGS, TEXTS)
    for text, expected, (ids, states, vector) in zip(TEXTS, await native.meanings(TEXTS), found, strict=True):
        assert np.frombuffer(bytes(ids), np.int32).tolist() == expected.ids.tolist()
        rows = np.frombuffer(bytes(states), np.float32).reshape(-1, 384)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(expected.states, axis=1)
        assert ((rows * expected.states).sum(1) / lengths).min() > 0.99, text
        assert np.frombuffer(bytes(vector), np.float32) @ expected.vector > 0.998, text
    assert await page.evaluate("ofPython.meaning_fingerprint") == native.meaning_fingerprint


async def test_it_runs_in_a_worker_of_its_own_and_the_page_goes_on(page: Page) -> None:
    assert [worker.url.rsplit("/", 1)[1] for worker in page.workers] == ["embedder_worker.js"]
    # A second of work; the page counts how often its own thread runs meanwhile.
    turns, longest = await page.evaluate(
        """async () => {
        const lengths = new Int32Array(6).fill(256);
        const ids = new Int32Array(6 * 256).fill(2000);
        let done = false, turns = 0, longest = 0, last = performance.now();
        const work = embedder.encode(ids, lengths).then(() => { done = true; });
        while (!done) {
          await new Promise((resolve) => setTimeout(resolve));
          longest = Math.max(longest, performance.now() - last);
          last = performance.now();
          turns++;
        }
        await work;
        return [turns, longest];
    }"""
    )
    assert turns > 20, f"the page's own thread waited {longest} ms"


async def test_calls_are_answered_each_with_its_own_vectors(page: Page) -> None:
    answers = await page.evaluate(
        """async () => {
        const texts = Array.from({ length: 12 }, (_, i) => Int32Array.of(101, 2000 + i, 102));
        const alone = [];
        for (const ids of texts) alone.push([...await embedder.encode(ids, Int32Array.of(3))]);
        const together = await Promise.all(texts.map((ids) => embedder.encode(ids, Int32Array.of(3))));
        return together.map((vector, i) => vector.every((value, j) => value === alone[i][j]) && vector.length);
    }"""
    )
    assert answers == [384] * 12


async def test_files_that_cannot_be_had_or_are_damaged_are_a_sentence(page: Page, dist: Path) -> None:
    about = json.loads((dist / "embedder/embedder.json").read_text("utf-8"))
    other = json.dumps(about | {"sha256": about["sha256"][::-1]}).encode()  # the model is not the stated one
    for pattern, answer, said in (
        ("**/*.onnx", {"status": 404}, "DownloadError: .*HTTP 404.*load again"),
        ("**/*.onnx", {"body": b"too short"}, "DownloadError: .*9 bytes instead of"),
        ("**/embedder.json", {"status": 500}, "DownloadError: .*HTTP 500.*load again"),
        ("**/embedder.json", {"body": other}, "damaged on its way"),
        ("**/*.tokenizer.json", {"status": 404}, "DownloadError: .*HTTP 404.*load again"),
        ("**/ort-wasm-simd-threaded.wasm", {"status": 404}, "EmbedderError: .*Reload the page"),
    ):
        await page.context.route(pattern, fulfilling(answer))
        try:
            assert re.search(said, await failure(page, OPEN)), (pattern, answer)
        finally:
            await page.context.unroute(pattern)


@pytest.mark.all
async def test_after_closing_every_call_fails_with_a_sentence(browser: Browser, site: str) -> None:
    async with blank_page(browser, site) as page:
        await page.evaluate(OPEN)
        worker_ended = asyncio.get_running_loop().create_future()
        page.workers[0].once("close", lambda worker: worker_ended.set_result(worker))
        await page.evaluate(
            """() => {
            globalThis.late = embedder.encode(new Int32Array(2560).fill(5), new Int32Array(10).fill(256));
            late.catch(() => {});
            embedder.close();
        }"""
        )
        assert await failure(page, "() => late") == "EmbedderError: The sentence embedder was closed."
        assert "was closed" in await failure(page, "() => embedder.encode(Int32Array.of(101, 102), Int32Array.of(2))")
        await worker_ended
