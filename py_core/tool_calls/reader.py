"""Finds the calls of tools in an answer, piece by piece.

Only a model's own answer is read: never a message, a file or a tool's result. A tag begins a call, but not within a
code block of the text. An answer that begins with an object of JSON, alone or in a code block, is a call if it is
written like one: small models write so, whatever their template teaches. Further on, such an object is text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from py_core.display import shown
from py_core.messages import Message
from py_core.tool_calls.definitions import ToolCall
from py_core.tool_calls.forms import HERMES, CallForm
from py_core.tool_calls.values import (
    NotACallError,
    Span,
    Written,
    arguments_in_json,
    call_in_quotes,
    call_in_xml,
    calls_in_json,
    calls_in_python,
)

_FENCE, _WHITE = "```", " \t\r\n"
_OPENED = re.compile(r"```(?:json|tool_code|tool_call|xml)?[ \t]*\n\s*")
_OPENING = re.compile(r"```\w{0,32}[ \t]*\n?\s*")
_LIST = re.compile(r"\[\s*")
_HEAD = re.compile(r"(?:call:)?([A-Za-z_][\w.-]*)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=([({]))")
_HEAD_BEGUN = re.compile(r"[\w.:\[\]-]{0,200}\s*")
_XML, _XML_END = "<function=", "</function>"
_JSON_QUOTES, _PYTHON_QUOTES = ('"',), ('"', "'")
_MOST_HELD = 1 << 20
"""The longest call, in characters."""


@dataclass(frozen=True)
class FreeText:
    """More text of the answer."""

    text: str


@dataclass(frozen=True)
class BadCall:
    """A text that begins like a call and is not one. why: a sentence for a person, and for the model. tool: the name of
    the tool that it calls, if there is no such tool."""

    text: str
    why: Message
    tool: str = ""


Part = FreeText | ToolCall | BadCall

_UNFINISHED = Message("calls.unfinished", "The answer ended within a call.")
_EMPTY = Message("calls.empty", "No call follows the tag that begins one.")


@dataclass
class _Open:
    """A call that has begun. at: the place in the kept text from which a value is looked for. end: the tag that closes
    it. is_tagged: False for an object at the beginning, which may be something else. found: True behind a call."""

    at: int
    end: str
    is_tagged: bool
    found: bool = False
    span: Span | None = None
    kind: str = ""
    name: str = ""
    begins: int = 0


class CallReader:
    """Reads one answer. Feed it all text, with the form's `marks` shown if they are special tokens."""

    def __init__(self, form: CallForm, names: Collection[str], *, is_shaped: bool = False, first: int = 1) -> None:
        """names: of the tools; if it maps them to the schemas of their arguments, XML is read by these. is_shaped: True
        if the answer follows `call_shape`; then only the calls of that shape are calls, whose arguments are valid.
        first: the number of the first call's id."""
        tags = {} if is_shaped else {HERMES.begin: HERMES.end}
        if form.begin:
            tags |= {form.begin: form.end}
        self._tags, self._quote, self._names, self._next = tags, form.quote, names, first
        self._kept = ""
        self._open: _Open | None = None
        self._is_shaped = is_shaped
        self._takes_bare = form.is_bare or not is_shaped
        self._may_begin, self._has_begun, self._in_fence = True, False, False

    def push(self, text: str) -> list[Part]:
        """Return what this text decides. No text raises an error."""
        self._kept += text
        return self._read(False)

    @property
    def held(self) -> int:
        """The number of characters at the end that are not decided."""
        return len(self._kept)

    def flush(self) -> list[Part]:
        """Return the rest at the end."""
        return self._read(True)

    def _read(self, is_last: bool) -> list[Part]:
        out = list[Part]()
        while self._kept and (
            self._step_call(out, is_last)
            if self._open
            else self._step_begin(out, is_last)
            if self._may_begin
            else self._step_text(out, is_last)
        ):
            pass
        return out

    # --- text

    def _step_text(self, out: list[Part], is_last: bool) -> bool:
        """Give text up to a tag. Returns False if more has to come."""
        marks = [_FENCE] if self._in_fence else [_FENCE, *self._tags]
        found = [(at, mark) for mark in marks if (at := self._kept.find(mark)) >= 0]
        if not found:
            held = 0 if is_last else _begun_mark(self._kept, marks)
            _say(out, self._kept[: len(self._kept) - held])
            self._kept = self._kept[len(self._kept) - held :]
            return False
        at, mark = min(found)
        if mark == _FENCE:
            _say(out, self._kept[: at + len(mark)])
            self._kept = self._kept[at + len(mark) :]
            self._in_fence = not self._in_fence
        else:
            _say(out, self._kept[:at])
            self._kept = self._kept[at:]
            self._open = _Open(len(mark), self._tags[mark], True)
        return True

    # --- the beginning of an answer, and what follows a call

    def _step_begin(self, out: list[Part], is_last: bool) -> bool:
        text = self._kept.lstrip(_WHITE)
        if self._has_begun:  # white space behind a call belongs to nobody
            self._kept = text = text.lstrip(";," + _WHITE)
        blank = len(self._kept) - len(text)
        if not is_last and (not text or _begins_mark(text, [_FENCE, *self._tags])):
            return False
        self._may_begin = False
        tag = next((tag for tag in self._tags if text.startswith(tag)), "")
        if tag:
            _say(out, self._kept[:blank] if not self._has_begun else "")
            self._kept, self._open = text, _Open(len(tag), self._tags[tag], True)
        elif not self._takes_bare:
            pass
        elif text.startswith(_FENCE):
            opened = _OPENED.match(text)
            if not is_last and (begun := _OPENING.match(text)) and begun.end() == len(text):
                self._may_begin = True
                return False
            if opened:
                inside = text[opened.end() :]
                if not is_last and _begins_mark(inside, self._tags):
                    self._may_begin = True
                    return False
                tag = next((tag for tag in self._tags if inside.startswith(tag)), "")
                at = blank + opened.end() + len(tag)
                self._open = _Open(at, self._tags[tag] if tag else _FENCE, bool(tag))
        elif text[:1] in ("{", "["):
            self._open = _Open(blank, "", False)
        return True

    # --- calls

    def _step_call(self, out: list[Part], is_last: bool) -> bool:
        one = self._open
        assert one is not None
        try:
            if one.span is None and one.kind != _XML:
                return self._find_value(one, out, is_last)
            end = self._value_end(one)
            if end is None and len(self._kept) <= _MOST_HELD:
                return self._unfinished(one, out) if is_last else False
            if end is None:
                raise NotACallError(Message("calls.long", "The call is too long."))
        except NotACallError as error:
            if one.is_tagged or one.found:
                one.at = one.span.at if one.span else len(self._kept)
                self._refuse(one, out, error.why)
            else:
                self._open = None
            return True
        self._take_value(one, end, out)
        return True

    def _find_value(self, one: _Open, out: list[Part], is_last: bool) -> bool:
        """Find the beginning of a call's text, or the tag that closes it."""
        while one.at < len(self._kept) and (self._kept[one.at].isspace() or (one.found and self._kept[one.at] in ",;")):
            one.at += 1
        rest = self._kept[one.at :]
        if one.end and rest.startswith(one.end) and (one.found or one.is_tagged):
            if not one.found:
                out.append(BadCall(self._kept[: one.at + len(one.end)], _EMPTY))
            self._close(one.at + len(one.end))
            return True
        if not is_last and (not rest or _begins_mark(rest, (one.end, *(self._tags if one.found else ())))):
            return False
        if one.found and rest.startswith(tuple(self._tags)):
            self._close(one.at)
            return True
        one.begins = one.at
        if rest.startswith("{"):
            one.kind, one.span = "json", Span(one.at, _JSON_QUOTES)
        elif rest.startswith("["):
            inside = rest[_LIST.match(rest).end() :]  # type: ignore[union-attr]
            if not inside and not is_last:
                return False
            is_python = inside[:1].isalpha() or inside[:1] == "_"
            one.kind = "python" if is_python else "json"
            one.span = Span(one.at, _PYTHON_QUOTES if is_python else _JSON_QUOTES)
        elif rest.startswith(_XML):
            one.kind = _XML
        elif not is_last and _XML.startswith(rest):
            return False
        elif (one.is_tagged or one.end) and (head := _HEAD.match(rest)):
            self._open_named(one, head)
        elif (one.is_tagged or one.end) and not is_last and _HEAD_BEGUN.fullmatch(rest):
            return False
        elif one.found:
            self._close(one.at)
        elif one.is_tagged:
            if is_last and not rest:
                return self._unfinished(one, out)
            self._refuse(one, out, _EMPTY)
        else:
            self._open = None
        return True

    def _open_named(self, one: _Open, head: re.Match[str]) -> None:
        """A call that begins with its name."""
        if head[2] == "(":
            one.kind, one.span = "python", Span(one.at + head.end(), _PYTHON_QUOTES)
        elif head[0].startswith("call:"):
            one.kind = "quoted"
            one.span = Span(one.at + head.end(), (self._quote, '"') if self._quote else _JSON_QUOTES)
        else:
            one.kind, one.name = "named", head[1]
            one.begins, one.span = one.at + head.end(), Span(one.at + head.end(), _JSON_QUOTES)

    def _value_end(self, one: _Open) -> int | None:
        if one.kind == _XML:
            at = self._kept.find(_XML_END, one.begins)
            return None if at < 0 else at + len(_XML_END)
        assert one.span is not None
        return one.span.end(self._kept)

    def _take_value(self, one: _Open, end: int, out: list[Part]) -> None:
        """Read a call whose text has ended."""
        raw = self._kept[:end]
        try:
            written = self._written(one, self._kept[one.begins : end])
        except NotACallError as error:
            if one.is_tagged or one.found or _looks_so(raw):
                self._refuse(one, out, error.why, end)
            else:
                self._open = None
            return
        is_code = one.kind == "python" and not any(name in self._names for name, _ in written or ())
        if not one.is_tagged and (not written or is_code):
            if one.found:
                self._close(0)
                self._may_begin = False
            else:
                self._open = None
            return
        if not written:
            self._refuse(one, out, _EMPTY, end)
            return
        for name, arguments in written:
            if name in self._names:
                out.append(ToolCall(name, arguments, raw.strip(), f"call{self._next:05}"))
                self._next += 1
            else:
                why = Message("calls.unknown", "No tool is called {name}.", name=shown(name))
                out.append(BadCall(raw if len(written) == 1 else name, why, name))
        self._kept, one.at, one.found, one.span, one.kind = self._kept[end:], 0, True, None, ""

    def _written(self, one: _Open, text: str) -> list[Written] | None:
        if one.kind == "json":
            return calls_in_json(text, self._is_shaped)
        if one.kind == "python":
            return calls_in_python(text)
        if one.kind == "quoted":
            return [call_in_quotes(text, self._quote)]
        if one.kind == _XML:
            return [call_in_xml(text, self._schema_of)]
        return [(one.name, arguments_in_json(text))]

    def _schema_of(self, name: str, argument: str) -> Any:
        schema = self._names.get(name) if isinstance(self._names, Mapping) else None
        return schema.get("properties", {}).get(argument) if isinstance(schema, Mapping) else None

    def _refuse(self, one: _Open, out: list[Part], why: Message, end: int | None = None) -> None:
        """Give what was read so far as text. end: behind it the call may go on, or be closed."""
        if end is None:
            end = one.at or 1
            self._open = None
        else:
            one.at, one.found, one.span, one.kind = 0, True, None, ""
        out.append(BadCall(self._kept[:end], why))
        self._kept = self._kept[end:]

    def _unfinished(self, one: _Open, out: list[Part]) -> bool:
        if one.is_tagged or one.found or _looks_so(self._kept):
            out.append(BadCall(self._kept, _UNFINISHED))
            self._kept = ""
        self._open = None
        return bool(self._kept)

    def _close(self, end: int) -> None:
        """The call has ended. An object alone may be followed by another one."""
        self._kept, self._open = self._kept[end:], None
        self._may_begin, self._has_begun = True, True


def read_calls(form: CallForm, names: Collection[str], answer: str) -> tuple[str, list[ToolCall], list[BadCall]]:
    """Return the text, the calls and what is not a call of a whole answer; the text has what is not a call, too."""
    reader = CallReader(form, names)
    parts = [*reader.push(answer), *reader.flush()]
    text = "".join(part.text for part in parts if not isinstance(part, ToolCall))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return text, calls, [part for part in parts if isinstance(part, BadCall)]


def _say(out: list[Part], text: str) -> None:
    if text:
        out.append(FreeText(text))


def _looks_so(text: str) -> bool:
    """True if a text that cannot be read was meant to be a call."""
    return '"name"' in text and ('"arguments"' in text or '"parameters"' in text)


def _begins_mark(text: str, marks: Collection[str]) -> bool:
    """True if more text could make it one that begins with a mark."""
    return any(len(text) < len(mark) and mark.startswith(text) for mark in marks)


def _begun_mark(text: str, marks: Collection[str]) -> int:
    """The length of the longest end of a text with which a mark begins."""
    most = max(map(len, marks)) - 1
    return next((n for n in range(min(most, len(text)), 0, -1) if _begins_mark(text[-n:], marks)), 0)
