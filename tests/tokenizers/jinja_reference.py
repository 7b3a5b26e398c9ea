"""Chat templates as transformers renders them: in jinja2, set up as its `apply_chat_template` does."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """{% generation %} marks the model's text for training. It is a block with its own variables."""

    tags = {"generation"}  # noqa: RUF012  - jinja2's own

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def environment(optimized: bool = True) -> ImmutableSandboxedEnvironment:
    """optimized: jinja2 computes constants in advance, which turns some errors into undefined values."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=optimized, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return made


def reference(source: str, variables: dict[str, Any]) -> str:
    """The text that transformers renders from a trusted template. Raises whatever jinja2 raises."""
    return environment().from_string(source).render(**variables)
