"""A jinja2 environment for chat templates that come with a downloaded model, and so may be hostile.

jinja2's sandbox keeps a template from reaching Python. This adds what it lacks: a template cannot run for ever or fill
the memory. Loops and calls draw on a budget and a deadline; whatever makes a text or list longer is bounded; filters
and string methods are those that chat templates use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, cast

from jinja2 import Environment, TemplateError, Undefined, nodes
from jinja2.ext import Extension
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.visitor import NodeTransformer

MAX_SOURCE_CHARS = 1 << 17
MAX_CHARS = 1 << 24
"""Longest text, and most elements of a list, that a template may make."""
MAX_STEPS = 200_000
"""Loop rounds and calls in one rendering; a long conversation takes a few thousand."""
MAX_SECONDS = 5.0
MAX_INT_BITS = 256
MAX_FILTER_NUMBER = 1000

FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "indent", "int",
    "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace",
    "reverse", "round", "safe", "select", "selectattr", "sort", "string", "title", "trim", "unique", "upper",
)  # fmt: skip
PRINTING_FILTERS = ("capitalize", "e", "escape", "indent", "lower", "safe", "string", "title", "trim", "upper")
STRING_METHODS = (
    "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit", "islower", "isspace",
    "istitle", "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace",
    "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase",
    "title", "upper",
)  # fmt: skip


class TemplateTooCostly(TemplateError):
    """The template went over one of the bounds above."""


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks for training what the model says. Here it is its content."""

    tags = {"generation"}  # noqa: RUF012  - jinja2's own

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Renders one template at a time. Call `restart` before each rendering."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # the optimizer would run constant expressions before any budget exists
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=self._printable,
        )
        self.filters = {name: self._guarded(name, self.filters[name]) for name in FILTERS}
        self.filters |= {"tojson": self._tojson, "_rounds": self._rounds, "_concat": self._concat_all}
        self.globals = {
            "range": self._range,
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }
        self.concat = self._concat  # type: ignore[method-assign]  # join, with a bound
        self.restart()

    def restart(self) -> None:
        self._steps = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def step(self, cost: int = 1) -> None:
        self._steps += cost
        if self._steps > MAX_STEPS:
            raise TemplateTooCostly(f"it takes more than {MAX_STEPS} steps")
        if time.monotonic() > self._deadline:
            raise TemplateTooCostly(f"it takes longer than {MAX_SECONDS:.0f} seconds")

    # --- what the compiled template calls ---

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Bounder(self).visit(source), *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr not in STRING_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        # jinja2 lets str.format through with safe attributes, but its widths have no bound.
        if super().wrap_str_format(value) is not None:
            raise SecurityError("it formats text with str.format, which is not allowed")
        return None

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.step()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name in ("replace", "join"):
            self._check_growth(name, owner, args)
        return self._bounded(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" and not (numbers and abs(left) <= 1 << 16 and abs(right) <= 16):
            raise TemplateTooCostly("it raises to a power that is too large")
        if operator == "*" and not numbers:
            count, sized = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(count, int) and hasattr(sized, "__len__"):
                self._check_size(count * len(sized))
        if operator == "%" and not numbers:
            raise SecurityError("it formats text with %, which is not allowed")
        if operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            self._check_size(len(left) + len(right))
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int) and result.bit_length() > MAX_INT_BITS:
            raise TemplateTooCostly("it makes a number that is too large")
        return result

    # --- bounds ---

    def _check_size(self, size: int) -> None:
        if size > MAX_CHARS:
            raise TemplateTooCostly(f"it makes a text or list longer than {MAX_CHARS}")

    def _bounded(self, value: Any) -> Any:
        if isinstance(value, str | list | tuple | dict):
            self._check_size(len(value))
        return value

    def _check_growth(self, name: str, text: str, args: tuple[Any, ...]) -> None:
        """Before text.replace(old, new) and text.join(items), whose results can be far longer than what they get."""
        if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
            self._check_size(len(text) + text.count(args[0]) * len(args[1]))
        elif name == "join" and args and isinstance(args[0], list | tuple):
            self._check_size(sum(len(item) + len(text) for item in args[0] if isinstance(item, str)))

    def _concat(self, parts: Iterable[str]) -> str:
        taken: list[str] = []
        size = 0
        for part in parts:
            size += len(part)
            self._check_size(size)
            taken.append(part)
        return "".join(taken)

    def _concat_all(self, values: list[Any]) -> str:
        return self._concat(str(self._printable(value)) for value in values)

    def _printable(self, value: Any) -> Any:
        """Refuse a nest of lists that would print as a text without end: [x, x] of [y, y] of ... doubles each time."""
        if isinstance(value, list | tuple | dict):
            self._weigh(value)
        return value

    def _weigh(self, value: Any) -> None:
        self.step()
        if isinstance(value, dict):
            value = value.values()
        elif not isinstance(value, list | tuple):
            return
        for item in value:
            self._weigh(item)

    def _rounds(self, items: Any) -> Any:
        if isinstance(items, Undefined):
            return items  # the loop itself says what is missing
        return self._counted(items)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.step()
            yield item

    def _range(self, *args: int) -> range:
        numbers = range(*args)
        self.step(len(numbers))
        return numbers

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter of jinja2 with its arguments checked before and its result after."""

        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.step()
            given = [value for value in args if not isinstance(value, Context | EvalContext | Environment)]
            given += kwargs.values()
            if any(isinstance(value, int) and abs(value) > MAX_FILTER_NUMBER for value in given[1:]):
                raise TemplateTooCostly(f"it gives a number above {MAX_FILTER_NUMBER} to a filter")
            if name == "replace":
                self._check_growth("replace", str(self._printable(given[0])), tuple(map(str, given[1:])))
            elif name == "join" and isinstance(given[0], list | tuple):
                joiner = str(given[1]) if len(given) > 1 else ""
                self._check_growth("join", joiner, ([str(self._printable(item)) for item in given[0]],))
            elif name in PRINTING_FILTERS:
                self._printable(given[0])
            return self._bounded(function(*args, **kwargs))

        # jinja2 finds by these attributes what a filter wants as its first argument.
        guarded.__dict__.update(getattr(function, "__dict__", {}))
        return guarded

    def _tojson(self, value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
        self._printable(value)
        if isinstance(indent, int) and not 0 <= indent <= 16:
            raise TemplateTooCostly("it indents JSON by more than 16")
        return self._bounded(json.dumps(value, ensure_ascii=ensure_ascii, indent=indent))


class _Bounder(NodeTransformer):
    """Puts the bounds into a parsed template: every loop counts its rounds, every ~ checks its length."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self.environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise SecurityError("it has a recursive loop, which is not allowed")
        self.generic_visit(node)
        node.iter = self._through("_rounds", cast(nodes.Expr, node.iter))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._through("_concat", nodes.List(node.nodes, lineno=node.lineno))

    def _through(self, name: str, value: nodes.Expr) -> nodes.Expr:
        node = nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)
        node.set_environment(self.environment)
        return node


def raise_exception(message: str) -> None:
    """A template's own way to refuse a conversation."""
    raise TemplateError(str(message)[:500])


def strftime_now(layout: str) -> str:
    """The local time in `layout`."""
    return datetime.now().strftime(str(layout)[:100])
