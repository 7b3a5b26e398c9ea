"""The document that a schema is in: its subschemas, and what their references mean."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from py_core.grammar.automata import MADE
from py_core.grammar.expressions import GrammarError

_LONGEST_PATH = 4000
MOST_WORK = 60_000
"""The steps that the reading of one schema may take: about ten microseconds each, and thirty in the page. A state of an
automaton counts as two. The largest of 1,200 published schemas takes 48,000."""
_MOST_BRACKETS = 1500
"""The depth of a text. In the page each level takes of the browser's stack: 5,000 of them end Python there."""
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[{]+|[\]}]+', re.DOTALL)

_SCHEMAS_BY_NAME = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMAS = (
    "items", "additionalItems", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip


class Node:
    """A subschema: what it says, the path of it, and the address that its references start from.

    negative: everything that the subschema does not allow is meant.
    """

    __slots__ = ("base", "negative", "path", "schema")

    def __init__(self, schema: Any, path: str, base: str, negative: bool = False) -> None:
        self.schema: Final = schema
        self.path: Final = path
        self.base: Final = base
        self.negative: Final = negative


FALSE = Node(False, "#", "")

Conj = tuple[Node, ...]
"""Subschemas that hold together; () allows everything."""
NEVER: Conj = (FALSE,)


def both(first: Conj, second: Conj) -> Conj:
    """All of both."""
    if not first or first is second:
        return second
    if not second:
        return first
    if first == NEVER or second == NEVER:
        return NEVER
    return tuple(dict.fromkeys(first + second))


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _no_constant(text: str) -> Any:
    raise GrammarError(f"the schema is not JSON: {text}")


def _read(text: str) -> Any:
    """The value of a schema's text."""
    if _depth(text) > _MOST_BRACKETS:
        raise GrammarError("the schema is nested too deeply")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise GrammarError("the schema is nested too deeply") from None
    except GrammarError:
        raise
    except json.JSONDecodeError as error:
        raise GrammarError(f"the schema is not JSON: {error}") from None
    except ValueError:
        raise GrammarError("the schema has a number with too many digits") from None


def _depth(text: str) -> int:
    """The most brackets that are open at a time; if they are few in all, their number."""
    if (most := text.count("[") + text.count("{")) <= _MOST_BRACKETS:
        return most
    depth = most = 0
    for found in _BRACKETS.findall(text):
        if found[0] in "[{":
            depth += len(found)
            most = max(most, depth)
        elif found[0] != '"':
            depth -= len(found)
    return most


class Document:
    """One schema and everything in it.

    allow: keywords that may be left out if they cannot be kept.
    """

    def __init__(self, schema: dict[str, Any] | bool | str, allow: Collection[str] = ()) -> None:
        if isinstance(schema, str):
            schema = _read(schema)
        self.schema: Final[Any] = schema
        self.allow: Final = frozenset(allow)
        self.work = 0
        self._made_before = MADE.states
        self._nodes: dict[tuple[int, bool], Node] = {}
        self._ids: dict[str, tuple[Any, str]] | None = None
        self._dynamic: dict[str, int] = {}
        self._resources = 0
        self._recursive = False
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        self.old: Final = isinstance(dialect, str) and any(f"draft-0{n}" in dialect for n in (3, 4, 6, 7))
        """In drafts until 7 nothing beside a `$ref` counts."""
        if isinstance(dialect, str) and "://" in dialect and "json-schema.org/" not in dialect:
            self.refuse("#/$schema", f"{dialect!r} is not supported")
        self.root: Final = self.node(schema, "#", "")

    def step(self, size: int = 1) -> None:
        """Counts work, so that no schema takes long."""
        self.work += size
        if self.work + 2 * (MADE.states - self._made_before) > MOST_WORK:
            raise GrammarError("the schema has too many alternatives, or is too large")

    def refuse(self, path: str, why: str = "not supported") -> None:
        """Says that a keyword cannot be kept, unless it may be left out."""
        if path.rsplit("/", 1)[-1] not in self.allow:
            raise GrammarError(f"{path}: {why}")

    def node(self, schema: Any, path: str, base: str) -> Node:
        """The subschema at a path."""
        if schema is False:
            return FALSE
        found = self._nodes.get((id(schema), False))
        if found is None:
            self.step()
            if schema is not True and not isinstance(schema, dict):
                raise GrammarError(f"{path}: a schema is an object or a boolean")
            if schema is not True:
                base = self._own_base(schema, base)
            found = self._nodes[id(schema), False] = Node(schema, path, base)
        return found

    def child(self, node: Node, *parts: str | int) -> Node:
        """The subschema under a keyword, or under a keyword and a name or index of it."""
        schema = node.schema
        for part in parts:
            schema = schema[part]
        if len(node.path) > _LONGEST_PATH:
            raise GrammarError("the schema is nested too deeply")
        path = node.path + "".join(f"/{_escaped(str(part))}" for part in parts)
        return self.node(schema, path, node.base)

    def conj(self, node: Node) -> Conj:
        """The subschema alone, or () if it allows everything."""
        return () if node.schema is True or node.schema == {} else (node,)

    def made(self, schema: dict[str, Any], node: Node, path: str) -> Node:
        """A subschema that stands for a part of another one; whoever makes it keeps it."""
        if len(path) > _LONGEST_PATH:
            raise GrammarError("the schema is nested too deeply")
        return Node(schema, path, node.base)

    def opposite(self, node: Node) -> Node:
        """The schema of all that a subschema does not allow."""
        if node is FALSE:
            return self.node(True, "#", "")
        if node.schema is True or node.schema == {}:
            return FALSE
        key = (id(node.schema), not node.negative)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(node.schema, node.path, node.base, not node.negative)
        return found

    # --- references

    def _own_base(self, schema: dict[str, Any], base: str) -> str:
        own = schema.get("$id", schema.get("id"))
        if not isinstance(own, str) or own.startswith("#") or (self.old and "$ref" in schema):
            return base
        try:
            return urldefrag(urljoin(base, own)).url
        except ValueError:
            return base

    def _under(self, schema: dict[str, Any], path: str) -> Iterator[tuple[Any, str]]:
        for keyword, value in schema.items():
            if isinstance(value, dict):
                if keyword in _SCHEMAS_BY_NAME:
                    for name, part in value.items():
                        yield part, f"{path}/{_escaped(keyword)}/{_escaped(name)}"
                elif keyword in _SCHEMAS:
                    yield value, f"{path}/{keyword}"
            elif isinstance(value, list) and keyword in _LISTS_OF_SCHEMAS:
                for index, part in enumerate(value):
                    yield part, f"{path}/{keyword}/{index}"

    def _index(self) -> dict[str, tuple[Any, str]]:
        """The schemas that have addresses: `address` or `address#anchor`."""
        if self._ids is not None:
            return self._ids
        ids: dict[str, tuple[Any, str]] = {"": (self.schema, "#")}
        waiting: list[tuple[Any, str, str]] = [(self.schema, "#", "")]
        while waiting:
            schema, path, base = waiting.pop()
            if not isinstance(schema, dict):
                continue
            self.step()
            own = self._own_base(schema, base)
            if own != base or path == "#":
                ids.setdefault(own, (schema, path))
                self._resources += 1
            self._recursive |= schema.get("$recursiveAnchor") is True
            for keyword in ("$id", "id"):
                anchor = schema.get(keyword)
                if isinstance(anchor, str) and "#" in anchor[:-1] and not (self.old and "$ref" in schema):
                    ids.setdefault(urljoin(base, anchor), (schema, path))
            for keyword in ("$anchor", "$dynamicAnchor"):
                anchor = schema.get(keyword)
                if isinstance(anchor, str):
                    ids.setdefault(f"{own}#{anchor}", (schema, path))
                    if keyword == "$dynamicAnchor":
                        self._dynamic[anchor] = self._dynamic.get(anchor, 0) + 1
            waiting.extend((part, where, own) for part, where in self._under(schema, path))
        self._ids = ids
        return ids

    def target(self, node: Node, keyword: str) -> Node:
        """The schema that a reference of this node names."""
        where = f"{node.path}/{keyword}"
        reference = node.schema[keyword]
        if not isinstance(reference, str):
            raise GrammarError(f"{where}: a reference is a string")
        try:
            address, fragment = urldefrag(urljoin(node.base, reference) if reference[:1] != "#" else reference)
        except ValueError:
            raise GrammarError(f"{where}: {reference!r} is not an address") from None
        if reference[:1] == "#":
            address = node.base
        if not address or address == self.root_base():
            schema, path = self.schema, "#"
        else:
            found = self._index().get(address)
            if found is None:
                raise GrammarError(f"{where}: {reference!r} is in another document: not supported")
            schema, path = found
        fragment = unquote(fragment)
        if keyword == "$recursiveRef":
            self._index()
            if self._recursive and self._resources > 1:
                raise GrammarError(f"{where}: not supported, it has several meanings")
        if keyword == "$dynamicRef" and fragment and fragment[0] != "/":
            self._index()
            if self._dynamic.get(fragment, 0) > 1:
                raise GrammarError(f"{where}: not supported, {fragment!r} has several meanings")
        if fragment and not fragment.startswith("/"):
            anchored = self._index().get(f"{address}#{fragment}")
            if anchored is None:
                raise GrammarError(f"{where}: there is no {reference!r}")
            return self.node(anchored[0], anchored[1], address)
        base = address
        for part in fragment.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict):
                base = self._own_base(schema, base) if schema is not self.schema else base
            if isinstance(schema, dict) and name in schema:
                schema = schema[name]
            elif isinstance(schema, list) and name.isdecimal() and int(name[:9]) < len(schema):
                schema = schema[int(name)]
            else:
                raise GrammarError(f"{where}: there is no {reference!r}")
            path += f"/{part}"
        return self.node(schema, path, base)

    def root_base(self) -> str:
        """The address of the whole document."""
        return self.root.base if self.root is not FALSE else ""
