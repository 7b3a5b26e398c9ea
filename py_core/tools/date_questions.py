"""Questions about dates and the time: "what day is 24 December 2026", "days until Christmas", "welches Datum ist in 45
Tagen"."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from py_core.tools import clock_answers, year_answers
from py_core.tools.dates import MONTHS, Day, calendar_note, moved, read_day, weekday, written_day
from py_core.tools.number_text import grouped, read_numbers
from py_core.tools.number_words import read_number
from py_core.tools.question import CannotComputeError, Exact, Question

_UNITS = {
    "day": "day", "days": "day", "week": "week", "weeks": "week", "month": "month", "months": "month", "year": "year",
    "years": "year", "tag": "day", "tage": "day", "tagen": "day", "woche": "week", "wochen": "week", "monat": "month",
    "monate": "month", "monaten": "month", "jahr": "year", "jahre": "year", "jahren": "year",
}  # fmt: skip
_N_EN = (
    r"(?P<n>\d[\d.,]{0,8}|an?|one|two|three|four|five|six|seven|eight|nine|ten|[a-z]+ty(?:-[a-z]+)?|a hundred"
    r"|\w+teen|eleven|twelve)"
)
_N_DE = r"(?P<n>\d[\d.,]{0,8}|[a-zäöüß]+)"
_U_EN, _U_DE = r"(?P<u>days?|weeks?|months?|years?)", r"(?P<u>tag(?:en?)?|wochen?|monat(?:en?)?|jahr(?:en?)?)"
_D, _E = r"(?P<d>.+?)", r"(?P<e>.+)"
_WHAT = r"(?:what is|what's|what\u2019s|whats)"

Answer = Callable[[re.Match[str], Question, str], Exact | None]


def answer(question: Question) -> Exact | None:
    if "\n" in question.given or len(question.text) > 200:
        return None
    for form, language, make in _FORMS:
        if (found := form.fullmatch(question.text)) is not None:
            try:
                made = make(found, question, language)
            except CannotComputeError as error:
                made = Exact("date", "", error.words(language), calendar_note(language))
            if made is not None:
                return made
    return None


def _day(text: str, question: Question, language: str, past: bool = False) -> Day | None:
    day = read_day(text, question.now.date(), past)
    return day if day is not None and day.language in ("", language) else None


def _counted(number: int, unit: str, language: str) -> str:
    names = {
        "en": {unit: (unit, f"{unit}s") for unit in ("day", "week", "month", "year")},
        "de": {"day": ("Tag", "Tage"), "week": ("Woche", "Wochen"), "month": ("Monat", "Monate"),
               "year": ("Jahr", "Jahre")},
    }[language]  # fmt: skip
    return f"{grouped(str(number), language)} {names[unit][number != 1]}"


def _dative(number: int, unit: str, language: str) -> str:
    said = _counted(number, unit, language)
    return f"{said}n" if language == "de" and number != 1 and not said.endswith("n") else said


def _named(day: Day, language: str) -> str:
    """The date together with the name that was used for it."""
    said = written_day(day.date, language)
    if not day.feast:
        return said if language != "de" else f"der {said}"
    feast = day.feast.title().replace("'S", "'s")
    return f"{feast} ({said})"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


# ---- one date ----


def _weekday(found: re.Match[str], question: Question, language: str) -> Exact | None:
    was = (found.groupdict().get("was") or "").lower() in ("was", "did", "war", "fiel")
    day = _day(found["d"], question, language, past=was)
    if day is None:
        return None
    on, today = weekday(day.date, language), question.now.date()
    if language == "de":
        verb = "war" if day.date < today else "ist"
        return Exact("date", on, f"{_capital(_named(day, language))} {verb} ein {on}.", calendar_note(language))
    verb = "was" if day.date < today else "is"
    begin = _capital(_named(day, language))
    return Exact("date", on, f"{begin} {verb} a {on}.", calendar_note(language))


def _date_of_feast(found: re.Match[str], question: Question, language: str) -> Exact | None:
    day = _day(found["d"], question, language)
    return _weekday(found, question, language) if day is not None and day.feast else None


def _until(found: re.Match[str], question: Question, language: str) -> Exact | None:
    day = _day(found["d"], question, language)
    if day is None:
        return None
    today = question.now.date()
    days = (day.date - today).days
    if days < 0:
        return _ago(day, -days, language)
    named, between = _named(day, language), _between_working(today, day.date, language)
    if not days:
        said = f"{_capital(named)} ist heute." if language == "de" else f"{_capital(named)} is today."
        return Exact("date", "0", said, between)
    count = (
        _in_weeks(days, language)
        if (found.groupdict().get("u") or "").lower() in _WEEKS
        else _counted(days, "day", language)
    )
    if language == "de":
        to = f"{'bis' if day.feast else 'bis zum'} {named.removeprefix('der ')}"
        return Exact("date", str(days), f"Es {'ist' if days == 1 else 'sind'} noch {count} {to}.", between)
    return Exact("date", str(days), f"There {'is' if days == 1 else 'are'} {count} until {named}.", between)


_WEEKS = ("week", "weeks", "woche", "wochen")


def _in_weeks(days: int, language: str) -> str:
    weeks, rest = divmod(days, 7)
    said = _counted(weeks, "week", language)
    if not weeks:
        return _counted(days, "day", language)
    if rest:
        said += f" {'und' if language == 'de' else 'and'} {_counted(rest, 'day', language)}"
    return said


def _since(found: re.Match[str], question: Question, language: str) -> Exact | None:
    day = _day(found["d"], question, language, past=True)
    if day is None or day.date >= question.now.date():
        return None
    return _ago(day, (question.now.date() - day.date).days, language)


def _ago(day: Day, days: int, language: str) -> Exact:
    named, working = _named(day, language), calendar_note(language)
    if language == "de":
        return Exact("date", str(days), f"{_capital(named)} war vor {_dative(days, 'day', language)}.", working)
    return Exact("date", str(days), f"{_capital(named)} was {_counted(days, 'day', language)} ago.", working)


def _between_working(begin: date, end: date, language: str) -> str:
    first, last = written_day(begin, language), written_day(end, language)
    if language == "de":
        return f"Vom {first} bis zum {last}; der erste Tag zählt nicht mit."
    return f"From {first} to {last}; the first day does not count."


def _between(found: re.Match[str], question: Question, language: str) -> Exact | None:
    begin, end = _day(found["d"], question, language), _day(found["e"], question, language)
    if begin is None or end is None:
        return None
    if not begin.has_year and end.has_year and not begin.feast:  # between 1 March and 5 May 2026
        begin = _day(f"{found['d'].strip()} {end.date.year}", question, language)
        if begin is None:
            return None
    first, last = sorted((begin.date, end.date))
    days = (last - first).days
    as_weeks = (found.groupdict().get("u") or "").lower() in _WEEKS
    count = _in_weeks(days, language) if as_weeks else _counted(days, "day", language)
    working = _between_working(first, last, language)
    if language == "de":
        dates = f"zwischen dem {written_day(first, language)} und dem {written_day(last, language)}"
        return Exact("date", str(days), f"Es {'liegt' if days == 1 else 'liegen'} {count} {dates}.", working)
    dates = f"between {written_day(first, language)} and {written_day(last, language)}"
    return Exact("date", str(days), f"There {'is' if days == 1 else 'are'} {count} {dates}.", working)


def _number(text: str, language: str) -> int | None:
    if text[0].isdigit():
        numbers = read_numbers([text], language)
        return int(numbers[0]) if numbers and numbers[0].denominator == 1 else None
    if text.lower() in ("a", "an", "einem", "einer", "ein", "eine"):
        return 1
    number = read_number([text.lower()] if " " not in text else text.lower().split(), 0)
    return number[0] if number else None


def _shifted(found: re.Match[str], question: Question, language: str) -> Exact | None:
    """In 45 days; 3 weeks ago; 45 days after 1 March."""
    groups = found.groupdict()
    number, unit = _number(groups["n"], language), _UNITS.get(groups["u"].lower())
    base = _day(groups["d"], question, language) if groups.get("d") else Day(question.now.date(), True, language)
    if number is None or unit is None or base is None:
        return None
    back = (groups.get("way") or "").lower() in ("ago", "before", "vor", "minus", "-", "\u2212")
    day = moved(base.date, -number if back else number, unit)
    said, on = written_day(day, language), weekday(day, language)
    count = _counted(number, unit, language)
    sign = "-" if back else "+"
    working = f"{written_day(base.date, language)} {sign} {count}."
    if groups.get("d"):
        name = written_day(base.date, language)
        if language == "de":
            where = f"{count} {'vor' if back else 'nach'} dem {name}"
            return Exact("date", day.isoformat(), f"{_capital(where)} ist {on}, der {said}.", working)
        return Exact(
            "date", day.isoformat(), f"{count} {'before' if back else 'after'} {name} is {on}, {said}.", working
        )
    if language == "de":
        where = f"{'vor' if back else 'in'} {_dative(number, unit, language)}"
        where = where.replace(" 1 Woche", " einer Woche").replace(" 1 ", " einem ")
        return Exact(
            "date", day.isoformat(), f"{_capital(where)} {'war' if back else 'ist'} {on}, der {said}.", working
        )
    where = f"{count} ago it was" if back else f"In {count} it will be"
    return Exact("date", day.isoformat(), f"{where} {on}, {said}.", working)


_IT = r"(?:is it|it is)"
_NOW = r"(?: right)?(?: now| today| currently| at the moment)?"
_MONTH_NAMES = "|".join(sorted(MONTHS, key=len, reverse=True))
_OF_WEEK = r"(?: of the week)?"
_DE_DAY = r"(?:welcher (?:wochen)?tag|was für ein (?:wochen)?tag)"
_MAKERS: tuple[tuple[str, str, Answer], ...] = (
    (rf"(?:{_WHAT} )?(?:today's|today\u2019s|the current|todays) (?:date|day{_OF_WEEK})(?:"
     rf" today)?", "en", clock_answers.today),
    (rf"{_WHAT} (?:the )?(?:date|day)(?: of)?(?: (?P<when>today|tomorrow))?", "en", clock_answers.today),
    (rf"(?:what|which) (?:date|day{_OF_WEEK}|weekday) {_IT}{_NOW}", "en", clock_answers.today),
    (rf"(?:what|which) (?:date|day{_OF_WEEK}|weekday) (?:is|was|will) (?:it )?(?:be )?(?P<when>today|tomorrow"
     rf"|yesterday)(?: be)?",
     "en", clock_answers.today),
    (rf"(?:what is|what's|what was) (?P<when>tomorrow|yesterday)['\u2019]?s (?:date"
     rf"|day{_OF_WEEK})", "en", clock_answers.today),
    (r"(?:welcher (?:wochen)?tag|welches datum|was für ein (?:wochen)?tag|der wievielte) (?:ist|haben wir)"
     r"(?: (?:es|heute|denn|jetzt))*", "de", clock_answers.today),
    (r"(?:den wievielten|welchen tag|welches datum) haben wir(?: heute)?|was ist heute für ein (?:wochen)?tag"
     r"|was für einen (?:wochen)?tag haben wir(?: heute)?|(?:was ist |wie lautet )?das (?:heutige|aktuelle)"
     r" datum", "de", clock_answers.today),
    (r"(?:welcher (?:wochen)?tag|welches datum|was für ein (?:wochen)?tag) (?:ist|war) (?P<when>morgen|gestern"
     r"|übermorgen|vorgestern)",
     "de", clock_answers.today),
    (rf"(?:what time {_IT}|{_WHAT} the (?:current )?time|(?:the )?current time){_NOW}", "en", clock_answers.time),
    (r"(?:wie spät (?:ist es|haben wir(?: es)?|es ist)|wie ?viel uhr (?:ist|haben wir)(?: es)?|(?:was ist )?die"
     r" aktuelle uhrzeit"
     r"|welche uhrzeit (?:ist|haben wir)(?: es)?)(?: gerade| jetzt| denn)*", "de", clock_answers.time),
    (rf"(?:what|which) year {_IT}{_NOW}|{_WHAT} the current year", "en", clock_answers.year),
    (r"(?:welches jahr (?:ist|haben wir|schreiben wir)|in welchem jahr (?:sind|leben) wir)(?: es| gerade| jetzt"
     r"| heute)*", "de", clock_answers.year),
    (rf"(?:what|which) month {_IT}{_NOW}|{_WHAT} the current month", "en", clock_answers.month),
    (r"welche[nr]? monat (?:ist|haben wir)(?: es| gerade| jetzt)*", "de", clock_answers.month),
    (rf"(?:what|which) (?:calendar )?week(?: number| of the year)? {_IT}{_NOW}|{_WHAT} the (?:current"
     rf" )?(?:calendar )?week number",
     "en", clock_answers.week),
    (r"welche (?:kalenderwoche|kw) (?:ist|haben wir)(?: es| gerade| jetzt| heute)*", "de", clock_answers.week),
    (rf"(?:on )?(?:what|which) (?:day{_OF_WEEK}|weekday) (?:it )?(?P<was>is|was|will|does|did) (?:it )?(?:on )?{_D}"
     r"(?: (?:be(?: on)?|fall|fall on|on))?", "en", _weekday),
    (rf"{_WHAT} the (?:day of the week|weekday) (?:of|on|for) {_D}", "en", _weekday),
    (rf"when (?:is|was) {_D}", "en", _date_of_feast),
    (rf"wann (?:ist|war) {_D}", "de", _date_of_feast),
    (rf"(?:{_DE_DAY}|welches datum) (?P<was>ist|war|wird) {_D}(?: (?:für ein tag|sein))?", "de", _weekday),
    (rf"(?:what|which) (?:day{_OF_WEEK}|weekday) {_D} (?P<was>is|was|will be)", "en", _weekday),
    (rf"{_DE_DAY} {_D} (?P<was>ist|war)", "de", _weekday),
    (rf"auf welchen (?:wochen)?tag (?P<was>fällt|fiel) {_D}", "de", _weekday),
    (rf"(?:how many (?P<u>days|weeks) (?:are (?:there |left )*|is it |do we have |remain |left )?|how long (?:is it )?"
     rf"|number of days |(?:the )?days )(?:left )?(?:un)?til(?:l)? {_D}", "en", _until),
    (rf"how many (?P<u>days|weeks) (?:are there |is it )?(?:to|before) {_D}", "en", _until),
    (rf"(?:wie ?viele (?P<u>tage|wochen) (?:sind es |bleiben )?(?:noch )?|wie lange (?:ist es |dauert es )?(?:noch )?"
     rf"|tage )(?:noch )?bis(?: zum| zu)? {_D}", "de", _until),
    (rf"(?:how many days (?:has it been |have passed |is it )?|(?:the )?(?:number of )?days )since {_D}", "en", _since),
    (rf"how (?:many days|long) ago was {_D}", "en", _since),
    (rf"wie ?viele tage (?:sind |ist es )?(?:seit|her seit) {_D}(?: vergangen| her)?", "de", _since),
    (rf"(?:how many (?P<u>days|weeks) (?:are |lie )?(?:there )?|(?:the )?number of days |(?:the )?days )"
     rf"(?:between|from) {_D} (?:and|to|until|till) {_E}", "en", _between),
    (rf"(?:wie ?viele (?P<u>tage|wochen) (?:sind |liegen )?(?:es )?|tage )(?:zwischen dem|zwischen|vom|von)"
     rf" {_D} (?:und dem|und|bis zum|bis)"
     rf" {_E}", "de", _between),
    (rf"(?:what|which) (?:date|day{_OF_WEEK})(?: is| will)?(?: it)?(?: be)?(?: is| will be)? in {_N_EN} {_U_EN}(?: from"
     rf" (?:now|today))?", "en", _shifted),
    (rf"{_WHAT} the (?:date|day) in {_N_EN} {_U_EN}(?: from (?:now|today))?", "en", _shifted),
    (rf"(?:(?:{_WHAT} the date|what (?:date|day)(?: is| will be)?(?: it)?) )?{_N_EN} {_U_EN} from (?:now"
     rf"|today)(?: be)?", "en", _shifted),
    (rf"(?:what (?:date|day{_OF_WEEK}) (?:(?:was|is) (?:it )?|it (?:was|is) )|what was the date ){_N_EN} {_U_EN}"
     rf" (?P<way>ago)", "en", _shifted),
    (rf"(?:(?:{_WHAT} the date|what (?:date|day)(?: is| was| will be)?(?: it)?|{_WHAT}) )?{_N_EN} {_U_EN}"
     rf" (?P<way>after|before|from) {_D}"
     r"(?: be)?", "en", _shifted),
    (rf"(?:welches datum|welcher (?:wochen)?tag|was für ein tag) (?:ist|haben wir|war)(?: es)? (?P<way>in|vor)"
     rf" {_N_DE} {_U_DE}", "de", _shifted),
    (rf"(?:welches datum|welcher (?:wochen)?tag|was für ein tag) (?:es )?(?P<way>in|vor) {_N_DE} {_U_DE} (?:ist|war)",
     "de", _shifted),
    (rf"(?:(?:{_WHAT}|calculate) )?{_D} ?(?P<way>[-+\u2212]|plus|minus) ?{_N_EN} {_U_EN}", "en", _shifted),
    (rf"(?:(?:was ist|berechne) )?{_D} ?(?P<way>[-+\u2212]|plus|minus) ?{_N_DE} {_U_DE}", "de", _shifted),
    (rf"(?:(?:welches datum|welcher (?:wochen)?tag|was für ein tag|was) (?:ist|war) )?{_N_DE} {_U_DE}"
     rf" (?P<way>nach|vor)(?: dem)? {_D}",
     "de", _shifted),
    (r"(?:is|was|will) (?:the year )?(?P<y>\d{4}) (?:be )?a leap ?year", "en", year_answers.leap_year),
    (r"is (?:this|it|this year) a leap ?year", "en", year_answers.leap_year),
    (r"(?:ist|war|wird)(?: das jahr)? (?P<y>\d{4}) ein schaltjahr|ist dieses jahr ein"
     r" schaltjahr", "de", year_answers.leap_year),
    (rf"(?:when is|{_WHAT}|which (?:year )?is) the next leap ?year", "en", year_answers.next_leap_year),
    (r"(?:wann ist|was ist|welches ist) das nächste schaltjahr", "de", year_answers.next_leap_year),
    (rf"how many days (?:are |are there |does )?(?:in )?(?P<m>{_MONTH_NAMES})(?: (?P<y>\d{{4}}))?(?: have|"
     rf" has)?", "en", year_answers.days_of_month),
    (rf"how many days (?:has|have) (?P<m>{_MONTH_NAMES})(?: (?P<y>\d{{4}}))?(?:"
     rf" got)?", "en", year_answers.days_of_month),
    (rf"wie ?viele tage (?:hat|gibt es im|sind im)(?: der)? (?P<m>{_MONTH_NAMES})(?:"
     rf" (?P<y>\d{{4}}))?", "de", year_answers.days_of_month),
    (r"how many days (?:are |are there |does )?(?:in )?(?:the year )?(?P<y>\d{4})(?: have|"
     r" has)?", "en", year_answers.days_of_year),
    (r"wie ?viele tage (?:hat|gibt es|gibt es im jahr)(?: das jahr)? (?P<y>\d{4})", "de", year_answers.days_of_year),
)  # fmt: skip
_FORMS = tuple((re.compile(form, re.IGNORECASE), language, make) for form, language, make in _MAKERS)
