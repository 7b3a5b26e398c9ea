"""Parses arithmetic, in signs and in words: "(3 + 4) / 7", "seventeen times 23", "15 Prozent von 80".

Every word must belong to the expression. Text with anything else in it is no expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from py_core.tools.expression import (
    FUNCTIONS,
    Brackets,
    Call,
    Constant,
    Factorial,
    Negative,
    Node,
    Number,
    Operation,
    Percent,
    is_share,
)
from py_core.tools.number_text import NUMBER, decimal_point, number_of
from py_core.tools.number_words import ABBREVIATED, SCALES
from py_core.tools.number_words import read_number as read_words
from py_core.tools.question import CannotComputeError

LONGEST = 1000
"""The most characters of an expression."""
MOST_OPERATIONS = 200
MOST_BRACKETS = 50
"""The most brackets inside each other."""
MOST_NUMBER_DIGITS = 300
"""The most digits of a number in an expression."""

_WORDS: tuple[tuple[str, str, str], ...] = (
    # words, token, language ("" for both)
    ("to the power of", "^", "en"), ("raised to the power of", "^", "en"), ("raised to", "^", "en"),
    ("multiplied by", "*", "en"), ("divided by", "/", "en"), ("times", "*", "en"),
    ("added to", "+", "en"), ("squared", "^2", "en"), ("cubed", "^3", "en"),
    ("the square root of", "sqrt", "en"), ("square root of", "sqrt", "en"), ("square root", "sqrt", "en"),
    ("the cube root of", "cbrt", "en"), ("cube root of", "cbrt", "en"),
    ("the absolute value of", "abs", "en"), ("the factorial of", "factorial", "en"),
    ("factorial of", "factorial", "en"),
    ("factorial", "!", "en"), ("percent of", "%of", "en"), ("per cent of", "%of", "en"), ("percent", "%", "en"),
    ("per cent", "%", "en"), ("modulo", "mod", ""), ("mod", "mod", ""), ("of", "of", "en"),
    ("half of", "1/2of", "en"), ("one half of", "1/2of", "en"), ("a third of", "1/3of", "en"),
    ("one third of", "1/3of", "en"), ("a quarter of", "1/4of", "en"), ("one quarter of", "1/4of", "en"),
    ("a tenth of", "1/10of", "en"), ("twice", "2*", "en"),
    ("plus", "+", ""), ("minus", "-", ""), ("pi", "pi", ""), ("π", "pi", ""),
    ("mal", "*", "de"), ("multipliziert mit", "*", "de"), ("geteilt durch", "/", "de"), ("dividiert durch", "/", "de"),
    ("durch", "/", "de"), ("hoch", "^", "de"), ("zum quadrat", "^2", "de"), ("quadrat", "^2", "de"),
    ("die quadratwurzel aus", "sqrt", "de"), ("die quadratwurzel von", "sqrt", "de"),
    ("quadratwurzel aus", "sqrt", "de"),
    ("quadratwurzel von", "sqrt", "de"), ("die wurzel aus", "sqrt", "de"), ("die wurzel von", "sqrt", "de"),
    ("wurzel aus", "sqrt", "de"), ("wurzel von", "sqrt", "de"), ("wurzel", "sqrt", "de"),
    ("die kubikwurzel aus", "cbrt", "de"), ("kubikwurzel aus", "cbrt", "de"), ("die fakultät von", "factorial", "de"),
    ("fakultät von", "factorial", "de"), ("fakultät", "!", "de"), ("prozent von", "%of", "de"), ("prozent", "%", "de"),
    ("von", "of", "de"), ("die hälfte von", "1/2of", "de"), ("hälfte von", "1/2of", "de"),
    ("ein drittel von", "1/3of", "de"), ("ein viertel von", "1/4of", "de"), ("das doppelte von", "2*", "de"),
    ("weniger", "-", "de"), ("und", "und", "de"),
)  # fmt: skip
_TOKEN_OF_WORDS = {tuple(words.split()): (token, language) for words, token, language in _WORDS}
_LONGEST_WORDS = max(map(len, _TOKEN_OF_WORDS))
_SIGNS = {
    "+": "+", "-": "-", "\u2212": "-", "\u2013": "-", "*": "*", "×": "*", "·": "*", "⋅": "*", "∙": "*", "x": "*",
    "X": "*",
    "/": "/", "÷": "/", "∕": "/", "^": "^", "**": "^", "(": "(", ")": ")", "!": "!", "%": "%",
    "²": "^2", "³": "^3", "√": "sqrt", "∛": "cbrt",
}  # fmt: skip
_LEXER = re.compile(
    rf"\s*(?:(?P<number>{NUMBER})(?P<power>[eE][+-]?\d{{1,4}}(?![\w.]))?"
    rf"|(?P<sign>\*\*|[-+*/^()!%√∛×·⋅∙÷∕\u2212\u2013]|[²³](?!\s*[²³])|[xX](?=\s*[\d(√])|:(?=\s))"
    rf"|(?P<word>[^\W\d_]+(?:-[^\W\d_]+)*\d{{0,2}})(?P<dot>\.)?)"
)


@dataclass(frozen=True)
class _Token:
    kind: str  # number, or a value of _WORDS or _SIGNS
    value: Fraction = Fraction(0)
    is_word: bool = False


@dataclass(frozen=True)
class _Digits:
    """A number that is parsed once the language of all words is known. scale: a word ("million"), or ""."""

    text: str
    power: int
    scale: str


@dataclass(frozen=True)
class Parsed:
    """language: "en" or "de" if a word or a number tells it, else "". operations: their number. in_words: True if an
    operation or a number was a word."""

    node: Node
    language: str
    operations: int
    in_words: bool


class _NotArithmeticError(Exception):
    """The text is no expression."""


def parse(text: str, language: str = "", least: int = 1, point: str = "") -> Parsed | None:
    """Parse an expression with at least `least` operations. language: of the words around it, "" if there are none.
    point: the decimal point (number_text.decimal_point), if other numbers tell it. Returns None if the text is
    something else. Raises CannotComputeError if it has too many operations, or its brackets are too deep."""
    reader = _Lexer(language, point)
    try:
        tokens = reader.tokens(text)
        parser = _Parser(tokens)
        node = parser.all()
    except _NotArithmeticError:
        return None
    if parser.operations < least:
        return None
    if parser.operations > MOST_OPERATIONS:
        raise long_expression()
    return Parsed(node, reader.language, parser.operations, any(token.is_word for token in tokens))


def long_expression() -> CannotComputeError:
    return CannotComputeError(
        f"This is longer than the {LONGEST} characters or {MOST_OPERATIONS} operations that I compute at once.",
        f"Das ist länger als die {LONGEST} Zeichen oder {MOST_OPERATIONS} Rechenschritte, die ich auf einmal berechne.",
    )


def _deep_brackets() -> CannotComputeError:
    return CannotComputeError(
        f"More than {MOST_BRACKETS} brackets are inside each other, which is the most that I compute.",
        f"Hier stehen mehr als {MOST_BRACKETS} Klammern ineinander; mehr berechne ich nicht.",
    )


class _Lexer:
    """Turns text into tokens."""

    def __init__(self, language: str, point: str) -> None:
        self.language, self._point = language, point

    def tokens(self, text: str) -> list[_Token]:
        parts = self._parts(text)
        found: list[_Token | _Digits] = []
        at = 0
        while at < len(parts):
            kind, part, power = parts[at]
            at += 1
            if kind == "number":
                scale = parts[at][1].lower() if at < len(parts) and parts[at][0] == "word" else ""
                languages = [each for each, scales in SCALES.items() if scales.get(scale, 0) > 100]
                if len(languages) == 1:
                    self._speak(languages[0])
                at += bool(languages)
                found.append(_Digits(part, power, scale if languages else ""))
            elif kind == "sign":
                if part == ":":  # a division in German; otherwise a time or a list
                    self._speak("de")
                found.append(_Token("/" if part == ":" else _SIGNS[part]))
            else:
                at = self._read_words(parts, at - 1, found)
        return self._numbers(found)

    def _numbers(self, found: list[_Token | _Digits]) -> list[_Token]:
        digits = [each.text for each in found if isinstance(each, _Digits)]
        point = self._point or decimal_point(digits, self.language)
        if not point or any(len(each) > MOST_NUMBER_DIGITS for each in digits):
            raise _NotArithmeticError
        tokens = [each if isinstance(each, _Token) else self._number(each, point) for each in found]
        self.language = self.language or ("de" if point == "," else "")
        return tokens

    def _number(self, digits: _Digits, point: str) -> _Token:
        scales = {SCALES[each].get(digits.scale, 0) for each in ([self.language] if self.language else SCALES)}
        if digits.scale and len(scales) > 1:  # 1 billion: 10^9, or 10^12 in German
            raise _NotArithmeticError
        scale = scales.pop() if digits.scale else 1
        return _Token("number", number_of(digits.text, point) * scale * Fraction(10) ** digits.power)

    def _parts(self, text: str) -> list[tuple[str, str, int]]:
        parts: list[tuple[str, str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _LEXER.match(text, at)
            if found is None:
                raise _NotArithmeticError
            kind = next(kind for kind in ("number", "sign", "word") if found[kind])
            power = int(found["power"][1:]) if found["power"] else 0
            touches = bool(parts) and parts[-1][0] == "number" and text[found.start()] not in " \t"
            if kind == "word" and touches and found["word"].lower() not in ("pi", "π", "sqrt"):
                raise _NotArithmeticError  # 3D, 2nd, 401k
            if found["dot"] and found["word"].lower() not in ABBREVIATED:
                raise _NotArithmeticError
            if found["sign"] in ("x", "X") and touches and parts[-1][1] == "0":
                raise _NotArithmeticError  # 0x10
            parts.append((kind, found[kind], power))
            at = found.end()
        return parts

    def _read_words(self, parts: list[tuple[str, str, int]], at: int, tokens: list[_Token | _Digits]) -> int:
        end = at
        while end < len(parts) and parts[end][0] == "word":
            end += 1
        words = [part.lower() for _, part, _ in parts[at:end]]
        for length in range(min(_LONGEST_WORDS, len(words)), 0, -1):
            if (found := _TOKEN_OF_WORDS.get(tuple(words[:length]))) is not None:
                token, language = found
                self._speak(language)
                if token == "und":
                    raise _NotArithmeticError
                if token[0].isdigit():  # half of, twice
                    share, sign = (Fraction(token[:-2]), "of") if token.endswith("of") else (Fraction(2), "*")
                    tokens += [_Token("number", share, is_word=True), _Token(sign, is_word=True)]
                    return at + length
                tokens.extend(_Token(each, is_word=True) for each in (("%", "of") if token == "%of" else (token,)))
                return at + length
        if words[0] in FUNCTIONS:
            tokens.append(_Token(words[0]))
            return at + 1
        if (number := read_words(words, 0)) is not None:
            value, after, language = number
            self._speak(language)
            tokens.append(_Token("number", Fraction(value), is_word=True))
            return at + after
        raise _NotArithmeticError

    def _speak(self, language: str) -> None:
        """Record that a word of this language was read; expressions do not mix languages."""
        if language and self.language not in ("", language):
            raise _NotArithmeticError
        self.language = self.language or language


class _Parser:
    """Turns tokens into a tree, by precedence: + and -, then * and /, signs, powers, and postfix operators."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0
        self.operations = 0

    def all(self) -> Node:
        node = self._sum()
        if self._at < len(self._tokens):
            raise _NotArithmeticError
        return node

    @property
    def _next(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1].kind

    def _sum(self) -> Node:
        node = self._product()
        while self._next in ("+", "-"):
            if is_share(node):
                raise _NotArithmeticError
            sign = self._take()
            self.operations += 1
            node = Operation(sign, node, self._product())
        return node

    def _product(self) -> Node:
        node, divided = self._signed(), False
        while self._next in ("*", "/", "mod", "of", "(", "pi", "sqrt"):
            if self._next in ("(", "pi", "sqrt"):
                if divided:  # 6 / 2(1 + 2) is ambiguous
                    raise _NotArithmeticError
                sign = "*"
            else:
                sign = self._take()
            if sign == "of" and not isinstance(node, Percent | Number):
                raise _NotArithmeticError
            divided = divided or sign in ("/", "mod")
            self.operations += 1
            right = self._signed()
            if sign == "of" and isinstance(node, Number) and node.value.denominator == 1:
                raise _NotArithmeticError  # 5 of 8
            node = Operation(sign, node, right)
        return node

    def _signed(self) -> Node:
        if self._next != "-":
            return self._power()
        self._take()
        return Negative(self._power())

    def _power(self) -> Node:
        base = self._followed()
        if self._next == "^":
            self._take()
            self.operations += 1
            self._deeper()
            exponent = self._signed()
            self._depth -= 1
            return Operation("^", base, exponent)
        return base

    def _followed(self) -> Node:
        node = self._single()
        while self._next in ("!", "%", "^2", "^3"):
            kind = self._take()
            if kind == "%":
                if self._next in ("number", "(", "pi", "sqrt"):  # 17 % 5 may mean a remainder
                    raise _NotArithmeticError
                node = Percent(node)
                continue
            self.operations += 1
            if kind == "!":
                if isinstance(node, Factorial):
                    raise _NotArithmeticError  # 5!! is something else
                node = Factorial(node)
            else:
                node = Operation("^", node, Number(Fraction(int(kind[1]))))
        return node

    def _single(self) -> Node:
        if not self._next:
            raise _NotArithmeticError
        token = self._tokens[self._at]
        kind = self._take()
        if kind == "number":
            return Number(token.value)
        if kind == "pi":
            return Constant()
        if kind == "(":
            self._deeper()
            node = self._sum()
            self._depth -= 1
            if self._next != ")":
                raise _NotArithmeticError
            self._take()
            return Brackets(node)
        if kind == "factorial":
            self.operations += 1
            return Factorial(self._single())
        if kind in FUNCTIONS:
            self.operations += 1
            self._deeper()
            inner = self._signed() if self._next == "-" else self._followed()
            self._depth -= 1
            return Call(kind, inner)
        raise _NotArithmeticError

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MOST_BRACKETS:
            raise _deep_brackets()
