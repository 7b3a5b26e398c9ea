"""Tools that need nothing but a clock: the exact answers (py_core/tools), for a model to call, and the time."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date as Date
from datetime import datetime
from fractions import Fraction

from app.tools.functions import tool
from app.tools.model_tool import Tool, ToolFailure
from py_core.display import shown
from py_core.tools import arithmetic, counting, date_questions, durations, equations, proportions, units
from py_core.tools.dates import read_day, weekday, written_day
from py_core.tools.question import CannotComputeError, Exact, question_of

_WRITTEN = ((r"\bmath\.", ""), (r"(?<=[\d)]) ?% ?(?=[\d(])", " mod "), (r"\bpow\(([^(),]+),([^(),]+)\)", r"(\1)^(\2)"))
"""Python's ways of writing, and those of people."""
_NAMED = re.compile(r"(?:the )?(?:date|day of the week|week ?day|day)(?: (?:of|on|for|is)|:)? ", re.IGNORECASE)


def built_in_tools(clock: Callable[[], datetime] = datetime.now) -> tuple[Tool, ...]:
    """Return calculate, convert_units, current_time and dates. clock: the local time. Descriptions are short, with few
    examples: small models copy these into their calls."""

    @tool
    def calculate(expression: str) -> str:
        """Compute an expression exactly.

        expression: such as (3 + 4) * 5 or 15% of 80
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
        """Convert an amount from one unit into another.

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
    def dates(question: str) -> str:
        """Compute with dates: weekdays, days between two dates, a date some days later.

        question: such as weekday of 2026-12-24, days from 2026-03-01 to 2026-05-05, or 45 days after 2026-03-01
        """
        now = clock()
        bare = _NAMED.sub("", question.strip(" ?."), count=1)
        try:
            if (day := read_day(bare, now.date())) is not None:
                return f"{_written(day.date)} is a {weekday(day.date, 'en')}."
        except CannotComputeError as error:
            raise ToolFailure(str(error)) from None
        for text in (
            question,
            bare,
            f"what date is {bare}",
            f"what date was {bare}",
            f"days {bare}",
            f"days from {bare}",
        ):
            for answer in (date_questions.answer, durations.answer):
                if (exact := answer(question_of(text, now))) is not None:
                    return _said(exact)
        raise ToolFailure(
            f"{shown(question)} is not a question about dates that can be computed. Write it as in: days from "
            f"2026-03-01 to 2026-05-05, 45 days after 2026-03-01, weekday of 2026-12-24."
        )

    @tool
    def current_time() -> str:
        """Tell the date, the weekday and the time now."""
        now = clock().astimezone()
        offset = now.strftime("%z")
        return (
            f"It is {weekday(now.date(), 'en')}, {_written(now.date())}, {now:%H:%M} (UTC{offset[:3]}:{offset[3:5]})."
        )

    return calculate, convert_units, current_time, dates


def _said(exact: Exact) -> str:
    if not exact.value:
        raise ToolFailure(exact.words)
    return exact.words


def _written(day: Date) -> str:
    return written_day(day, "en")
