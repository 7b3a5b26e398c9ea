"""GBNF as users of llama.cpp write it, against the reference recognizer."""

from __future__ import annotations

import re

import pytest

from py_core.grammar.expressions import ANY_CHAR, Chars, Grammar, GrammarError, Joined, Literal, Reference, Repeat
from py_core.grammar.gbnf import gbnf_grammar
from tests.grammar.reference import can_begin, matches

ARITHMETIC = r"""
# sums, line by line
root  ::= (expr "=" term "\n")+   # one or more
expr  ::= term ([-+*/] term)*
term  ::= ident | num |
  # in parentheses
  "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
LIST = """root ::=
    item+

item ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"
    | "* " word{2,3}
word ::= (
    "a" | "b"
      | "\\U0001F600"
) " "?
"""


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (ARITHMETIC, ["x=1\n", "(a +1)*2=z_1 \n12=3\n"], ["", "x=\n", "x=1", "(a=1\n"]),
        (
            LIST,
            ["- \u4e2d!\n", "* ab", "* \U0001f600 a b- x\n"],
            ["- \n", "* a", "* abba", "-"],
        ),
        (
            r'root ::= "\"\\\x41\u00e9\U0001F600\t\[" ["\]\\^-]+',
            ['"\\A\u00e9\U0001f600\t[^-]\\"'],
            ['"\\A\u00e9\U0001f600\t['],
        ),
        (
            'root ::= "a"{3} "b"{1,} "c"{,2} .? | [a-c-]{2}',
            ["aaab", "aaabbcc", "aaab\u2028", "-a"],
            ["aab", "aaabccdd", "d-"],
        ),
        ('root ::= "" | "x" root', ["", "xxx"], ["xy"]),
        ('root ::= [^"\\\\\\x7F\\x00-\\x1F]*\r\n', ["\u00e9 \U0010ffff"], ["\x7f", '"']),
        ('root ::= a-b | "q"\na-b ::= "z"', ["z", "q"], ["a"]),
    ],
)
def test_a_grammar_has_the_texts_that_llama_cpp_takes(text: str, right: list[str], wrong: list[str]) -> None:
    grammar = gbnf_grammar(text)
    for one in right:
        data = one.encode()
        assert matches(grammar, data), one
        assert all(can_begin(grammar, data[:end]) for end in range(len(data)))
    assert [one for one in wrong if matches(grammar, one.encode())] == []


def test_counted_classes_are_not_written_out() -> None:
    grammar = gbnf_grammar('root ::= .{1,1000000} "ab" "cd" x{0,500000}\nx ::= "y"')
    assert grammar == Grammar(
        {
            "root": Joined((Chars(ANY_CHAR, 1, 1000000), Literal(b"abcd"), Repeat(Reference("x"), 0, 500000))),
            "x": Literal(b"y"),
        }
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('root ::= "a"\n\nroot ::= "b"', "Line 3: the rule root is there twice."),
        ('root ::= "a\nx ::= "b"', 'Line 1: " is missing.'),
        ('root ::= "a"\nx ::= [a-', "Line 2: ] is missing."),
        ('root ::= ("a"\n\n', "Line 1: the group is not closed."),
        ('root ::= "a")', "Line 1: ')' is not expected here."),
        ('root ::= "a"\nx = "b"', "Line 2: ::= is expected after the name of a rule."),
        ("root ::= x\n y", "Line 2: ::= is expected after the name of a rule."),
        ('root ::= "a"\n\nx ::= y z\ny ::= "q"', "Line 3: the rule z is not there."),
        ('x ::= "a"', "The rule root is not there."),
        ('root ::= "a" | *', "Line 1: * has nothing to repeat."),
        ('root ::= "a"{2,1}', "Line 1: the bounds are in the wrong order."),
        ('root ::= "a"{x}', "Line 1: { is not followed by bounds such as {2}, {2,} or {2,3}."),
        (r'root ::= "\q"', r"Line 1: \q is not an escape."),
        (r'root ::= "\ud800"', r"Line 1: \ud800 is not a character."),
        ("root ::= [z-a]", "Line 1: the range is in the wrong order."),
        ("root ::= <think>", "Line 1: tokens by name or number (<...>) are not supported."),
        ('root ::= "a"\n%', "Line 2: the name of a rule is expected."),
        ('root ::= root "a" | "b"', "The rule root begins with itself: left recursion is not supported."),
        ("root ::= " + "(" * 101, "Line 1: groups lie more than 100 deep."),
    ],
)
def test_a_mistake_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)):
        gbnf_grammar(text)


def test_left_recursion_behind_what_may_be_empty_is_refused() -> None:
    with pytest.raises(GrammarError, match="The rule a begins with itself"):
        gbnf_grammar('root ::= "x" a\na ::= c? b "y"\nb ::= (c | a) "z"\nc ::= ""')


def test_long_chains_of_rules_and_recursion_behind_something_are_fine() -> None:
    chain = "\n".join(f"r{number} ::= r{number + 1} | r{number + 2}" for number in range(3000))
    grammar = gbnf_grammar(f'root ::= r0 root?\n{chain}\nr3000 ::= "a"\nr3001 ::= "b"')
    assert len(grammar.rules) == 3003
    nested = gbnf_grammar('root ::= "(" root ")" | "[" root? "]" root?')
    assert matches(nested, b"([[]([])])")
    assert not can_begin(nested, b"([)")
