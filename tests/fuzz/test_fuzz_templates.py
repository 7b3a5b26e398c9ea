"""Untrusted sources of chat templates: text, or an error of ours in a sentence. And expressions for which the
renderer gives the same as jinja2."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from py_core.tokenizers.chat_template import ChatTemplateError
from py_core.tokenizers.template_renderer import TemplateError
from tests.fuzz.harness import fuzzed, read_or_refused
from tests.tokenizers.jinja_reference import reference
from tests.tokenizers.templates import render, template_of
from tests.tokenizers.test_jinja import FAMILIES, rendered

MESSAGES = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y <z>"}]
WORDS = re.split(
    " ",
    "{{ }} {% %} {%- -%} {# #} ' \" ( ) [ ] { } , : . | ~ + - * / // % ** == != < >= = 0 1 17 2.5 1e3 'a' x messages m "
    "loop ns for in if else elif endif endfor set endset macro endmacro call endcall filter endfilter raw endraw is "
    "not and or none true break continue generation endgeneration role content trim tojson join length upper range "
    "namespace split replace strip items string list defined mapping selectattr",
)


@fuzzed(st.lists(st.sampled_from([*WORDS, "\n"]), max_size=40).map(" ".join))
def test_any_words_are_rendered_or_refused(source: str) -> None:
    for begin in ("{{ ", "{% "):
        with read_or_refused(ChatTemplateError):
            render(template_of(begin + source), MESSAGES)


@fuzzed(st.sampled_from(FAMILIES), st.integers(0), st.integers(0, 60), st.sampled_from(WORDS))
def test_a_template_with_a_piece_replaced_is_rendered_or_refused(path: Path, at: int, length: int, word: str) -> None:
    source = path.read_text(encoding="utf-8")
    at %= len(source)
    with read_or_refused(ChatTemplateError):
        render(template_of(source[:at] + word + source[at + length :]), MESSAGES)


# Names, because jinja2 computes constants in advance, by its own rules.
VALUES: dict[str, Any] = {
    "zero": 0, "one": 1, "less": -7, "half": 2.5, "yes": True, "no": None, "empty": "", "words": "a b",
    "letters": "é😀", "list": [], "mixed": [1, "a"], "dict": {"a": 1}, "deep": {"a": [1, "é"], "b": None},
}  # fmt: skip
OPERATORS = ("+", "-", "*", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or")
CHANGES = (
    *("|length", "|string", "|list", "|upper", "|trim", "|tojson", "|first", "|last", "|default('d')", "|join('-')"),
    *("|reverse|list", "|sort", "|unique|list", "|int", "|float", "|abs", "|capitalize", "|title", "|indent"),
    *("[0]", "[-1]", "[1:]", "[::-1]", "[:1]", ".a", "['a']", ".upper()", ".split()", ".split(' ', 1)"),
    *(".items()|list", ".get('a')", ".strip('a')", ".startswith('a')", ".replace('a', 'b')", ".count(1)", ".title()"),
    *(" is defined", " is string", " is none", " is iterable", " is sequence", " is mapping", " is number", " is odd"),
)


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner)
    changed = st.builds("({}){}".format, inner, st.sampled_from(CHANGES))
    choice = st.builds("({} if {} else {})".format, inner, inner, inner)
    return pair | changed | choice | st.builds("[{}, {}]".format, inner, inner) | st.builds("(not {})".format, inner)


@fuzzed(st.recursive(st.sampled_from([*VALUES, "lacking"]), _wider, max_leaves=6))
def test_an_expression_gives_what_it_gives_in_jinja2(expression: str) -> None:
    source = "{{ " + expression + " }}"
    try:
        expected = reference(source, VALUES)
    except Exception:
        return  # the renderer may be more lenient
    if "built-in method" in expected or " at 0x" in expected:
        return  # Python's notation of a method or a generator
    try:
        assert rendered(source, VALUES) == expected
    except TemplateError as error:
        raise AssertionError(f"{error}, but in jinja2 it is {expected!r}") from None
