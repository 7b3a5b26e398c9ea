"""Numbers in text, as people write them in English (1,234.5) and German (1.234,5)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Context, Decimal
from fractions import Fraction

DIGITS = 10
"""Significant digits of a result with endless decimals."""
MOST_EXACT_DIGITS = 20
"""The most significant digits of a terminating decimal that is written out in full."""
MOST_DIGITS = 1000
"""The most digits of a whole number that is written out."""
_MOST_EXPONENT = 10**8  # 32-bit Python, as in the page, allows 425,000,000
_PRECISION = Context(prec=60, Emax=_MOST_EXPONENT, Emin=-_MOST_EXPONENT)

NUMBER = r"(?>\d+(?:[.,]\d+)*|\.\d+)"
"""A possible number: digits with points and commas, up to its last digit."""
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
    language and a fraction in the other (1.500), "no" if it is not a number, or begins with a superfluous 0 (007)."""
    return next((sign for shape, sign in _SHAPES if shape.fullmatch(text)), "no")


def decimal_point(numbers: Sequence[str], language: str, others: Collection[str] = ()) -> str:
    """The decimal point of all numbers of a text: "." or ","; "" if one is invalid or ambiguous. language: of the
    words around them, "" if unknown. others: points of other numbers that these must agree with.

    All numbers follow one convention, so a clear one decides for the others. If none is clear, English words decide for
    1,500 and German ones for 1.500; both mean a thousand."""
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
    """1.234,50 -> 1234.50. text: must not have the shape "no". point: from decimal_point."""
    return text.replace("." if point == "," else ",", "").replace(",", ".")


def number_of(text: str, point: str) -> Fraction:
    """text, point: as in plain_digits."""
    return Fraction(plain_digits(text, point))


def read_numbers(texts: Sequence[str], language: str) -> list[Fraction] | None:
    """All numbers of a text; None if decimal_point finds no point."""
    point = decimal_point(texts, language)
    return [number_of(text, point) for text in texts] if point else None


def grouped(plain: str, language: str) -> str:
    """A plain decimal number ("-12345.5") with digit groups if it has five digits or more."""
    sign, plain = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
    whole, point, rest = plain.partition(".")
    if len(whole) > 4:
        whole = f"{int(whole):,}"
    if language == "de":
        return sign + whole.replace(",", ".") + ("," + rest if point else "")
    return sign + whole + point + rest


def plain_number(value: Fraction | Decimal) -> tuple[str, bool]:
    """A plain decimal number, and whether it is exact: "0.3333333333", False. Tiny and huge numbers get a power of ten:
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
    """Like plain_number, but rounded to `digits`, or to a longer whole number; exact if it is whole or short."""
    plain, is_exact = plain_number(value)
    count = len(re.sub(r"^[-0.]+|\.", "", plain))
    if "e" in plain or (is_exact and (value.denominator == 1 or count <= digits + 1)):
        return plain, is_exact
    rounded = Context(prec=max(digits, len(plain.lstrip("-").partition(".")[0]))).create_decimal(plain)
    return plain_number(Fraction(rounded))[0], False


def written(plain: str, language: str) -> str:
    """The result of `plain_number` as people write it: "3.3 × 10^-12"."""
    mantissa, e, exponent = plain.partition("e")
    return grouped(mantissa, language) + (f" × 10^{exponent}" if e else "")


def said(value: Fraction | Decimal, language: str) -> str:
    return written(plain_number(value)[0], language)


def _ended(value: Fraction) -> str | None:
    """A fraction as a terminating decimal, if it is one with few digits."""
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
