"""How fast the GPU is, a fold-out in Settings: on the page alone, and with the real measurement in Chromium."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.page.chat_page import ChatPage, fresh_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUESTION = "How fast is my GPU?"
SIZES = ((1280, 800), (390, 844), (320, 568), (844, 390))
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def fold_out(page: Page) -> Locator:
    return page.locator("details.gpu")


async def measure(chat: ChatPage) -> Locator:
    await chat.open_part("Model")
    await fold_out(chat.page).get_by_text(QUESTION).click()
    return fold_out(chat.page)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_answered(browser: Browser, site: str) -> AsyncIterator[ChatPage]:
    """With the stand-in worker, ready and with an answer."""
    async with fresh_tab(browser, site) as chat:
        await chat.use_stand_in()
        await chat.open_ready()
        await chat.ask("Why is the sky blue?")
        yield chat


@pytest.fixture
def answered(module_answered: ChatPage) -> ChatPage:
    """The page of all tests here that need only an answer. Each opens the fold-out itself, and closes it."""
    return module_answered


@pytest.mark.parametrize("sizes", [SIZES[2:3], pytest.param(SIZES, marks=pytest.mark.all)], ids=["smallest", "each"])
async def test_the_table_fits_the_screen(
    answered: ChatPage, screenshots: Path, sizes: tuple[tuple[int, int], ...]
) -> None:
    page = answered.page
    shown = await measure(answered)
    await shown.get_by_role("row", name="attention").wait_for()
    again = shown.get_by_role("button", name="Measure again")
    await expect(again).to_be_enabled()
    for width, height in sizes:
        await page.set_viewport_size({"width": width, "height": height})
        await shown.scroll_into_view_if_needed()
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            await page.screenshot(path=screenshots / f"gpu-{width}-{scheme}.png")
        for locator in (page.locator(".panel-body"), shown.locator(".gpu-result")):
            assert await locator.evaluate("(node) => node.scrollWidth <= node.clientWidth")
        await again.scroll_into_view_if_needed()
        await page.screenshot(path=screenshots / f"gpu-{width}-end.png")
        box = await again.bounding_box() or {}
        assert min(box["x"], box["y"]) >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height + 1  # scrolling rounds
    await page.set_viewport_size({"width": 1280, "height": 800})
    await answered.close_panel()
    assert answered.errors == []


async def test_rows_say_what_was_measured_and_closing_the_panel_folds_it_up(answered: ChatPage) -> None:
    shown = await measure(answered)
    await expect(shown.get_by_role("progressbar")).to_be_visible()
    row = shown.get_by_role("row", name="linear 576x49152 Q8_0")
    said = " ".join((await row.inner_text()).split())
    assert said == "linear 576x49152 Q8_0 1 \N{MULTIPLICATION SIGN} 22.7 µs 22.7 µs 2% 1.3 TB/s 50% of memory"
    await expect(shown.get_by_role("row")).to_have_count(8)
    await expect(shown.get_by_role("row").last).to_contain_text("Waiting")
    figures = await shown.locator("dl").inner_text()
    assert [
        words
        for words in ("A graphics card", "1.1 ms, 893 tok/s (position 512)", "2.7 TB/s", "51.2 TFLOP/s")
        if words not in figures
    ] == [], figures
    async with answered.page.expect_download() as download:
        await shown.get_by_role("button", name="Save as a file").click()
    saved = json.loads((await (await download.value).path()).read_text("utf-8"))
    assert saved["adapter"] == "A graphics card"
    assert "Chrom" in saved["browser"]
    assert len(saved["passes"][0]["kernels"]) == 5
    await answered.page.keyboard.press("Escape")
    await expect(shown).to_be_hidden()
    await expect(shown).to_have_js_property("open", False)


async def test_it_is_offered_only_while_a_gpu_runs_the_model(answered: ChatPage) -> None:
    await answered.open_ready("?backend=wasm")
    part = await answered.open_part("Model")
    await expect(part.locator("#backend")).to_be_visible()
    await expect(fold_out(answered.page)).to_be_hidden()
    await answered.open_ready()
    shown = await measure(answered)
    await expect(shown.get_by_role("row", name="attention")).to_be_visible()
    await answered.send("slowly broken")
    await answered.problem()
    await expect(shown).to_be_hidden()
    await expect(shown).to_have_js_property("open", False)


OPEN_AT_THE_FIRST_WORDS = """() => {
  const log = document.querySelector('#log');
  const watch = new MutationObserver(() => {
    if (!log.querySelector('.answer .body')?.textContent.trim()) return;
    watch.disconnect();
    const step = document.querySelector('.gpu-step');
    window.steps = [];
    new MutationObserver(() => window.steps.push(step.textContent)).observe(step, { childList: true });
    document.querySelector('#gpu-speed').click();
  });
  watch.observe(log, { childList: true, subtree: true, characterData: true });
}"""


NOTE_HOW_FAR = """() => {
  const { developer } = sonata.engine;
  const profile = developer.profile.bind(developer);
  developer.profile = async function* () {
    for await (const part of await profile()) {
      window.measured = part.done;
      yield part;
    }
  };
}"""
"""`measured` becomes the finished share of a measurement."""


@pytest.mark.all
@pytest.mark.timeout(600)
async def test_the_real_gpu_is_measured_between_two_answers(tiny_chat: ChatPage, screenshots: Path) -> None:
    chat = tiny_chat
    await chat.open_ready("?backend=webgpu&max_tokens=200&routing=off")
    await chat.open_part("Model")
    await chat.page.evaluate(OPEN_AT_THE_FIRST_WORDS)
    await chat.send("Tell me a very long story about a lighthouse.")
    shown = fold_out(chat.page)
    await shown.get_by_role("row", name="attention").wait_for(timeout=180_000)
    assert (await chat.page.evaluate("window.steps"))[0] == "Waiting for the running answer"
    assert await chat.state() == "ready"  # the answer came first, and whole
    assert await chat.page.evaluate("sonata.lastAnswer.reason") in ("end", "length", "loop")

    kernels = await shown.locator("tbody tr").evaluate_all(
        """(rows) => rows.map((row) => [...row.cells].slice(0, 2).map((cell) => (
          [...cell.childNodes].find((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()).data)))"""
    )
    times = dict(kernels)
    assert times.keys() >= {"embedding", "attention", "argmax", "Between kernels", "Waiting"}
    assert sum(name.startswith("linear") for name in times) >= 3
    assert all(float(time.split()[0]) > 0 for name, time in kernels if name not in ("Between kernels", "Waiting"))
    await chat.page.screenshot(path=screenshots / "gpu-real.png")

    await chat.page.evaluate(NOTE_HOW_FAR)
    await shown.get_by_role("button", name="Measure again").click()
    await chat.page.wait_for_function("() => window.measured > 0", timeout=180_000)
    await chat.close_panel()
    # waits its turn, but not for a hidden measurement
    await chat.page.evaluate("sonata.engine.conversation.begin()")
    assert await chat.page.evaluate("window.measured") < 1
    assert await chat.ask("And of Italy?")
    assert chat.errors == []


async def test_a_gpu_without_timestamps_measures_nothing(chat: ChatPage) -> None:
    await chat.page.goto(f"{chat.site}/THIRD_PARTY.txt")
    measured = await chat.page.evaluate(
        """async () => {
          const { createExecutor } = await import('./backends/webgpu/executor.js');
          const { findAdapter } = await import('./backends/webgpu/adapter.js');
          const adapter = await findAdapter();
          const requestDevice = (wanted) => adapter.requestDevice(wanted);
          const executor = await createExecutor({
            limits: adapter.limits, info: adapter.info, features: new Set(), requestDevice,
          });
          return executor.profile([executor.record(new Uint32Array())], [1]);
        }"""
    )
    assert measured is None
