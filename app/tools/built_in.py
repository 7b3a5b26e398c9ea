"""Tools that need nothing but a clock: the exact answers (py_core/tools), for a model to call, and the time."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date as Date
from datetime import datetime
from fractions import Fraction
from typing import Literal

from app.tools.functions import tool
from app.tools.model_tool import Tool, ToolFailure
from py_core.display import shown
from py_core.tools import arithmetic, counting, equations, proportions, units
from py_core.tools.dates import moved, read_day, weekday, written_day
from py_core.tools.question import CannotComputeError, Exact, question_of

_WRITTEN = ((r"\bmath\.", ""), (r"(?<=[\d)]) ?% ?(?=[\d(])", " mod "), (r"\bpow\(([^(),]+),([^(),]+)\)", r"(\1)^(\2)"))
"""What Python writes for what people write."""


def built_in_tools(clock: Callable[[], datetime] = datetime.now) -> tuple[Tool, ...]:
    """Return calculate, convert_units, dates and current_time. clock: the local time."""

    @tool
    def calculate(expression: str) -> str:
        """Compute an expression exactly, without rounding in between.

        expression: such as (3 + 4) * 5, sqrt(2), 15% of 80, 5!, average of 1, 2, 6, or x^2 - 5x + 6 = 0
        """
        for found, instead in _WRITTEN:
            expression = re.sub(found, instead, expression)
        now = clock()
        for text in (f"calculate {expression}", f"{expression} =", expression):
            for answer in (arithmetic.answer, equations.answer, proportions.answer, counting.answer):
                if (exact := answer(question_of(text, now))) is not None:
                    return _said(exact)
        raise ToolFailure(
            f"{shown(expression)} cannot be computed: write numbers with + - * / ^, brackets, percent or sqrt."
        )

    @tool
    def convert_units(amount: float, from_unit: str, to_unit: str) -> str:
        """Convert an amount from one unit into another: lengths, masses, volumes, temperatures, speeds, areas, times,
        energy, data.

        from_unit: such as miles
        to_unit: such as kilometers
        """
        exact = units.convert(Fraction(repr(amount)), from_unit, to_unit)
        if exact is not None:
            return f"{_said(exact)} ({exact.working.rstrip('.')}.)"
        for name in (from_unit, to_unit):
            if not units.named(name):
                raise ToolFailure(f"The unit {shown(name)} is not known.")
        raise ToolFailure(f"{shown(from_unit)} cannot be converted into {shown(to_unit)}.")

    @tool
    def dates(
        date: str, until: str | None = None, add: int = 0, unit: Literal["days", "weeks", "months", "years"] = "days"
    ) -> str:
        """Compute with dates: the weekday of a date, the days from a date until another one, or the date that is some
        days, weeks, months or years later.

        date: such as 2026-12-24, 24 December 2026, today or Easter 2027
        until: the second date, to count the days between both
        add: how many units later; a negative number is earlier
        """
        today = clock().date()
        try:
            begin = _day(date, today)
            if until is not None:
                end = _day(until, today)
                days = (end - begin).days
                counted = f"{abs(days):,} {'day' if abs(days) == 1 else 'days'}"
                order = "" if days >= 0 else " The second date is the earlier one."
                return f"From {_written(begin)} to {_written(end)} it is {counted}.{order}"
            if not add:
                return f"{_written(begin)} is a {weekday(begin, 'en')}."
            counted = f"{abs(add):,} {unit if abs(add) != 1 else unit.removesuffix('s')}"
            day = moved(begin, add, unit.removesuffix("s"))
            how = "after" if add > 0 else "before"
            return f"{counted} {how} {_written(begin)} is {weekday(day, 'en')}, {_written(day)}."
        except CannotComputeError as error:
            raise ToolFailure(str(error)) from None

    @tool
    def current_time() -> str:
        """Tell the date, the weekday and the time of day at this moment."""
        now = clock().astimezone()
        offset = now.strftime("%z")
        return (
            f"It is {weekday(now.date(), 'en')}, {_written(now.date())}, {now:%H:%M} (UTC{offset[:3]}:{offset[3:5]})."
        )

    return calculate, convert_units, dates, current_time


def _said(exact: Exact) -> str:
    if not exact.value:
        raise ToolFailure(exact.words)
    return exact.words


def _day(text: str, today: Date) -> Date:
    day = read_day(text, today)
    if day is None:
        raise ToolFailure(f"{shown(text)} is not a date: write it as YYYY-MM-DD, such as {today.isoformat()}.")
    return day.date


def _written(day: Date) -> str:
    return written_day(day, "en")
