"""Numbers as words, English and German: "twenty-three", "two hundred and five", "dreiundzwanzig"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

_ENGLISH_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GERMAN_ONES = [
    "null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
    "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
]  # fmt: skip
_GERMAN_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
ABBREVIATED = {"tsd": 1000, "mio": 10**6, "mrd": 10**9, "bio": 10**12}
"""With or without a point behind them."""
SCALES = {
    "en": {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    "de": {
        "tausend": 1000, "million": 10**6, "millionen": 10**6, "milliarde": 10**9, "milliarden": 10**9,
        "billion": 10**12, "billionen": 10**12, "billiarde": 10**15, "billiarden": 10**15, "trillion": 10**18,
        "trillionen": 10**18, "trilliarde": 10**21, "trilliarden": 10**21, **ABBREVIATED,
    },
}  # fmt: skip
"""By language: words that multiply the number before them."""


@cache
def _english() -> dict[str, int]:
    numbers = {word: value for value, word in enumerate(_ENGLISH_ONES)}
    for tens, word in enumerate(_ENGLISH_TENS, 2):
        numbers[word] = 10 * tens
        for one in range(1, 10):
            numbers[f"{word}-{_ENGLISH_ONES[one]}"] = 10 * tens + one
    return numbers


@cache
def _german() -> dict[str, int]:
    below = dict(enumerate(_GERMAN_ONES))
    for tens, word in enumerate(_GERMAN_TENS, 2):
        below[10 * tens] = word
        for one in range(1, 10):
            below[10 * tens + one] = f"{_GERMAN_ONES[one]}und{word}"
    numbers = {word: value for value, word in below.items()} | {"eins": 1, "eine": 1, "hundert": 100}
    for hundreds in range(1, 10):
        word = f"{_GERMAN_ONES[hundreds]}hundert"
        numbers[word] = 100 * hundreds
        for value, rest in below.items():
            if value:
                for ending in ("eins",) if value == 1 else (rest,):
                    numbers[f"{word}{ending}"] = 100 * hundreds + value
                    if hundreds == 1:
                        numbers[f"hundert{ending}"] = 100 + value
    return numbers


def number_word(word: str) -> tuple[int, str] | None:
    """The value of a number of one word, and its language."""
    lower = word.lower()
    if (value := _english().get(lower)) is not None:
        return value, "en"
    if (value := _german().get(lower)) is not None:
        return value, "de"
    return None


def read_number(words: Sequence[str], at: int) -> tuple[int, int, str] | None:
    """The number that begins with word `at`, the index after it, and its language; None if there is none."""
    first = words[at].lower()
    if first == "a" and at + 1 < len(words) and words[at + 1].lower() in SCALES["en"]:
        part, language, at = 1, "en", at + 1
    elif (found := number_word(first)) is not None:
        (part, language), at = found, at + 1
    else:
        return None
    total, is_open = 0, True
    while at < len(words):
        word = words[at].lower()
        scale = SCALES[language].get(word)
        if scale is not None and is_open and part:
            if scale == 100:
                part *= 100
            else:
                total, part = total + part * scale, 0
            is_open, at = True, at + 1
            continue
        after = at + 1 if word == "and" and language == "en" and (total or part >= 100) else at
        more = number_word(words[after]) if after < len(words) else None
        room = (
            10 if 20 <= part < 100 and part % 10 == 0 else 100 if part and part % 100 == 0 else 1000 if not part else 0
        )
        if (
            more is None
            or more[1] != language
            or language == "de"
            or not 0 < more[0] < room
            or (not total and not part)
        ):
            break
        part, at = part + more[0], after + 1
    return total + part, at, language
