"""Regular expressions against Python's `re`, what is refused, and what must stay cheap."""

from __future__ import annotations

import re
import unicodedata
from itertools import product

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from py_core.grammar.automata import accepts, automaton_of
from py_core.grammar.expressions import (
    ANY_CHAR,
    NOTHING,
    Automaton,
    Chars,
    Expression,
    Grammar,
    GrammarError,
    Joined,
    Literal,
)
from py_core.grammar.regex import Pattern, bounded, no_texts, regex_expression, texts_expression
from tests.grammar.reference import matches
from tests.random_examples import examples

ATOMS = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", r"\w", r"\W", "ab", "(?i:A)"])
EDGES = ("^", "$", r"\b", r"\B")
LOOKS = ("(?=a)", "(?!a)", "(?!ab)", "(?<=b)", "(?<!-a)", "(?=.*b)", "(?!.*--)", r"(?!a\b)", "(?=a$|b)", "(?<!^a)")
TEMPERED = ("(?:(?!ab).)*", "(?:(?!--)[a-])+", "(?:(?=.b|-)[ab-]){1,2}")
PLACES = st.sampled_from([*EDGES, *LOOKS, "(?=a(?!b))", *TEMPERED])
COUNTS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "{0,3}?"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: "(" + "|".join(items) + ")"),
        st.builds(lambda item, count: f"(?:{item}){count}", inner, COUNTS),
    )


PLAIN = st.recursive(ATOMS, grown, max_leaves=6)
PLACED = st.recursive(st.one_of(ATOMS, ATOMS, PLACES), grown, max_leaves=7)
TEXTS = ["".join(letters) for length in range(5) for letters in product("ab-", repeat=length)]


def texts_of(expression: Expression) -> list[str]:
    automaton = automaton_of(expression, 20_000)
    return [text for text in TEXTS if accepts(automaton, text.encode())]


@given(PLAIN, st.booleans())
@examples(200)
def test_a_pattern_has_the_texts_that_re_finds(pattern: str, search: bool) -> None:
    found = re.compile(pattern, re.ASCII)
    expected = [text for text in TEXTS if (found.search if search else found.fullmatch)(text)]
    assert texts_of(regex_expression(pattern, search=search)) == expected
    in_json = automaton_of(regex_expression(pattern, search=search, in_json=True))
    assert [text for text in TEXTS if accepts(in_json, text.encode())] == expected
    assert [text for text in TEXTS if accepts(in_json, text.encode())] == expected


def test_escapes_in_json_are_those_of_characters_that_are_not_plain() -> None:
    made = automaton_of(texts_expression((Pattern("^[aé\\n]+$"),), without=frozenset({"é"}), in_json=True))
    texts = ["aé", r"a\u00e9", r"\u00E9\n", r"\u000a", "a", r"\u0061", r"\u0061\n", "é", r"\u00e9", r"a\u00e8"]
    assert [text for text in texts if accepts(made, text.encode())] == texts[:5]


@given(PLACED, st.booleans())
@examples(400)
def test_a_pattern_with_places_has_the_texts_that_re_finds_or_is_refused(pattern: str, search: bool) -> None:
    try:
        expression = regex_expression(pattern, search=search)
    except GrammarError as error:
        said = str(error)
        event(said.partition(": ")[2])
        assert "repeated" in said or "too little" in said or "alternatives" in said
        return
    found = re.compile(pattern, re.ASCII)
    texts = TEXTS[1:] if r"\B" in pattern else TEXTS  # `re` before 3.14: no \B in the empty text
    expected = [text for text in texts if (found.search if search else found.fullmatch)(text)]
    assert [text for text in texts_of(expression) if text in texts] == expected


def fits(pattern: str, text: str, **settings: bool) -> bool:
    return matches(Grammar({"root": regex_expression(pattern, **settings)}), text.encode())


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"\p{Lu}\p{Letter}*", "Öß\u4e2d", "ö"),
        (r"\P{L}", "1", "é"),
        (r"[\p{Nd}_]+", "1\u0661_", "\u00bd"),
        (r"\p{gc=Uppercase_Letter}", "É", "é"),
        (r"[^\p{L}]", "-", "a"),
        (r"\d\w", "1_", "\u0661a"),
        (r"\s\S", "\u00a0x", "x "),
        (r"\x41\u00e9\u{1F600}\ud83d\ude00", "A\u00e9\U0001f600\U0001f600", "A\u00e9\U0001f600"),
        (r"\cJ\t\n\v\f\r\0", "\n\t\n\x0b\x0c\r\0", ""),
        (r"a\.\-\/\:\=b{c}]", "a.-/:=b{c}]", "a.-/:=bc]"),
        (r"[a\-z\]\\^-]+", "-]\\^z", "b"),
        (r"[\w-.]+", "a-.", ":"),
        ("[^]", "\n", ""),
        ("x|[]", "x", "]"),
        (".", "\U0001f600", "\u2028"),
        ("(?s:.)", "\n", "ab"),
        ("(?i)stra\u00dfe [a-c]", "STRA\u1e9eE B", "STRASSE D"),
        ("(?i:K)k", "\u212ak", "kK"),
        ("(?i)[^\u00e9]", "e", "\u00c9"),
        ("(?<year>[0-9]{4})(?P<rest>-..)", "2024-01", "2024-1"),
        (r"\Aab\Z", "ab", "ab\n"),
        (r"(?:(?!-)[a-z-]{1,3}(?<!-)\.)+x", "a-b.c.x", "a-.x"),
        (r"(?:(?!ab)[a-z]{2}(?<!yz))+", "aaba", "aaab"),
        ("^$|^(?:a+b+){1,3}$", "abaabb", "ba"),
        ("a{2}{", "aa{", "aa"),
        ("^(?:(?!hede).)*$", "hedhed", "ahede"),
        (r"^((?!-)[\da-z-]{1,63}(?<!-)\.)+[a-z]{2}$", "a-1.b.cc", "a.-.cc"),
    ],
)
def test_a_construct_means_what_it_does_elsewhere(pattern: str, right: str, wrong: str) -> None:
    assert fits(pattern, right)
    assert not fits(pattern, wrong)


def test_the_general_categories_are_those_of_the_characters() -> None:
    for name in ("Lu", "Nd", "Cn", "Co", "P"):
        allowed = regex_expression(rf"\p{{{name}}}").allowed  # type: ignore[union-attr]
        for first, last in (*allowed, (0x2FFFF, 0x30000), (0xE0001, 0xE01F0), (0xF0000, 0x10FFFF)):
            for code in (first - 1, first, last, last + 1):
                if 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
                    inside = any(start <= code <= end for start, end in allowed)
                    assert inside == unicodedata.category(chr(code)).startswith(name)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"(a)\1", r"\1 at 3: backreferences are not supported"),
        (r"a\k<n>", r"\k at 1: backreferences are not supported"),
        (r"(?:ab(?=c.*d))+e", "(?= at 5: it lies in a group that is repeated"),
        ("a*(?<=b)", ""),
        (r"\p{Script=Greek}", r"\p{Script=Greek} at 0: this property of Unicode is not supported"),
        ("(?>a)", "(?> at 0: not supported"),
        ("(?x)a", "(?x) at 0: not supported"),
        ("a++", "++ at 1: possessive quantifiers are not supported"),
        ("ab**", "* at 3: nothing to repeat"),
        ("+a", "+ at 0: nothing to repeat"),
        ("a{3,2}", "{3,2} at 1: the bounds are in the wrong order"),
        ("[b-a]", "b-a at 1: the range is in the wrong order"),
        ("[ab", "[ at 0: the class is not closed"),
        ("(ab", "( at 0: the group is not closed"),
        ("ab)", ") at 2: no group is open"),
        ("a\\", "\\ at 1: nothing follows"),
        (r"\u12", r"\u12 at 0: not a character's number"),
        (r"\q", r"\q at 0: not supported"),
        ("(" * 101, "( at 100: groups lie more than 100 deep"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_name_and_place(pattern: str, said: str) -> None:
    if said:
        with pytest.raises(GrammarError, match=re.escape(said)):
            regex_expression(pattern)
    else:
        assert regex_expression(pattern) == NOTHING


HOSTILE = [
    "(a|a)*" * 50,
    "(" * 99 + "a" + ")*" * 99,
    "(((a{1,1000}){1,1000}){1,1000}b){1,1000000000}",
    "(?=a{1000000})b*",
    "(^|a)" * 30,
    r"\b(a|b\b)" * 20,
    "(?=.*a.{20}b).*",
]
MORE_HOSTILE = [
    "(a|a)*b",
    "a{0,1000000000}",
    "(?!(a|ab|abc)*d){0,1}",
    "((a?){100}){100}a{10000}",
    "(?=.*a)(?=.*b)(?=.*c)(?=.*d)(?=.*e)(?=.*f)(?=.*g)(?=.*h)(?=.*i)(?=.*j)(?=.*k)(?=.*l).*",
    "x" * 100_000,
    "[a-z]|" * 16_000,
    "(ab|" * 90 + "c" + ")" * 90,
    "ab|" * 33_000,
    "|".join(f"a{number}(b|cd)" for number in range(10_000)),
    "(?i)" + "\u00e9[\u00e0-\uffff]" * 5_000,
    "[" + "a-b" * 33_000 + "]",
    "\\p{L}" * 20_000,
    "(?=a" * 90 + ")" * 90 + "a*",
]


@pytest.mark.parametrize(
    "pattern",
    [
        *(pytest.param(pattern, id=pattern[:20]) for pattern in HOSTILE),
        *(pytest.param(pattern, id=pattern[:20], marks=pytest.mark.all) for pattern in MORE_HOSTILE),
    ],
)
def test_a_hostile_pattern_is_compiled_or_refused(pattern: str) -> None:
    for search in (False, True):
        try:
            regex_expression(pattern, search=search, in_json=True)
        except GrammarError as error:
            assert len(str(error)) < 200  # noqa: PT017


def test_a_pattern_that_is_too_long_is_refused() -> None:
    with pytest.raises(GrammarError, match="200,000 characters"):
        regex_expression("a|" * 100_000 + "b")


def test_lookaround_in_a_repeated_group_sees_what_lies_in_it_alone() -> None:
    with pytest.raises(GrammarError, match="it lies in a group that is repeated"):
        regex_expression("(?:(?!ab)[a-z]b?)+")
    assert fits("(?:(?!ab)[a-z]b)+", "bbcb")
    with pytest.raises(GrammarError, match="it lies in a group that is repeated"):
        regex_expression("(?:(?:(?!ab).)*x)+")


def test_a_run_of_one_class_is_counted_and_not_written_out() -> None:
    letters = ((97, 122),)
    assert regex_expression("[a-z]{1,10000}") == Chars(letters, 1, 10000)
    assert regex_expression("(?:[a-z]{2}[a-z]*){3,}", in_json=True) == Chars(letters, 6, None, True)
    assert regex_expression("(?:(a|b)|[c-z])*") == Chars(letters, 0, None)
    assert regex_expression("[a-z]{2}?", search=True) == Joined(
        (Chars(ANY_CHAR, 0, None), Chars(letters, 2, 2), Chars(ANY_CHAR, 0, None))
    )
    assert regex_expression("^abc$", search=True) == Literal(b"abc")
    assert regex_expression("(abc)?", search=True) == Chars(ANY_CHAR, 0, None)
    assert regex_expression("(?:a{2,3}){0,1}") != Chars(((97, 97),), 0, 3)
    assert regex_expression("(?:a{3}){1,2}") != Chars(((97, 97),), 3, 6)


@given(PLAIN, st.integers(0, 4), st.one_of(st.none(), st.integers(0, 4)), st.booleans())
@examples(200)
def test_texts_with_a_bounded_length_are_those_of_the_pattern(
    pattern: str, least: int, most: int | None, in_json: bool
) -> None:
    found = re.compile(pattern, re.ASCII)
    expected = [text for text in TEXTS if least <= len(text) <= (9 if most is None else most) and found.fullmatch(text)]
    whole = regex_expression(pattern, in_json=in_json)
    for expression in (
        bounded(whole, least, most),
        regex_expression(pattern, in_json=in_json, least=least, most=most),
        bounded(automaton_of(whole), least, most, in_json=in_json),
    ):
        assert texts_of(expression) == expected
        automaton = automaton_of(expression)
        assert not in_json or [text for text in TEXTS if accepts(automaton, text.encode())] == expected


def test_bounds_that_can_be_proved_need_no_automaton() -> None:
    def compiled(pattern: str, least: int, most: int | None) -> Expression:
        return regex_expression(pattern, in_json=True, search=True, least=least, most=most)

    assert compiled("^[a-z]*$", 3, 10**9) == Chars(((97, 122),), 3, 10**9, True)
    assert compiled("", 10**9, None) == Chars(ANY_CHAR, 10**9, None, True)
    assert compiled("^[0-9a-f]{8}-[0-9a-f]{4}$", 13, 13) == regex_expression("[0-9a-f]{8}-[0-9a-f]{4}", in_json=True)
    assert not isinstance(compiled("^https?://.+$", 9, 5000), Automaton)
    assert not isinstance(compiled("^(?:ab)*$", 9, 5000), Automaton)
    assert compiled("^a{5}$", 6, None) == NOTHING
    with pytest.raises(GrammarError, match="more than 2,000 states"):
        compiled(r"^(?:\S+\s+){0,99}\S+$", 0, 300)


@given(
    st.lists(st.tuples(PLAIN, st.booleans()), max_size=2),
    st.lists(st.tuples(PLAIN, st.booleans()), max_size=2),
    st.frozensets(st.sampled_from(TEXTS[:13]), max_size=3),
    st.integers(0, 2),
    st.integers(1, 4),
)
@examples(100)
def test_texts_of_several_patterns_are_those_that_match_as_said(
    matching: list[tuple[str, bool]], others: list[tuple[str, bool]], without: frozenset[str], least: int, most: int
) -> None:
    def finds(pattern: tuple[str, bool], text: str) -> bool:
        found = re.compile(pattern[0], re.ASCII)
        return bool(found.search(text) if pattern[1] else found.fullmatch(text))

    expected = [
        text
        for text in TEXTS
        if least <= len(text) <= most
        and text not in without
        and all(finds(pattern, text) for pattern in matching)
        and not any(finds(pattern, text) for pattern in others)
    ]
    patterns, unwanted = tuple(Pattern(*one) for one in matching), tuple(Pattern(*one) for one in others)
    made = automaton_of(
        texts_expression(patterns, unwanted, least=least, most=most, without=without, in_json=True), 10**6
    )
    assert [text for text in TEXTS if accepts(made, text.encode())] == expected
    assert not (no_texts(patterns, unwanted, without) and expected)
    assert no_texts((*patterns, Pattern("a{2}", False)), (*unwanted, Pattern("a")))
