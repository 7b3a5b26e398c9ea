"""The values in calls that models write: JSON, Python's literals, and the quotes that are tokens."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from py_core.display import shown, why_not_json
from py_core.messages import Message
from py_core.tool_calls.definitions import MOST_DEEP, depth_of, is_plain_text

Written = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""

_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_KEY = re.compile(r"[^\s:,{}\[\]()\"'<>]+")
_INSIDE = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*", re.DOTALL) for quote in "\"'"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_ESCAPES |= {mark: mark for mark in "\\'\"/"}
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_MOST_DIGITS = 300
_XML_CALL = re.compile(r"<function=([^>\n]*)>(.*)</function>", re.DOTALL)
_XML_ARGUMENT = re.compile(r"\s*<parameter=([^>\n]*)>\n?(.*?)\n?</parameter>", re.DOTALL)


class NotACallError(ValueError):
    """A text is not a call. `why` says it for a person."""

    def __init__(self, why: Message) -> None:
        self.why = why
        super().__init__(str(why))


def _broken(what: str) -> NotACallError:
    return NotACallError(Message("calls.broken", "The call cannot be read: {why}.", why=what))


class Span:
    """Finds the end of brackets in a text that grows. Brackets in strings do not count.

    at: the place that was reached."""

    def __init__(self, at: int, quotes: tuple[str, ...]) -> None:
        """at: the place of the first bracket. quotes: begin and end strings."""
        self.at, self._quotes, self._depth, self._quote = at, quotes, 0, ""
        marks = "".join(sorted({quote[0] for quote in quotes}))
        self._outside = re.compile(rf"[^\[\]{{}}(){re.escape(marks)}]*")

    def end(self, text: str) -> int | None:
        """Return the place behind the last bracket, or None if it is not there yet. text: that of the call before, and
        what has been added. Raises NotACallError if brackets lie too deep within each other."""
        while self.at < len(text):
            if self._quote:
                if not self._end_string(text):
                    return None
                continue
            self.at = self._outside.match(text, self.at).end()  # type: ignore[union-attr]
            if self.at == len(text):
                break
            if quote := next((one for one in self._quotes if text.startswith(one, self.at)), ""):
                self.at, self._quote = self.at + len(quote), quote
                continue
            char = text[self.at]
            if any(one.startswith(char) and one.startswith(text[self.at :]) for one in self._quotes):
                break
            self.at += 1
            if char in "[{(":
                self._depth += 1
                if self._depth > MOST_DEEP:
                    raise _too_deep()
            elif char in ")]}":
                self._depth -= 1
                if self._depth <= 0:
                    return self.at
        return None

    def _end_string(self, text: str) -> bool:
        """Go behind the end of a string. False if it is not there yet."""
        quote = self._quote
        if len(quote) > 1:
            at = text.find(quote, self.at)
            if at < 0:
                self.at = max(self.at, len(text) - len(quote) + 1)
                return False
        else:
            at = self.at = _INSIDE[quote].match(text, self.at).end()  # type: ignore[union-attr]
            if text[at : at + 1] != quote:
                return False
        self.at, self._quote = at + len(quote), ""
        return True


def _too_deep() -> NotACallError:
    return NotACallError(Message("calls.deep", "The call is nested too deeply."))


def read_json(text: str) -> Any:
    """Read a JSON text. Raises NotACallError, also if an object has a name twice or a
    number is not finite."""
    if depth_of(text) > MOST_DEEP:
        raise _too_deep()
    try:
        return json.loads(
            text, object_pairs_hook=_once, parse_constant=_constant, parse_float=_finite, parse_int=_number,
            strict=False,
        )  # fmt: skip
    except NotACallError:
        raise
    except (ValueError, RecursionError) as error:
        raise _broken(why_not_json(error)) from None


def calls_in_json(text: str, takes_name: bool = False) -> list[Written] | None:
    """Read one call, or a list of them. None if it is JSON of something else. takes_name: a name without arguments is
    a call, too. Raises NotACallError."""
    read = read_json(text)
    if takes_name and isinstance(read, dict) and read.keys() == {"name"} and isinstance(read["name"], str):
        return [(read["name"], {})]
    found = [_call(entry) for entry in (read if isinstance(read, list) else [read])]
    return [one for one in found if one is not None] if None not in found else None


def arguments_in_json(text: str) -> dict[str, Any]:
    """Raises NotACallError if it is not an object."""
    read = read_json(text)
    if not isinstance(read, dict):
        raise _broken("the arguments are not an object")
    return _clean(read)


def calls_in_python(text: str) -> list[Written]:
    """Read `f(a=1)`, several of them, or a list of them. Raises NotACallError."""
    literals = _Literals(text.strip())
    if is_list := literals.take("["):
        pass
    found = list[Written]()
    while not literals.is_over and not (is_list and literals.take("]")):
        name = literals.word("a call")
        literals.expect("(")
        found.append((name, literals.pairs(")", "=", literals.word)))
        literals.take(",")
    if not literals.is_over:
        raise _broken(f"{shown(literals.rest)} follows")
    return found


def call_in_quotes(text: str, quote: str) -> Written:
    """Read `call:f{a:<|"|>x<|"|>}`, with this quote. Raises NotACallError."""
    literals = _Literals(text.strip().removeprefix("call:"), quote)
    name = literals.word("a call")
    literals.expect("{")
    return name, literals.pairs("}", ":", literals.key)


def call_in_xml(text: str, schema_of: Callable[[str, str], Any]) -> Written:
    """Read `<function=f><parameter=a>x</parameter></function>`. A value that is JSON, and not a text, is read as such.

    schema_of: gives the schema of an argument of a tool, or None. Raises NotACallError."""
    found = _XML_CALL.fullmatch(text.strip())
    if found is None:
        raise _broken("a tag is missing")
    name, arguments, at = found[1].strip(), dict[str, Any](), 0
    while one := _XML_ARGUMENT.match(found[2], at):
        at = one.end()
        if one[1] in arguments:
            raise _twice(one[1])
        arguments[one[1]] = _xml_value(one[2], schema_of(name, one[1]))
    if rest := found[2][at:].strip():
        raise _broken(f"{shown(rest)} is not an argument")
    return name, arguments


def _xml_value(text: str, schema: Any) -> Any:
    if is_plain_text(schema) or (schema is None and text.startswith('"')):
        return text
    try:
        return _clean(read_json(text))
    except NotACallError:
        return _WORDS.get(text, text)


def _call(entry: Any) -> Written | None:
    """The call that an object is: {"name", "arguments"}, with Llama's "parameters", or as OpenAI nests it."""
    if not isinstance(entry, dict):
        return None
    if isinstance(entry.get("function"), dict):
        entry = entry["function"]
    name = entry.get("name", entry.get("function"))
    given = [entry[key] for key in ("arguments", "parameters") if key in entry]
    if not isinstance(name, str) or len(given) != 1:
        return None
    arguments = given[0]
    if isinstance(arguments, str):  # as OpenAI's API has them
        arguments = read_json(arguments)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise _broken("the arguments are not an object")
    return name, _clean(arguments)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _twice(next(name for name in names if names.count(name) > 1))
    return found


def _twice(name: str) -> NotACallError:
    return _broken(f"{shown(name)} is there twice")


def _constant(text: str) -> Any:
    raise _broken(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _broken("a number is too large")
    return value


def _clean(value: Any) -> Any:
    """The value without half surrogate pairs, which no text in UTF-8 has."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(key): _clean(one) for key, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, list) else value


class _Literals:
    """Reads values of Python, of JSON, and those in quotes that are tokens. Their depth is known to be small."""

    def __init__(self, text: str, quote: str = "") -> None:
        self._text, self._at, self._quote = text, 0, quote

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    @property
    def is_over(self) -> bool:
        self._skip()
        return self._at == len(self._text)

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def take(self, mark: str) -> bool:
        self._skip()
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) * found
        return found

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise _broken(f"{mark} is missing at {shown(self.rest)}")

    def word(self, what: str = "the name of an argument") -> str:
        return self._match(_WORD, what)[0]

    def key(self) -> str:
        self._skip()
        if self._text[self._at : self._at + 1] in ('"', "'") or (self._quote and self.rest.startswith(self._quote)):
            key = self.value()
            return key if isinstance(key, str) else str(key)
        return self._match(_KEY, "a name")[0]

    def _match(self, pattern: re.Pattern[str], what: str, skips: bool = True) -> re.Match[str]:
        if skips:
            self._skip()
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _broken(f"{what} is missing at {shown(self.rest)}")
        self._at = found.end()
        return found

    def pairs(self, end: str, between: str, key: Callable[[], str]) -> dict[str, Any]:
        """Names and values up to the end, which is taken, too."""
        found = dict[str, Any]()
        while not self.take(end):
            name = key()
            self.expect(between)
            if name in found:
                raise _twice(name)
            found[name] = self.value()
            if not self.take(","):
                self.expect(end)
                break
        return found

    def value(self) -> Any:
        self._skip()
        if self._quote and self.take(self._quote):
            text, closed, _ = self.rest.partition(self._quote)
            if not closed:
                raise _broken("a string has no end")
            self._at += len(text) + len(self._quote)
            return _clean(text)
        mark = self._text[self._at : self._at + 1]
        if mark in ('"', "'"):
            self._at += 1
            inside = self._match(_INSIDE[mark], "a string", skips=False)[0]
            if not self._text.startswith(mark, self._at):
                raise _broken("a string has no end")
            self._at += 1
            return _clean(_ESCAPE.sub(_unescaped, inside))
        if self.take("{"):
            return self.pairs("}", ":", self.key)
        if mark and mark in "[(":
            return self._items("]" if self.take("[") or not self.take("(") else ")")
        if found := _NUMBER.match(self._text, self._at):
            self._at = found.end()
            return _number(found[0])
        word = self.word("a value")
        if word not in _WORDS:
            raise _broken(f"{shown(word)} is not a value")
        return _WORDS[word]

    def _items(self, end: str) -> list[Any]:
        found = list[Any]()
        while not self.take(end):
            found.append(self.value())
            if not self.take(","):
                self.expect(end)
                break
        return found


def _number(text: str) -> Any:
    plain = text.replace("_", "")
    if len(plain) > _MOST_DIGITS:
        raise _broken("a number is too long")
    return int(plain) if plain.lstrip("+-").isdigit() else _finite(plain)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "uUx" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(code, found[0])
