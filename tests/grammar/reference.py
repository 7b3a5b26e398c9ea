"""A slow recognizer of expressions, as simple as what they mean: the sets of places at which a text may end."""

from __future__ import annotations

from collections.abc import Iterator

from py_core.grammar.expressions import (
    ANY_CHAR,
    Automaton,
    Chars,
    Choice,
    Expression,
    Grammar,
    Joined,
    Literal,
    Repeat,
)

ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
ESCAPED_ALWAYS = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x10FFFF))
"""The characters that may be escaped in any set: others, which are plain ASCII, only in that of all."""
Codes = list[tuple[int, int]]
LEADS = ((0xF0, 4, 7, 0x10000), (0xE0, 3, 15, 0x800), (0xC0, 2, 31, 0x80), (0, 1, 127, 0))
"""The least leading byte, the length, the bits of the leading byte, and the least code point of that length."""
NONE: tuple[Codes, int, bool] = ([], 0, True)


def matches(grammar: Grammar, data: bytes) -> bool:
    """True if the bytes are a whole text of the grammar's root."""
    return len(data) in _Reader(grammar, data).ends_of_root()


def can_begin(grammar: Grammar, data: bytes) -> bool:
    """True if a text of the grammar's root begins with the bytes. Its automata must be trimmed."""
    reader = _Reader(grammar, data)
    return len(data) in reader.ends_of_root() or reader.ran_out


class _Reader:
    """ran_out: all data was read and some text needs more."""

    def __init__(self, grammar: Grammar, data: bytes) -> None:
        self.grammar = grammar
        self.data = data
        self.ran_out = False
        self.known: dict[tuple[str, int], frozenset[int]] = {}
        self.round: dict[tuple[int, int], set[int]] = {}
        """The ends that were found since rules were read from the beginning."""
        self.rules_with_texts: set[str] = set()
        for _ in grammar.rules:
            self.rules_with_texts |= {name for name, rule in grammar.rules.items() if self.has_text(rule)}

    def has_text(self, expression: Expression) -> bool:
        if isinstance(expression, Joined):
            return all(map(self.has_text, expression.items))
        if isinstance(expression, Choice):
            return any(map(self.has_text, expression.items))
        if isinstance(expression, Repeat):
            return expression.least == 0 or self.has_text(expression.item)
        if isinstance(expression, Chars):
            return expression.least == 0 or bool(expression.allowed)
        if isinstance(expression, Automaton):
            return bool(expression.accepting)
        return isinstance(expression, Literal) or expression.name in self.rules_with_texts

    def ends_of_root(self) -> frozenset[int]:
        """The ends of the root's texts that begin at 0: rules are read again until no set of ends grows."""
        while True:
            before = dict(self.known)
            self.round.clear()
            for name, start in [*before, (self.grammar.root, 0)]:
                self.known[name, start] = frozenset(self.ends(self.grammar.rules[name], start))
            if self.known == before:
                return self.known[self.grammar.root, 0]

    def ends(self, expression: Expression, start: int) -> set[int]:
        key = id(expression), start
        if key not in self.round:
            self.round[key] = self.new_ends(expression, start)
        return self.round[key]

    def new_ends(self, expression: Expression, start: int) -> set[int]:
        if not self.has_text(expression):
            return set()
        if isinstance(expression, Literal):
            rest = self.data[start : start + len(expression.text)]
            if len(rest) < len(expression.text) and expression.text.startswith(rest):
                self.ran_out = True
            return {start + len(rest)} if rest == expression.text else set()
        if isinstance(expression, Chars):
            return self.repeated(lambda at: self.char_ends(expression, at), expression.least, expression.most, start)
        if isinstance(expression, Joined):
            found = {start}
            for item in expression.items:
                found = {end for at in found for end in self.ends(item, at)}
            return found
        if isinstance(expression, Choice):
            return {end for item in expression.items for end in self.ends(item, start)}
        if isinstance(expression, Repeat):
            return self.repeated(lambda at: self.ends(expression.item, at), expression.least, expression.most, start)
        if isinstance(expression, Automaton):
            return set(self.automaton_ends(expression, start))
        return set(self.known.setdefault((expression.name, start), frozenset()))

    def repeated(self, once, least: int, most: int | None, start: int) -> set[int]:
        """The ends of `least` to `most` texts; more rounds than there are bytes bring nothing new."""
        found, now = (set() if least else {start}), {start}
        seen: dict[frozenset[int], int] = {}
        count = 0
        while now and (most is None or count < most):
            now = {end for at in now for end in once(at)}
            count += 1
            if count >= least:
                if now <= found:
                    break
                found |= now
            elif frozenset(now) in seen:  # the rounds repeat themselves: skip whole periods of them
                period = count - seen[frozenset(now)]
                count += (least - count) // period * period
                if count >= least:
                    found |= now
            seen[frozenset(now)] = count
        return found

    def char_ends(self, chars: Chars, start: int) -> set[int]:
        """The end of the character of a set that is written here; ran_out if the data ends inside of one."""
        codes, end, whole = (escaped if chars.in_json and self.data[start : start + 1] == b"\\" else raw)(
            self.data, start
        )
        if chars.in_json and whole and end == start + 1 and (codes[0][0] < 0x20 or codes[0][0] == ord('"')):
            return set()
        if self.data[start : start + 1] == b"\\" and chars.in_json and chars.allowed != ANY_CHAR:
            codes = [(max(low, begin), min(high, end)) for low, high in codes for begin, end in ESCAPED_ALWAYS]
        allowed = any(max(low, first) <= min(high, last) for low, high in codes for first, last in chars.allowed)
        self.ran_out |= allowed and not whole
        return {end} if allowed and whole else set()

    def automaton_ends(self, automaton: Automaton, start: int) -> Iterator[int]:
        state = 0
        for at in range(start, len(self.data) + 1):
            if state in automaton.accepting:
                yield at
            if at == len(self.data):
                self.ran_out |= bool(automaton.moves[state])
                return
            byte = self.data[at]
            target = [target for first, last, target in automaton.moves[state] if first <= byte <= last]
            if not target:
                return
            (state,) = target


def raw(data: bytes, start: int) -> tuple[Codes, int, bool]:
    """The characters that the bytes from `start` may be in UTF-8, where they end, and whether all bytes are there."""
    lead = data[start : start + 1]
    if not lead:
        return [(0, 0x10FFFF)], start, False
    length, bits, least = next(kind for kind in LEADS if lead[0] >= kind[0])[1:]
    there = data[start : start + length]
    if len(there) == length:
        try:
            code = ord(there.decode())
        except UnicodeDecodeError:
            return NONE
        return [(code, code)], start + length, True
    if lead[0] > 0xF4 or any(byte & 0xC0 != 0x80 for byte in there[1:]):
        return NONE
    code = lead[0] & bits
    for byte in there[1:]:
        code = code << 6 | byte & 0x3F
    below = 6 * (length - len(there))
    low, high = max(least, code << below), (code << below) + (1 << below) - 1
    return ([(low, high)], start, False) if low <= high else NONE


def escaped(data: bytes, start: int) -> tuple[Codes, int, bool]:
    """`raw` for one of JSON's escapes."""
    text = data[start : start + 12].decode("latin-1")
    if len(text) == 1:
        return [(0, 0x10FFFF)], start, False
    if text[1] in ESCAPES:
        code = ord(ESCAPES[text[1]])
        return [(code, code)], start + 2, True
    if text[1] != "u" or (units := hex_range(text[2:6])) is None:
        return NONE
    low, high = units
    highs = max(low, 0xD800), min(high, 0xDBFF)
    if len(text) < 6:
        codes = [(low, min(high, 0xD7FF)), (max(low, 0xE000), high), (pair(highs[0], 0xDC00), pair(highs[1], 0xDFFF))]
        return [(first, last) for first, last in codes if first <= last], start, False
    if highs[0] > highs[1]:
        return ([(low, low)], start + 6, True) if not 0xDC00 <= low <= 0xDFFF else NONE
    if not "\\u".startswith(text[6:8]) or (units := hex_range(text[8:12])) is None:
        return NONE
    first, last = pair(low, max(units[0], 0xDC00)), pair(low, min(units[1], 0xDFFF))
    return ([(first, last)], start + 12, len(text) == 12) if first <= last else NONE


def hex_range(digits: str) -> tuple[int, int] | None:
    """The least and the greatest number of four hexadecimal digits that begins with these."""
    if any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        return None
    return int(digits.ljust(4, "0"), 16), int(digits.ljust(4, "f"), 16)


def pair(high: int, low: int) -> int:
    return 0x10000 + ((high - 0xD800) << 10) + low - 0xDC00
