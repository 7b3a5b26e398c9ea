"""The expressions of which a grammar consists: each describes a set of texts, as UTF-8 bytes.

Schemas (`schema`), regular expressions (`regex.py`) and GBNF (`gbnf.py`) become these. `program.py` brings them to
the kernel that follows them. Expressions are immutable and may be shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CharSet = tuple[tuple[int, int], ...]
"""Code points: the first and the last of each run, sorted, apart from each other, without surrogates."""

ANY_CHAR: CharSet = ((0, 0xD7FF), (0xE000, 0x10FFFF))
SPECIAL = b"\xff"
"""Begins the bytes of a special token; its text follows. This byte stands nowhere in UTF-8, so that no text allows the
token: only a Literal of exactly these bytes does."""


class GrammarError(ValueError):
    """A grammar that cannot be kept; the message is a sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly these bytes; b"" is the empty text."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Chars:
    """`least` to `most` (None: any number of) characters of a set.

    in_json: each is written as inside of a JSON string: as it is if JSON allows that, or by any of JSON's escapes, of
    which pairs of surrogates count as the character that they stand for. Printable ASCII that JSON allows as it is has
    escapes only in ANY_CHAR.
    """

    allowed: CharSet
    least: int = 1
    most: int | None = 1
    in_json: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """The items one after the other."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of the items; none of them is the empty set of texts."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` (None: any number of) texts of the item, one after the other."""

    item: Expression
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule of the grammar, by its name; rules may refer to each other and to themselves."""

    name: str


@dataclass(frozen=True, slots=True)
class Automaton:
    """The texts of a deterministic automaton of bytes. State 0 begins.

    moves: for each state the runs of bytes (first, last, next state), sorted and apart from each other.
    is_common: True if other grammars will have this object, too: the kernel keeps what it finds out about it.
    """

    moves: tuple[tuple[tuple[int, int, int], ...], ...]
    accepting: frozenset[int]
    is_common: bool = False


Expression = Literal | Chars | Joined | Choice | Repeat | Reference | Automaton

NOTHING = Choice(())
"""No text at all."""
EMPTY = Literal(b"")


@dataclass(frozen=True, slots=True)
class Grammar:
    """Rules by name, of which `root` describes whole texts."""

    rules: Mapping[str, Expression]
    root: str = "root"
