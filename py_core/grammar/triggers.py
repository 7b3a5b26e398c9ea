"""Grammars of free text in which tags begin texts of other grammars, as calls of tools do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from py_core.grammar.automata import encoded
from py_core.grammar.characters import char_set, complement
from py_core.grammar.expressions import (
    SPECIAL,
    Automaton,
    Choice,
    Expression,
    Grammar,
    GrammarError,
    Joined,
    Literal,
    Reference,
    Repeat,
)
from py_core.grammar.forms import choice


@dataclass(frozen=True)
class Trigger:
    """tag: UTF-8, or SPECIAL and the text of a special token. grammar: of the text that follows the tag."""

    tag: bytes
    grammar: Grammar


def triggered(triggers: Sequence[Trigger], *, least: int = 0, most: int | None = None, goes_on: bool = True) -> Grammar:
    """Return the grammar of free text with `least` to `most` (None: any number of) tags, each followed by a text of its
    grammar. Free text has no other tag.

    goes_on: free text may follow the last of the texts. If not, the answer ends with it.
    Raises GrammarError if a tag is empty or contains another one.
    """
    texts = tuple(sorted({one.tag.decode() for one in triggers if not one.tag.startswith(SPECIAL)}))
    for text in texts:
        if not text or any(other in text for other in texts if other != text):
            raise GrammarError(f"The tag {text!r} is empty, or contains another tag: choose other tags.")
    free = _free(texts)
    rules: dict[str, Expression] = {}
    calls: list[Expression] = []
    for number, one in enumerate(triggers):
        rules |= {f"{number}.{name}": renamed(rule, str(number)) for name, rule in one.grammar.rules.items()}
        begins = (free, Literal(one.tag)) if one.tag.startswith(SPECIAL) else (_free(texts, one.tag.decode()),)
        calls.append(Joined((*begins, Reference(f"{number}.{one.grammar.root}"))))
    call = choice(calls)
    if goes_on:
        rules["root"] = Joined((Repeat(call, least, most), free))
    else:
        rules["root"] = choice([Repeat(call, max(1, least), most), *([] if least else [free])])
    return Grammar(rules)


def text_without(tags: Sequence[str]) -> Expression:
    """Return the texts in which none of these tags is."""
    return _free(tuple(sorted(tags)))


@lru_cache(64)
def _free(tags: tuple[str, ...], last: str | None = None) -> Automaton:
    """The texts that have no tag; or those that end with the tag `last`, and have no other.

    After each character its state is the longest end of the text with which a tag begins (Aho and Corasick, 1975).
    """
    begun = ["", *sorted({tag[:length] for tag in tags for length in range(1, len(tag))})]
    states = {text: number for number, text in enumerate(begun)}
    letters = sorted({ord(letter) for tag in tags for letter in tag})
    others = complement(char_set((letter, letter) for letter in letters))
    moves = []
    for text in begun:
        runs = [(first, end, 0) for first, end in others]
        for letter in letters:
            longer = text + chr(letter)
            ends = [longer[start:] for start in range(len(longer) + 1)]
            found = next(end for end in ends if end in states or end in tags)
            if found == last:
                runs.append((letter, letter, len(begun)))
            elif found in states:
                runs.append((letter, letter, states[found]))
        moves.append(tuple(sorted(runs)))
    if last is None:
        made = Automaton(tuple(moves), frozenset(states.values()))
    else:
        made = Automaton((*moves, ()), frozenset({len(begun)}))
    return replace(encoded(made, in_json=False), is_common=True)


def renamed(expression: Expression, prefix: str) -> Expression:
    """Return the expression with references to rules whose names begin with this prefix and a dot."""
    if isinstance(expression, Reference):
        return Reference(f"{prefix}.{expression.name}")
    if isinstance(expression, Repeat):
        return replace(expression, item=renamed(expression.item, prefix))
    if isinstance(expression, Joined | Choice):
        return type(expression)(tuple(renamed(item, prefix) for item in expression.items))
    return expression
