"""The canonical texts of values: properties in the schema's order."""

from __future__ import annotations

import json
from typing import Any, Final

from py_core.grammar.schema.document import Conj, Document
from py_core.grammar.schema.numbers import exact, number_text
from py_core.grammar.schema.reader import Reader
from py_core.grammar.schema.shapes import Arrays, Objects


class Texts:
    """Writes values by the schemas of a document.

    Of alternatives that list their properties in different orders it takes the first by which the value is valid.
    """

    def __init__(self, document: Document, reader: Reader) -> None:
        self._reader: Final = reader
        self._known: dict[tuple[Conj, int], str | None] = {}
        self.root: Final = document.conj(document.root)

    def valid(self, conj: Conj, value: Any) -> str | None:
        """The text of a value; None if it is not valid."""
        if not isinstance(value, list | dict):
            return self.loose(conj, value) if self._scalar(conj, value) else None
        key = (conj, id(value))
        if key not in self._known:
            form = self._reader.form(conj)
            if isinstance(value, list):
                tries = (self._array(piece, value) for piece in form.arrays)
            else:
                tries = (self._object(piece, value) for piece in form.objects)
            self._known[key] = next((text for text in tries if text is not None), None)
        return self._known[key]

    def _scalar(self, conj: Conj, value: Any) -> bool:
        form = self._reader.form(conj)
        if value is None:
            return form.null
        if isinstance(value, bool):
            return value in form.booleans
        if isinstance(value, str):
            return any(strings.has(value) for strings in form.strings)
        number = exact(value)
        return any(numbers.has(number) for numbers in form.numbers)

    def _array(self, arrays: Arrays, value: list[Any]) -> str | None:
        if len(value) < arrays.least or (arrays.most is not None and len(value) > arrays.most):
            return None
        texts = [self.valid(self._reader.item(arrays, at), item) for at, item in enumerate(value)]
        if None in texts:
            return None
        if arrays.unique and len({_sorted_text(item) for item in value}) < len(value):
            return None
        for contained in arrays.contained:
            count = sum(self.valid(contained.items, item) is not None for item in value)
            if count < contained.least or (contained.most is not None and count > contained.most):
                return None
        return f"[{','.join(text for text in texts if text is not None)}]"

    def _object(self, objects: Objects, value: dict[str, Any]) -> str | None:
        reader = self._reader
        if len(value) < objects.least or (objects.most is not None and len(value) > objects.most):
            return None
        if not all(name in value for name in objects.required):
            return None
        texts = {}
        for name in _ordered(objects, value):
            text = self.valid(reader.property(objects, name), value[name]) if reader.named(objects, name) else None
            if text is None:
                return None
            texts[name] = text
        for some in objects.some:
            if not any(
                reader.is_some(some, name) and self.valid(some.values, value[name]) is not None for name in value
            ):
                return None
        return "{" + ",".join(f"{_quoted(name)}:{text}" for name, text in texts.items()) + "}"

    def loose(self, conj: Conj, value: Any) -> str:
        """The text of a value that need not be valid."""
        if isinstance(value, list | dict):
            found = self.valid(conj, value)
            if found is not None:
                return found
        if isinstance(value, list):
            arrays = next(iter(self._reader.form(conj).arrays), Arrays())
            return f"[{','.join(self.loose(self._reader.item(arrays, at), item) for at, item in enumerate(value))}]"
        if isinstance(value, dict):
            every = self._reader.form(conj).objects
            objects = max(every, key=lambda one: sum(name in one.listed for name in value), default=Objects())
            pairs = (
                f"{_quoted(name)}:{self.loose(self._reader.property(objects, name), value[name])}"
                for name in _ordered(objects, value)
            )
            return "{" + ",".join(pairs) + "}"
        if isinstance(value, float):
            return number_text(exact(value))
        return json.dumps(value, ensure_ascii=False)


def _ordered(objects: Objects, value: dict[str, Any]) -> list[str]:
    return [
        *(name for name in objects.listed if name in value),
        *(name for name in value if name not in objects.listed),
    ]  # fmt: skip


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _sorted_text(value: Any) -> str:
    """Equal for equal values."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{_sorted_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_sorted_text, value)) + "]"
    return number_text(exact(value)) if isinstance(value, float) else json.dumps(value)
