"""The exact tools against other ways to compute the same: Python's fractions, datetime, and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from py_core.tools.counting import graphemes
from py_core.tools.dates import easter
from py_core.tools.expression import CannotComputeError, Negative, Number, value_of
from py_core.tools.expression_parser import parse
from py_core.tools.number_text import grouped, plain_number, read_numbers, shape_of
from py_core.tools.number_words import read_number as read_words
from py_core.tools.toolbox import answer_exactly
from py_core.tools.units import converted, units

NOW = datetime(2026, 11, 23, 14, 5)
DAYS = st.dates(date(1, 1, 1), date(9999, 12, 31))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 0) -> tuple[str, Fraction | None]:
    """An expression as text, with every operation in brackets, and its value; None if it divides by zero."""
    if depth > 4 or draw(st.booleans()):
        whole, places = draw(st.integers(0, 10**6)), draw(st.integers(0, 3))
        value = Fraction(whole, 10**places)
        return f"{Decimal(whole).scaleb(-places):f}", value
    sign = draw(st.sampled_from("+-*/^"))
    left, left_value = draw(expressions(depth + 1))
    if sign == "^":
        power = draw(st.integers(0, 4))
        return f"({left}) ^ {power}", None if left_value is None else left_value**power
    right, right_value = draw(expressions(depth + 1))
    text = f"({left}) {sign} ({right})"
    if left_value is None or right_value is None or (sign == "/" and right_value == 0):
        return text, None
    operate = {"+": left_value.__add__, "-": left_value.__sub__, "*": left_value.__mul__, "/": left_value.__truediv__}
    return text, operate[sign](right_value)


@given(expressions())
def test_an_expression_has_the_value_that_fractions_give(expression: tuple[str, Fraction | None]) -> None:
    text, expected = expression
    parsed = parse(text, least=0, point=".")
    assert parsed is not None
    if expected is None:
        with pytest.raises(CannotComputeError):
            value_of(parsed.node)
    else:
        assert value_of(parsed.node) == expected


@given(st.lists(st.integers(1, 99), min_size=2, max_size=8), st.data())
def test_precedence_is_that_of_python(numbers: list[int], data: st.DataObject) -> None:
    """Python's own evaluation, in this test only, with only these numbers and signs."""
    signs = [data.draw(st.sampled_from("+-*/")) for _ in numbers[1:]]
    text = str(numbers[0]) + "".join(f" {sign} {number}" for sign, number in zip(signs, numbers[1:], strict=True))
    parsed = parse(text)
    assert parsed is not None
    in_python = re.sub(r"\d+", r"Fraction(\g<0>)", text)
    assert value_of(parsed.node) == eval(in_python, {"Fraction": Fraction})


@given(st.text(alphabet="0123456789+-*/^()!%. ,xπ√²eE", max_size=60))
def test_any_signs_end_with_a_value_a_sentence_or_nothing(text: str) -> None:
    exact = answer_exactly(text, NOW)
    assert exact is None or exact.words


@given(st.text(max_size=80) | st.from_regex(r"(how many|what is|convert|days until) [\w '\"=]{0,40}", fullmatch=True))
def test_any_text_is_answered_or_left_alone(text: str) -> None:
    exact = answer_exactly(text, NOW)
    assert exact is None or (exact.words and exact.kind in ("arithmetic", "date", "unit", "count"))


@settings(max_examples=200)  # in the gate, too: few numbers end in zeros
@given(st.fractions(max_denominator=10**6).filter(bool))
def test_a_written_number_is_exact_or_right_to_ten_digits(value: Fraction) -> None:
    plain, is_exact = plain_number(value)
    written = Fraction(plain)
    assert written == value if is_exact else abs(written - value) <= abs(value) / 10**9


@given(st.integers(-(10**15), 10**15), st.sampled_from(["en", "de"]))
def test_a_number_is_read_as_it_was_written(number: int, language: str) -> None:
    assume(number >= 0)
    assert read_numbers([grouped(str(number), language)], language) == [number]


SENTENCES = (
    ("en", "what is {} * 2", lambda a, b: 2 * a), ("en", "{} plus {}", lambda a, b: a + b),
    ("en", "sum of {} and {}", lambda a, b: a + b), ("en", "average of {}, {} and 2", lambda a, b: (a + b + 2) / 3),
    ("en", "subtract {} from {}", lambda a, b: b - a), ("en", "50% of {}", lambda a, b: a / 2),
    ("en", "solve x + {} = {}", lambda a, b: b - a), ("en", "convert {} km to m", lambda a, b: 1000 * a),
    ("en", "{} seconds in milliseconds", lambda a, b: 1000 * a),
    ("en", "2 pens cost {}, what do 4 cost?", lambda a, b: 2 * a),
    ("de", "was ist {} mal 2", lambda a, b: 2 * a), ("de", "Summe von {} und {}", lambda a, b: a + b),
    ("de", "Durchschnitt von {}; {} und 2", lambda a, b: (a + b + 2) / 3),
    ("de", "ziehe {} von {} ab", lambda a, b: b - a),
    ("de", "50% von {}", lambda a, b: a / 2), ("de", "löse x + {} = {}", lambda a, b: b - a),
    ("de", "{} Kilogramm in g", lambda a, b: 1000 * a), ("de", "wie viele Meter sind {} km", lambda a, b: 1000 * a),
    ("de", "2 Stifte kosten {}, was kosten 4?", lambda a, b: 2 * a),
    ("", "{} * 2", lambda a, b: 2 * a), ("", "{} + {}", lambda a, b: a + b), ("", "x + {} = {}", lambda a, b: b - a),
    ("", "{} km in m", lambda a, b: 1000 * a),
)  # fmt: skip
AMOUNTS = st.decimals("0.1", 10**7, places=2) | st.integers(1, 10**7).map(Decimal) | st.decimals("0.1", 99, places=3)


def in_format(number: Decimal, language: str, grouped: bool) -> str:
    """A number as people write it in a language, possibly without groups of thousands."""
    said = f"{number:,f}" if grouped else f"{number:f}"
    return said.translate(str.maketrans(",.", ".,")) if language == "de" else said


@given(st.sampled_from(SENTENCES), AMOUNTS, AMOUNTS, st.booleans())
def test_a_number_in_the_format_of_another_language_is_the_same_or_for_the_model(
    sentence: tuple[str, str, Callable[..., Fraction]], first: Decimal, second: Decimal, grouped: bool
) -> None:
    language, text, value = sentence
    written = {
        other: text.format(in_format(first, other, grouped), in_format(second, other, grouped))
        for other in ("en", "de")
    }
    found = {other: answer_exactly(message, NOW) for other, message in written.items()}
    values = {exact.value for exact in found.values() if exact is not None}
    assert len(values) <= 1, written
    is_clear = all(shape_of(in_format(number, "en", grouped)) != "either" for number in (first, second))
    if language and is_clear:
        exact = found[language]
        assert exact is not None
        expected = value(Fraction(first), Fraction(second))
        assert abs(Fraction(exact.value) - expected) <= abs(expected) / 10**4 + Fraction(5, 1000)


@given(st.integers(2, 10**6))
def test_roots_are_those_of_decimals(number: int) -> None:
    parsed = parse(f"sqrt({number})")
    assert parsed is not None
    with localcontext(prec=40):
        assert abs(Decimal(number).sqrt() - _decimal(value_of(parsed.node))) < Decimal("1e-30")


def _decimal(value: Fraction | Decimal) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(value.numerator) / Decimal(value.denominator)


@given(DAYS, DAYS)
def test_days_between_dates_are_those_of_datetime(first: date, last: date) -> None:
    exact = answer_exactly(f"how many days between {first.isoformat()} and {last.isoformat()}", NOW)
    assert exact is not None
    assert exact.value == str(abs((last - first).days))


@given(DAYS, st.integers(0, 5000), st.sampled_from(["after", "before"]))
def test_a_date_some_days_on_is_that_of_datetime(day: date, days: int, way: str) -> None:
    exact = answer_exactly(f"{days} days {way} {day.isoformat()}", NOW)
    assert exact is not None
    try:
        assert exact.value == (day + timedelta(days if way == "after" else -days)).isoformat()
    except OverflowError:
        assert exact.value == ""


@given(DAYS)
def test_weekdays_are_those_of_datetime(day: date) -> None:
    exact = answer_exactly(f"what day is {day.day} {day:%B} {day.year:04}", NOW)
    assert exact is not None
    assert exact.value == f"{day:%A}"


def test_easter_is_where_the_calendars_have_it() -> None:
    known = {1818: (3, 22), 1943: (4, 25), 1961: (4, 2), 2000: (4, 23), 2008: (3, 23), 2024: (3, 31), 2025: (4, 20),
             2026: (4, 5), 2027: (3, 28), 2038: (4, 25)}  # fmt: skip
    assert {year: (easter(year).month, easter(year).day) for year in known} == known


ALL_UNITS = list({(unit.dimension, unit.key): unit for same in units().values() for unit in same}.values())


@given(st.fractions(-(10**6), 10**6, max_denominator=1000), st.data())
def test_a_conversion_and_its_way_back_give_the_same(amount: Fraction, data: st.DataObject) -> None:
    given_unit = data.draw(st.sampled_from(ALL_UNITS))
    wanted = data.draw(st.sampled_from([unit for unit in ALL_UNITS if unit.dimension == given_unit.dimension]))
    assert converted(converted(amount, given_unit, wanted), wanted, given_unit) == amount


def test_every_unit_has_its_names() -> None:
    assert len({unit.dimension for unit in ALL_UNITS}) >= 10
    for unit in ALL_UNITS:
        assert all(unit.names["en"])
        assert unit.size > 0


@given(st.integers(0, 999_999))
def test_number_words_are_read(number: int) -> None:
    assert read_words(english(number).split(), 0)[0] == number
    if number < 1000:
        assert read_words([german(number)], 0)[0] == number


ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def english(number: int) -> str:
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")
    if number < 1000:
        return f"{ONES[number // 100]} hundred" + (f" and {english(number % 100)}" if number % 100 else "")
    return f"{english(number // 1000)} thousand" + (f" {english(number % 1000)}" if number % 1000 else "")


def german(number: int) -> str:
    ones = ["null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
            "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"]  # fmt: skip
    tens = ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
    if number >= 100:
        rest = number % 100
        return f"{ones[number // 100]}hundert" + (("eins" if rest == 1 else german(rest)) if rest else "")
    if number == 1:
        return "eins"
    if number < 20:
        return ones[number]
    return (f"{ones[number % 10]}und" if number % 10 else "") + tens[number // 10]


@given(st.text(alphabet="abcé\u0301👩\u200d🚀🇩🇪🏽", max_size=12))
def test_turning_a_word_around_twice_gives_the_word(text: str) -> None:
    parts = graphemes(text)
    assert "".join(parts) == "".join(graphemes("".join(parts)))
    assert len(parts) <= len(text)


def test_what_readers_take_for_one_character_stays_one() -> None:
    assert graphemes("e\u0301👩\u200d🚀🇩🇪👍🏽") == ["é", "👩\u200d🚀", "🇩🇪", "👍🏽"]


@given(st.lists(st.fractions(-50, 50, max_denominator=6), min_size=1, max_size=2), st.integers(1, 9))
def test_an_equation_has_the_roots_that_it_was_made_of(roots: list[Fraction], factor: int) -> None:
    sides = "".join(f"(x {'-' if root >= 0 else '+'} {abs(root.numerator)}/{root.denominator})" for root in roots)
    exact = answer_exactly(f"solve {factor}{sides} = 0", NOW)
    assert exact is not None
    assert [Fraction(value) for value in exact.value.split(", ")] == sorted(set(roots))


@given(st.integers(1, 9), st.integers(-20, 20), st.integers(-20, 20))
def test_roots_with_a_square_root_solve_their_equation(a: int, b: int, c: int) -> None:
    exact = answer_exactly(f"solve {a}x^2 + {b}x + {c} = 0".replace("+ -", "- "), NOW)
    assert exact is not None
    assert bool(exact.value) == (b * b >= 4 * a * c)
    for value in filter(None, exact.value.split(", ")):
        bare = re.sub(r"(\d*)√(\d+)", lambda found: f"{found[1] or 1}*{found[2]}**.5", value)
        x = eval(bare)  # only numbers and signs
        assert abs(a * x * x + b * x + c) < 1e-6


def test_a_sign_before_a_number_is_no_operation() -> None:
    assert parse("-5") is None
    parsed = parse("-5", least=0)
    assert parsed is not None
    assert parsed.node == Negative(Number(Fraction(5)))
