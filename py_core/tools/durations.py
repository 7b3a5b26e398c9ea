"""The time between two times of day: "from 9:40 to 13:05", "leaves 9:40, arrives 13:05, how long"."""

from __future__ import annotations

import re

from py_core.tools.question import Exact, Question

LONGEST = 150
_TIME = re.compile(
    r"(?P<h>\d{1,2})(?:[:.](?P<m>[0-5]\d))?(?: ?(?P<half>[ap])\.?m\b\.?| ?(?P<uhr>uhr)\b(?: (?P<n>[0-5]?\d)\b)?)?"
    r"|\b(?P<name>noon|midnight|mittags?|mitternacht)\b",
    re.IGNORECASE,
)
_NAMES = {"noon": 12, "mittag": 12, "mittags": 12, "midnight": 0, "mitternacht": 0}
_ASKS = re.compile(
    r"how long|how many (?:hours|minutes)|how much time|wie lange?|wie ?viele? (?:stunden|minuten|zeit)", re.IGNORECASE
)
_BARE = re.compile(
    r"(?:(?P<en>from|between) @ (?:to|until|till|and) @|(?:von|zwischen) @ (?:bis|und) @)", re.IGNORECASE
)
_WORDS = """how long many much hours hour minutes time is it does do the a an in are there was will be take takes took
last lasts train bus plane flight trip journey ride ferry film movie meeting shift lesson class party i we
he she they leave leaves left depart departs departing leaving arrive arrives arriving start starts
starting begin begins end ends ending finish finishes from to until till between and at if when that this
my our then by wie lang lange viel viele stunden minuten zeit es dauert dauerte liegen liegt sind die der
das den dem ein eine zug flug fahrt reise schicht stunde sitzung treffen besprechung fährt fahre ab an
kommt komme geht los beginnt fängt endet startet von bis zwischen und um wenn so ich wir er sie dann ist"""


def answer(question: Question) -> Exact | None:
    text = question.text
    if "\n" in question.given or len(text) > LONGEST:
        return None
    found = list(_TIME.finditer(text))
    if len(found) != 2:
        return None
    rest = " ".join(_TIME.sub("@", text).split())
    words = re.findall(r"[^\W\d_]+", rest.lower())
    asks = _ASKS.search(rest)
    bare = _BARE.fullmatch(rest.rstrip(" ,.?!"))
    if bare is None and (
        asks is None or not set(_WORDS.split()).issuperset(words) or re.search(r"[^\w\s,.;:?!@\u2019'-]", rest)
    ):
        return None
    begin, end = (_minutes(each) for each in found)
    if begin is None or end is None or begin == end or not (_is_clock(found[0]) and _is_clock(found[1])):
        return None
    sure = [_is_sure(each, minutes) for each, minutes in zip(found, (begin, end), strict=True)]
    halves = any(each["half"] for each in found)
    if (halves and not all(sure)) or (end < begin and not any(sure)):
        return None  # 1:00 to 3:00 pm, 9:40 to 1:05: a.m. or p.m.?
    german = not bare["en"] if bare else bool(asks and asks[0].lower().startswith("wie"))
    return _said(begin, end, german, bool(re.search(r"(?:many|viele?) minut", rest, re.IGNORECASE)))


def _is_clock(found: re.Match[str]) -> bool:
    """True if it is a time of day and not another number."""
    is_time = found["name"] or found["half"] or found["uhr"] or (found["m"] and "." not in found[0])
    return bool(is_time)


def _is_sure(found: re.Match[str], minutes: int) -> bool:
    """True if a.m. or p.m. is unambiguous."""
    return minutes >= 13 * 60 or any(found[each] for each in ("half", "uhr", "name")) or found["h"].startswith("0")


def _minutes(found: re.Match[str]) -> int | None:
    if found["name"]:
        return 60 * _NAMES[found["name"].lower()]
    hour, minute = int(found["h"]), int(found["m"] or found["n"] or 0)
    if hour > 24 or (hour == 24 and minute) or (found["m"] and found["n"]):
        return None
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"].lower() == "p" else 0)
    return 60 * hour + minute


def _said(begin: int, end: int, german: bool, in_minutes: bool) -> Exact:
    over = end < begin
    minutes = end - begin + (24 * 60 if over else 0)
    hours, rest = divmod(minutes, 60)
    parts = []
    if hours:
        parts.append(
            f"{hours} {('Stunde' if hours == 1 else 'Stunden') if german else ('hour' if hours == 1 else 'hours')}"
        )
    if rest:
        parts.append(
            f"{rest} {('Minute' if rest == 1 else 'Minuten') if german else ('minute' if rest == 1 else 'minutes')}"
        )
    long = (" und " if german else " and ").join(parts)
    if in_minutes and hours:
        long = f"{minutes} {'Minuten' if german else 'minutes'} ({long})"
    first, last = (f"{each // 60}:{each % 60:02}" for each in (begin, end))
    if german:
        said = f"Von {first} bis {last} Uhr{' am nächsten Tag' if over else ''} sind es {long}."
        return Exact(
            "date", f"{hours}:{rest:02}", said, f"{minutes} Minuten.{' Über Mitternacht gerechnet.' if over else ''}"
        )
    said = f"From {first} to {last}{' on the next day' if over else ''} it is {long}."
    return Exact("date", f"{hours}:{rest:02}", said, f"{minutes} minutes.{' Counted over midnight.' if over else ''}")
