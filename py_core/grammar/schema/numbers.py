"""Numbers: what schemas say of them, and the expressions of their texts.

Whole numbers are written as integers, others in decimal notation, or, as Python and JavaScript write them, with an
exponent if they are below 0.0001.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from py_core.grammar.automata import automaton_of, intersection
from py_core.grammar.expressions import EMPTY, NOTHING, Automaton, Chars, Expression, GrammarError, Literal, Repeat
from py_core.grammar.forms import choice, joined
from py_core.grammar.schema.values import common_values

_DIGITS = ((0x30, 0x39),)
_MOST_ENUMERATED = 256
_MOST_REMAINDERS = 1000
_SMALL = Fraction(1, 10_000)
"""Python writes smaller numbers with exponents."""
_MOST_DIGITS = 100


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers by what holds of all of them.

    whole: only integers (True), only others (False). least, most: bounds, which do not count themselves if they are
    open. multiple: what all are multiples of. values: the only ones. without: these are left out. paths: where the
    bounds and multiples are from, for messages.
    """

    whole: bool | None = None
    least: Fraction | None = None
    least_open: bool = False
    most: Fraction | None = None
    most_open: bool = False
    multiple: Fraction | None = None
    no_multiples: tuple[Fraction, ...] = ()
    values: tuple[Fraction, ...] | None = None
    without: frozenset[Fraction] = frozenset()
    path: str = ""

    def has(self, number: Fraction) -> bool:
        """True if a number is one of them."""
        if self.whole is not None and (number.denominator == 1) is not self.whole:
            return False
        if self.least is not None and (number < self.least or (self.least_open and number == self.least)):
            return False
        if self.most is not None and (number > self.most or (self.most_open and number == self.most)):
            return False
        if self.multiple is not None and (number / self.multiple).denominator != 1:
            return False
        if any((number / step).denominator == 1 for step in self.no_multiples):
            return False
        return number not in self.without and (self.values is None or number in self.values)


ALL_NUMBERS = Numbers()


def common_numbers(one: Numbers, other: Numbers) -> Numbers | None:
    """The common part; None if that is nothing."""
    if one is ALL_NUMBERS or other is ALL_NUMBERS:
        return other if one is ALL_NUMBERS else one
    if (values := common_values(one, other)) is not None:
        return Numbers(values=values, path=one.path) if values else None
    if one.whole is not None and other.whole is not None and one.whole is not other.whole:
        return None
    least = max((bounds for bounds in (_least(one), _least(other)) if bounds), default=None)
    most = min((bounds for bounds in (_most(one), _most(other)) if bounds), default=None)
    multiple = one.multiple if one.multiple is not None else other.multiple
    if one.multiple is not None and other.multiple is not None:
        multiple = Fraction(
            math.lcm(one.multiple.numerator * other.multiple.denominator,
                     other.multiple.numerator * one.multiple.denominator),
            one.multiple.denominator * other.multiple.denominator,
        )  # fmt: skip
    found = Numbers(
        one.whole if one.whole is not None else other.whole,
        least[0] if least else None,
        bool(least and least[1]),
        most[0] if most else None,
        bool(most and -most[1]),
        multiple,
        one.no_multiples + other.no_multiples,
        None,
        one.without | other.without,
        one.path or other.path,
    )
    return found if _possible(found) else None


def _least(numbers: Numbers) -> tuple[Fraction, int] | None:
    return None if numbers.least is None else (numbers.least, int(numbers.least_open))


def _most(numbers: Numbers) -> tuple[Fraction, int] | None:
    return None if numbers.most is None else (numbers.most, -int(numbers.most_open))


def _possible(numbers: Numbers) -> bool:
    """False if there is certainly no such number."""
    if numbers.whole is False and numbers.multiple is not None and numbers.multiple.denominator == 1:
        return False
    if any(numbers.multiple and (numbers.multiple / step).denominator == 1 for step in numbers.no_multiples):
        return False
    if numbers.whole and any(step.numerator == 1 for step in numbers.no_multiples):
        return False
    if numbers.least is None or numbers.most is None:
        return True
    if numbers.least > numbers.most or (
        numbers.least == numbers.most and (numbers.least_open or numbers.most_open or not numbers.has(numbers.least))
    ):
        return False
    if numbers.whole or numbers.multiple is not None:
        step = _step(numbers)
        first, last = _ends(numbers, step)
        return first <= last and (last - first > len(numbers.without) or any(
            numbers.has(step * number) for number in range(first, last + 1)
        ))  # fmt: skip
    return True


def _step(numbers: Numbers) -> Fraction:
    """The number of which all of them are multiples."""
    step = numbers.multiple or Fraction(1)
    return Fraction(step.numerator) if numbers.whole else step


def _ends(numbers: Numbers, step: Fraction) -> tuple[int, int]:
    """The first and the last multiple of a step between the bounds."""
    assert numbers.least is not None
    assert numbers.most is not None
    first, last = math.ceil(numbers.least / step), math.floor(numbers.most / step)
    first += numbers.least_open and first * step == numbers.least
    last -= numbers.most_open and last * step == numbers.most
    return first, last


def exact(value: float) -> Fraction:
    """The number that a JSON text meant."""
    if isinstance(value, int):
        return Fraction(value)
    if not math.isfinite(value):
        raise GrammarError(f"{value} is not a number of JSON")
    return Fraction(Decimal(repr(value)))


def number_text(number: Fraction) -> str:
    """A number as canonical texts have it."""
    return str(number.numerator) if number.denominator == 1 else repr(float(number))


# --- expressions


_ANY_DIGITS = Chars(_DIGITS, 0, None)
_INTEGER = joined((Repeat(Literal(b"-"), 0, 1), choice((Literal(b"0"), joined((Chars(((0x31, 0x39),)), _ANY_DIGITS))))))
_UNSIGNED = choice((Literal(b"0"), joined((Chars(((0x31, 0x39),)), _ANY_DIGITS))))
_SOME_DIGIT = joined((Chars(((0x30, 0x30),), 0, None), Chars(((0x31, 0x39),)), _ANY_DIGITS))
_FRACTION = Repeat(joined((Literal(b"."), Chars(_DIGITS, 1, None))), 0, 1)
_EXPONENT = Repeat(
    joined((Chars(((0x45, 0x45), (0x65, 0x65))), Repeat(Chars(((0x2B, 0x2B), (0x2D, 0x2D))), 0, 1),
            Chars(_DIGITS, 1, None))), 0, 1,
)  # fmt: skip
_SMALL_EXPONENT = joined(
    (Literal(b"e-"), choice((joined((Literal(b"0"), Chars(((0x35, 0x39),)))),
                             joined((Chars(((0x31, 0x39),)), Chars(_DIGITS, 1, 2))))))
)  # fmt: skip
_MANTISSA = joined((Chars(((0x31, 0x39),)), _FRACTION))


@lru_cache(1024)
def number_expression(numbers: Numbers) -> Expression:
    """The texts of numbers, all of them at least once as Python writes them."""
    if numbers.values is not None:
        return choice(Literal(number_text(value).encode()) for value in numbers.values)
    if numbers.no_multiples or numbers.without:
        return _fewer(numbers)
    if numbers.multiple is not None:
        return _multiples(numbers)
    if numbers.whole:
        return _integers(numbers)
    if numbers.whole is False:
        return _no_integers(numbers)
    if numbers.least is None and numbers.most is None:
        return joined((Repeat(Literal(b"-"), 0, 1), _UNSIGNED, _FRACTION, _EXPONENT))
    return _decimals(numbers)


def _unsupported(numbers: Numbers, why: str = "not supported") -> GrammarError:
    return GrammarError(f"{numbers.path}: {why}")


def _few(numbers: Numbers, step: Fraction, most: int = _MOST_ENUMERATED) -> Expression | None:
    """The texts one by one if they are few."""
    if numbers.least is None or numbers.most is None:
        return None
    first, last = _ends(numbers, step)
    if last - first >= most:
        return None
    every = (step * number for number in range(first, last + 1))
    return choice(Literal(number_text(value).encode()) for value in every if numbers.has(value))


def _fewer(numbers: Numbers) -> Expression:
    """Numbers without some."""
    from py_core.grammar.automata import difference

    if numbers.whole or numbers.multiple is not None:
        few = _few(numbers, _step(numbers))
        if few is not None:
            return few
    rest = replace(numbers, no_multiples=(), without=frozenset())
    gone: list[Expression] = [_spelled(value) for value in numbers.without if rest.has(value)]
    for step in numbers.no_multiples:
        gone.append(_multiples(Numbers(whole=numbers.whole, multiple=step, path=numbers.path)))
        if not numbers.whole:  # texts with exponents are no texts of multiples
            raise _unsupported(numbers)
    if not gone:
        return number_expression(rest)
    return difference(automaton_of(number_expression(rest)), automaton_of(choice(gone)))


def _spelled(value: Fraction) -> Expression:
    """All texts of one number; with exponents only zero and what is canonical."""
    text = format(Decimal(value.numerator) / Decimal(value.denominator), "f")
    if value == 0:
        zeros = Chars(((0x30, 0x30),), 1, None)
        point = Repeat(joined((Literal(b"."), zeros)), 0, 1)
        return joined((Repeat(Literal(b"-"), 0, 1), Literal(b"0"), point, _EXPONENT))
    if "." not in text:
        point = Repeat(joined((Literal(b"."), Chars(((0x30, 0x30),), 1, None))), 0, 1)
        return joined((Literal(text.encode()), point))
    return joined((Literal(text.encode()), Chars(((0x30, 0x30),), 0, None)))


def _integers(numbers: Numbers) -> Expression:
    """Integers in a range."""
    least = math.ceil(numbers.least) + (numbers.least_open and numbers.least.denominator == 1) \
        if numbers.least is not None else None  # fmt: skip
    most = math.floor(numbers.most) - (numbers.most_open and numbers.most.denominator == 1) \
        if numbers.most is not None else None  # fmt: skip
    if least is None and most is None:
        return _INTEGER
    if least is not None and most is not None and most - least < 20:
        return choice(Literal(str(number).encode()) for number in range(least, most + 1))
    for bound in (least, most):
        if bound is not None and len(str(abs(bound))) > _MOST_DIGITS:
            raise _unsupported(numbers, "too many digits")
    parts: list[Expression] = []
    if least is None or least < 0:
        below = max(1, -most) if most is not None else 1
        parts.append(joined((Literal(b"-"), _natural(below, -least if least is not None else None))))
    if most is None or most >= 0:
        parts.append(_natural(max(0, least or 0), most))
    return choice(parts)


def _natural(least: int, most: int | None) -> Expression:
    """Integers from `least`, at least 0, to `most` or without an end."""
    if most is not None and least > most:
        return NOTHING
    low = str(least)
    if most is None:
        longer = joined((Chars(((0x31, 0x39),)), Chars(_DIGITS, len(low), None)))
        return choice((_of_length(low, "9" * len(low)), longer))
    high = str(most)
    if len(low) == len(high):
        return _of_length(low, high)
    parts = [_of_length(low, "9" * len(low)), _of_length("1" + "0" * (len(high) - 1), high)]
    if len(high) - len(low) > 1:
        parts.append(joined((Chars(((0x31, 0x39),)), Chars(_DIGITS, len(low), len(high) - 2))))
    return choice(parts)


def _digit(first: int, last: int) -> Expression:
    return Chars(((0x30 + first, 0x30 + last),)) if first <= last else NOTHING


def _of_length(low: str, high: str) -> Expression:
    """Strings of digits between two of the same length."""
    same = 0
    while same < len(low) and low[same] == high[same]:
        same += 1
    if same:
        return joined((Literal(low[:same].encode()), _of_length(low[same:], high[same:])))
    if not low:
        return EMPTY
    count = len(low)
    if low == "0" * count and high == "9" * count:
        return Chars(_DIGITS, count, count)
    first, last = int(low[0]), int(high[0])
    parts: list[Expression] = []
    if low[1:] == "0" * (count - 1):
        first -= 1
    else:
        parts.extend(_above(low, count))
    if high[1:] == "9" * (count - 1):
        last += 1
    else:
        parts.extend(_below(high, count))
    middle = _digit(first + 1, last - 1)
    parts.append(joined((middle, Chars(_DIGITS, count - 1, count - 1))))
    return choice(parts)


def _above(low: str, count: int) -> Iterator[Expression]:
    """Strings with the first digit of `low` that are not below it."""
    end = len(low.rstrip("0"))
    for at in range(1, end):
        middle = _digit(int(low[at]) + (at < end - 1), 9)
        yield joined((Literal(low[:at].encode()), middle, Chars(_DIGITS, count - at - 1, count - at - 1)))


def _below(high: str, count: int) -> Iterator[Expression]:
    """Strings with the first digit of `high` that are not above it."""
    end = len(high.rstrip("9"))
    for at in range(1, end):
        middle = _digit(0, int(high[at]) - (at < end - 1))
        yield joined((Literal(high[:at].encode()), middle, Chars(_DIGITS, count - at - 1, count - at - 1)))


def _decimals(numbers: Numbers) -> Expression:
    """Numbers with fractions in a range."""
    parts: list[Expression] = []
    least, most = numbers.least, numbers.most
    if least is None or least < 0:
        below = -most if most is not None and most < 0 else Fraction(0)
        below_open = numbers.most_open if most is not None and most < 0 else True
        above = -least if least is not None else None
        parts.append(joined((Literal(b"-"), _positive(below, below_open, above, numbers.least_open, numbers))))
    if most is None or most > 0 or (most == 0 and not numbers.most_open):
        from_zero = least is None or least < 0
        low = Fraction(0) if from_zero else least
        assert low is not None
        parts.append(_positive(low, numbers.least_open and not from_zero, most, numbers.most_open, numbers))
    return choice(parts)


def _positive(low: Fraction, low_open: bool, high: Fraction | None, high_open: bool, numbers: Numbers) -> Expression:
    """Numbers that are not negative in a range, also the small ones with an exponent."""
    if high is None and low == 0 and not low_open:
        return joined((_UNSIGNED, _FRACTION, _EXPONENT))
    parts = [_plain(low, low_open, high, high_open, numbers)]
    if low < _SMALL and high != 0:
        if low == 0 and (high is None or high >= _SMALL):
            parts.append(joined((_MANTISSA, _SMALL_EXPONENT)))
        else:
            parts.extend(_small(low, low_open, high, high_open, numbers))
    return choice(parts)


def _small(low: Fraction, low_open: bool, high: Fraction | None, high_open: bool, numbers: Numbers) -> \
        Iterator[Expression]:  # fmt: skip
    """Numbers below 0.0001 in a range that ends among them."""
    for exponent in range(5, 325):
        scale = 10**exponent
        first, first_open = (low * scale, low_open) if low * scale >= 1 else (Fraction(1), False)
        last, last_open = (high * scale, high_open) if high is not None and high * scale < 10 else (Fraction(10), True)
        if exponent > 60:
            raise _unsupported(numbers, "a bound too close to zero")
        if low == 0 and last == 10:  # all of this exponent and of those below
            rest = choice(Literal(f"e-{n:02}".encode()) for n in range(exponent, 325))
            yield joined((_MANTISSA, rest))
            return
        if first < last or (first == last and not first_open and not last_open):
            yield joined((_plain(first, first_open, last, last_open, numbers), Literal(f"e-{exponent:02}".encode())))
        if low * scale >= 10:
            return


def _digits_of(number: Fraction, numbers: Numbers) -> tuple[int, str]:
    """The integer part and the digits of the fraction."""
    whole, rest = divmod(number, 1)
    digits = ""
    while rest:
        digit, rest = divmod(rest * 10, 1)
        digits += str(digit)
        if len(digits) > _MOST_DIGITS:
            raise _unsupported(numbers, "too many digits")
    return int(whole), digits


def _plain(low: Fraction, low_open: bool, high: Fraction | None, high_open: bool, numbers: Numbers) -> Expression:
    """Numbers that are not negative in a range, without exponents."""
    whole, digits = _digits_of(low, numbers)
    if high is None:
        return choice((joined((_text(whole), _fraction(digits, low_open, None, False))),
                       joined((_natural(whole + 1, None), _FRACTION))))  # fmt: skip
    last, last_digits = _digits_of(high, numbers)
    if max(whole, last) >= 10**_MOST_DIGITS:
        raise _unsupported(numbers, "too many digits")
    if whole == last:
        return joined((_text(whole), _fraction(digits, low_open, last_digits, high_open)))
    return choice((
        joined((_text(whole), _fraction(digits, low_open, None, False))),
        joined((_natural(whole + 1, last - 1), _FRACTION)),
        joined((_text(last), _fraction("", False, last_digits, high_open))),
    ))  # fmt: skip


def _text(number: int) -> Expression:
    return Literal(str(number).encode())


def _fraction(low: str, low_open: bool, high: str | None, high_open: bool) -> Expression:
    """The texts that may follow the integer part, so that the fraction is between two others (None: below 1)."""
    after_point = joined((Literal(b"."), _digits(low if low or low_open else None, low_open, high, high_open, True)))
    if low or low_open or (high == "" and high_open):
        return after_point
    return Repeat(after_point, 0, 1)


def _digits(low: str | None, low_open: bool, high: str | None, high_open: bool, some: bool) -> Expression:
    """Digits after a point, at least one or any number of them, with a value between two others (None: no limit)."""
    if low == "" and not low_open:
        low = None
    if high == "":
        if high_open or low is not None:
            return NOTHING
        return Chars(((0x30, 0x30),), int(some), None)
    if high is None and not low:
        return Chars(_DIGITS, int(some), None) if low is None else _SOME_DIGIT
    parts: list[Expression] = [] if some or low is not None else [EMPTY]
    first = int(low[0]) if low else 0
    last = int(high[0]) if high else 9
    if low is not None and (high is None or first < last):
        parts.append(joined((_digit(first, first), _digits(low[1:], low_open, None, False, False))))
        first += 1
    if high is not None and first <= last:
        lowest = low[1:] if low and first == last == int(low[0]) else low if low == "" and last == 0 else None
        parts.append(joined((_digit(last, last), _digits(lowest, low_open, high[1:], high_open, False))))
        last -= 1
    if first <= last:
        parts.append(joined((_digit(first, last), _ANY_DIGITS)))
    return choice(parts)


def _no_integers(numbers: Numbers) -> Expression:
    """Numbers that are no integers."""
    plain = joined((_UNSIGNED, Literal(b"."), _SOME_DIGIT))
    every = joined((Repeat(Literal(b"-"), 0, 1), choice((plain, joined((_MANTISSA, _SMALL_EXPONENT))))))
    if numbers.least is None and numbers.most is None:
        return every
    return intersection(automaton_of(every), automaton_of(_decimals(numbers)))


# --- multiples


def _multiples(numbers: Numbers) -> Expression:
    """Multiples of a number, in a range if there is one."""
    step = _step(numbers)
    few = _few(numbers, step)
    if few is not None:
        return few
    digits = 0
    while (step * 10**digits).denominator != 1 and digits < 5:
        digits += 1
    size = step * 10**digits
    if size.denominator != 1 or digits > 4 or size.numerator > _MOST_REMAINDERS:
        raise _unsupported(numbers)
    if numbers.whole is False:
        raise _unsupported(numbers)
    if step == 1:
        return _integers(replace(numbers, whole=True))
    if step.numerator == 1 and numbers.least is None and numbers.most is None and size == 1:
        tail = Repeat(joined((Literal(b"."), Chars(_DIGITS, 1, digits))), 0, 1)
        return joined((_integers(Numbers(whole=True)), tail))
    every = _remainders(size.numerator, digits)
    if numbers.least is None and numbers.most is None:
        return every
    bounds = replace(numbers, multiple=None, whole=True) if not digits else replace(numbers, multiple=None)
    return intersection(every, automaton_of(_integers(bounds) if not digits else _plain_range(bounds)))


def _plain_range(numbers: Numbers) -> Expression:
    """Numbers in a range without exponents."""
    parts: list[Expression] = []
    least, most = numbers.least, numbers.most
    if least is None or least < 0:
        negative = most is not None and most < 0
        low = -most if most is not None and negative else Fraction(0)
        above = -least if least is not None else None
        low_open = numbers.most_open if negative else True
        parts.append(joined((Literal(b"-"), _plain(low, low_open, above, numbers.least_open, numbers))))
    if most is None or most >= 0:
        low = max(least, Fraction(0)) if least is not None else Fraction(0)
        parts.append(_plain(low, numbers.least_open and low == least, most, numbers.most_open, numbers))
    return choice(parts)


@lru_cache(64)
def _remainders(size: int, digits: int) -> Automaton:
    """Numbers with at most so many digits after the point that are multiples of `size` in units of the last one.

    State 0 begins, 1 is after the sign, 2 after a zero; then for each place (before the point, and so many digits after
    it) the remainders.
    """

    def state(place: int, remainder: int) -> int:
        return 3 + place * size + remainder

    def after(place: int, remainder: int) -> tuple[tuple[int, int, int], ...]:
        return tuple((0x30 + d, 0x30 + d, state(place, (remainder * 10 + d) % size)) for d in range(10))

    point = 3 + (digits + 1) * size
    first = tuple((0x30 + d, 0x30 + d, state(0, d % size)) for d in range(1, 10))
    moves: list[tuple[tuple[int, int, int], ...]] = [
        ((0x2D, 0x2D, 1), (0x30, 0x30, 2), *first),
        ((0x30, 0x30, 2), *first),
        ((0x2E, 0x2E, point),) if digits else (),
    ]
    accepting = {2}
    for place in range(digits + 1):
        for remainder in range(size):
            runs: tuple[tuple[int, int, int], ...] = ()
            if place == 0:
                runs = (((0x2E, 0x2E, point + remainder),) if digits else ()) + after(0, remainder)
            elif place < digits:
                runs = after(place + 1, remainder)
            moves.append(runs)
            if remainder * 10 ** (digits - place) % size == 0:
                accepting.add(state(place, remainder))
    if digits:
        moves.extend(after(1, remainder) for remainder in range(size))
    return intersection(Automaton(tuple(moves), frozenset(accepting)), Automaton((((0, 255, 0),),), frozenset((0,))))
