"""Answers that need only the clock: today, the time, the year, the week."""

from __future__ import annotations

import re

from py_core.tools.dates import month_name, moved, weekday, written_day
from py_core.tools.question import Exact, Question


def _clock(language: str) -> str:
    return "By the clock of this device." if language != "de" else "Nach der Uhr dieses Geräts."


def today(found: re.Match[str], question: Question, language: str) -> Exact:
    word = (found.groupdict().get("when") or "").lower()
    shift = {"tomorrow": 1, "yesterday": -1, "morgen": 1, "gestern": -1, "übermorgen": 2, "vorgestern": -2}.get(word, 0)
    day = moved(question.now.date(), shift, "day")
    said, on = written_day(day, language), weekday(day, language)
    if language == "de":
        names = {0: "Heute ist", 1: "Morgen ist", -1: "Gestern war", 2: "Übermorgen ist", -2: "Vorgestern war"}
        return Exact("date", day.isoformat(), f"{names[shift]} {on}, der {said}.", _clock(language))
    begin = {0: "Today is", 1: "Tomorrow is", -1: "Yesterday was"}[shift]
    return Exact("date", day.isoformat(), f"{begin} {on}, {said}.", _clock(language))


def time(found: re.Match[str], question: Question, language: str) -> Exact:
    time = f"{question.now:%H:%M}"
    return Exact("date", time, f"Es ist {time} Uhr." if language == "de" else f"It is {time}.", _clock(language))


def year(found: re.Match[str], question: Question, language: str) -> Exact:
    year = question.now.year
    return Exact(
        "date", str(year), f"Es ist das Jahr {year}." if language == "de" else f"It is {year}.", _clock(language)
    )


def month(found: re.Match[str], question: Question, language: str) -> Exact:
    name = f"{month_name(question.now.month, language)} {question.now.year}"
    return Exact("date", name, f"Es ist {name}." if language == "de" else f"It is {name}.", _clock(language))


def week(found: re.Match[str], question: Question, language: str) -> Exact:
    week = question.now.isocalendar().week
    if language == "de":
        return Exact("date", str(week), f"Es ist Kalenderwoche {week}.", "Nach ISO 8601: Wochen beginnen am Montag.")
    return Exact("date", str(week), f"It is week {week}.", "By ISO 8601: weeks begin on Monday.")
