"""Makes README's pictures of the real page with the real model: clip.png (it moves) and page.png in docs/pictures.

    python -m tests.bench clip

The clip is an animated PNG: its frames are the browser's screenshots as they come, put behind each other.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence

from playwright.async_api import Page, async_playwright

from app.building.common import ROOT
from app.building.system import CHROMIUM_FLAGS, ensure_chromium

PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 960, 600
PAUSE = 0.3
"""Seconds between two frames."""
READY = "() => document.documentElement.dataset.state === 'ready' && !document.querySelector('.answer[aria-busy]')"


class Clip:
    """Frames of a page; a frame equal to the last one only makes that one stay longer."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[tuple[bytes, float]] = []  # a PNG file, and the seconds that it is shown

    async def take(self, seconds: float = PAUSE) -> None:
        shot = await self.page.screenshot()
        if self.frames and self.frames[-1][0] == shot:
            self.frames[-1] = (shot, self.frames[-1][1] + seconds)
        else:
            self.frames.append((shot, seconds))

    async def ask(self, text: str) -> None:
        for begin in range(0, len(text), 12):
            await self.page.fill("#message", text[: begin + 12])
            await self.take(0.1)
        await self.page.press("#message", "Enter")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            await self.take()
            if await self.page.evaluate(f"({READY})()"):
                break
            await asyncio.sleep(PAUSE)
        await self.take(1.8)


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """(name, data) of a PNG file's chunks."""
    found, at = [], 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def animated(frames: Sequence[tuple[bytes, float]]) -> bytes:
    """An animated PNG (PNG specification, third edition) of screenshots of one size."""
    numbers = itertools.count()
    first = chunks(frames[0][0])
    made = [b"\x89PNG\r\n\x1a\n", chunk(*first[0]), chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    for at, (png, seconds) in enumerate(frames):
        control = (next(numbers), WIDTH, HEIGHT, 0, 0, round(1000 * seconds), 1000, 0, 0)
        made.append(chunk(b"fcTL", struct.pack(">IIIIIHHBB", *control)))
        pixels = b"".join(data for name, data in chunks(png) if name == b"IDAT")
        made.append(chunk(b"IDAT", pixels) if at == 0 else chunk(b"fdAT", struct.pack(">I", next(numbers)) + pixels))
    return b"".join([*made, chunk(b"IEND", b"")])


async def take_all(address: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=ensure_chromium(), args=list(CHROMIUM_FLAGS))
        context = await browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        await context.add_init_script("localStorage.setItem('sonata.said-offline', 'yes')")
        page = await context.new_page()
        await page.goto(f"{address}/?backend=wasm")
        await page.wait_for_function(READY, timeout=180_000)
        await page.wait_for_function("() => document.documentElement.dataset.learning === 'ready'", timeout=180_000)
        clip = Clip(page)
        await clip.take(1.5)
        await clip.ask("What is 17 * 23 + 4.5?")
        await clip.ask("Remember that my dentist is Dr. Quill.")
        await page.keyboard.press("Control+Shift+O")
        await clip.ask("What's the name of the dentist I go to?")
        await page.keyboard.press("Control+Shift+O")
        await clip.ask("Write a Python function that checks whether a word is a palindrome.")
        await page.set_viewport_size({"width": 1280, "height": 800})
        await page.locator("#sidebar").get_by_role("link", name="Learned").click()
        await page.get_by_role("tab", name="Map").click()
        await page.locator(".map-box canvas").wait_for()
        await page.wait_for_timeout(1500)
        await page.screenshot(path=PICTURES / "page.png")
        (PICTURES / "clip.png").write_bytes(animated(clip.frames))
        await browser.close()
    for name in ("clip.png", "page.png"):
        print(f"docs/pictures/{name}: {(PICTURES / name).stat().st_size / 1000:.0f} kB")
    print(f"{len(clip.frames)} frames, {sum(seconds for _, seconds in clip.frames):.0f} s")


def main() -> None:
    command = [sys.executable, "-m", "app.server.site", "--no-open", "--port", "0"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = next(word for word in server.stdout.readline().split() if word.startswith("http://"))
    try:
        asyncio.run(take_all(address))
    finally:
        server.terminate()
        server.wait(10)
