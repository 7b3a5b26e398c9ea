"""Numbers in text, as people write them in English (1,234.5) and German (1.234,5)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Context, Decimal
from fractions import Fraction

DIGITS = 10
"""Significant digits of a result that has no end."""
MOST_EXACT_DIGITS = 20
"""Significant digits of a decimal fraction that is written out to its end."""
MOST_DIGITS = 1000
"""Digits of a whole number that is written out."""
_MOST_EXPONENT = 10**8  # 32-bit Python, as in the page, allows 425,000,000
_PRECISION = Context(prec=60, Emax=_MOST_EXPONENT, Emin=-_MOST_EXPONENT)

NUMBER = r"(?>\d+(?:[.,]\d+)*|\.\d+)"
"""What may be a number: with points and commas up to its last digit."""
_SHAPES = tuple(
    (re.compile(shape), sign)
    for shape, sign in (
        (r"0\d+|0\d+[.,].*", "no"),
        (r"\d+", "plain"),
        (r"\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,}", "."),
        (r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}", ","),
        (r"[1-9]\d{0,2}[.,]\d{3}", "either"),
        (r"\d*\.\d+", "."),
        (r"\d*,\d+", ","),
    )
)
_POINTS = {"en": ".", "de": ","}


def shape_of(text: str) -> str:
    """The decimal point that a number shows, "." or ","; "plain" if it has none, "either" if it is a thousand in one
    language and a fraction in the other (1.500), "no" if it is no number, or begins with a 0 as none does (007)."""
    return next((sign for shape, sign in _SHAPES if shape.fullmatch(text)), "no")


def decimal_point(numbers: Sequence[str], language: str, others: Collection[str] = ()) -> str:
    """The decimal point of all numbers of a text: "." or ","; "" where one is no number or could be two. language: of
    the words around them, "" where nothing tells it. others: points of other numbers that these must agree with.

    All are written alike, so what is clear in one tells the others. Else 1,500 is read with English words only, and
    1.500 with German ones: both times as a thousand."""
    shapes = set(map(shape_of, numbers))
    points = shapes & {".", ","}
    own = _POINTS.get(language, "")
    if "no" in shapes or len(points) > 1:
        return ""
    if "either" not in shapes:
        return next(iter(points), own or ".")
    if not points and (not own or any(own in number for number in numbers if shape_of(number) == "either")):
        return ""
    points.update(others, own)
    return points.pop() if len(points) == 1 else ""


def plain_digits(text: str, point: str) -> str:
    """1.234,50 -> 1234.50. text: whose shape is not "no". point: as decimal_point tells it."""
    return text.replace("." if point == "," else ",", "").replace(",", ".")


def number_of(text: str, point: str) -> Fraction:
    """text, point: as of plain_digits."""
    return Fraction(plain_digits(text, point))


def read_numbers(texts: Sequence[str], language: str) -> list[Fraction] | None:
    """All numbers of a text; None where decimal_point tells no point."""
    point = decimal_point(texts, language)
    return [number_of(text, point) for text in texts] if point else None


def grouped(plain: str, language: str) -> str:
    """A plain decimal number ("-12345.5") with groups of digits from five digits on."""
    sign, plain = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
    whole, point, rest = plain.partition(".")
    if len(whole) > 4:
        whole = f"{int(whole):,}"
    if language == "de":
        return sign + whole.replace(",", ".") + ("," + rest if point else "")
    return sign + whole + point + rest


def plain_number(value: Fraction | Decimal) -> tuple[str, bool]:
    """A plain decimal number, and whether it is exact: "0.3333333333", False. Tiny and huge ones have a power of ten:
    "1.5e-12"."""
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return str(value.numerator), True
        if (ended := _ended(value)) is not None:
            return ended, True
        value = _PRECISION.divide(Decimal(value.numerator), Decimal(value.denominator))
    if not value:
        return "0", False
    exponent = value.adjusted()
    digits = max(DIGITS, exponent + 3) if exponent < 15 else DIGITS
    rounded = Context(prec=digits, Emax=_MOST_EXPONENT, Emin=-_MOST_EXPONENT).create_decimal(value)
    if not -7 < exponent < 21:
        mantissa = _without_zeros(f"{rounded.scaleb(-rounded.adjusted(), _PRECISION):f}")
        return f"{mantissa}e{rounded.adjusted()}", False
    return _without_zeros(f"{rounded:f}"), False


def short_number(value: Fraction, digits: int) -> tuple[str, bool]:
    """As plain_number, but rounded to so many digits, or to a whole number with more; exact if it is whole or short."""
    plain, is_exact = plain_number(value)
    count = len(re.sub(r"^[-0.]+|\.", "", plain))
    if "e" in plain or (is_exact and (value.denominator == 1 or count <= digits + 1)):
        return plain, is_exact
    rounded = Context(prec=max(digits, len(plain.lstrip("-").partition(".")[0]))).create_decimal(plain)
    return plain_number(Fraction(rounded))[0], False


def written(plain: str, language: str) -> str:
    """What `plain_number` gives, as it is said: "3.3 × 10^-12"."""
    mantissa, e, exponent = plain.partition("e")
    return grouped(mantissa, language) + (f" × 10^{exponent}" if e else "")


def said(value: Fraction | Decimal, language: str) -> str:
    return written(plain_number(value)[0], language)


def _ended(value: Fraction) -> str | None:
    """A fraction whose decimals end, if it has few digits."""
    twos = fives = 0
    rest = value.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or places > 40:
        return None
    digits = str(abs(value.numerator) * 10**places // value.denominator)
    if len(digits) > MOST_EXACT_DIGITS:
        return None
    digits = digits.rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
