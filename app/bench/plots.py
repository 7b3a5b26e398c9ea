"""Plots of lines as one SVG picture, for the commands that measure. Drawing needs no browser and no package.

svg_of([Plot("Loss", "step", "nats", (Line("dev", ((1, 3.2), (2, 2.9))),))])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 22, 48, 44
COLOURS = ("#0b62c4", "#c4570b", "#2a7d3f", "#8a3fb0")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""Lines differ in their dashes, too, for readers who do not see colours."""
TICKS = 5
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#222}.title{font-size:13px;font-weight:600}"
    ".grid{stroke:#ddd}.axis{stroke:#888}.line{fill:none;stroke-width:2}"
)


@dataclass(frozen=True)
class Line:
    """points: (x, y), in the order of x; points that are not numbers are left out."""

    name: str
    points: Sequence[tuple[float, float]]

    @property
    def drawn(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True)
class Plot:
    """x, y: the titles of the axes. least, most: the range of y, if it is fixed; else the lines decide."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    least: float | None = None
    most: float | None = None


def svg_of(plots: Sequence[Plot]) -> str:
    """The plots beside each other, two in a row; plots without a point are left out."""
    shown = [plot for plot in plots if any(line.drawn for line in plot.lines)]
    columns = min(len(shown), 2) or 1
    size = columns * WIDTH, math.ceil(len(shown) / columns) * HEIGHT
    drawn = "".join(
        f'<g transform="translate({at % columns * WIDTH},{at // columns * HEIGHT})">{_drawn(plot)}</g>\n'
        for at, plot in enumerate(shown)
    )
    named = escape("; ".join(plot.title for plot in shown))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" '
        f'height="{size[1]}" role="img" aria-label="{named}">\n<style>{_STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{drawn}</svg>\n'
    )


def ticks(least: float, most: float) -> list[float]:
    """Round numbers from the last one below `least` to the first one above `most`: a step is 1, 2 or 5 times a power of
    ten."""
    rough = (most - least) / TICKS or abs(most) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def _drawn(plot: Plot) -> str:
    points = [point for line in plot.lines for point in line.drawn]
    across = ticks(min(x for x, _ in points), max(x for x, _ in points))
    low, high = min(y for _, y in points), max(y for _, y in points)
    up = ticks(low if plot.least is None else plot.least, high if plot.most is None else plot.most)

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (x - across[0]) / (across[-1] - across[0]) * (WIDTH - LEFT - RIGHT)
        return round(right, 1), round(HEIGHT - BOTTOM - (y - up[0]) / (up[-1] - up[0]) * (HEIGHT - TOP - BOTTOM), 1)

    parts = [f'<text class="title" x="{LEFT}" y="16">{escape(plot.title)}</text>']
    for y in up:
        x1, at = place(across[0], y)
        parts.append(f'<path class="grid" d="M{x1} {at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text text-anchor="end" x="{LEFT - 6}" y="{at + 4}">{y:g}</text>')
    for x in across:
        at, bottom = place(x, up[0])
        parts.append(f'<path class="axis" d="M{at} {bottom}v4"/>')
        parts.append(f'<text text-anchor="middle" x="{at}" y="{bottom + 16}">{x:,g}</text>')
    parts.append(
        f'<text text-anchor="middle" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}">{escape(plot.x)}</text>'
    )
    parts.append(f'<text x="{LEFT}" y="{TOP - 16}" dy="-1">{escape(plot.y)}</text>')
    legend = LEFT + 8.0 * len(plot.y)
    for number, line in enumerate(plot.lines):
        colour, dashes = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        found = [place(*point) for point in line.drawn]
        way = "".join(f"{'L' if at else 'M'}{x} {y}" for at, (x, y) in enumerate(found))
        stroke = f'stroke="{colour}" stroke-dasharray="{dashes}"'
        parts.append(f'<path class="line" {stroke} d="{way}"/>')
        if len(found) <= 12:
            parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in found]
        parts.append(f'<path class="line" {stroke} d="M{legend} {TOP - 20}h20"/>')
        parts.append(f'<text x="{legend + 24}" y="{TOP - 16}">{escape(line.name)}</text>')
        legend += 34 + 6.2 * len(line.name)
    return "".join(parts)
