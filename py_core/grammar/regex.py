"""Regular expressions as expressions of a grammar.

The language is that of ECMA-262 with its u flag, which JSON Schema names, and what Python and Rust write alike: groups
with ?P<name>, (?i) and (?s), \\A and \\Z. Lazy quantifiers have the same texts as the others. What cannot be kept is a
GrammarError with its position.

A pattern becomes expressions of characters first. Places (^, $, \\b, lookaround) are items among them until the whole
sequence from the beginning to the end of the text is known; then each is removed by what it says about the texts before
and after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from math import prod
from typing import cast

from py_core.grammar.automata import (
    MOST_STATES,
    accepts,
    automaton_of,
    char_automaton_of,
    difference,
    encoded,
    erased,
    intersection,
    minimized,
    union,
)
from py_core.grammar.characters import (
    DIGITS,
    LAST,
    LINE_ENDS,
    SPACES,
    WORDS,
    any_case,
    char_set,
    common,
    complement,
    single,
    unicode_property,
    without,
)
from py_core.grammar.expressions import (
    ANY_CHAR,
    EMPTY,
    NOTHING,
    Automaton,
    Chars,
    CharSet,
    Choice,
    Expression,
    GrammarError,
    Joined,
    Literal,
    Repeat,
)
from py_core.grammar.forms import ANYTHING, CharAutomaton, choice, joined, lengths, nullable, repeat

LONGEST = 200_000
"""Characters of a pattern: that many take half a second, and two in the page."""
DEEPEST = 100
"""Groups inside of each other."""
MOST_LENGTHS = 16
"""Sequences that `bounded` writes out because some items have several lengths."""
MOST_SEQUENCES = 200
"""A pattern with places inside of groups is written out into at most this many sequences."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A condition between two characters. kind: as it is written. inside: the pattern of a lookaround."""

    kind: str
    at: int
    inside: Expression = EMPTY


def _place(kind: str, at: int, inside: Expression = EMPTY) -> Expression:
    """A place as an item among expressions, which it is until `_without_places`."""
    return cast(Expression, _Place(kind, at, inside))


_CLASSES = {"d": DIGITS, "w": WORDS, "s": SPACES}
_CLASSES |= {name.upper(): complement(chars) for name, chars in _CLASSES.items()}
_CONTROLS = {"0": 0, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
_PLACES = {"A": "^", "Z": "$", "z": "$", "b": "\\b", "B": "\\B"}
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._any_case = self._dot_all = False

    def parse(self) -> Expression:
        node = self._choice()
        if self._at < len(self._text):
            raise self._error(")", self._at, "no group is open")
        return node

    def _error(self, what: str, at: int, why: str) -> GrammarError:
        return GrammarError(f"{what} at {at}: {why}")

    def _choice(self) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error("(", self._at, f"groups lie more than {DEEPEST} deep")
        flags = self._any_case, self._dot_all
        items = [self._sequence()]
        while self._text.startswith("|", self._at):
            self._at += 1
            items.append(self._sequence())
        self._any_case, self._dot_all = flags
        self._depth -= 1
        return choice(items)

    def _sequence(self) -> Expression:
        items: list[Expression] = []
        text, end = self._text, len(self._text)
        while self._at < end and text[self._at] not in "|)":
            item = self._atom()
            items.append(self._quantified(item))
        return joined(_with_near_looks(items))

    def _atom(self) -> Expression:
        at = self._at
        char = self._text[at]
        self._at += 1
        if char == "(":
            return self._group(at)
        if char == "[":
            return self._class(at)
        if char == "\\":
            return self._escape(at)
        if char == ".":
            return _DOT_ALL if self._dot_all else _DOT
        if char in "^$":
            return _place(char, at)
        if char in "*+?" or (char == "{" and self._bounds(at) is not None):
            raise self._error(char, at, "nothing to repeat")
        return self._chars(single(ord(char)))

    def _chars(self, allowed: CharSet) -> Expression:
        return _one(any_case(allowed) if self._any_case else allowed)

    def _group(self, at: int) -> Expression:
        text = self._text
        if not text.startswith("?", self._at):
            return self._closed(at)
        look = next((look for look in _LOOKS if text.startswith(look, at)), None)
        if look is not None:
            self._at = at + len(look)
            return _place(look, at, self._closed(at))
        if text.startswith(("(?P<", "(?<"), at):
            name_at = text.index("<", at) + 1
            end = text.find(">", name_at)
            if end < 0 or not text[name_at:end].isidentifier():
                raise self._error(text[at:name_at], at, "the name of the group is missing")
            self._at = end + 1
            return self._closed(at)
        end = self._at + 1
        while end < len(text) and text[end] in "imsux":
            end += 1
        flags, closing = text[self._at + 1 : end], text[end : end + 1]
        if closing not in (":", ")") or (closing == ")" and not flags) or set(flags) - set("isu"):
            raise self._error(text[at : end + 1], at, "not supported")
        before = self._any_case, self._dot_all
        self._any_case |= "i" in flags
        self._dot_all |= "s" in flags
        self._at = end + 1
        if closing == ")":
            return EMPTY
        node = self._closed(at)
        self._any_case, self._dot_all = before
        return node

    def _closed(self, at: int) -> Expression:
        node = self._choice()
        if not self._text.startswith(")", self._at):
            raise self._error("(", at, "the group is not closed")
        self._at += 1
        return node

    def _bounds(self, at: int) -> tuple[int, int | None, int] | None:
        """The bounds of a quantifier in braces, and where it ends; None if it is not one."""
        text = self._text
        end = text.find("}", at, at + 40)
        if end < 0:
            return None
        low, comma, high = text[at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None
        return int(low), (int(high) if high else None) if comma else int(low), end + 1

    def _quantified(self, item: Expression) -> Expression:
        text, at = self._text, self._at
        char = text[at : at + 1]
        if char and char in "*+?":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            end = at + 1
        elif char == "{" and (bounds := self._bounds(at)) is not None:
            least, most, end = bounds
        else:
            return item
        if text.startswith("+", end):
            raise self._error(text[at : end + 1], at, "possessive quantifiers are not supported")
        if most is not None and most < least:
            raise self._error(text[at:end], at, "the bounds are in the wrong order")
        self._at = end + 1 if text.startswith("?", end) else end
        follows = text[self._at : self._at + 1]
        if (follows and follows in "*+?") or (follows == "{" and self._bounds(self._at) is not None):
            raise self._error(follows, self._at, "nothing to repeat")
        if isinstance(item, _Place):
            raise self._error(text[at:end], at, f"{item.kind} cannot be repeated")
        return repeat(item, least, most)

    def _escape(self, at: int) -> Expression:
        char = self._text[self._at : self._at + 1]
        if char and char in _PLACES:
            self._at += 1
            return _place(_PLACES[char], at)
        return self._chars(self._escaped(at))

    def _escaped(self, at: int) -> CharSet:
        """The set of an escape, of which the backslash has been read."""
        text = self._text
        char = text[self._at : self._at + 1]
        self._at += 1
        if not char:
            raise self._error("\\", at, "nothing follows")
        if char in _CLASSES:
            return _CLASSES[char]
        if char in "pP":
            return self._property(at, char == "P")
        if char == "c" and text[self._at : self._at + 1].isascii() and text[self._at : self._at + 1].isalpha():
            self._at += 1
            return single(ord(text[self._at - 1]) % 32)
        if char in "xu":
            return single(self._hex(at, char))
        if char in _CONTROLS and not (char == "0" and text[self._at : self._at + 1].isdigit()):
            return single(_CONTROLS[char])
        if char.isascii() and char.isalnum():
            why = "backreferences are not supported" if char in "123456789k" else "not supported"
            raise self._error("\\" + char, at, why)
        return single(ord(char))

    def _hex(self, at: int, kind: str) -> int:
        text = self._text
        if text.startswith("{", self._at) and (end := text.find("}", self._at, self._at + 10)) >= 0:
            digits, self._at = text[self._at + 1 : end], end + 1
        else:
            length = 2 if kind == "x" else 4
            digits = text[self._at : self._at + length]
            self._at += length
            if len(digits) < length:
                digits = ""
        try:
            code = int(digits, 16) if digits.isalnum() else -1
        except ValueError:
            code = -1
        if not 0 <= code <= 0x10FFFF:
            raise self._error(text[at : self._at], at, "not a character's number")
        if 0xD800 <= code <= 0xDBFF and text.startswith("\\u", self._at):
            try:
                low = int(text[self._at + 2 : self._at + 6], 16)
            except ValueError:
                low = 0
            if 0xDC00 <= low <= 0xDFFF:
                self._at += 6
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return code

    def _property(self, at: int, negated: bool) -> CharSet:
        text = self._text
        end = text.find("}", self._at, self._at + 60)
        if text.startswith("{", self._at) and end > 0:
            name, self._at = text[self._at + 1 : end], end + 1
        else:
            name = text[self._at : self._at + 1]
            self._at += 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        chars = unicode_property(name)
        if chars is None:
            raise self._error(text[at : self._at], at, "this property of Unicode is not supported")
        return complement(chars) if negated else chars

    def _class(self, at: int) -> Expression:
        text = self._text
        negated = text.startswith("^", self._at)
        self._at += negated
        runs: list[tuple[int, int]] = []
        while not text.startswith("]", self._at):
            start_at = self._at
            first = self._class_atom(at)
            if text.startswith("-", self._at) and not text.startswith("-]", self._at):
                before = self._at
                self._at += 1
                last = self._class_atom(at)
                if isinstance(first, int) and isinstance(last, int):
                    if last < first:
                        raise self._error(text[start_at : self._at], start_at, "the range is in the wrong order")
                    runs.append((first, last))
                    continue
                self._at = before  # a class cannot begin or end a range: the hyphen stands for itself
            runs.extend(((first, first),) if isinstance(first, int) else first)
        self._at += 1
        allowed = char_set(runs)
        if self._any_case:
            allowed = any_case(allowed)
        return _one(complement(allowed) if negated else allowed)

    def _class_atom(self, at: int) -> int | CharSet:
        text = self._text
        if self._at >= len(text):
            raise self._error("[", at, "the class is not closed")
        char = text[self._at]
        self._at += 1
        if char != "\\":
            return ord(char)
        escape_at = self._at - 1
        kind = text[self._at : self._at + 1]
        if kind == "b":
            self._at += 1
            return 8
        if kind in ("x", "u"):
            self._at += 1
            return self._hex(escape_at, kind)
        chars = self._escaped(escape_at)
        return chars[0][0] if len(chars) == 1 and chars[0][0] == chars[0][1] else chars


@lru_cache(2048)
def _one(allowed: CharSet) -> Expression:
    return Chars(allowed) if allowed else NOTHING


_DOT = _one(complement(LINE_ENDS))
_DOT_ALL = _one(ANY_CHAR)


# --- places


def _with_near_looks(items: list[Expression]) -> list[Expression]:
    """The items, with lookaround of one character taken into the run of characters beside it."""
    found = list(items)
    for at, item in enumerate(items):
        if not isinstance(item, _Place) or not isinstance(item.inside, Chars):
            continue
        ahead = "<" not in item.kind
        beside_at = at + 1 if ahead else at - 1
        if item.inside.least == item.inside.most == 1 and 0 <= beside_at < len(found):
            made = _with_edge(found[beside_at], item.inside.allowed, "=" in item.kind, ahead)
            if made is not None:
                found[at], found[beside_at] = EMPTY, made
    return found


def _with_edge(run: Expression, allowed: CharSet, wanted: bool, first: bool) -> Expression | None:
    """A run of characters of which the first (or the last) must be, or must not be, of a set; None if it is not one."""

    def kept(chars: CharSet) -> Expression:
        return _one(common(chars, allowed) if wanted else without(chars, allowed))

    if isinstance(run, Chars) and run.least:
        rest = repeat(_one(run.allowed), run.least - 1, None if run.most is None else run.most - 1)
        return joined((kept(run.allowed), rest) if first else (rest, kept(run.allowed)))
    if first or not isinstance(run, Joined) or len(run.items) != 2:
        return None
    one, others = run.items  # as they are made here for a lookahead
    if isinstance(one, Chars) and isinstance(others, Chars) and one.least == one.most == 1 and others.least == 0:
        some = repeat(_one(others.allowed), 0, None if others.most is None else others.most - 1)
        return choice((kept(one.allowed), joined((one, some, kept(others.allowed)))))
    return None


def _first_place(expression: Expression) -> _Place | None:
    if isinstance(expression, _Place):
        return expression
    if isinstance(expression, Joined | Choice):
        return next((place for item in expression.items if (place := _first_place(item))), None)
    return _first_place(expression.item) if isinstance(expression, Repeat) else None


def _sequences(expression: Expression) -> list[list[Expression]]:
    """The sequences of items, places among them, of which an expression is the choice."""
    place = _first_place(expression)
    if place is None or isinstance(expression, _Place):
        return [[expression]]
    if isinstance(expression, Choice):
        found = [sequence for item in expression.items for sequence in _sequences(item)]
    elif isinstance(expression, Joined):
        found = [[]]
        for item in expression.items:
            more = _sequences(item)
            if len(found) * len(more) > MOST_SEQUENCES:
                raise _too_many(place)
            found = [[*before, *after] for before in found for after in more]
    elif isinstance(expression, Repeat) and expression.most == 1:
        found = [[], *_sequences(expression.item)]
    elif isinstance(expression, Repeat):
        if _tempered(expression):
            return [[expression]]
        parts = map(_locally, _sequences(expression.item))
        return [[repeat(choice(parts), expression.least, expression.most)]]
    else:
        return [[expression]]
    if len(found) > MOST_SEQUENCES:
        raise _too_many(place)
    return found


def _locally(items: list[Expression]) -> Expression:
    """The texts of a sequence in a group that is repeated: nothing is known of what lies around it."""
    if any(map(_tempered, items)):
        raise _repeated(cast(_Place, _first_place(joined(items))))
    while around := _places(items):
        fewer = _with_a_place_less(items, False, False)
        if fewer is None:
            _, place = around[0]
            raise _repeated(place)
        items = fewer
    return joined(items)


def _repeated(place: _Place) -> GrammarError:
    return GrammarError(f"{place.kind} at {place.at}: it lies in a group that is repeated")


def _tempered(expression: Expression) -> list[_Place]:
    """The lookaheads before the one character of a repeated group, as in (?:(?!ab).)*; none if it is another."""
    if not isinstance(expression, Repeat) or not isinstance(expression.item, Joined):
        return []
    *looks, last = expression.item.items
    places = [place for _, place in _places(looks)]
    fits = all("<" not in place.kind and place.kind[0] == "(" for place in places) and len(places) == len(looks)
    return places if fits and isinstance(last, Chars) and last.least == last.most == 1 else []


def _tempered_texts(group: Repeat, looks: list[_Place], rest: Expression) -> Expression:
    """The texts of a group of `_tempered` and the rest of the text.

    A mark that is not a character stands between both while texts are taken out of which a character of the group is
    followed by what it must not be.
    """
    mark = ((LAST + 1, LAST + 1),)
    either = Chars((*ANY_CHAR[:-1], (ANY_CHAR[-1][0], LAST + 1)), 0, None)
    one = cast(Chars, cast(Joined, group.item).items[-1])
    made = _automaton(joined((repeat(one, group.least, group.most), Chars(mark), rest)))
    marked = _automaton(joined((Chars(ANY_CHAR, 1, None), Chars(mark), ANYTHING)))
    for look in looks:
        if (inner := _first_place(look.inside)) is not None:
            raise _repeated(inner)
        inside = _automaton(look.inside)
        moves = tuple((*runs, (LAST + 1, LAST + 1, state)) for state, runs in enumerate(inside.moves))
        found = cast(Expression, CharAutomaton(Automaton(moves, inside.accepting)))
        begins = _automaton(joined((found, either)))
        bad = difference(marked, begins) if "=" in look.kind else intersection(marked, begins)
        if bad.accepting:
            wrong = _automaton(joined((ANYTHING, cast(Expression, CharAutomaton(minimized(bad))))))
            made = minimized(difference(made, wrong))
    return _of(erased(made, LAST + 1))


def _of(automaton: Automaton) -> Expression:
    """An expression of an automaton of characters."""
    made = minimized(automaton)
    if not made.accepting:
        return NOTHING
    return EMPTY if len(made.moves) == 1 and not made.moves[0] else cast(Expression, CharAutomaton(made))


def _places(items: list[Expression]) -> list[tuple[int, _Place]]:
    return [(at, cast(_Place, item)) for at, item in enumerate(items) if isinstance(item, _Place)]


def _too_many(place: _Place) -> GrammarError:
    return GrammarError(f"{place.kind} at {place.at}: there are more than {MOST_SEQUENCES} alternatives around it")


def _whole(expression: Expression, search: bool) -> Expression:
    """The whole texts of a pattern."""
    around = [ANYTHING] if search else []
    if _first_place(expression) is None:
        return _trimmed_search([*around, expression, *around])
    parts = dict.fromkeys(_without_places([*around, *sequence, *around]) for sequence in _sequences(expression))
    whole = ANYTHING if ANYTHING in parts else choice(parts)
    if not _has_automaton(whole):
        return whole
    try:  # one automaton instead of several that begin alike
        automaton = reduce(
            lambda some, others: minimized(union(some, others)), (minimized(_automaton(part)) for part in parts)
        )
    except GrammarError:
        return whole
    return cast(Expression, CharAutomaton(automaton))


def _has_automaton(expression: Expression) -> bool:
    if isinstance(expression, Joined | Choice):
        return any(map(_has_automaton, expression.items))
    return isinstance(expression, CharAutomaton) or (isinstance(expression, Repeat) and _has_automaton(expression.item))


def _trimmed_search(items: list[Expression]) -> Expression:
    """The items one after the other; what may be left out beside ANYTHING is left out."""
    whole = joined(items)
    for edge, beside_at in ((0, 1), (-1, -2)):
        parts: list[Expression] = list(whole.items) if isinstance(whole, Joined) else [whole]
        while len(parts) > 1 and parts[edge] == ANYTHING:
            beside = parts[beside_at]
            if nullable(beside):
                del parts[beside_at]
            elif isinstance(beside, Chars | Repeat) and beside.most != beside.least:
                item = _one(beside.allowed) if isinstance(beside, Chars) else beside.item
                parts[beside_at] = repeat(item, beside.least, beside.least)
            else:
                break
        whole = joined(parts)
    return whole


def _without_places(items: list[Expression], from_start: bool = True, to_end: bool = True) -> Expression:
    """The texts of a sequence.

    from_start, to_end: the sequence has the text from its beginning, and to its end. Without them the text has other
    characters there for sure.
    """
    for kind, is_edge in (("^", from_start), ("$", to_end)):
        places = [at for at, place in _places(items) if place.kind == kind]
        if not places:
            continue
        at = places[-1] if kind == "^" else places[0]
        outer, inner = (items[:at], items[at + 1 :]) if kind == "^" else (items[at + 1 :], items[:at])
        if not is_edge or not all(isinstance(item, _Place) or nullable(item) for item in outer):
            return NOTHING
        kept: list[Expression] = [outer[at] for at, place in _places(outer) if place.kind != kind]
        items = [*kept, *inner] if kind == "^" else [*inner, *kept]
    for at in reversed(range(len(items))):
        group = items[at]
        if isinstance(group, Repeat) and (looks := _tempered(group)):
            if not to_end or _places(items[at + 1 :]):
                raise _repeated(looks[0])
            items = [*items[:at], _tempered_texts(group, looks, joined(items[at + 1 :]))]
    while around := _places(items):
        fewer = _with_a_place_less(items, from_start, to_end)
        if fewer is None:
            _, place = around[0]
            raise GrammarError(f"{place.kind} at {place.at}: too little is known of what lies beside it")
        items = fewer
    return _trimmed_search(items)


def _with_a_place_less(items: list[Expression], from_start: bool, to_end: bool) -> list[Expression] | None:
    """The items without the first place of which all that matters lies between its neighbours among the places."""
    around = _places(items)
    edges = [-1, *(at for at, _ in around), len(items)]
    for number, (at, place) in enumerate(around):
        before, after = edges[number], edges[number + 2]
        left, right = joined(items[before + 1 : at]), joined(items[at + 1 : after])
        starts, ends = from_start and before < 0, to_end and after == len(items)
        if place.kind in ("\\b", "\\B"):
            if (starts or lengths(left)[0]) and (ends or lengths(right)[0]):
                return [*items[: before + 1], _word_edge(left, right, place.kind == "\\b"), *items[after:]]
            continue
        if place.kind in "^$":
            continue
        ahead = "<" not in place.kind
        looked = _looked_at(place, left, right, starts, ends)
        if looked is not None:
            kept = _kept(right if ahead else left, looked, "=" in place.kind)
            return [*items[:at], kept, *items[after:]] if ahead else [*items[: before + 1], kept, *items[at + 1 :]]
    return None


def _word_edge(left: Expression, right: Expression, edge: bool) -> Expression:
    """The texts of both if there is an edge of a word between them (\\b), or if there is none (\\B)."""
    word = Chars(WORDS)
    ends, begins = joined((ANYTHING, word)), joined((word, ANYTHING))
    parts = ((_kept(left, ends, inside), _kept(right, begins, inside is not edge)) for inside in (True, False))
    return choice(map(joined, parts))


def _looked_at(place: _Place, left: Expression, right: Expression, starts: bool, ends: bool) -> Expression | None:
    """The texts beside a lookaround that begin (or end) with its pattern; None if more must be known to say so."""
    ahead = "<" not in place.kind
    here, whole = (right, ends) if ahead else (left, starts)
    longest = lengths(place.inside)[1]
    inner = _first_place(place.inside)
    if not whole and (inner is not None or longest is None or lengths(here)[0] < longest):
        return None
    if inner is None:
        return joined((place.inside, ANYTHING) if ahead else (ANYTHING, place.inside))
    other, other_whole = (left, starts) if ahead else (right, ends)
    at_edge = other_whole and other == EMPTY
    if not at_edge and not lengths(other)[0]:
        return None
    return choice(
        _without_places([*sequence, ANYTHING], at_edge, True)
        if ahead
        else _without_places([ANYTHING, *sequence], True, at_edge)
        for sequence in _sequences(place.inside)
    )


def _kept(expression: Expression, other: Expression, wanted: bool) -> Expression:
    """The texts of an expression that the other has, too (wanted), or does not have."""
    mine, theirs = _automaton(expression), _automaton(other)
    return _of(intersection(mine, theirs) if wanted else difference(mine, theirs))


# --- lengths


def bounded(expression: Expression, least: int, most: int | None, *, in_json: bool = False) -> Expression:
    """The texts of an expression without References that have `least` to `most` characters.

    in_json: how the characters are written if the expression has automata alone, otherwise its Chars say it.
    Raises GrammarError if that needs an automaton with too many states.
    """
    in_json = _in_json(expression, in_json)
    made = _with_length(expression, least, most, in_json)
    if made is not None:
        return _written(made, in_json)
    bytes_of = automaton_of(Chars(ANY_CHAR, least, most, in_json), 10 * MOST_STATES)
    return minimized(intersection(automaton_of(expression), bytes_of))


def _with_length(expression: Expression, least: int, most: int | None, in_json: bool) -> Expression | None:
    """`bounded` for expressions of characters; None if it has an automaton of bytes."""
    if most is not None and most < least:
        return NOTHING
    if (made := _bounded(expression, least, most)) is not None:
        return made
    if (chars := char_automaton_of(expression, in_json)) is None:
        return None
    counted = _automaton(Chars(ANY_CHAR, least, most))
    return cast(Expression, CharAutomaton(intersection(minimized(chars), counted)))


def _in_json(expression: Expression, otherwise: bool) -> bool:
    if isinstance(expression, Chars):
        return expression.in_json
    parts = expression.items if isinstance(expression, Joined | Choice) else ()
    if isinstance(expression, Repeat):
        parts = (expression.item,)
    return any(_in_json(part, otherwise) for part in parts) if parts else otherwise


def _bounded(expression: Expression, least: int, most: int | None) -> Expression | None:
    """`bounded` without an automaton; None if it needs one."""
    low, high = lengths(expression)
    if low >= least and (most is None or (high is not None and high <= most)):
        return expression
    if (most is not None and low > most) or (high is not None and high < least):
        return NOTHING
    if isinstance(expression, Chars):
        fewest, greatest = max(low, least), min((bound for bound in (high, most) if bound is not None), default=None)
        return repeat(Chars(expression.allowed, 1, 1, expression.in_json), fewest, greatest)
    if isinstance(expression, Choice):
        parts = [_bounded(item, least, most) for item in expression.items]
        return None if None in parts else choice(part for part in parts if part is not None and part != NOTHING)
    if isinstance(expression, Repeat):
        one, longest = lengths(expression.item)
        if one == longest and one:
            fewest = max(expression.least, -(-least // one))
            greatest = expression.most if most is None else most // one
            if expression.most is not None and greatest is not None:
                greatest = min(expression.most, greatest)
            return NOTHING if greatest is not None and greatest < fewest else repeat(expression.item, fewest, greatest)
        if expression.least == 0 and expression.most == 1:
            return _bounded(choice((EMPTY, expression.item)), least, most)
    if isinstance(expression, Joined):
        return _bounded_sequence(expression.items, least, most)
    return None


def _bounded_sequence(items: tuple[Expression, ...], least: int, most: int | None) -> Expression | None:
    """`_bounded` for items of which one has many lengths, and the others few."""
    ranges = [range(low, low + MOST_LENGTHS if high is None else high + 1) for low, high in map(lengths, items)]
    longest = max(range(len(items)), key=lambda at: len(ranges[at]))
    ranges[longest] = range(1)
    if prod(map(len, ranges)) > MOST_LENGTHS:
        return None
    found = []
    for sizes in product(*ranges):
        others = sum(sizes)
        parts = [_bounded(item, size, size) for item, size in zip(items, sizes, strict=True)]
        parts[longest] = _bounded(items[longest], max(0, least - others), None if most is None else most - others)
        if None in parts:
            return None
        found.append(joined(part for part in parts if part is not None))
    return choice(part for part in found if part != NOTHING)


# --- the whole


def _written(expression: Expression, in_json: bool) -> Expression:
    """An expression of characters as it is written, in UTF-8 or inside of a JSON string."""
    if isinstance(expression, CharAutomaton):
        return encoded(expression.automaton, in_json)
    if isinstance(expression, Chars):
        if in_json:
            return Chars(expression.allowed, expression.least, expression.most, True)
        (first, last), least = expression.allowed[0], expression.least
        if len(expression.allowed) == 1 and first == last and least == expression.most and least <= 64:
            return Literal(chr(first).encode() * least)
        return expression
    if isinstance(expression, Joined):
        return joined(_written(item, in_json) for item in expression.items)
    if isinstance(expression, Choice):
        return choice(_written(item, in_json) for item in expression.items)
    if isinstance(expression, Repeat):
        return Repeat(_written(expression.item, in_json), expression.least, expression.most)
    return expression


@lru_cache(512)
def regex_expression(
    pattern: str, *, in_json: bool = False, search: bool = False, least: int = 0, most: int | None = None
) -> Expression:
    """The texts that match a regular expression.

    search: the pattern may match anywhere in the text, as JSON Schema has it; otherwise it matches the whole text.
    in_json: the texts are written as inside of a JSON string. least, most: the length of the texts in characters.
    Raises GrammarError, which names the construct and its position, for what cannot be kept.
    """
    if len(pattern) > LONGEST:
        raise GrammarError(f"A pattern of more than {LONGEST:,} characters is too long.")
    whole = _whole(_Parser(pattern).parse(), search)
    if least > 0 or most is not None:
        whole = _with_length(whole, least, most, False) or whole
    return _written(whole, in_json)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression. search: it may match anywhere in a text, not only the whole of it."""

    source: str
    search: bool = True


@lru_cache(512)
def _minimal(pattern: Pattern) -> Automaton:
    return minimized(_automaton(_whole(_Parser(pattern.source).parse(), pattern.search)))


@lru_cache(512)
def texts_expression(
    patterns: tuple[Pattern, ...],
    others: tuple[Pattern, ...] = (),
    *,
    least: int = 0,
    most: int | None = None,
    without: frozenset[str] = frozenset(),
    in_json: bool = False,
) -> Expression:
    """The texts that match all patterns, none of the others, and are none of some texts.

    least, most: their length in characters. All is done with automata of characters, which are a tenth of those of
    bytes in JSON. Raises GrammarError as `regex_expression` does, or if that needs an automaton with too many states.
    """
    if len(patterns) == 1 and not others and not without:
        (one,) = patterns
        return regex_expression(one.source, in_json=in_json, search=one.search, least=least, most=most)
    made = _texts(patterns, others, without)
    whole = _with_length(cast(Expression, CharAutomaton(made)), least, most, False) if made.accepting else NOTHING
    assert whole is not None
    return _written(whole, in_json)


def has_match(pattern: Pattern, text: str) -> bool:
    """True if a pattern matches a text. Raises GrammarError as `texts_expression` does."""
    return accepts(_minimal(pattern), map(ord, text))


@lru_cache(512)
def no_texts(
    patterns: tuple[Pattern, ...], others: tuple[Pattern, ...] = (), without: frozenset[str] = frozenset()
) -> bool:
    """True if `texts_expression` of the same, of any length, has no text; cheaper than that."""
    return not _texts(patterns, others, without).accepting


@lru_cache(512)
def _texts(patterns: tuple[Pattern, ...], others: tuple[Pattern, ...], without: frozenset[str]) -> Automaton:
    """The smallest automaton of characters of `texts_expression`, of any length."""
    if without:
        words = choice(joined(_one(single(ord(char))) for char in text) for text in sorted(without))
        return minimized(difference(_texts(patterns, others, frozenset()), _automaton(words)))
    if others:
        return minimized(difference(_texts(patterns, others[:-1], without), _minimal(others[-1])))
    if len(patterns) > 1:
        return minimized(intersection(_texts(patterns[:-1], others, without), _minimal(patterns[-1])))
    return _minimal(patterns[0]) if patterns else _automaton(ANYTHING)


def _automaton(expression: Expression) -> Automaton:
    """The automaton of characters of an expression of characters."""
    made = char_automaton_of(expression, False)
    assert made is not None
    return made
