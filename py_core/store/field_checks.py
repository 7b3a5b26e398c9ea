"""Small checks of a record's fields. Each returns None if a value fits, otherwise a description of valid values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from py_core.store.records import DEEPEST, LONGEST_NAME

LONGEST_TEXT = 1_000_000
LARGEST_INTEGER = 2**53 - 1  # what JavaScript can hold
LATEST = 253_402_300_799.0  # the end of the year 9999, in seconds since 1970

Check = Callable[[Any], str | None]
"""Returns None if the value fits, otherwise a description of valid values ("a number from 0 to 1")."""


def text(longest: int = LONGEST_TEXT) -> Check:
    def check(value: Any) -> str | None:
        fits = isinstance(value, str) and len(value) <= longest
        return None if fits else f"text of at most {longest:,} characters"

    return check


def name(value: Any) -> str | None:
    """Checks a name by the rule for kinds and ids (records.check_name)."""
    fits = isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()
    return None if fits else f"printable text of 1 to {LONGEST_NAME} characters"


def number(low: float, high: float) -> Check:
    def check(value: Any) -> str | None:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a number from {low:g} to {high:g}"

    return check


def integer(high: int, low: int = 0) -> Check:
    def check(value: Any) -> str | None:
        return None if type(value) is int and low <= value <= high else f"a whole number from {low} to {high:,}"

    return check


def boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def one_of(*choices: str) -> Check:
    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in choices else f"one of {', '.join(choices)}"

    return check


def or_null(check: Check) -> Check:
    def check_or_null(value: Any) -> str | None:
        wanted = None if value is None else check(value)
        return None if wanted is None else f"null or {wanted}"

    return check_or_null


def or_list(check: Check) -> Check:
    def check_or_list(value: Any) -> str | None:
        wrong = (check(each) for each in (value if isinstance(value, list) else [value]))
        wanted = next((wanted for wanted in wrong if wanted is not None), None)
        return None if wanted is None else f"{wanted}, or a list of such"

    return check_or_list


def json_value(value: Any, depth: int = DEEPEST) -> str | None:
    """Checks that a value is JSON with finite numbers and limited nesting."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return text()(value)
    if isinstance(value, int | float):
        fits = math.isfinite(value) if isinstance(value, float) else abs(value) <= LARGEST_INTEGER
        return None if fits else "JSON with finite numbers"
    if depth == 0 or not isinstance(value, list | dict):
        return f"JSON of at most {DEEPEST} levels"
    parts = value if isinstance(value, list) else [*value, *value.values()]
    return next((wanted for part in parts if (wanted := json_value(part, depth - 1)) is not None), None)


def object_of(**known: Check) -> Check:
    """A JSON object. The `known` fields that it has must pass their checks."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a JSON object"
        for name in known.keys() & value.keys():
            if (wanted := known[name](value[name])) is not None:
                return f"a JSON object whose {name} is {wanted}"
        return json_value(value)

    return check


def words(value: Any) -> str | None:
    """Checks a text, or a message as plain data (py_core/messages.py)."""
    if isinstance(value, str):
        return text()(value)
    return None if json_value(value) is None and _is_message(value) else "text or a message"


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {"code", "text", "values"}:
        return False
    code, template, values = value["code"], value["text"], value["values"]
    return (
        isinstance(code, str)
        and isinstance(template, str)
        and isinstance(values, dict)
        and all(map(_is_value, values.values()))
    )


def _is_value(value: Any) -> bool:
    return all(map(_is_value, value)) if isinstance(value, list) else isinstance(value, str) or _is_message(value)


def names(value: Any) -> str | None:
    fits = isinstance(value, list) and all(name(each) is None for each in value)
    return None if fits else "a list of names"


def texts(value: Any) -> str | None:
    fits = isinstance(value, list) and all(text()(each) is None for each in value)
    return None if fits else "a list of texts"


def three_numbers(value: Any) -> str | None:
    fits = isinstance(value, list) and len(value) == 3 and all(number(0, 1e12)(each) is None for each in value)
    return None if fits else "a list of three numbers from 0 on"


def ranked(value: Any) -> str | None:
    fits = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and name(pair[0]) is None and number(-1e9, 1e9)(pair[1]) is None
        for pair in value
    )
    return None if fits else "a list of pairs of a name and a number"


def thinking(value: Any) -> str | None:
    fits = (
        isinstance(value, dict) and text()(value.get("text")) is None and number(0, 1e9)(value.get("seconds")) is None
    )
    return None if fits else "a JSON object of a text and its seconds"


def milliseconds(value: Any) -> str | None:
    check = number(0, 1e12)
    fits = isinstance(value, dict) and all(name(key) is None and check(ms) is None for key, ms in value.items())
    return None if fits else "a JSON object of milliseconds"


def parts(value: Any) -> str | None:
    """Checks the parts of a quality: an object of shares. A share that is not known is null."""
    fits = isinstance(value, dict) and all(name(key) is None and or_null(share)(v) is None for key, v in value.items())
    return None if fits else "a JSON object of numbers from 0 to 1"


def objects(value: Any) -> str | None:
    fits = isinstance(value, list) and all(object_of()(each) is None for each in value)
    return None if fits else "a list of JSON objects"


def figures(value: Any) -> str | None:
    check = number(-1e300, 1e300)
    fits = isinstance(value, dict) and all(name(key) is None and check(each) is None for key, each in value.items())
    return None if fits else "a JSON object of finite numbers"


def series(value: Any) -> str | None:
    check = number(-1e300, 1e300)
    fits = isinstance(value, dict) and all(
        name(key) is None and isinstance(row, list) and all(check(each) is None for each in row)
        for key, row in value.items()
    )
    return None if fits else "a JSON object of lists of finite numbers"


def policy_value(value: Any) -> str | None:
    finite = number(-1e300, 1e300)
    fits = (
        isinstance(value, bool)
        or integer(LARGEST_INTEGER, -LARGEST_INTEGER)(value) is None
        or (isinstance(value, float) and finite(value) is None)
        or text()(value) is None
        or (isinstance(value, list) and all(finite(each) is None for each in value))
    )
    return None if fits else "true, false, a finite number, text or a list of finite numbers"


time = number(0, LATEST)
share = number(0, 1)
