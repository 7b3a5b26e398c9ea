"""Unit conversions: "5 miles in km", "how many ml in a cup", "rechne 100 Fahrenheit in Celsius um". The table is
units.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from py_core.tools.number_text import NUMBER, decimal_point, number_of, plain_number, short_number, written
from py_core.tools.number_words import read_number as read_words
from py_core.tools.question import Exact, Question

_TABLE = Path(__file__).with_name("units.toml")
_LONGEST_SYMBOL = 2
_DIGITS = 5
"""The digits of a result, unless the question has more or the exact result has few."""


@dataclass(frozen=True)
class Unit:
    """size, zero: size × amount + zero is in the dimension's base unit. names by language: singular, plural, others."""

    key: str
    dimension: str
    size: Fraction
    zero: Fraction
    names: dict[str, tuple[str, ...]]
    symbol: str
    notes: dict[str, str]


@cache
def units() -> dict[str, tuple[Unit, ...]]:
    """All units by each of their spellings: names in lower case, short symbols unchanged."""
    found: dict[str, list[Unit]] = {}
    for dimension, entries in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items():
        for key, entry in entries.items():
            names = {language: tuple(entry[language]) for language in ("en", "de") if entry[language]}
            notes = {"en": entry.get("note", ""), "de": entry.get("note_de", "")}
            symbols = entry["symbols"]
            unit = Unit(
                key, dimension, Fraction(entry["size"]), Fraction(entry.get("zero", "0")), names,
                symbols[0] if symbols else "", notes,
            )  # fmt: skip
            for spelling in {*map(str.lower, [*entry["en"], *entry["de"]]), *(_spelled(each) for each in symbols)}:
                found.setdefault(spelling, []).append(unit)
    return {spelling: tuple(same) for spelling, same in found.items()}


def _spelled(symbol: str) -> str:
    return symbol if len(symbol) <= _LONGEST_SYMBOL or symbol.startswith("°") else symbol.lower()


def named(text: str) -> tuple[Unit, ...]:
    """The units of this name or symbol, one in each dimension."""
    text = text.strip()
    return units().get(text) or units().get(text.lower() if len(text) > _LONGEST_SYMBOL else text) or ()


def converted(amount: Fraction, given: Unit, wanted: Unit) -> Fraction:
    return (amount * given.size + given.zero - wanted.zero) / wanted.size


_DE_NUMBER = r"eine[mnr]?|ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|zwölf|zwanzig|hundert"
_A = (
    rf"(?P<n>(?:minus |-)?{NUMBER}|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|half an?"
    rf"|a hundred|{_DE_NUMBER})"
)
_NAME = r"[^\d\s?!,;:()][^?!,;:()]{0,30}?"
_U, _V = rf"(?P<u>{_NAME}|\"|')", rf"(?P<v>{_NAME})"
_WHAT = (
    r"(?:what is|what's|what\u2019s|whats|what are|how much is|how much are|how long is|how far is|how fast is"
    r"|how hot is|how heavy is|how tall is|how many is)"
)
_FORMS = tuple(
    (re.compile(form, re.IGNORECASE), language)
    for form, language in (
        (rf"(?:(?:convert|change|turn) |{_WHAT} |express ){_A} ?{_U} (?:in|to|into|as|in to) {_V}", "en"),
        (rf"{_A} ?{_U} (?:to|into|as|in to) {_V}", "en"),
        (rf"{_A} ?{_U} in {_V}", ""),
        (rf"how many {_V} (?:are|is|does|do|make|makes|equal|equals|=)(?: up)?(?: there)?(?: in)? {_A} ?{_U}(?:"
         rf" have| has| make)?", "en"),
        (rf"how many {_V} (?:are there )?(?:in|to|per) {_A} ?{_U}", "en"),
        (rf"how many {_V} (?:has|have) {_A} ?{_U}(?: got)?", "en"),
        (rf"how (?:many|much) {_V} is {_A} ?{_U}", "en"),
        (rf"(?:rechne|wandle|konvertiere|umrechnen:?) {_A} ?{_U} (?:in|zu|nach) {_V}(?: um)?", "de"),
        (rf"(?:was|wie ?viel|wie ?viele|wie lang|wie schnell|wie weit|wie hoch) (?:ist|sind) {_A} ?{_U}"
         rf" in {_V}(?: umgerechnet| umrechnen)?", "de"),
        (rf"{_A} ?{_U} in {_V} (?:umgerechnet|umrechnen)", "de"),
        (rf"(?:wie ?viele?) {_V} (?:sind|ist|hat|haben|ergeben|ergibt|entsprechen|gibt es in|sind in|stecken in"
         rf"|passen in) (?:in )?{_A} ?{_U}", "de"),
    )
)  # fmt: skip
_COMPOUND = re.compile(
    r"(?:(?:convert|what is|what's|how tall is) )?(?P<ft>\d{1,3}) ?(?:'|ft|feet|foot)"
    r" ?(?P<in>\d{1,2}(?:\.\d+)?) ?(?:\"|''|in|inches|inch)?"
    r" (?:in|to|into) (?P<v>[a-z]+)",
    re.IGNORECASE,
)


def convert(amount: Fraction, given: str, wanted: str) -> Exact | None:
    """Convert an amount of a unit into another one, by their English names or symbols. Returns None if these are no two
    units of the same kind."""
    pair = _pair(given, wanted)
    return _said(amount, *pair, "en") if pair else None


def answer(question: Question) -> Exact | None:
    text = question.text.replace("\u2032", "'").replace("\u2033", '"').replace("\u201d", '"').replace("\u2019", "'")
    if "\n" in question.given or len(text) > 120:
        return None
    if (tall := _COMPOUND.fullmatch(text)) is not None:
        return _tall(tall)
    for form, language in _FORMS:
        if (found := form.fullmatch(text)) is None:
            continue
        pair = _pair(found["u"], found["v"])
        said = language or (_said_in(found, *pair) if pair else "")
        amount, point = _amount(found["n"], said)
        if pair is None or amount is None:
            continue
        spoken = language or ("de" if point == "," else said or "en")
        return _said(amount, *pair, spoken if all(spoken in unit.names for unit in pair) else "en")
    return None


def _said_in(found: re.Match[str], *pair: Unit) -> str:
    """The language of an amount and the names of its units, "" if they are the same in both. A capital letter is
    German, as in Meter."""
    languages = {"de"} if re.fullmatch(_DE_NUMBER, found["n"], re.IGNORECASE) else {"en", "de"}
    for name, unit in zip((found["u"].strip(), found["v"].strip()), pair, strict=True):
        folded = {each for each, names in unit.names.items() if name.lower() in map(str.lower, names)}
        exact = {each for each in folded if name in unit.names[each]} - {"en"}
        languages &= exact or folded or languages  # a symbol tells nothing
    return languages.pop() if len(languages) == 1 else ""


def _amount(text: str, language: str) -> tuple[Fraction | None, str]:
    """The amount, and the decimal point of its number."""
    lower = text.lower()
    if lower in ("a", "an", "ein", "eine", "einem", "einer", "einen"):
        return Fraction(1), ""
    if lower.startswith("half"):
        return Fraction(1, 2), ""
    sign = -1 if lower.startswith(("-", "minus")) else 1
    lower = lower.removeprefix("-").removeprefix("minus ")
    if lower[0].isdigit() or lower[0] == ".":
        point = decimal_point([lower], language) if len(lower) <= 40 else ""
        return (sign * number_of(lower, point) if point else None), point
    number = read_words(lower.split(), 0)
    return (Fraction(number[0]) if number else None), ""


def _pair(given: str, wanted: str) -> tuple[Unit, Unit] | None:
    """Units of the same dimension, if no other such pair is possible."""
    pairs = [(u, v) for u in named(given) for v in named(wanted) if u.dimension == v.dimension]
    return pairs[0] if len(pairs) == 1 and pairs[0][0] != pairs[0][1] else None


def _said(amount: Fraction, given: Unit, wanted: Unit, language: str) -> Exact | None:
    kelvins = amount * given.size + given.zero
    if given.dimension == "temperature" and kelvins < 0:
        low = "Colder than absolute zero (-273.15 degrees Celsius): there is no such temperature."
        if language == "de":
            low = "Kälter als der absolute Nullpunkt (-273,15 Grad Celsius): Diese Temperatur gibt es nicht."
        return Exact("unit", "", low, "0 K = -273.15 °C" if language != "de" else "0 K = -273,15 °C")
    result = converted(amount, given, wanted)
    plain, is_exact = short_number(result, max(_DIGITS, len(plain_number(amount)[0].strip("-0.")) + 1))
    left = f"{written(plain_number(amount)[0], language)} {_name(given, amount, language)}"
    right = f"{written(plain, language)} {_name(wanted, result, language)}"
    verb = ("ist" if amount == 1 else "sind") if language == "de" else ("is" if amount == 1 else "are")
    if given.dimension == "temperature":
        verb = "sind" if language == "de" else "are"
    about = "" if is_exact else "etwa " if language == "de" else "about "
    return Exact(
        "unit",
        plain,
        f"{left} {verb} {about}{right}.",
        _working(given, wanted, "" if is_exact else plain_number(result)[0], language),
    )


def _name(unit: Unit, amount: Fraction, language: str) -> str:
    return unit.names[language][abs(amount) != 1]


def _working(given: Unit, wanted: Unit, rounded: str, language: str) -> str:
    german = language == "de"
    if given.dimension == "temperature":
        ways = {
            ("fahrenheit", "celsius"): "°C = (°F - 32) × 5/9", ("celsius", "fahrenheit"): "°F = °C × 9/5 + 32",
            ("celsius", "kelvin"): "K = °C + 273.15", ("kelvin", "celsius"): "°C = K - 273.15",
            ("fahrenheit", "kelvin"): "K = (°F + 459.67) × 5/9", ("kelvin", "fahrenheit"): "°F = K × 9/5 - 459.67",
        }  # fmt: skip
        way = ways[given.key, wanted.key]
        working = f"{way.replace('.', ',') if german else way}."
    else:
        bigger, smaller = (given, wanted) if given.size >= wanted.size else (wanted, given)
        ratio = bigger.size / smaller.size
        plain, ratio_exact = plain_number(ratio)
        sign = "=" if ratio_exact else "≈"
        times = f"{sign} {written(plain, language)} {_name(smaller, ratio, language)}"
        working = f"1 {_name(bigger, Fraction(1), language)} {times}."
    if rounded:
        working += f" {'Weniger gerundet' if german else 'Less rounded'}: {written(rounded, language)}."
    notes = [unit.notes[language] for unit in (given, wanted) if unit.notes[language]]
    if {given.key, wanted.key} <= {"year", "decade", "century", "millennium", "month", "quarter", "ounce", "pound"}:
        notes = []
    return " ".join([working, *dict.fromkeys(notes)])


def _tall(found: re.Match[str]) -> Exact | None:
    """5'10" in cm"""
    wanted = [unit for unit in named(found["v"]) if unit.dimension == "length"]
    if len(wanted) != 1 or Fraction(found["in"]) >= 12:
        return None
    inches = 12 * int(found["ft"]) + Fraction(found["in"])
    result = converted(inches, units()["inch"][0], wanted[0])
    plain, is_exact = short_number(result, _DIGITS)
    about = "" if is_exact else "about "
    said = (
        f"{found['ft']} feet {found['in']} inches are {about}{written(plain, 'en')} {_name(wanted[0], result, 'en')}."
    )
    return Exact("unit", plain, said, "1 foot = 12 inches, 1 inch = 2.54 centimeters.")
