"""Every regular expression over untrusted text takes linear time: each is fed with its worst repeats.

A slow one would block the engine of all tabs. Expressions that only read up to a bound are fed with texts of that
length.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import app
import py_core
from app.building.node import node_path
from tests.cli.pumped import END, pumped

LENGTH = 40_000
BOUNDS = {"py_core.tools": 1000, "py_core.routing.language": 400, "py_core.learning.teaching.passing_facts": 300}
"""Characters that a package or a module reads at most, if they are fewer."""
CPU_SECONDS = 0.5
"""Limit for a text that takes a millisecond or two: with quadratic cost it takes longer on any machine."""
METHODS = {"search", "match", "fullmatch", "finditer", "findall", "sub", "split"}
NOT_READ = re.compile(r"browser|indexeddb|^app\.(?:building|training|bench|page\.worker)")
"""Modules that run in the page only, and modules that read no untrusted text."""
WEB = Path(__file__).parents[2] / "web"
LENGTH_IN_THE_PAGE, MS = 100_000, 2000
"""V8 is faster; its limit is by the clock, so it is a thousand times the time of such a text."""


def modules() -> Iterator[ModuleType]:
    for package in (app, py_core):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not NOT_READ.search(found.name):
                yield importlib.import_module(found.name)


def python_patterns() -> Iterator[tuple[str, re.Pattern[str], set[str]]]:
    """The place of each, and the methods by which it is used."""
    for module in modules():
        source = Path(module.__file__ or "").read_text("utf-8")
        for name, value in vars(module).items():
            if not re.search(rf"^{re.escape(name)}\b", source, re.MULTILINE):
                continue  # imported
            own = METHODS.intersection(re.findall(rf"\b{name}\.(\w+)\(", source))
            through = METHODS.intersection(re.findall(r"\b(?!re\.)[a-z]\w*\.(\w+)\(", source))
            for pattern in _patterns_in(value):
                yield f"{module.__name__}.{name}", pattern, own or through or {"search"}
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                    args=[ast.Constant(str(pattern)), *_],
                ) if method in METHODS:
                    yield f"{module.__name__}:{node.lineno}", re.compile(pattern), {method}


def _patterns_in(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif isinstance(value, dict):
        yield from _patterns_in([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _patterns_in(one)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _patterns_in([getattr(value, field.name) for field in fields(value)])


class TooSlow(Exception):
    pass


def is_slow(pattern: re.Pattern[str], method: str, text: str) -> bool:
    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        if method in ("fullmatch", "match", "search"):
            getattr(pattern, method)(text)
        else:
            for _ in pattern.finditer(text):
                pass
    except TooSlow:
        return True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return False


def test_no_pattern_of_python_is_slow() -> None:
    slow = []
    for where, pattern, methods in python_patterns():
        length = next((most for package, most in BOUNDS.items() if where.startswith(package)), LENGTH)
        for method in sorted(methods):
            ends = (END, "") if "(?=" in pattern.pattern else (END,)  # a text may end before a required part
            for lead, repeated in pumped(pattern.pattern, pattern.flags):
                text = lead + repeated * (length // len(repeated))
                if any(is_slow(pattern, method, text + end) for end in ends):
                    slow.append(f"{where} {method} {pattern.pattern[:80]!r}: {lead!r}, then {repeated!r}")
                    break
    assert slow == []


def test_no_pattern_of_the_page_is_slow() -> None:
    found = in_node()
    assert len(found) > 50
    for pattern in found:
        pattern["texts"] = [
            [lead, repeated, LENGTH_IN_THE_PAGE // len(repeated), END]
            for lead, repeated in pumped(as_python(pattern["source"]))
        ]
    assert in_node(MS, found) == []


def in_node(ms: int | None = None, patterns: list[Any] | None = None) -> list[Any]:
    """The output of patterns_in_code.cjs."""
    script = Path(__file__).with_name("patterns_in_code.cjs")
    command = [node_path(), "--expose-internals", script, WEB, *([] if ms is None else [str(ms)])]
    told = subprocess.run(command, input=json.dumps(patterns), capture_output=True, text=True, check=True)
    return json.loads(told.stdout)  # type: ignore[no-any-return]


def as_python(source: str) -> str:
    """A JavaScript pattern in Python's syntax, near enough to know its repeats."""
    for there, here in (
        (r"\\p\{[^}]*\}", r"\\w"),
        (r"\(\?<(?![=!])", "(?P<"),
        (r"\\k<(\w+)>", r"(?P=\1)"),
        (r"\\u\{(\w+)\}", "x"),
        (r"\[\^\]", r"[\\s\\S]"),
        (r"\\/", "/"),
    ):
        source = re.sub(there, here, source)
    return source
