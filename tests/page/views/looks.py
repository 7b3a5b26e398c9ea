"""Small grey pictures of views, compared with those that are committed in looks/.

A screenshot is shrunk to cells of CELL by CELL pixels, and each cell is the mean of what is in it: another font or
another Chromium moves letters within a cell, while a part of the page that moves or disappears changes cells by the
dozen. The measure is how each cell differs from its surroundings, normalized: light and dark are measured alike.
"""

from __future__ import annotations

import base64
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.async_api import Page

FOLDER = Path(__file__).with_name("looks")
CELL = 20
AROUND = 5
"""Number of cells to each side that form the surroundings of a cell."""
MOST_DIFFERENT = 0.1
"""The largest allowed difference: 0 is equal, 1 has nothing in common."""
ACCEPT = "UPDATE_LOOKS"

# The mean grey of each cell, row by row, a byte each.
SHRINK = """async ([picture, cell]) => {
  const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${picture}`)).blob());
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height), context = canvas.getContext('2d');
  context.drawImage(bitmap, 0, 0);
  const { data, width, height } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  const rows = [];
  for (let top = 0; top + cell <= height; top += cell) {
    const row = [];
    for (let left = 0; left + cell <= width; left += cell) {
      let sum = 0;
      for (let y = top; y < top + cell; y += 1) {
        for (let at = 4 * (y * width + left), x = 0; x < cell; x += 1, at += 4) {
          sum += 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
        }
      }
      row.push(Math.round(sum / cell / cell));
    }
    rows.push(row);
  }
  return rows;
}"""


async def small_picture(page: Page, path: Path) -> np.ndarray:
    """The current view: a screenshot in a file, and the grey of its cells (rows, columns), uint8."""
    shot = await page.screenshot(path=path, animations="disabled", caret="hide", scale="css")
    helper = await page.context.browser.new_page()  # type: ignore[union-attr]  # without the page's policy
    cells = await helper.evaluate(SHRINK, [base64.b64encode(shot).decode(), CELL])
    await helper.close()
    return np.array(cells, np.uint8)


async def check_look(page: Page, name: str, screenshots: Path) -> str | None:
    """Compare the view with looks/NAME.png, or with UPDATE_LOOKS=1 write that. Returns a sentence if it differs.

    The screenshot is in `screenshots` then, with both small pictures.
    """
    now = await small_picture(page, screenshots / f"look-{name}.png")
    known = FOLDER / f"{name}.png"
    if os.environ.get(ACCEPT):
        FOLDER.mkdir(exist_ok=True)
        known.write_bytes(_png(now))
        return None
    before = _grey(known.read_bytes()) if known.exists() else np.zeros((0, 0), np.uint8)
    how = difference(before, now)
    if how <= MOST_DIFFERENT:
        return None
    (screenshots / f"look-{name}-now.png").write_bytes(_png(now))
    (screenshots / f"look-{name}-before.png").write_bytes(known.read_bytes() if known.exists() else b"")
    return (
        f"{name} looks different ({how:.2f}, at most {MOST_DIFFERENT} is taken for the same): compare "
        f"look-{name}-now.png, -before.png and the screenshot look-{name}.png in {screenshots}. If it should look like "
        f"that, accept it with {ACCEPT}=1 and commit tests/page/views/looks/{name}.png."
    )


def difference(before: np.ndarray, now: np.ndarray) -> float:
    """The difference of two grey pictures (rows, columns), 0 to 1: 1 minus the correlation of their contrasts."""
    if before.shape != now.shape:
        return 1.0
    one, other = (_standing_out(picture) for picture in (before, now))
    scale = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return 1.0 if scale == 0 else min(1.0, 1 - float((one * other).sum()) / scale)


def _standing_out(picture: np.ndarray) -> np.ndarray:
    """Each cell, averaged with its neighbours, minus its surroundings."""
    grey = picture.astype(np.float64)
    return _around(_around(grey, 1), 1) - _around(grey, AROUND)


def _around(grey: np.ndarray, cells: int) -> np.ndarray:
    """The mean of each cell and `reach` cells to each side; beyond the edge, the edge repeats."""
    wide = np.pad(grey, cells, mode="edge")
    return np.lib.stride_tricks.sliding_window_view(wide, (2 * cells + 1, 2 * cells + 1)).mean((2, 3))


def _png(picture: np.ndarray) -> bytes:
    """A grey picture (rows, columns) of uint8, without filters."""
    rows, columns = picture.shape
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in picture), 9)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b""))
    made = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def _grey(png: bytes) -> np.ndarray:
    """The inverse of `_png`."""
    columns, rows = struct.unpack(">II", png[16:24])
    length = struct.unpack(">I", png[33:37])[0]
    data = np.frombuffer(zlib.decompress(png[41 : 41 + length]), np.uint8)
    return data.reshape(rows, columns + 1)[:, 1:]
