"""web/protocol.js and web/protocol_calls.js: what Python tells and answers, as types and clients that tsc checks.

The first is made of app/protocol.py, the second of the apis of app/page/session.py.

python -m app.building.page_protocol    # the build runs it
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import app.chat.history.views
import app.consolidation.views
import app.extraction.views
import app.files.views
import app.lessons.views
import app.memory.views
import app.models.views
from app import protocol
from app.building.common import ROOT, write_atomically
from app.page.calls import calls_of
from app.page.session import Apis
from py_core.messages import Message

_SIMPLE = {
    str: "string", int: "number", float: "number", bool: "boolean", bytes: "Uint8Array<ArrayBuffer>",
    NoneType: "null", Any: "any",
}  # fmt: skip
_ROOMS = (
    app.chat.history.views, app.consolidation.views, app.extraction.views, app.files.views, app.lessons.views,
    app.memory.views, app.models.views,
)  # fmt: skip
_VIEWS = {name: kind for views in _ROOMS for name, kind in vars(views).items()}
"""The results of calls. The apis import them for mypy only, so that the page need not load them."""
_WIDTH = 117
_REMOTE = """/**
 * @typedef {object} Remote
 * @property {(api: string, method: string, args: object) => Promise<any>} call
 * @property {(api: string, method: string, args: object) => Promise<AsyncIterableIterator<any>>} stream what a call
 * gives, one after the other; whoever leaves it before its end stops the call
 */

class Calls {
  /** @param {Remote} to */
  constructor(to) { this.to = to; }
}"""


def page_protocol() -> str:
    """The text of web/protocol.js."""
    kinds = [Message, *(one for one in vars(protocol).values() if _is_of_protocol(one) and one is not Message)]
    types = _Types(kinds, "")
    union = " | ".join(event.__name__ for event in get_args(protocol.Event))
    head = "/** Made of app/protocol.py by the build (app/building/page_protocol.py): change it there. */"
    event = _comment(["Something that happens to a turn.", f"@typedef {{{union}}} Event"])
    return "\n\n".join([head, *types.typedefs(), event, "export {};"]) + "\n"


def page_calls() -> str:
    """The text of web/protocol_calls.js."""
    types = _Types([], "import('./protocol.js').")
    clients = [_client(name, api, types) for name, api in get_type_hints(Apis).items()]
    head = "/** Made of app/page/session.py: Apis by the build (app/building/page_protocol.py): change it there. */"
    return "\n\n".join([head, *types.typedefs(), _REMOTE, *clients]) + "\n"


FILES: Mapping[Path, Callable[[], str]] = {
    ROOT / "web" / "protocol.js": page_protocol,
    ROOT / "web" / "protocol_calls.js": page_calls,
}


def _client(name: str, api: type, types: _Types) -> str:
    """A class with a method for each call of an api."""
    calls = [_call(name, method, call, types) for method, call in calls_of(api).items()]
    says = f"/** {api.__module__.replace('.', '/')}.py says what each call does. */"
    return "\n".join([says, f"export class {name.title()}Calls extends Calls {{", "\n\n".join(calls), "}"])


def _call(api: str, name: str, call: FunctionType, types: _Types) -> str:
    hints = get_type_hints(call, localns=_VIEWS)
    _, *taken = inspect.signature(call).parameters.values()
    args = [
        f"{protocol.camel_case(one.name)}{'' if one.default is one.empty else '?'}: {types.of(hints[one.name])}"
        for one in taken
    ]
    is_optional = all(one.default is not one.empty for one in taken)
    given = f"@param {{{{{', '.join(args)}}}}} {'[given]' if is_optional else 'given'} " if args else ""
    result, way = hints["return"], "call"
    if get_origin(result) is AsyncIterator:
        way, told = "stream", f"AsyncIterableIterator<{types.of(get_args(result)[0])}>"
    else:
        told = "void" if result is NoneType else types.of(result)
    parameter = ("given = {}" if is_optional else "given") if args else ""
    return "\n".join([
        f"  /** {given}@returns {{Promise<{told}>}} */",
        f"  {name}({parameter}) {{ return this.to.{way}('{api}', '{name}', {'given' if args else '{}'}); }}",
    ])  # fmt: skip


class _Types:
    """Types of Python's as JSDoc writes them. Those with fields get a typedef."""

    def __init__(self, kinds: list[type], protocol_at: str) -> None:
        """protocol_at: before the names of those of app/protocol.py."""
        self._kinds, self._protocol_at = kinds, protocol_at

    def of(self, hint: Any) -> str:
        """Raises TypeError if it cannot cross, or another one has its name."""
        if hint in _SIMPLE:
            return _SIMPLE[hint]
        if hint == protocol.Event:
            return f"{self._protocol_at}Event"
        if isinstance(hint, type) and issubclass(hint, Enum):
            return "|".join(f"'{one.value}'" for one in hint)
        origin, given = get_origin(hint), get_args(hint)
        if origin is NotRequired:
            return self.of(given[0])
        if origin in (Union, UnionType):
            return "|".join(map(self.of, given))
        if origin is Literal:
            return "|".join(f"'{one}'" for one in given)
        if origin is tuple and given[-1] is not Ellipsis:
            return f"[{', '.join(map(self.of, given))}]"
        if origin in (tuple, list, Sequence):
            inner = self.of(given[0])
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        if origin in (dict, Mapping):
            return f"Record<string, {self.of(given[1])}>"
        if _is_of_protocol(hint):
            return f"{self._protocol_at}{hint.__name__}"
        if is_typeddict(hint) or is_dataclass(hint):
            return self._named(hint)
        raise TypeError(f"The page has no type for {hint}.")

    def typedefs(self) -> list[str]:
        """Those that were asked for so far, and what they have in them."""
        made = []
        for kind in self._kinds:  # grows meanwhile
            made.append(self._typedef(kind))
        return made

    def _named(self, kind: Any) -> str:
        if all(one is not kind for one in self._kinds):
            if any(one.__name__ == kind.__name__ for one in self._kinds):
                raise TypeError(f"The page gets two types of the name {kind.__name__}.")
            self._kinds.append(kind)
        return str(kind.__name__)

    def _typedef(self, kind: type) -> str:
        hints = get_type_hints(kind, include_extras=True)
        names = {name: name for name in hints}
        if is_dataclass(kind):
            told = [one.name for one in fields(kind) if not one.metadata.get("internal")]
            names = {name: protocol.camel_case(name) for name in told}
        about = " ".join((kind.__doc__ or "").split())
        for name, at_page in names.items():
            about = re.sub(rf"\b{name}\b", at_page, about)
        lines = [about, f"@typedef {{object}} {kind.__name__}"]
        if kind in get_args(protocol.Event):
            lines.append(f"@property {{'{protocol.event_type(kind.__name__)}'}} type")
        for name, at_page in names.items():
            shown = f"[{at_page}]" if get_origin(hints[name]) is NotRequired else at_page
            lines.append(f"@property {{{self.of(hints[name])}}} {shown}")
        return _comment(lines)


def _is_of_protocol(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind) and (kind is Message or kind.__module__ == protocol.__name__)


def _comment(lines: list[str]) -> str:
    wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH, break_long_words=False)]
    return "\n".join(["/**", *(f" * {line}" for line in wrapped), " */"])


if __name__ == "__main__":
    for path, text in FILES.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text():
            write_atomically(path, text().encode())
