"""Dates as people write them, in English and German, and arithmetic on them (proleptic Gregorian calendar)."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, timedelta

from py_core.tools.question import CannotComputeError

_ENGLISH_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July",
    "August", "September", "October", "November", "December",
]  # fmt: skip
_GERMAN_MONTHS = [
    "Januar", "Februar", "März", "April", "Mai", "Juni", "Juli",
    "August", "September", "Oktober", "November", "Dezember",
]  # fmt: skip
_ENGLISH_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_GERMAN_DAYS = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"]
MONTHS = {
    **{name.lower(): (number, "en") for number, name in enumerate(_ENGLISH_MONTHS, 1)},
    **{name[:3].lower(): (number, "en") for number, name in enumerate(_ENGLISH_MONTHS, 1)},
    "sept": (9, "en"),
    **{name.lower(): (number, "de") for number, name in enumerate(_GERMAN_MONTHS, 1) if name not in _ENGLISH_MONTHS},
    "jänner": (1, "de"), "okt": (10, "de"), "dez": (12, "de"),
}  # fmt: skip
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
FEASTS = {
    "christmas": (12, 25, "en"), "christmas day": (12, 25, "en"), "xmas": (12, 25, "en"),
    "christmas eve": (12, 24, "en"), "new year's eve": (12, 31, "en"), "new years eve": (12, 31, "en"),
    "new year": (1, 1, "en"), "new year's": (1, 1, "en"), "new years": (1, 1, "en"), "new year's day": (1, 1, "en"),
    "new years day": (1, 1, "en"), "halloween": (10, 31, "en"), "valentine's day": (2, 14, "en"),
    "valentines day": (2, 14, "en"), "boxing day": (12, 26, "en"), "easter": (0, 0, "en"),
    "easter sunday": (0, 0, "en"), "weihnachten": (12, 25, "de"), "heiligabend": (12, 24, "de"),
    "heiliger abend": (12, 24, "de"), "silvester": (12, 31, "de"), "neujahr": (1, 1, "de"), "nikolaus": (12, 6, "de"),
    "ostern": (0, 0, "de"), "ostersonntag": (0, 0, "de"),
}  # fmt: skip
_FEAST = "|".join(sorted(map(re.escape, FEASTS), key=len, reverse=True))
_RELATIVE = {
    "today": (0, "en"), "now": (0, "en"), "tomorrow": (1, "en"), "yesterday": (-1, "en"),
    "the day after tomorrow": (2, "en"), "the day before yesterday": (-2, "en"),
    "heute": (0, "de"), "jetzt": (0, "de"), "morgen": (1, "de"), "gestern": (-1, "de"), "übermorgen": (2, "de"),
    "vorgestern": (-2, "de"),
}  # fmt: skip
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"(?:the )?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m>{_MONTH})\.?(?:,? (?P<y>\d{{4}}))?",
        rf"(?P<m>{_MONTH})\.? (?:the )?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<y>\d{{4}}))?",
        rf"(?:de[rmn] )?(?P<d>\d{{1,2}})\. ?(?P<m>{_MONTH})\.?(?: (?P<y>\d{{4}}))?",
        r"(?P<y>\d{4})-(?P<n>\d{2})-(?P<d>\d{2})",
        r"(?:de[rmn] )?(?P<d>\d{1,2})\. ?(?P<n>\d{1,2})\.(?: ?(?P<y>\d{4}))?",
        r"(?P<a>\d{1,2})/(?P<b>\d{1,2})/(?P<y>\d{4})",
        rf"(?P<feast>{_FEAST})(?: (?:in |of )?(?P<y>\d{{4}}))?",
    )
)


@dataclass(frozen=True)
class Day:
    """A date from a message. has_year: True if the message gave the year. language: "" if nothing tells it. feast: the
    name of the day, if the message used one."""

    date: date
    has_year: bool
    language: str
    feast: str = ""


def easter(year: int) -> date:
    """Easter Sunday (Gregorian), by the anonymous algorithm in Meeus."""
    century, of_century = divmod(year, 100)
    cycle = year % 19
    leaps, rest = divmod(century, 4)
    moved = (century - (century + 8) // 25 + 1) // 3
    moon = (19 * cycle + century - leaps - moved + 15) % 30
    fours, of_four = divmod(of_century, 4)
    weekday = (32 + 2 * rest + 2 * fours - moon - of_four) % 7
    late = (cycle + 11 * moon + 22 * weekday) // 451
    month, day = divmod(moon + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def read_day(text: str, today: date, past: bool = False) -> Day | None:
    """A date, or the name of a day. A date without a year is the next one from today on, or the last one if `past`.
    None if it is no date, or ambiguous (3/4/2026). Raises CannotComputeError for a date that does not exist."""
    text = text.strip(" ,")
    lower = text.lower()
    if (relative := _RELATIVE.get(lower)) is not None:
        return Day(_moved(today, relative[0]), True, relative[1])
    lower = re.sub(
        r"^(?:(?:on )?(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|next|this)|am|zu|an|nächste[ns]?),? ",
        "",
        lower,
    )
    for form in _FORMS:
        if (found := form.fullmatch(lower)) is None:
            continue
        groups = found.groupdict()
        year = int(groups["y"]) if groups.get("y") else None
        feast, language = groups.get("feast") or "", ""
        if feast:
            month, day, language = FEASTS[feast]
        elif groups.get("a"):
            first, second = int(groups["a"]), int(groups["b"])
            if first <= 12 and second <= 12 and first != second:
                return None
            month, day = (second, first) if first > 12 else (first, second)
        else:
            month, language = MONTHS[groups["m"]] if groups.get("m") else (int(groups["n"]), "")
            day = int(groups["d"])
            if re.match(r"(?:de[rmn] )?\d{1,2}\.", lower):
                month, day, language = _dotted(month, day, bool(groups.get("m")) or not lower[0].isdigit())
        found_date = _date(year, month, day, today, past)
        return Day(found_date, year is not None, language, found["feast"] if feast else "")
    return None


def _dotted(month: int, day: int, is_german: bool) -> tuple[int, int, str]:
    """Parse a dotted date. 24.12. is clear in every language, 12.24. is English; 3.4. is a date only in German."""
    if month > 12 >= day and not is_german:
        return day, month, "en"
    return month, day, "" if not is_german and (day > 12 or day == month) else "de"


def _date(year: int | None, month: int, day: int, today: date, past: bool) -> date:
    if year is not None:
        return easter(year) if not month else checked(year, month, day)
    if month == 2 and day == 29:
        step, year = (-1 if past else 1), today.year
        while not calendar.isleap(year) or ((date(year, 2, 29) > today) if past else (date(year, 2, 29) < today)):
            year += step
        return date(year, 2, 29)
    this = easter(today.year) if not month else checked(today.year, month, day)
    if (this <= today) if past else (this >= today):
        return this
    year = today.year - 1 if past else today.year + 1
    return easter(year) if not month else checked(year, month, day)


def checked(year: int, month: int, day: int) -> date:
    """Raises CannotComputeError for a date that does not exist."""
    if not 1 <= year <= 9999:
        raise CannotComputeError(
            "I count from the year 1 to the year 9999.", "Ich rechne vom Jahr 1 bis zum Jahr 9999."
        )
    if not 1 <= month <= 12:
        raise CannotComputeError(
            f"A year has 12 months: there is no month {month}.",
            f"Ein Jahr hat 12 Monate: Einen Monat {month} gibt es nicht.",
        )
    days = calendar.monthrange(year, month)[1]
    if not 1 <= day <= days:
        raise CannotComputeError(
            f"{_ENGLISH_MONTHS[month - 1]} {year} has {days} days: it has no day {day}.",
            f"Der {_GERMAN_MONTHS[month - 1]} {year} hat {days} Tage: Einen {day}. gibt es nicht.",
        )
    return date(year, month, day)


def moved(day: date, amount: int, unit: str) -> date:
    """unit: day, week, month or year. A month after the 31st is the last day of the next month. Raises
    CannotComputeError if the result is beyond the calendar."""
    if unit in ("month", "year"):
        months = 12 * day.year + day.month - 1 + amount * (12 if unit == "year" else 1)
        year, month = divmod(months, 12)
        if not 1 <= year <= 9999:
            return checked(0, 1, 1)
        return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
    return _moved(day, amount * (7 if unit == "week" else 1))


def _moved(day: date, days: int) -> date:
    if not 1 <= day.toordinal() + days <= date.max.toordinal():
        return checked(0, 1, 1)
    return day + timedelta(days=days)


def weekday(day: date, language: str) -> str:
    return (_GERMAN_DAYS if language == "de" else _ENGLISH_DAYS)[day.weekday()]


def month_name(month: int, language: str) -> str:
    return (_GERMAN_MONTHS if language == "de" else _ENGLISH_MONTHS)[month - 1]


def written_day(day: date, language: str) -> str:
    """24 December 2026; 24. Dezember 2026."""
    return f"{day.day}{'.' if language == 'de' else ''} {month_name(day.month, language)} {day.year}"


def calendar_note(language: str) -> str:
    return "By the calendar (Gregorian)." if language != "de" else "Nach dem (gregorianischen) Kalender."
