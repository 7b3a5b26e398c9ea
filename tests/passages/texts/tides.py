"""Tide tables for small harbours: heights from a handful of constituents, and the times of high and low water."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
STEP = timedelta(minutes=6)

# degrees per hour
SPEEDS = {
    "M2": 28.9841042,
    "S2": 30.0,
    "N2": 28.4397295,
    "K1": 15.0410686,
    "O1": 13.9430356,
}


class UnknownConstituentError(KeyError):
    """A harbour names a constituent whose speed is not in the table."""


@dataclass(frozen=True)
class Constituent:
    """One cosine of the tide: its amplitude in metres and its phase lag in degrees."""

    name: str
    amplitude: float
    phase: float

    def height(self, hours: float) -> float:
        try:
            speed = SPEEDS[self.name]
        except KeyError as error:
            raise UnknownConstituentError(self.name) from error
        return self.amplitude * math.cos(math.radians(speed * hours - self.phase))


@dataclass
class Harbour:
    """A place with a mean level above chart datum and its constituents."""

    name: str
    mean_level: float
    constituents: list[Constituent]

    def height(self, moment: datetime) -> float:
        """Metres above chart datum."""
        hours = (moment - EPOCH).total_seconds() / 3600
        return self.mean_level + sum(one.height(hours) for one in self.constituents)

    def largest_range(self) -> float:
        """Twice the sum of all amplitudes: no tide of this harbour is larger."""
        return 2 * sum(one.amplitude for one in self.constituents)


def extremes(harbour: Harbour, start: datetime, days: int) -> list[tuple[datetime, float, bool]]:
    """High and low waters: when, how high, and whether it is a high one. Found where the slope changes its sign."""
    found = []
    before, here = harbour.height(start - STEP), harbour.height(start)
    moment = start
    while moment < start + timedelta(days=days):
        after = harbour.height(moment + STEP)
        if (here - before) * (after - here) < 0:
            when = moment + _vertex(before, here, after)
            found.append((when, harbour.height(when), here > before))
        before, here, moment = here, after, moment + STEP
    return found


def _vertex(before: float, here: float, after: float) -> timedelta:
    """Where a parabola through three equally spaced heights has its top or bottom, from the middle one."""
    curvature = before - 2 * here + after
    return STEP * (0.5 * (before - after) / curvature)


def can_enter(harbour: Harbour, moment: datetime, draught: float, sill: float, spare: float = 0.5) -> bool:
    """Whether a boat passes the harbour's sill, which lies `sill` metres above chart datum, with water to spare."""
    return harbour.height(moment) - sill >= draught + spare


def next_window(harbour: Harbour, start: datetime, draught: float, sill: float) -> tuple[datetime, datetime] | None:
    """The next time in which a boat can enter, within two days. None if there is none."""
    moment, opens = start, None
    while moment < start + timedelta(days=2):
        if can_enter(harbour, moment, draught, sill):
            opens = opens or moment
        elif opens is not None:
            return opens, moment
        moment += STEP
    return None if opens is None else (opens, moment)


def print_table(harbour: Harbour, start: datetime, days: int) -> None:
    """A line for each high and low water, with the time rounded to a minute."""
    print(f"{harbour.name}: metres above chart datum, times in UTC")
    for when, height, is_high in extremes(harbour, start, days):
        kind = "high" if is_high else "low "
        rounded = when + timedelta(seconds=30)
        print(f"{rounded:%a %d %b %H:%M}  {kind}  {height:5.2f}")


def read_harbour(line: str) -> Harbour:
    """From `name;mean;M2=1.2@120;S2=0.4@165`. Raises ValueError with the field that is wrong."""
    name, mean, *fields = line.strip().split(";")
    constituents = []
    for field in fields:
        code, _, rest = field.partition("=")
        amplitude, at, phase = rest.partition("@")
        if not at:
            raise ValueError(f"{field!r} needs an amplitude and a phase, as in M2=1.2@120")
        constituents.append(Constituent(code, float(amplitude), float(phase)))
    return Harbour(name, float(mean), constituents)


def moon_age(moment: datetime) -> float:
    """Days since new moon, from 0 to 29.53; springs follow new and full moon by about two days."""
    new_moon = datetime(2000, 1, 6, 18, 14, tzinfo=UTC)
    return (moment - new_moon).total_seconds() / 86400 % 29.530588


def is_spring(moment: datetime) -> bool:
    """Whether the range is near its largest."""
    return abs((moon_age(moment) - 2) % 14.765 - 7.38) > 5.5
