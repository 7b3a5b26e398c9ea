"""Arithmetic on numbers: a tree of operations, its exact value, and its notation.

Values are fractions as long as possible; roots and logarithms are decimals of 60 digits. There is no eval, and
a step whose result would be too long is refused before it is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from py_core.tools.number_text import MOST_DIGITS, grouped, plain_number, written
from py_core.tools.question import CannotComputeError

Value = Fraction | Decimal

MOST_BITS = 10_000
"""The limit for the numerator and denominator of every intermediate value."""
MOST_FACTORIAL = 1000
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_CONTEXT = Context(prec=60, Emax=10**6, Emin=-(10**6))
_LONGEST_EXPONENT = 10_000  # of a decimal

FUNCTIONS = ("sqrt", "cbrt", "ln", "log10", "log2", "abs", "floor", "ceil")


@dataclass(frozen=True)
class Number:
    value: Fraction


@dataclass(frozen=True)
class Constant:
    """A named constant. Pi is the only one."""


@dataclass(frozen=True)
class Brackets:
    inner: Node


@dataclass(frozen=True)
class Percent:
    inner: Node


@dataclass(frozen=True)
class Factorial:
    inner: Node


@dataclass(frozen=True)
class Negative:
    inner: Node


@dataclass(frozen=True)
class Call:
    name: str  # of FUNCTIONS
    inner: Node


@dataclass(frozen=True)
class Operation:
    """sign: + - * / ^ mod of."""

    sign: str
    left: Node
    right: Node


Node = Number | Constant | Brackets | Percent | Factorial | Negative | Call | Operation


def is_share(node: Node) -> bool:
    """True if it is a percentage. A number added to one could be a share of it (5% - 10% is also a range)."""
    return isinstance(node, Percent) or (isinstance(node, Brackets | Negative) and is_share(node.inner))


def too_long() -> CannotComputeError:
    return CannotComputeError(
        f"The result would be longer than {MOST_DIGITS:,} digits, which is the most that I compute.",
        f"Das Ergebnis hätte mehr als {grouped(str(MOST_DIGITS), 'de')} Stellen; mehr berechne ich nicht.",
    )


def _by_zero() -> CannotComputeError:
    return CannotComputeError(
        "Nothing can be divided by zero, so this has no result.",
        "Durch null kann man nicht teilen: Das hat kein Ergebnis.",
    )


def _not_real() -> CannotComputeError:
    return CannotComputeError(
        "No real number is the root of a negative one, so this has no result that I can write as a number.",
        "Aus einer negativen Zahl lässt sich keine reelle Wurzel ziehen: Ein Ergebnis kann ich nicht schreiben.",
    )


def value_of(node: Node) -> Value:
    """Raises CannotComputeError."""
    match node:
        case Number(value):
            return value
        case Constant():
            return PI
        case Brackets(inner):
            return value_of(inner)
        case Percent(inner):
            return _divide(value_of(inner), Fraction(100))
        case Negative(inner):
            return -value_of(inner)
        case Factorial(inner):
            return _factorial(value_of(inner))
        case Call(name, inner):
            return _checked(_call(name, value_of(inner)))
        case Operation(("+" | "-") as sign, left, Percent(share)):
            # As on a pocket calculator: 80 + 15% is 80 plus 15% of it.
            before = value_of(left)
            part = _multiply(before, _divide(value_of(share), Fraction(100)))
            return _checked(_add(before, part if sign == "+" else -part))
        case Operation(sign, left, right):
            return _checked(_operate(sign, value_of(left), value_of(right)))


def _operate(sign: str, left: Value, right: Value) -> Value:
    if sign == "+":
        return _add(left, right)
    if sign == "-":
        return _add(left, -right)
    if sign in ("*", "of"):
        return _multiply(left, right)
    if sign == "/":
        return _divide(left, right)
    if sign == "mod":
        if not isinstance(left, Fraction) or not isinstance(right, Fraction):
            raise CannotComputeError(
                "A remainder needs numbers without roots.", "Einen Rest gibt es nur bei Zahlen ohne Wurzeln."
            )
        if not right:
            raise _by_zero()
        return left % right
    return _power(left, right)


def _decimal(value: Value) -> Decimal:
    if isinstance(value, Decimal):
        return value
    return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _add(left: Value, right: Value) -> Value:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left + right
    a, b = _decimal(left), _decimal(right)
    total = _CONTEXT.add(a, b)
    # If the leading digits cancel, the rest is rounding error: √2 × √2 - 2 is 0.
    return Decimal(0) if abs(total) < max(abs(a), abs(b)) * Decimal("1e-50") else total


def _multiply(left: Value, right: Value) -> Value:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left * right
    return _CONTEXT.multiply(_decimal(left), _decimal(right))


def _divide(left: Value, right: Value) -> Value:
    if not right:
        raise _by_zero()
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left / right
    return _CONTEXT.divide(_decimal(left), _decimal(right))


def _power(base: Value, exponent: Value) -> Value:
    if base == 0:
        if exponent < 0:
            raise _by_zero()
        return Fraction(1) if exponent == 0 else Fraction(0)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if abs(base) == 1 and exponent.denominator == 1:
            return base if exponent % 2 else Fraction(1)
        if exponent.denominator == 1:
            bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length()) - 1
            if bits * abs(exponent.numerator) > MOST_BITS:
                raise too_long()
            return Fraction(base ** int(exponent))
        root = exponent.denominator
        if root <= 100 and (exact := _exact_root(base, root)) is not None:
            return _power(exact, Fraction(exponent.numerator))
    if base < 0:
        raise _not_real()
    if base == 1:
        return Fraction(1)
    logarithm = _CONTEXT.multiply(_CONTEXT.ln(_decimal(base)), _decimal(exponent))
    if abs(logarithm) > _LONGEST_EXPONENT * 2:
        raise too_long()
    return _CONTEXT.exp(logarithm)


def _exact_root(value: Fraction, root: int) -> Fraction | None:
    """The root of a fraction, if it is a fraction itself."""
    if value < 0:
        odd = _exact_root(-value, root) if root % 2 else None
        return None if odd is None else -odd
    above, below = _whole_root(value.numerator, root), _whole_root(value.denominator, root)
    return None if above is None or below is None else Fraction(above, below)


def _whole_root(value: int, root: int) -> int | None:
    if root == 2:
        found = math.isqrt(value)
    else:
        low, high = 0, 1 << (value.bit_length() // root + 1)
        while low < high:
            middle = (low + high + 1) // 2
            if middle**root <= value:
                low = middle
            else:
                high = middle - 1
        found = low
    return found if found**root == value else None


def _factorial(value: Value) -> Value:
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
        raise CannotComputeError(
            "Only whole numbers from 0 on have a factorial.", "Eine Fakultät haben nur ganze Zahlen ab 0."
        )
    if value > MOST_FACTORIAL:
        raise too_long()
    return _checked(Fraction(math.factorial(int(value))))


def _call(name: str, value: Value) -> Value:
    if name in ("sqrt", "cbrt"):
        if name == "sqrt" and value < 0:
            raise _not_real()
        if isinstance(value, Fraction):
            root = _exact_root(value, 2 if name == "sqrt" else 3)
            if root is not None:
                return root
        if name == "sqrt":
            return _CONTEXT.sqrt(_decimal(value))
        size = _CONTEXT.exp(_CONTEXT.divide(_CONTEXT.ln(abs(_decimal(value))), Decimal(3)))
        return -size if value < 0 else size
    if name in ("ln", "log10", "log2"):
        return _logarithm(name, value)
    if name == "abs":
        return -value if value < 0 else value
    return Fraction(math.floor(value) if name == "floor" else math.ceil(value))


def _logarithm(name: str, value: Value) -> Value:
    if value <= 0:
        raise CannotComputeError(
            "Only numbers above zero have a logarithm.", "Einen Logarithmus haben nur Zahlen über null."
        )
    if value == 1:
        return Fraction(0)
    if name == "ln":
        return _CONTEXT.ln(_decimal(value))
    base = 10 if name == "log10" else 2
    if isinstance(value, Fraction):
        for whole, sign in ((value, 1), (1 / value, -1)):
            power = 0
            while whole.denominator == 1 and whole % base == 0:
                whole, power = whole / base, power + 1
            if whole == 1:
                return Fraction(sign * power)
    if base == 10:
        return _CONTEXT.log10(_decimal(value))
    return _CONTEXT.divide(_CONTEXT.ln(_decimal(value)), _CONTEXT.ln(Decimal(2)))


def _checked(value: Value) -> Value:
    if isinstance(value, Decimal):
        if value and abs(value.adjusted()) > _LONGEST_EXPONENT:
            raise too_long()
        return value
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise too_long()
    return value


def computed(node: Node) -> tuple[str, bool, Value]:
    """The value as a plain number (number_text.plain_number), whether that is exact, and the value. Raises
    CannotComputeError, also if the number is too long to be written."""
    with localcontext(_CONTEXT):
        value = value_of(node)
        if isinstance(value, Fraction) and value.denominator == 1 and abs(value) >= 10**MOST_DIGITS:
            raise too_long()
        plain, exact = plain_number(value)
    return plain, exact, value


_ROOTS = {"sqrt": "√", "cbrt": "∛"}
_SIGNS = {"*": "×", "of": "of"}


def shown(node: Node, language: str) -> str:
    """The expression as it was parsed, in one line."""
    match node:
        case Number(value):
            if value.denominator == 3:  # a third of
                return f"{value.numerator}/{value.denominator}"
            number = written(plain_number(value)[0], language)
            return f"({number})" if "×" in number else number
        case Constant():
            return "π"
        case Brackets(inner):
            text = shown(inner, language)
            return text if isinstance(inner, Number) and text[0] == "(" else f"({text})"
        case Percent(inner):
            return f"{shown(inner, language)}{' %' if language == 'de' else '%'}"
        case Factorial(inner):
            return f"{shown(inner, language)}!"
        case Negative(inner):
            return f"-{shown(inner, language)}"
        case Call(name, inner):
            argument = shown(inner, language)
            if name in _ROOTS:
                return f"{_ROOTS[name]}{argument}"
            return f"{name}{argument if isinstance(inner, Brackets) else f'({argument})'}"
        case Operation("^", left, right):
            return f"{shown(left, language)}^{shown(right, language)}"
        case Operation(sign, left, right):
            between = "von" if sign == "of" and language == "de" else _SIGNS.get(sign, sign)
            return f"{shown(left, language)} {between} {shown(right, language)}"
