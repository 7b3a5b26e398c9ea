"""Numbers in text, as people write them in English (1,234.5) and German (1.234,5)."""

from __future__ import annotations

import re
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

NUMBER = (
    r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}|\d+(?:[.,]\d+)?|\.\d+)(?![\d])"
)
_ENGLISH_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_GERMAN_GROUPS = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")


def read_number(text: str, language: str) -> Fraction | None:
    """The number that `text` is; None where it is none, or begins with a 0 as no number does (007)."""
    if re.fullmatch(r"0\d.*", text, re.DOTALL):
        return None
    english = _ENGLISH_GROUPS.fullmatch(text) is not None
    german = _GERMAN_GROUPS.fullmatch(text) is not None
    if german and (language == "de" or "," in text or text.count(".") > 1):
        plain = text.replace(".", "").replace(",", ".")
    elif english and (language != "de" or "." in text or text.count(",") > 1):
        plain = text.replace(",", "")
    elif re.fullmatch(r"\d+,\d+", text):
        plain = text.replace(",", ".")
    elif re.fullmatch(r"\d*\.?\d+", text):
        plain = text
    else:
        return None
    return Fraction(plain)


def is_german(text: str) -> bool:
    """Whether a number can only be read as a German one: 3,5 or 1.234,5."""
    return "," in text and not _ENGLISH_GROUPS.fullmatch(text)


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
    if abs(value) < Decimal("1e-40"):
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
