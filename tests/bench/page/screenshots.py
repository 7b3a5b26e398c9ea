"""Takes the screenshots that the manifest names, of the real page and the real model: web/screenshots/*.jpg.

    python -m tests.bench screenshots [--out FOLDER] [--tokens 160]

Browsers show them when they offer to install the page. They are committed, so that the build needs no browser.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from app.building.common import ROOT
from app.building.system import CHROMIUM_FLAGS, ensure_chromium
from tests.bench.reporting import options_of

FOLDER = ROOT / "web" / "screenshots"
QUALITY = 82
QUESTIONS = (
    "Write a short poem about the sea.",
    "Rewrite this more politely: Send me the report today.",
    "Give me three ideas for a rainy Sunday.",
)
VIEWS = {"wide": (1280, 800, 1), "narrow": (390, 844, 2)}
"""name -> width and height in CSS pixels, and device pixels of each."""


async def take(browser: Browser, address: str, name: str, out: Path, tokens: int) -> Path:
    width, height, scale = VIEWS[name]
    context = await browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=scale)
    await context.add_init_script("localStorage.setItem('sonata.said-offline', 'yes')")
    page = await context.new_page()
    await page.goto(f"{address}/?backend=wasm&max_tokens={tokens}")
    ready = "() => document.documentElement.dataset.state === 'ready'"
    for question in QUESTIONS:
        await page.wait_for_function(ready, timeout=180_000)
        if await page.locator("#log article").count():
            new = "#new-chat" if await page.locator("#new-chat").is_visible() else "#new-chat-top"
            await page.click(new)
        await page.fill("#message", question)
        await page.press("#message", "Enter")
        await page.wait_for_selector(".answer[data-state=done], .answer .body", timeout=180_000)
        await page.wait_for_function(ready, timeout=180_000)
    await page.wait_for_timeout(2000)  # the last drawing and storing, and the titles
    await page.mouse.move(width / 2, height / 2)
    path = out / f"{name}.jpg"
    await page.screenshot(path=path, type="jpeg", quality=QUALITY)
    await context.close()
    return path


async def take_all(address: str, out: Path, tokens: int) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=ensure_chromium(), args=list(CHROMIUM_FLAGS))
        for name in VIEWS:
            path = await take(browser, address, name, out, tokens)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
        await browser.close()


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--tokens", type=int, default=160, help="of an answer at most")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "app.server.site", "--no-open", "--port", "0"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = next(word for word in server.stdout.readline().split() if word.startswith("http://"))
    try:
        asyncio.run(take_all(address, options.out, options.tokens))
    finally:
        server.terminate()
        server.wait(10)
