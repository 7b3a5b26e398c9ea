"""Linear and quadratic equations in one unknown: "x^2 - 5x + 6 = 0", "solve 3x + 4 = 19", "löse 2(x-1) = x+5"."""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from py_core.tools.number_text import NUMBER, decimal_point, number_of, plain_number, written
from py_core.tools.question import Exact, Question

LONGEST = 150
MOST_BRACKETS = 20
_MOST_BITS = 64  # of a coefficient
_MOST_SQUARE = 10_000  # whose square is moved out of a root
_ABOUT = 7  # digits of an irrational or periodic root
_ASKS = re.compile(
    r"(?P<ask>solve(?: the equation)?(?: for [a-z])?[ :]+|find [a-z](?: if| when| in|:|,)? +"
    r"|(?:what is|what's) [a-z] (?:if|when|in) |(?:löse|lös)(?: die gleichung)?[ :]+"
    r"|(?:was|wie groß|wie viel) ist [a-z],? (?:wenn|in|bei) |finde [a-z](?: in|,|:)? +)?"
    r"(?P<e>.+?)(?P<for> (?:solve )?for [a-z]| nach [a-z](?: auf)?| auf)?",
    re.IGNORECASE,
)
_WORDS = (
    (r" ?\b(?:squared|hoch (?:2|zwei)|(?:zum )?quadrat)\b", "^2"), (r"\bplus\b", "+"), (r"\bminus\b", "-"),
    (r"\b(?:times|mal)\b", "*"), (r"\b(?:divided by|geteilt durch)\b", "/"), (r"\*\*", "^"),
    (r"\b(?:equals|is equal to|ist gleich)\b", "="), ("[−–]", "-"), ("[×·⋅]", "*"), ("÷", "/"), ("²", "^2"),
)  # fmt: skip
_GERMAN = re.compile(r"^(?:lös|was|wie|finde)|\b(?:mal|geteilt|hoch|gleich|nach)\b", re.IGNORECASE)
_ENGLISH = re.compile(r"^(?:solve|find|what)|\b(?:times|divided|squared|equals?|for)\b", re.IGNORECASE)
_TOKEN = re.compile(rf"\s*(?:(?P<n>{NUMBER})|(?P<x>[a-zA-Z](?![a-zA-Z\d]))|(?P<s>[-+*/^()]))")
_USUAL = "xyz"
"""Unknowns that need no request to solve for them. Other letters may be units, or statistics."""
_NO_UNKNOWNS = "ei"

Polynomial = tuple[Fraction, ...]
"""The coefficients, that of x^0 first."""


class _NoEquationError(Exception):
    """The text is no equation that this module can solve."""


def answer(question: Question) -> Exact | None:
    text = question.text
    if "\n" in question.given or len(text) > LONGEST or not re.search("=|equal|gleich", text):
        return None
    asked = _ASKS.fullmatch(text)
    assert asked is not None
    expression = asked["e"]
    for words, sign in _WORDS:
        expression = re.sub(words, sign, expression, flags=re.IGNORECASE)
    sides = expression.split("=")
    spoken = "de" if _GERMAN.search(text) else "en" if _ENGLISH.search(text) else ""
    point = decimal_point(re.findall(NUMBER, expression), spoken)
    if len(sides) != 2 or not point:
        return None
    try:
        readers = [_PolynomialParser(side, point) for side in sides]
        left, right = (reader.all() for reader in readers)
    except _NoEquationError:
        return None
    language = spoken or ("de" if point == "," else "en")
    unknowns = set(readers[0].unknowns + readers[1].unknowns)
    if len(unknowns) != 1:
        return None
    unknown, is_asked = unknowns.pop(), bool(asked["ask"] or asked["for"])
    around = f"{asked['ask'] or ''} {asked['for'] or ''}"
    said = re.findall(r"\b(?:for|find|finde|is|ist|nach) ([a-z])\b", around, re.IGNORECASE)
    is_set = any(side.strip() == unknown for side in sides)  # x = x + 1 is code, x = 5 no question
    if any(each.lower() != unknown.lower() for each in said) or (not is_asked and (is_set or unknown not in _USUAL)):
        return None
    if is_set and all(len(side) < 2 for side in (left, right) if side != (0, 1)):
        return None
    equation = " = ".join(" ".join(side.split()) for side in sides)
    return _solved(_sum(left, right, -1), unknown, language, equation)


class _PolynomialParser:
    """Parses one side of an equation into a polynomial."""

    def __init__(self, text: str, point: str) -> None:
        self.tokens, self.unknowns, self._at, self._depth = list[str | Fraction](), list[str](), 0, 0
        at, end = 0, len(text.rstrip())
        while at < end:
            if (found := _TOKEN.match(text, at)) is None:
                raise _NoEquationError
            if found["n"]:
                self.tokens.append(number_of(found["n"], point))
            elif found["x"]:
                if found["x"].lower() in _NO_UNKNOWNS:
                    raise _NoEquationError
                self.unknowns.append(found["x"])
                self.tokens.append("x")
            else:
                self.tokens.append(found["s"])
            at = found.end()

    @property
    def _next(self) -> str | Fraction:
        return self.tokens[self._at] if self._at < len(self.tokens) else ""

    def _take(self) -> str | Fraction:
        self._at += 1
        return self.tokens[self._at - 1]

    def all(self) -> Polynomial:
        found = self._sum()
        if self._at < len(self.tokens):
            raise _NoEquationError
        return found

    def _sum(self) -> Polynomial:
        found = self._product()
        while self._next in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            found = _sum(found, self._product(), sign)
        return found

    def _product(self) -> Polynomial:
        sign = 1
        while self._next in ("+", "-"):
            sign = -sign if self._take() == "-" else sign
        found, divided = self._power(), False
        while self._next in ("*", "/", "(", "x"):
            joined = self._next in ("(", "x")
            if joined and divided:
                raise _NoEquationError  # 1/2x is ambiguous
            operation = "*" if joined else self._take()
            right = self._power()
            if operation == "/":
                if len(right) > 1 or not right[0]:
                    raise _NoEquationError
                right, divided = (1 / right[0],), True
            found = _product(found, right)
        if isinstance(self._next, Fraction):
            raise _NoEquationError  # x 4: a size, or a product with an x
        return tuple(sign * each for each in found)

    def _power(self) -> Polynomial:
        base = self._single()
        if self._next == "^":
            self._take()
            exponent = self._take() if self._next else ""
            if not isinstance(exponent, Fraction) or exponent not in (1, 2, 3):
                raise _NoEquationError
            found = base
            for _ in range(int(exponent) - 1):
                found = _product(found, base)
            return found
        return base

    def _single(self) -> Polynomial:
        token = self._take() if self._next != "" else ""
        if isinstance(token, Fraction):
            return (token,)
        if token == "x":
            return (Fraction(0), Fraction(1))
        self._depth += 1
        if token != "(" or self._depth > MOST_BRACKETS:
            raise _NoEquationError
        found = self._sum()
        if self._next != ")":
            raise _NoEquationError
        self._take()
        self._depth -= 1
        return found


def _sum(left: Polynomial, right: Polynomial, sign: int) -> Polynomial:
    size = max(len(left), len(right))
    both = [[*side, *[Fraction(0)] * (size - len(side))] for side in (left, right)]
    return _checked([a + sign * b for a, b in zip(*both, strict=True)])


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    found = [Fraction(0)] * (len(left) + len(right) - 1)
    for n, a in enumerate(left):
        for m, b in enumerate(right):
            found[n + m] += a * b
    return _checked(found)


def _checked(found: list[Fraction]) -> Polynomial:
    while len(found) > 1 and not found[-1]:
        found.pop()
    if len(found) > 5 or any(max(abs(each.numerator), each.denominator).bit_length() > _MOST_BITS for each in found):
        raise _NoEquationError
    return tuple(found)


def _solved(polynomial: Polynomial, unknown: str, language: str, equation: str) -> Exact | None:
    """polynomial: the one whose roots are wanted."""
    german = language == "de"
    if len(polynomial) > 3:
        return None
    if len(polynomial) == 1:
        if polynomial[0]:
            said = f"Kein {unknown} löst {equation}." if german else f"No {unknown} solves {equation}."
        else:
            said = f"Jedes {unknown} löst {equation}." if german else f"Every {unknown} solves {equation}."
        return Exact("arithmetic", "", said, f"{unknown} fällt weg." if german else f"The {unknown} cancels out.")
    if len(polynomial) == 2:
        value, said = _said(-polynomial[0] / polynomial[1], language)
        how = (
            "Eine lineare Gleichung, mit genauen Brüchen gelöst."
            if german
            else "A linear equation, solved with exact fractions."
        )
        return Exact("arithmetic", value, f"{unknown} = {said}", how)
    scale = math.lcm(*(each.denominator for each in polynomial))
    c, b, a = (int(each * scale) for each in polynomial)
    if a < 0:
        a, b, c = -a, -b, -c
    rest = b * b - 4 * a * c
    how = (
        f"{'Quadratische Gleichung' if german else 'A quadratic equation'}: b² - 4ac = {written(str(rest), language)}."
    )
    if rest < 0:
        said = f"{equation} hat keine reelle Lösung." if german else f"{equation} has no real solution."
        return Exact("arithmetic", "", said, how)
    root = math.isqrt(rest)
    if root * root == rest:
        roots = sorted({Fraction(-b - root, 2 * a), Fraction(-b + root, 2 * a)})
        both = [_said(each, language) for each in roots]
    else:
        both = [_surd(a, b, rest, sign, language) for sign in (-1, 1)]
    or_ = " oder " if german else " or "
    said = or_.join(f"{unknown} = {each}" for _, each in both)
    return Exact("arithmetic", ", ".join(value for value, _ in both), said, how)


def _said(value: Fraction, language: str) -> tuple[str, str]:
    """A root, bare and as text: 5; 0.25; 5/3 ≈ 1.666667."""
    plain, is_exact = plain_number(value)
    if is_exact and len(plain) <= _ABOUT + 2:
        return plain, written(plain, language)
    return str(value), f"{value} ≈ {_about(Decimal(value.numerator) / Decimal(value.denominator), language)}"


def _about(value: Decimal, language: str) -> str:
    return written(plain_number(Fraction(Context(prec=_ABOUT).create_decimal(value)))[0], language)


def _surd(a: int, b: int, rest: int, sign: int, language: str) -> tuple[str, str]:
    """(-b ± √rest) / 2a, with squares moved out of the root and common factors cancelled."""
    outside, inside = 1, rest
    for number in range(2, min(math.isqrt(rest), _MOST_SQUARE) + 1):
        while inside % (number * number) == 0:
            inside, outside = inside // (number * number), outside * number
    shared = math.gcd(b, outside, 2 * a)
    first, outside, below = -b // shared, outside // shared, 2 * a // shared
    root = f"{'' if outside == 1 else outside}√{inside}"
    above = f"{first} {'+' if sign > 0 else '-'} {root}" if first else f"{'-' if sign < 0 else ''}{root}"
    bare = above if below == 1 else f"({above})/{below}" if first else f"{above}/{below}"
    with localcontext(prec=400):
        value = (-b + sign * Decimal(rest).sqrt()) / (2 * a)
    return bare, f"{bare} ≈ {_about(value, language)}"
