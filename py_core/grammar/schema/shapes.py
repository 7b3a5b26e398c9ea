"""Arrays and objects by what schemas say of them, and forms: the values of a schema, by their type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from py_core.grammar.schema.document import Conj
from py_core.grammar.schema.numbers import ALL_NUMBERS, Numbers
from py_core.grammar.schema.strings import ALL_STRINGS, Pattern, Strings


@dataclass(frozen=True, slots=True)
class Contained:
    """`least` to `most` items are such."""

    items: Conj
    least: int
    most: int | None
    path: str


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays by what holds of all of them.

    first: of the first items; rest: of the others. unique: the path of the keyword that says that no two are equal.
    """

    first: tuple[Conj, ...] = ()
    rest: Conj = ()
    least: int = 0
    most: int | None = None
    unique: str = ""
    contained: tuple[Contained, ...] = ()


ALL_ARRAYS = Arrays()


@dataclass(frozen=True, slots=True)
class Rest:
    """The rules for the properties that match none of the patterns (None: all match one)."""

    patterns: frozenset[Pattern | None]
    values: Conj


@dataclass(frozen=True, slots=True)
class Some:
    """At least one property is not among some names, matches a pattern or matches none of some others, and has such a
    value and such a name.
    """

    without: frozenset[str]
    pattern: Pattern | None
    others: frozenset[Pattern | None]
    values: Conj
    names: Conj
    path: str


class Objects:
    """Objects by what holds of all of them.

    listed: all that holds of the properties with these names, in the order in which texts have them. patterned, rests:
    what holds of properties that are not listed. names: what holds of all names.
    """

    __slots__ = ("least", "listed", "most", "names", "path", "patterned", "required", "rests", "some")

    def __init__(
        self,
        listed: dict[str, Conj] | None = None,
        required: tuple[str, ...] = (),
        patterned: tuple[tuple[Pattern | None, Conj], ...] = (),
        rests: tuple[Rest, ...] = (),
        names: Conj = (),
        least: int = 0,
        most: int | None = None,
        some: tuple[Some, ...] = (),
        path: str = "",
    ) -> None:
        self.listed: Final = listed or {}
        self.required: Final = required
        self.patterned: Final = patterned
        self.rests: Final = rests
        self.names: Final = names
        self.least: Final = least
        self.most: Final = most
        self.some: Final = some
        self.path: Final = path

    def key(self) -> tuple[object, ...]:
        """Equal for equal objects."""
        return (
            tuple(self.listed.items()), self.required, self.patterned, self.rests, self.names, self.least, self.most,
            self.some,
        )  # fmt: skip


ALL_OBJECTS = Objects()

Piece = Numbers | Strings | Arrays | Objects


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The values of a schema: each tuple has alternatives, an empty one means that no value is of this type."""

    null: bool = True
    booleans: tuple[bool, ...] = (True, False)
    numbers: tuple[Numbers, ...] = (ALL_NUMBERS,)
    strings: tuple[Strings, ...] = (ALL_STRINGS,)
    arrays: tuple[Arrays, ...] = (ALL_ARRAYS,)
    objects: tuple[Objects, ...] = (ALL_OBJECTS,)

    def is_empty(self) -> bool:
        """True if it has no alternative at all."""
        return not (self.null or self.booleans or self.numbers or self.strings or self.arrays or self.objects)

    def size(self) -> int:
        """The number of its alternatives."""
        return len(self.numbers) + len(self.strings) + len(self.arrays) + len(self.objects) + 1


ANY = Form()
NONE = Form(False, (), (), (), (), ())


def form_of(piece: Piece) -> Form:
    """The form of values of one type."""
    if isinstance(piece, Numbers):
        return Form(False, (), (piece,), (), (), ())
    if isinstance(piece, Strings):
        return Form(False, (), (), (piece,), (), ())
    if isinstance(piece, Arrays):
        return Form(False, (), (), (), (piece,), ())
    return Form(False, (), (), (), (), (piece,))


def or_others(piece: Piece | None, kind: type) -> Form:
    """The form of these values and of all of other types."""
    pieces = () if piece is None else (piece,)
    return Form(
        numbers=pieces if kind is Numbers else (ALL_NUMBERS,),  # type: ignore[arg-type]
        strings=pieces if kind is Strings else (ALL_STRINGS,),  # type: ignore[arg-type]
        arrays=pieces if kind is Arrays else (ALL_ARRAYS,),  # type: ignore[arg-type]
        objects=pieces if kind is Objects else (ALL_OBJECTS,),  # type: ignore[arg-type]
    )


def union(*forms: Form) -> Form:
    """The values that are in any of the forms."""
    if ANY in forms:
        return ANY
    if not forms:
        return NONE
    numbers = dict.fromkeys(piece for form in forms for piece in form.numbers)
    strings = dict.fromkeys(piece for form in forms for piece in form.strings)
    arrays = dict.fromkeys(piece for form in forms for piece in form.arrays)
    objects = {piece.key(): piece for form in forms for piece in form.objects}
    return Form(
        any(form.null for form in forms),
        tuple(dict.fromkeys(value for form in forms for value in form.booleans)),
        (ALL_NUMBERS,) if ALL_NUMBERS in numbers else _numbers(numbers),
        (ALL_STRINGS,) if ALL_STRINGS in strings else _strings(strings),
        (ALL_ARRAYS,) if ALL_ARRAYS in arrays else tuple(arrays),
        (ALL_OBJECTS,) if ALL_OBJECTS.key() in objects else tuple(objects.values()),
    )


def _numbers(pieces: Iterable[Numbers]) -> tuple[Numbers, ...]:
    """The same numbers; all that are listed are in one piece."""
    values = dict.fromkeys(value for piece in pieces for value in piece.values or ())
    rest = tuple(piece for piece in pieces if piece.values is None)
    return (Numbers(values=tuple(values)), *rest) if values else rest


def _strings(pieces: Iterable[Strings]) -> tuple[Strings, ...]:
    """The same strings; all that are listed are in one piece."""
    values = dict.fromkeys(value for piece in pieces for value in piece.values or ())
    rest = tuple(piece for piece in pieces if piece.values is None)
    return (Strings(values=tuple(values)), *rest) if values else rest
