"""Passes of a convolution over several sequences in random pages, and what they should give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from py_core.paging.page_table import PAGE

SLOTS, PAGES, ROWS = 3, 3, 11


@dataclass(frozen=True)
class ConvolvedRows:
    """Rows (position, slot) with x (rows, 3 width), or (rows, width) if the convolution is not gated, the table (SLOTS,
    PAGES), the rows that the pages hold, (pages, ROWS, width), before the pass, and `weight` (width, taps)."""

    places: list[tuple[int, int]]
    x: np.ndarray
    table: np.ndarray
    kept: np.ndarray
    weight: np.ndarray
    gated: bool

    @classmethod
    def drawn(cls, rng: np.random.Generator, rows: int, width: int, taps: int, gated: bool) -> ConvolvedRows:
        """Some rows of each of some sequences, from any position on."""
        slots, places = rng.permutation(SLOTS), list[tuple[int, int]]()
        cuts = np.sort(rng.integers(0, rows + 1, SLOTS - 1))
        for slot, count in zip(slots, np.diff([0, *cuts, rows]), strict=True):
            first = int(rng.choice([0, 1, taps - 1, PAGE - 1, PAGE, PAGE + 1, rng.integers(0, PAGES * PAGE - rows)]))
            places += [(first + at, int(slot)) for at in range(count)]

        def normal(*shape: int) -> np.ndarray:
            return rng.standard_normal(shape).astype(np.float32)

        table = rng.permutation(SLOTS * PAGES + 1)[1:].reshape(SLOTS, PAGES).astype(np.uint32)
        kept = normal(SLOTS * PAGES + 1, ROWS, width)
        return cls(places, normal(rows, (3 if gated else 1) * width), table, kept, normal(width, taps), gated)

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """The output (rows, width), and the rows that the pages hold after the pass."""
        kept, out = self.kept.copy(), []

        def row(position: int, slot: int) -> tuple[int, int]:
            return int(self.table[slot, position // PAGE]), position % PAGE % ROWS

        for (position, slot), x in zip(self.places, self.x, strict=True):
            b, c, u = np.split(x, 3) if self.gated else (1, 1, x)
            kept[row(position, slot)] = b * u
            taps = self.weight.shape[1]
            seen = [(j, position - taps + 1 + j) for j in range(taps) if position - taps + 1 + j >= 0]
            out.append(c * sum(self.weight[:, j] * kept[row(at, slot)] for j, at in seen))
        made = np.array(out)
        return made if self.gated else made / (1 + np.exp(-made)), kept
