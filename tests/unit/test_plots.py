"""Plots as SVG: shapes are drawn where their numbers say, and the commands write it."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from app.bench.plots import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Line, Plot, svg_of, ticks

SVG = "{http://www.w3.org/2000/svg}"


def lines_of(svg: str) -> list[list[tuple[float, float]]]:
    """The points of each line, without the legend."""
    ways = [one.get("d", "") for one in ElementTree.fromstring(svg).iter(f"{SVG}path") if one.get("class") == "line"]
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", way)] for way in ways if "h20" not in way
    ]


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (24, 1000, [0, 200, 400, 600, 800, 1000]),
        (38.4, 39.2, [38.4, 38.6, 38.8, 39, 39.2]),
        (0, 0, [0, 1]),
        (7, 7, [0, 10]),
    ],
)
def test_ticks_are_round_and_hold_all_numbers(least: float, most: float, expected: list[float]) -> None:
    assert ticks(least, most) == pytest.approx(expected)


def test_a_point_lies_where_its_numbers_say() -> None:
    plot = Plot("Recall & more", "steps", "share", (Line("<a>", ((0, 0), (50, 0.5), (100, 1))),), 0, 1)
    (found,) = lines_of(svg_of([plot]))
    bottom = found[0][1]
    assert found[0][0] == LEFT
    assert found[2] == (WIDTH - RIGHT, TOP)
    assert found[1] == pytest.approx(((LEFT + WIDTH - RIGHT) / 2, (TOP + bottom) / 2))
    assert TOP < bottom < HEIGHT
    said = [one.text for one in ElementTree.fromstring(svg_of([plot])).iter(f"{SVG}text")]
    assert {"Recall & more", "steps", "share", "<a>", "0.4", "100"} <= set(said)


def test_what_is_no_number_is_left_out_and_so_is_a_plot_without_a_point() -> None:
    broken = Plot("", "x", "y", (Line("", ((0, 1), (1, math.nan), (2, math.inf), (3, 2))),))
    empty = Plot("empty", "x", "y", (Line("none", ()),))
    svg = svg_of([empty, broken])
    assert [len(line) for line in lines_of(svg)] == [2]
    assert "empty" not in svg
    assert lines_of(svg_of([])) == []
