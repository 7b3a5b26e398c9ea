"""Grammars in GBNF, the notation of llama.cpp (grammars/README.md there).

A rule is `name ::= alternatives`; it goes on in the next line inside of parentheses, after `::=`, before and after `|`.
"""

from __future__ import annotations

from py_core.grammar.characters import char_set, complement
from py_core.grammar.expressions import (
    ANY_CHAR,
    Chars,
    Choice,
    Expression,
    Grammar,
    GrammarError,
    Joined,
    Literal,
    Reference,
    Repeat,
)
from py_core.grammar.forms import choice, joined, nullable, repeat

DEEPEST = 100
"""Groups inside of each other."""
_ESCAPES = {"n": 10, "r": 13, "t": 9, "\\": 92, '"': 34, "[": 91, "]": 93}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}


def _is_name(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char in "-_")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.rules: dict[str, Expression] = {}
        self.used: dict[str, int] = {}

    def parse(self) -> None:
        self._space(True)
        while self._at < len(self._text):
            name_at = self._at
            name = self._name()
            self._space(False)
            if not self._text.startswith("::=", self._at):
                raise self._error("::= is expected after the name of a rule")
            self._at += 3
            self._space(True)
            if name in self.rules:
                raise self._error(f"the rule {name} is there twice", name_at)
            self.rules[name] = self._choice()
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                raise self._error(f"{self._text[self._at]!r} is not expected here")
            self._space(True)

    def error_at_use(self, name: str, why: str) -> GrammarError:
        return self._error(why, self.used[name])

    def _error(self, why: str, at: int | None = None) -> GrammarError:
        line = self._text.count("\n", 0, self._at if at is None else at) + 1
        return GrammarError(f"Line {line}: {why}.")

    def _space(self, lines: bool) -> None:
        """Skip spaces and comments; ends of lines, too, if `lines`."""
        text, end = self._text, len(self._text)
        while self._at < end:
            char = text[self._at]
            if char == "#":
                found = text.find("\n", self._at)
                self._at = end if found < 0 else found
            elif char in " \t" or (lines and char in "\r\n"):
                self._at += 1
            else:
                break

    def _name(self) -> str:
        start, text = self._at, self._text
        while self._at < len(text) and _is_name(text[self._at]):
            self._at += 1
        if start == self._at:
            raise self._error("the name of a rule is expected")
        return text[start : self._at]

    def _choice(self) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error(f"groups lie more than {DEEPEST} deep")
        items = [self._sequence()]
        while self._goes_on():
            self._at += 1
            self._space(True)
            items.append(self._sequence())
        self._depth -= 1
        return choice(items)

    def _goes_on(self) -> bool:
        """True if another alternative follows, in this line or in one of the next."""
        before = self._at
        self._space(True)
        if self._text.startswith("|", self._at):
            return True
        self._at = before
        return False

    def _sequence(self) -> Expression:
        items: list[Expression] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)\r\n":
            items.append(self._repeated(self._item()))
        return joined(items)

    def _item(self) -> Expression:
        at = self._at
        char = self._text[at]
        if char == '"':
            self._at += 1
            codes = []
            while not self._text.startswith('"', self._at):
                codes.append(self._char('"', at))
            self._at += 1
            return Literal("".join(map(chr, codes)).encode())
        if char == "[":
            return self._class()
        if char == "(":
            self._at += 1
            self._space(True)
            inner = self._choice()
            self._space(True)
            if not self._text.startswith(")", self._at):
                raise self._error("the group is not closed", at)
            self._at += 1
            return inner
        if char == ".":
            self._at += 1
            return Chars(ANY_CHAR)
        if char == "<":
            raise self._error("tokens by name or number (<...>) are not supported")
        if char in "*+?{":
            raise self._error(f"{char} has nothing to repeat")
        if not _is_name(char):
            raise self._error(f"{char!r} is not expected here")
        name = self._name()
        self.used.setdefault(name, at)
        return Reference(name)

    def _char(self, closing: str, opened_at: int) -> int:
        """The next character of a literal or of a class, which may be escaped."""
        text = self._text
        char = text[self._at : self._at + 1]
        if not char or (char in "\r\n" and closing == '"'):
            raise self._error(f"{closing} is missing", opened_at)
        self._at += 1
        if char != "\\":
            return ord(char)
        kind = text[self._at : self._at + 1]
        self._at += 1
        if kind and kind in _ESCAPES:
            return _ESCAPES[kind]
        if (length := _HEX_LENGTHS.get(kind)) is None:
            raise self._error(f"\\{kind} is not an escape")
        digits = text[self._at : self._at + length]
        try:
            code = int(digits, 16) if len(digits) == length and digits.isalnum() else -1
        except ValueError:
            code = -1
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise self._error(f"\\{kind}{digits} is not a character")
        self._at += length
        return code

    def _class(self) -> Expression:
        text, at = self._text, self._at
        self._at += 1
        negated = text.startswith("^", self._at)
        self._at += negated
        runs = []
        while not text.startswith("]", self._at):
            first = last = self._char("]", at)
            if text.startswith("-", self._at) and not text.startswith("-]", self._at):
                self._at += 1
                last = self._char("]", at)
            if last < first:
                raise self._error("the range is in the wrong order")
            runs.append((first, last))
        self._at += 1
        allowed = char_set(runs)
        return Chars(complement(allowed)) if negated else Chars(allowed)

    def _repeated(self, item: Expression) -> Expression:
        self._space(self._depth > 1)
        while self._at < len(self._text) and (char := self._text[self._at]) in "*+?{":
            self._at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._bounds()
            item = repeat(item, least, most)
            self._space(self._depth > 1)
        return item

    def _bounds(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        low, comma, high = (part.strip() for part in self._text[self._at : max(end, 0)].partition(","))
        if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (low or "0", high or "0")) or (
            not low and not high
        ):
            raise self._error("{ is not followed by bounds such as {2}, {2,} or {2,3}")
        self._at = end + 1
        least = int(low or "0")
        most = (int(high) if high else None) if comma else least
        if most is not None and most < least:
            raise self._error("the bounds are in the wrong order")
        return least, most


def gbnf_grammar(text: str) -> Grammar:
    """The grammar that a text in GBNF describes; its root is the rule `root`.

    Raises GrammarError, which names the line, or the rule that is its own beginning.
    """
    parser = _Parser(text)
    parser.parse()
    for name in parser.used:
        if name not in parser.rules:
            raise parser.error_at_use(name, f"the rule {name} is not there")
    if "root" not in parser.rules:
        raise GrammarError("The rule root is not there.")
    refuse_left_recursion(parser.rules)
    return Grammar(parser.rules)


def refuse_left_recursion(rules: dict[str, Expression]) -> None:
    """Raises GrammarError if a text of a rule can begin with a text of the same rule."""
    empty: set[str] = set()

    def firsts(expression: Expression) -> set[str]:
        """The rules with which a text can begin."""
        if isinstance(expression, Reference):
            return {expression.name}
        if isinstance(expression, Repeat):
            return firsts(expression.item)
        if isinstance(expression, Choice):
            return {name for item in expression.items for name in firsts(item)}
        found: set[str] = set()
        for item in expression.items if isinstance(expression, Joined) else ():
            found |= firsts(item)
            if not nullable(item, empty):
                break
        return found

    while True:
        more = {name for name, rule in rules.items() if name not in empty and nullable(rule, empty)}
        if not more:
            break
        empty |= more
    begins = {name: sorted(firsts(rule)) for name, rule in rules.items()}
    done: set[str] = set()
    for start in rules:
        path: list[tuple[str, list[str]]] = [(start, list(begins[start]))] if start not in done else []
        on_path = {start}
        while path:
            name, rest = path[-1]
            if not rest:
                done.add(name)
                on_path.discard(name)
                path.pop()
                continue
            follower = rest.pop()
            if follower in on_path:
                raise GrammarError(f"The rule {follower} begins with itself: left recursion is not supported.")
            if follower not in done:
                on_path.add(follower)
                path.append((follower, list(begins[follower])))
