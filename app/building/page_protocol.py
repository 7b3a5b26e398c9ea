"""Makes web/protocol.js from app/protocol.py: the messages that Python sends, as types that tsc checks.

python -m app.building.page_protocol    # the build runs it
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from app import protocol
from app.building.common import ROOT, write_atomically
from py_core.messages import Message

FILE = ROOT / "web" / "protocol.js"
_SIMPLE = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null", Any: "any"}
_WIDTH = 117


def page_protocol() -> str:
    """The text of web/protocol.js."""
    events = get_args(protocol.Event)
    kinds = [Message, *(one for one in vars(protocol).values() if _is_told(one) and one is not Message)]
    union = " | ".join(event.__name__ for event in events)
    head = ["/** Made of app/protocol.py by the build (app/building/page_protocol.py): change it there. */"]
    typedefs = [_typedef(kind, is_event=kind in events) for kind in kinds]
    typedefs.append(_comment(["Something that happens to a turn.", f"@typedef {{{union}}} Event"]))
    return "\n\n".join([*head, *typedefs, "export {};"]) + "\n"


def _is_told(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind) and (kind is Message or kind.__module__ == protocol.__name__)


def _typedef(kind: type, is_event: bool) -> str:
    hints = get_type_hints(kind)
    told = [one for one in fields(kind) if not one.metadata.get("internal")]
    about = " ".join((kind.__doc__ or "").split())
    for one in told:
        about = re.sub(rf"\b{one.name}\b", protocol.camel_case(one.name), about)
    lines = [about, f"@typedef {{object}} {kind.__name__}"]
    if is_event:
        lines.append(f"@property {{'{protocol.event_type(kind.__name__)}'}} type")
    lines += [f"@property {{{_type(hints[one.name])}}} {protocol.camel_case(one.name)}" for one in told]
    return _comment(lines)


def _comment(lines: list[str]) -> str:
    wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH, break_long_words=False)]
    return "\n".join(["/**", *(f" * {line}" for line in wrapped), " */"])


def _type(hint: Any) -> str:
    """A Python type in JSDoc's notation."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, given = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return "|".join(map(_type, given))
    if origin is Literal:
        return "|".join(f"'{one}'" for one in given)
    if origin is tuple and given[-1] is not Ellipsis:
        return f"[{', '.join(map(_type, given))}]"
    if origin in (tuple, list):
        inner = _type(given[0])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if origin in (dict, Mapping):
        return f"Record<string, {_type(given[1])}>"
    if _is_told(hint):
        return str(hint.__name__)
    if hint == protocol.Event:
        return "Event"
    raise TypeError(f"web/protocol.js has no type for {hint}.")


if __name__ == "__main__":
    if not FILE.exists() or FILE.read_text(encoding="utf-8") != page_protocol():
        write_atomically(FILE, page_protocol().encode())
