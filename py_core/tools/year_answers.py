"""Answers about years and months: leap years, how many days they have."""

from __future__ import annotations

import calendar
import re

from py_core.tools.dates import MONTHS, calendar_note, month_name
from py_core.tools.question import Exact, Question


def leap_year(found: re.Match[str], question: Question, language: str) -> Exact | None:
    year = int(found["y"]) if found.groupdict().get("y") else question.now.year
    if not 1 <= year <= 9999:
        return None
    leap = calendar.isleap(year)
    february = 29 if leap else 28
    if language == "de":
        said = f"{'Ja' if leap else 'Nein'}, {year} ist {'ein' if leap else 'kein'} Schaltjahr."
        why = "Schaltjahre sind durch 4 teilbar, und durch 400, wo sie durch 100 teilbar sind."
        return Exact("date", str(leap).lower(), said, f"{why} Der Februar {year} hat {february} Tage.")
    said = f"{'Yes' if leap else 'No'}, {year} is {'a' if leap else 'no'} leap year."
    why = "Leap years can be divided by 4, and by 400 where they can be divided by 100."
    return Exact("date", str(leap).lower(), said, f"{why} February {year} has {february} days.")


def next_leap_year(found: re.Match[str], question: Question, language: str) -> Exact:
    year = question.now.year + 1
    while not calendar.isleap(year):
        year += 1
    said = f"Das nächste Schaltjahr ist {year}." if language == "de" else f"The next leap year is {year}."
    return Exact("date", str(year), said, calendar_note(language))


def days_of_month(found: re.Match[str], question: Question, language: str) -> Exact | None:
    month, spoken = MONTHS[found["m"].lower()]
    if spoken != language and not (language == "de" and month_name(month, "de").lower() == found["m"].lower()):
        return None
    name = month_name(month, language)
    if month == 2 and not found["y"]:
        said = "February has 28 days, and 29 in leap years."
        if language == "de":
            said = "Der Februar hat 28 Tage, in Schaltjahren 29."
        return Exact("date", "28", said, calendar_note(language))
    days = calendar.monthrange(int(found["y"] or 2001), month)[1] if int(found["y"] or 1) else 0
    if not days:
        return None
    year = f" {found['y']}" if found["y"] else ""
    said = f"Der {name}{year} hat {days} Tage." if language == "de" else f"{name}{year} has {days} days."
    return Exact("date", str(days), said, calendar_note(language))


def days_of_year(found: re.Match[str], question: Question, language: str) -> Exact | None:
    year = int(found["y"])
    if not 1 <= year <= 9999:
        return None
    days = 366 if calendar.isleap(year) else 365
    said = f"{year} hat {days} Tage." if language == "de" else f"{year} has {days} days."
    said = f"Das Jahr {said}" if language == "de" else f"The year {said}"
    return Exact("date", str(days), said, calendar_note(language))
