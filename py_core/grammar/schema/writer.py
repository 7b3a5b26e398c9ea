"""Writes the grammar of the texts of a schema: a rule for what several places share and for what nests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from py_core.grammar.expressions import (
    EMPTY,
    NOTHING,
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
from py_core.grammar.forms import choice, joined
from py_core.grammar.schema.document import NEVER, Conj, Document, both
from py_core.grammar.schema.numbers import Numbers, number_expression, number_text
from py_core.grammar.schema.reader import Reader
from py_core.grammar.schema.shapes import Arrays, Contained, Form, Objects, Some
from py_core.grammar.schema.strings import (
    Pattern,
    Strings,
    common_strings,
    matches,
    string_expression,
    string_literal,
)

_MOST_ITEMS = 1_000_000
_MOST_COUNTED = 64
_MOST_SUBSETS = 300
_MOST_COUNTS = 4000
_MOST_PATTERNS = 6
_DEEPEST = 12
"""From this depth on, the spaces of an indented line are not counted."""

Key = tuple[Conj, int]
Pair = tuple[Expression, Expression, bool]
"""The name of a property with its colon, its value, and whether it is required."""


_SPACE = Chars(((0x20, 0x20),), 0, 1)
_LOOSE = choice((_SPACE, joined((Literal(b"\n"), Chars(((0x20, 0x20),), 0, 32)))))
"""The white space of a text that models write as they like: a space, or a line feed with an indentation."""


class Writer:
    """The rules of a document's grammar."""

    def __init__(self, document: Document, reader: Reader, indent: int | None, loose: bool = False) -> None:
        self._document: Final = document
        self._reader: Final = reader
        self._indent: Final = indent
        self._loose: Final = loose
        self._colon: Final = b":" if indent is None else b": "
        self._rules: dict[str, Expression] = {}
        self._names: dict[Key, str] = {}
        self._shared: dict[Expression, Reference] = {}
        self._scalars: dict[Conj, Expression] = {}
        self._by_form: dict[Form, Expression] = {}
        self._strings: dict[Strings, Expression] = {}
        self._pairs_made: dict[tuple[Expression, Expression, bool, int], Expression] = {}
        self._waiting: list[tuple[Conj, int, str]] = []
        self._root = self._document.conj(document.root)

    def grammar(self) -> Grammar:
        """The grammar of the document's schema."""
        self._names[self._root, 0] = "root"
        self._waiting.append((self._root, 0, "root"))
        while self._waiting:
            conj, depth, name = self._waiting.pop()
            self._document.step()
            self._rules[name] = self._expression(conj, depth)
        rules = _productive(self._rules)
        if rules["root"] == NOTHING:
            raise GrammarError("no value is valid by the schema")
        return Grammar(rules)

    def _named(self, expression: Expression) -> Expression:
        """An expression by the name of a rule, the same for the same expression."""
        if isinstance(expression, Literal | Reference) or expression == NOTHING:
            return expression
        found = self._shared.get(expression)
        if found is None:
            found = self._shared[expression] = Reference(f"part{len(self._shared)}")
            self._rules[found.name] = expression
        return found

    def _value(self, conj: Conj, depth: int) -> Expression:
        """The texts of a value, by the name of their rule if they are not short."""
        if conj == NEVER:
            return NOTHING
        scalar = self._scalars.get(conj)
        if scalar is not None:
            return scalar
        depth = min(depth, _DEEPEST) if self._indent is not None else 0
        name = self._names.get((conj, depth))
        if name is not None:
            return Reference(name)
        form = self._reader.form(conj)
        if not form.arrays and not form.objects:
            scalar = self._by_form.get(form)
            if scalar is None:
                self._document.step(8)
                scalar = self._by_form[form] = self._named(choice(self._scalar(form, conj[0].path if conj else "#")))
            self._scalars[conj] = scalar
            return scalar
        name = self._names[conj, depth] = f"value{len(self._names)}"
        self._waiting.append((conj, depth, name))
        return Reference(name)

    def _expression(self, conj: Conj, depth: int) -> Expression:
        form = self._reader.form(conj)
        scalar = choice(self._scalar(form, conj[0].path if conj else "#"))
        parts = [scalar]
        for arrays in form.arrays:
            parts.append(self._array(arrays, depth))
        for objects in form.objects:
            parts.extend(self._object(piece, depth) for piece in self._without_some(objects))
        return any_of(parts)

    def _scalar(self, form: Form, path: str) -> Iterator[Expression]:
        """The texts of what is neither array nor object."""
        parts: list[Expression] = [Literal(b"null")] if form.null else []
        parts.extend(Literal(json.dumps(value).encode()) for value in form.booleans)
        for numbers in form.numbers:
            parts.append(self._number(numbers))
        for strings in form.strings:
            parts.append(self._string(strings, path) if strings.values is None else string_expression(strings))
        for part in parts:
            yield part if len(parts) == 1 or isinstance(part, Literal | Choice) else self._named(part)

    def _string(self, strings: Strings, path: str) -> Expression:
        """Strings, by the name of their rule."""
        found = self._strings.get(strings)
        if found is None:
            self._document.step(sum(map(len, strings.without)) // 8)
            found = self._strings[strings] = self._named(self._string_expression(strings, path))
        return found

    def _string_expression(self, strings: Strings, path: str) -> Expression:
        try:
            return string_expression(strings)
        except GrammarError as error:
            patterns = (*strings.patterns, *strings.others)
            for pattern in patterns:
                self._document.refuse(pattern.path, str(error))
            if not patterns:
                raise GrammarError(f"{path}: {error}") from None
            return string_expression(Strings(strings.least, strings.most, without=strings.without))

    def _number(self, numbers: Numbers) -> Expression:
        bounds = (bound for bound in (numbers.least, numbers.most) if bound is not None)
        self._document.step(len(numbers.values or ()) // 2 + sum(3 * len(str(bound)) for bound in bounds))
        try:
            return number_expression(numbers)
        except GrammarError as error:
            said = str(error)
            self._document.refuse(numbers.path, said.removeprefix(f"{numbers.path}: "))
            return number_expression(Numbers(numbers.whole, numbers.least, numbers.least_open, numbers.most,
                                             numbers.most_open))  # fmt: skip

    # --- brackets, commas and lines

    def _line(self, depth: int) -> Expression:
        """The line feed and the spaces before a line of an indented text."""
        if self._indent is None:
            return _LOOSE if self._loose else EMPTY
        if depth >= _DEEPEST:
            return joined((Literal(b"\n"), Chars(((0x20, 0x20),), 0, None)))
        return Literal(b"\n" + b" " * (self._indent * depth))

    def _comma(self, depth: int) -> Expression:
        return joined((Literal(b","), self._line(depth + 1)))

    def _around(self, marks: bytes, inside: Expression, depth: int) -> Expression:
        """Brackets around items, at least one."""
        return joined(
            (Literal(marks[:1]), self._line(depth + 1), inside, self._line(depth), Literal(marks[1:]))
        )  # fmt: skip

    # --- arrays

    def _array(self, arrays: Arrays, depth: int) -> Expression:
        arrays = self._shortened(arrays)
        least, most = arrays.least, arrays.most
        if most is not None and least > most:
            return NOTHING
        if least > _MOST_ITEMS:
            raise GrammarError(f"arrays of {least:,} items and more are too long")
        if arrays.unique and (most is None or most > 1) and not self._are_different(arrays):
            different = self._different(arrays, depth)
            if different is not None:
                return different
            self._document.refuse(arrays.unique)
        if arrays.contained:
            found = self._containing(arrays, depth)
            if found is not None:
                return found
            for contained in arrays.contained:
                self._document.refuse(contained.path)
        return self._sequence(arrays.first, arrays.rest, least, most, depth)

    def _shortened(self, arrays: Arrays) -> Arrays:
        """Without the end that no item is allowed at."""
        for at, conj in enumerate((*arrays.first, arrays.rest)):
            if arrays.most is not None and at >= arrays.most:
                break
            if self._value(conj, 1) == NOTHING:
                return Arrays(
                    arrays.first[:at], arrays.rest, arrays.least, at, arrays.unique, arrays.contained
                )  # fmt: skip
        return arrays

    def _sequence(self, first: Sequence[Conj], rest: Conj, least: int, most: int | None, depth: int) -> Expression:
        """Arrays of `least` to `most` items, of which the first have their own schemas."""
        if most is not None:
            first = first[:most]
        count = len(first)
        empty: list[Expression] = [] if least else [Literal(b"[]")]
        if most == 0:
            return choice(empty)
        comma = self._comma(depth)
        after: Expression = EMPTY
        if most is None or most > count:
            other = self._value(rest, depth + 1)
            if not count:
                more = Repeat(joined((comma, other)), max(0, least - 1), None if most is None else most - 1)
                return choice((*empty, self._around(b"[]", joined((other, more)), depth)))
            after = Repeat(joined((comma, other)), max(0, least - count), None if most is None else most - count)
        for at in range(count - 1, 0, -1):
            after = joined((comma, self._value(first[at], depth + 1), after))
            if at >= least:
                after = Repeat(after, 0, 1)
            if at % 16 == 0:
                after = self._named(after)
        return choice((*empty, self._around(b"[]", joined((self._value(first[0], depth + 1), after)), depth)))

    def _are_different(self, arrays: Arrays) -> bool:
        """True if the items, all of which have their own schemas, cannot be equal."""
        if arrays.most is None or arrays.most > len(arrays.first) or arrays.most > _MOST_COUNTED:
            return False
        pairs = combinations(arrays.first[: arrays.most], 2)
        return all(self._reader.void(both(one, other)) for one, other in pairs)

    def _listed_values(self, conj: Conj) -> list[Expression] | None:
        """The values of a schema, one by one, if they are listed; of arrays and objects none are."""
        if not conj:
            return None
        form = self._reader.form(conj)
        if form.arrays or form.objects:
            return None
        found: list[Expression] = [Literal(b"null")] if form.null else []
        found.extend(Literal(json.dumps(value).encode()) for value in form.booleans)
        for numbers in form.numbers:
            if numbers.values is None:
                expression = self._number(numbers)
                if isinstance(expression, Literal):
                    expression = Choice((expression,))
                if not isinstance(expression, Choice) or not all(isinstance(x, Literal) for x in expression.items):
                    return None
                found.extend(expression.items)
            else:
                found.extend(Literal(number_text(value).encode()) for value in numbers.values)
        for strings in form.strings:
            if strings.values is None:
                return None
            found.extend(map(string_literal, strings.values))
        return list(dict.fromkeys(found))

    def _different(self, arrays: Arrays, depth: int) -> Expression | None:
        """Arrays of listed values, each at most once; None if there are too many of them."""
        values = self._listed_values(arrays.rest)
        if values is None or arrays.first or arrays.contained:
            return None
        count = len(values)
        most = count if arrays.most is None else min(count, arrays.most)
        if arrays.least > most:
            return NOTHING
        total, ways = 1, 1
        for size in range(1, most + 1):
            ways = ways * (count - size + 1) // size
            total += ways
            if total > _MOST_SUBSETS:
                return None
        self._document.step(total * count // 4)
        comma = self._comma(depth)
        following: dict[frozenset[int], Expression] = {}
        for size in range(most, 0, -1):  # what follows after some of them
            for used in combinations(range(count), size):
                seen = frozenset(used)
                parts: list[Expression] = [EMPTY] if size >= arrays.least else []
                if size < most:
                    parts.extend(
                        joined((comma, values[at], following[seen | {at}])) for at in range(count) if at not in seen
                    )
                following[seen] = self._named(choice(parts)) if parts != [EMPTY] else EMPTY
        first = choice(joined((values[at], following[frozenset({at})])) for at in range(count)) if most else NOTHING
        filled = self._around(b"[]", first, depth)
        return filled if arrays.least else choice((Literal(b"[]"), filled))

    def _containing(self, arrays: Arrays, depth: int) -> Expression | None:
        """Arrays with some number of such items; None if that cannot be kept."""
        if len(arrays.contained) > 1 or arrays.first or arrays.unique:
            return None
        contained = arrays.contained[0]
        such = self._value(both(arrays.rest, contained.items), depth + 1)
        other = self._value(arrays.rest, depth + 1)
        least, most = arrays.least, arrays.most
        if contained.most is None and contained.least == 1 and max(least, most or 0) <= _MOST_COUNTED:
            return self._with_one(such, other, least, most, depth)
        if most is not None or least > contained.least or contained.least > _MOST_COUNTED:
            return None
        if contained.most is not None:
            other = self._value(self._others(arrays.rest, contained), depth + 1)
        return self._with_some(such, other, contained, depth, least)

    def _others(self, rest: Conj, contained: Contained) -> Conj:
        conj = contained.items
        if not conj:
            return NEVER
        if len(conj) != 1:
            raise GrammarError(f"{contained.path}: not supported")
        return both(rest, self._document.conj(self._document.opposite(conj[0])))

    def _with_one(self, such: Expression, other: Expression, least: int, most: int | None, depth: int) -> Expression:
        comma = self._comma(depth)
        before, after = joined((other, comma)), joined((comma, other))
        parts: list[Expression] = []
        if such == NOTHING or most == 0:
            return NOTHING
        if most is None:
            for at in range(max(0, least - 1)):
                parts.append(joined((Repeat(before, at, at), such, Repeat(after, least - 1 - at, None))))
            parts.append(joined((Repeat(before, max(0, least - 1), None), such, Repeat(after, 0, None))))
        else:
            for at in range(most):
                parts.append(
                    joined((Repeat(before, at, at), such, Repeat(after, max(0, least - 1 - at), most - 1 - at)))
                )  # fmt: skip
        return self._around(b"[]", choice(parts), depth)

    def _with_some(
        self, such: Expression, other: Expression, contained: Contained, depth: int, least: int
    ) -> Expression:
        comma = self._comma(depth)
        before: Expression = Repeat(joined((other, comma)), 0, None) if other != NOTHING else EMPTY
        after: Expression = Repeat(joined((comma, other)), 0, None) if other != NOTHING else EMPTY
        parts: list[Expression] = []
        few = max(1, contained.least)
        if such != NOTHING and (contained.most is None or contained.most >= few):
            more = joined((after, comma, such))
            end = None if contained.most is None else contained.most - 1
            parts.append(self._around(b"[]", joined((before, such, Repeat(more, few - 1, end), after)), depth))
        if not contained.least:
            if not least:
                parts.append(Literal(b"[]"))
            if other != NOTHING:
                parts.append(self._around(b"[]", joined((other, after)), depth))
        return choice(parts)

    # --- objects

    def _without_some(self, objects: Objects) -> Iterator[Objects]:
        """The objects without "at least one property is such", which is any of the properties or one more."""
        if not objects.some:
            yield objects
            return
        some, rest = objects.some[0], objects.some[1:]
        for name, conj in self._reader.some_listed(objects, some):
            listed = objects.listed | {name: conj}
            required = tuple(dict.fromkeys((*objects.required, name)))
            yield from self._without_some(
                Objects(listed, required, objects.patterned, objects.rests, objects.names, objects.least, objects.most,
                        rest, objects.path)
            )  # fmt: skip
        if not self._reader.closed(objects):
            if rest:
                raise GrammarError(f"{some.path}: not supported")
            yield objects

    def _object(self, objects: Objects, depth: int) -> Expression:
        reader = self._reader
        colon = self._colon.decode()
        self._document.step(4 + len(objects.listed))
        listed = objects.listed
        if objects.names:  # names that are listed there are properties
            names = reader.form(objects.names).strings
            if all(strings.values is not None for strings in names):
                more = (name for strings in names for name in strings.values or ())
                listed = listed | {name: reader.property(objects, name) for name in more if name not in listed}
        pairs: list[Pair] = []
        required = frozenset(objects.required)
        for name, conj in listed.items():
            value = NOTHING if conj == NEVER or not reader.named(objects, name) else self._value(conj, depth + 1)
            if value != NOTHING:
                key = string_literal(name, colon)
                pairs.append((joined((key, _SPACE)) if self._loose else key, value, name in required))
            elif name in required:
                return NOTHING
        others = self._other_pairs(objects, listed, depth)
        if objects.some:
            return self._with_other(objects, pairs, others, listed, depth)
        return self._pairs(pairs, choice(others), objects, depth)

    def _with_other(
        self, objects: Objects, pairs: list[Pair], others: list[Expression], listed: dict[str, Conj], depth: int
    ) -> Expression:
        """Objects of which one property that is not listed is as it is asked for."""
        if objects.least > 1 or objects.most is not None:
            raise GrammarError(f"{objects.some[0].path}: not supported")
        such = choice(self._other_pairs(objects, listed, depth, objects.some[0]))
        if such == NOTHING:
            return NOTHING
        comma = self._comma(depth)
        other = choice(others)
        after = Repeat(joined((comma, other)), 0, None)
        one = joined((Repeat(joined((other, comma)), 0, None), such, after))
        before = [self._optional(joined((key, value, comma)), needed) for key, value, needed in pairs]
        return self._around(b"{}", joined((*before, one)), depth)

    def _optional(self, expression: Expression, required: bool) -> Expression:
        return expression if required else Repeat(expression, 0, 1)

    def _pairs(self, pairs: list[Pair], other: Expression, objects: Objects, depth: int) -> Expression:
        """Objects of these pairs in their order, and after them any number of others."""
        comma = self._comma(depth)
        needed = sum(required for _, _, required in pairs)
        least, most = max(objects.least, needed), objects.most
        if most is not None and (least > most or most == 0):
            return NOTHING if least or needed else Literal(b"{}")
        if most is not None and other == NOTHING and most >= len(pairs):
            most = None
        if most is not None or (least > needed and (needed or least > 1)):
            return self._counted(pairs, other, least, most, objects, depth)
        empty: list[Expression] = [] if least else [Literal(b"{}")]
        more = Repeat(joined((comma, other)), 0, None) if other != NOTHING else EMPTY
        tail = [self._further(key, value, required, depth) for key, value, required in pairs]
        if needed:
            at = next(at for at, pair in enumerate(pairs) if pair[2])
            before = [Repeat(joined((key, value, comma)), 0, 1) for key, value, _ in pairs[:at]]
            return self._around(b"{}", joined((*before, *pairs[at][:2], *tail[at + 1 :], more)), depth)

        rests = [*tail, more]

        def some(first: int, last: int) -> Expression:
            """At least one of some optional pairs."""
            if last - first == 1:
                if first == len(pairs):
                    return joined((other, more))
                return Joined(pairs[first][:2])
            middle = (first + last) // 2
            return Choice((Joined((some(first, middle), *rests[middle:last])), some(middle, last)))

        count = len(pairs) + (other != NOTHING)
        if not count:
            return choice(empty)
        filled = self._around(b"{}", some(0, count), depth)
        return Choice((*empty, filled)) if empty else filled

    def _further(self, key: Expression, value: Expression, required: bool, depth: int) -> Expression:
        """A property behind another one, the same for the same: alternatives often have most properties in common."""
        place = key, value, required, depth if self._indent is not None else 0
        found = self._pairs_made.get(place)
        if found is None:
            pair = joined((self._comma(depth), key, value))
            found = self._pairs_made[place] = self._optional(pair, required)
        return found

    def _counted(
        self, pairs: list[Pair], other: Expression, least: int, most: int | None, objects: Objects, depth: int
    ) -> Expression:
        """Objects of which the number of properties is limited: a rule for each place and number."""
        needed = sum(required for _, _, required in pairs)
        if other != NOTHING and least > max(1, needed):
            # the same name could be written twice
            self._document.refuse(f"{objects.path}/minProperties")
            least = max(needed, min(objects.least, 1))
        top = min(least if most is None else most, least + _MOST_COUNTS)
        if (len(pairs) + 1) * (top + 1) > _MOST_COUNTS:
            word = "maxProperties" if most is not None else "minProperties"
            self._document.refuse(f"{objects.path}/{word}", "too large")
            return self._pairs(pairs, other, Objects(path=objects.path), depth)
        self._document.step((len(pairs) + 1) * (top + 1))
        comma = self._comma(depth)
        follow: dict[int, Expression] = {}
        for count in range(top + 1):  # after the pairs: others
            fewest, greatest = max(0, least - count), None if most is None else most - count
            if other == NOTHING:
                follow[count] = EMPTY if not fewest else NOTHING
            elif count:
                follow[count] = Repeat(joined((comma, other)), fewest, greatest)
            else:
                rest = Repeat(joined((comma, other)), max(0, fewest - 1), None if greatest is None else greatest - 1)
                filled = joined((other, rest)) if greatest != 0 else NOTHING
                follow[count] = choice((filled, *(() if fewest else (EMPTY,))))
        for key, value, required in reversed(pairs):
            following: dict[int, Expression] = {}
            for count in range(top + 1):
                parts: list[Expression] = []
                if most is None or count < most:
                    after = follow[min(count + 1, top)]
                    parts.append(joined((comma, key, value, after) if count else (key, value, after)))
                if not required:
                    parts.append(follow[count])
                following[count] = self._named(choice(part for part in parts if part != NOTHING))
            follow = following
        inside = follow[0]
        if self._indent is None:
            return self._around(b"{}", inside, depth)
        if least:
            return self._around(b"{}", inside, depth)
        raise GrammarError(f"{objects.path}/maxProperties: not supported with an indentation")

    def _other_pairs(
        self, objects: Objects, listed: dict[str, Conj], depth: int, some: Some | None = None
    ) -> list[Expression]:
        """The properties that are not listed, by the patterns that their names match."""
        reader = self._reader
        patterns = list(
            dict.fromkeys(
                pattern
                for pattern in (
                    *(pattern for pattern, _ in objects.patterned),
                    *(pattern for rest in objects.rests for pattern in rest.patterns),
                    *((some.pattern, *some.others) if some else ()),
                )
                if pattern is not None
            )
        )
        if len(patterns) > _MOST_PATTERNS:
            patterns_path = f"{objects.path}/patternProperties"
            raise GrammarError(f"{patterns_path}: not supported, more than {_MOST_PATTERNS} patterns")
        names: tuple[Strings, ...] = (Strings(),)
        if objects.names:
            names = tuple(one for one in reader.form(objects.names).strings if one.values is None)
        if some and some.names:
            wanted = reader.form(some.names).strings
            pairs = [common_strings(one, other) for one in names for other in wanted]
            names = tuple(one for one in pairs if one is not None)
        colon: Expression = Literal(self._colon)
        if self._loose:
            colon = joined((colon, _SPACE))
        found: list[Expression] = []
        for region, conj in self._regions(objects, patterns, some):
            value = self._value(conj, depth + 1)
            if value == NOTHING:
                continue
            for one in names:
                strings = common_strings(one, region)
                if strings is None:
                    continue
                without = frozenset(listed) | strings.without
                if strings.values is not None:
                    kept = tuple(name for name in strings.values if strings.has(name) and name not in listed)
                    found.append(joined((choice(string_literal(name) for name in kept), colon, value)))
                    continue
                if len(strings.patterns) + len(strings.others) == 1 and len(strings.patterns) == 1:
                    without = frozenset(name for name in without if matches(strings.patterns[0], name))
                strings = Strings(
                    strings.least, strings.most, strings.patterns, strings.others, None, without
                )  # fmt: skip
                found.append(joined((self._string(strings, objects.path), colon, value)))
        return found

    def _regions(self, objects: Objects, patterns: list[Pattern], some: Some | None) -> Iterator[tuple[Strings, Conj]]:
        """Names by the patterns that they match, with what holds of their values."""
        for number in range(1 << len(patterns)):
            yes = tuple(pattern for at, pattern in enumerate(patterns) if number >> at & 1)
            values: Conj = ()
            for wanted, conj in objects.patterned:
                if wanted is None or wanted in yes:
                    values = both(values, conj)
            for rest in objects.rests:
                if None not in rest.patterns and not any(pattern in yes for pattern in rest.patterns):
                    values = both(values, rest.values)
            if some:
                if (some.pattern is not None and some.pattern not in yes) or any(
                    pattern is None or pattern in yes for pattern in some.others
                ):
                    continue
                values = both(values, some.values)
            if values == NEVER or (len(values) > 1 and self._reader.void(values)):
                continue
            self._document.step(4 * len(patterns))
            yield Strings(patterns=yes, others=tuple(p for p in patterns if p not in yes)), values


def any_of(parts: Iterable[Expression]) -> Expression:
    """Any of the parts, which are large and are not compared."""
    found: list[Expression] = []
    for part in parts:
        found.extend(part.items if isinstance(part, Choice) else (part,))
    return found[0] if len(found) == 1 else Choice(tuple(found))


def _productive(rules: dict[str, Expression]) -> dict[str, Expression]:
    """The rules without what no text can be ended from; each rule that is left has texts, except perhaps root."""
    good: set[str] = set()

    def ends(expression: Expression) -> bool:
        if isinstance(expression, Joined):
            return all(map(ends, expression.items))
        if isinstance(expression, Choice):
            return any(map(ends, expression.items))
        if isinstance(expression, Repeat):
            return expression.least == 0 or ends(expression.item)
        return not isinstance(expression, Reference) or expression.name in good

    left = list(reversed(rules))
    while left:
        still = []
        for name in left:
            if ends(rules[name]):
                good.add(name)
            else:
                still.append(name)
        if len(still) == len(left):
            break
        left = still
    if len(good) == len(rules):
        return rules

    def pruned(expression: Expression) -> Expression:
        if isinstance(expression, Joined):
            return joined(map(pruned, expression.items))
        if isinstance(expression, Choice):
            return choice(map(pruned, expression.items))
        if isinstance(expression, Repeat):
            item = pruned(expression.item)
            return (
                EMPTY if item == NOTHING and not expression.least else Repeat(item, expression.least, expression.most)
            )
        if isinstance(expression, Reference) and expression.name not in good:
            return NOTHING
        return expression

    return {name: pruned(rules[name]) if name in good else NOTHING for name in rules if name in good or name == "root"}
