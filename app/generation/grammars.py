"""The shapes of answers that a user names, as grammars, and the grammars of a model's vocabulary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from py_core.grammar.constraint import Constraint, TokenGrammar
from py_core.grammar.expressions import SPECIAL, Chars, Choice, Grammar, GrammarError, Joined, Literal, Reference
from py_core.tokenizers.base import THINKING_TAGS, Tokenizer

if TYPE_CHECKING:
    from py_core.grammar.kernel import GrammarKernel, KernelHost

_MOST_KEPT = 16
"""Grammars that the kernel keeps, besides those that answers follow now."""

_MOST_STATES = 100_000
"""A grammar with more states, which long texts can make, is not used again."""


def token_bytes(tokenizer: Tokenizer, vocab_size: int = 0) -> list[bytes]:
    """Return the bytes of each token by which grammars allow it: those of special tokens begin with SPECIAL. End
    tokens, unused tokens and bytes that stand in no UTF-8 have none. vocab_size: of the model, which may have more
    logits than there are tokens."""
    found = [tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]
    found = [b"" if SPECIAL in data else data for data in found]
    for text, index in tokenizer.control_tokens.items():
        found[index] = SPECIAL + text.encode()
    for index in (*tokenizer.eos_ids, *tokenizer.unused_ids):
        found[index] = b""
    return found + [b""] * (vocab_size - len(found))


def tag_bytes(tokenizer: Tokenizer, tag: str) -> bytes:
    """Return the bytes by which a grammar has a tag: of a special token if there is one of this text, else the text."""
    return (SPECIAL if tag in tokenizer.control_tokens else b"") + tag.encode()


def behind_thought(grammar: Grammar, tokenizer: Tokenizer) -> Grammar:
    """Return the grammar of an answer that begins within a thought, which has no shape."""
    from py_core.grammar.triggers import Trigger, triggered  # late: few answers have a shape

    begins, lines = f"behind a thought: {grammar.root}", Chars(((0x0A, 0x0A),), 0, 2)
    rules = {**grammar.rules, begins: Joined((lines, Reference(grammar.root)))}
    end = Trigger(tag_bytes(tokenizer, THINKING_TAGS[1]), Grammar(rules, begins))
    return triggered([end], least=1, most=1, goes_on=False)


@dataclass
class _Kept:
    """A grammar in the kernel, and the answers that follow it now."""

    grammar: Grammar
    tokens: TokenGrammar
    users: int = 0


class VocabularyGrammars:
    """Makes the constraints of a model's answers. The kernel is made with the first one. What is known of the states of
    the last grammars is kept."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, host: Callable[[], Awaitable[KernelHost]]) -> None:
        self._tokenizer, self._vocab_size, self._host = tokenizer, vocab_size, host
        self._kernel: GrammarKernel | None = None
        self._kept: list[_Kept] = []
        """Those that were asked for last behind the others."""

    async def constraint(self, grammar: Grammar) -> Constraint:
        """Raises GrammarError if no text fits the grammar, or it is too large."""
        kept = next((one for one in reversed(self._kept) if one.grammar is grammar), None)
        if kept is None or kept.tokens.states > _MOST_STATES:
            kept = await self._open(grammar)
        else:
            self._kept.remove(kept)
        self._kept.append(kept)
        kept.users += 1
        return Constraint(kept.tokens, partial(self._let_go, kept))

    async def _open(self, grammar: Grammar) -> _Kept:
        if self._kernel is None:
            from py_core.grammar.kernel import GrammarKernel  # late: few answers have a grammar

            self._kernel = GrammarKernel(await self._host(), token_bytes(self._tokenizer, self._vocab_size))
        self._close(_MOST_KEPT - 1)
        try:
            opened = self._kernel.open(grammar)
        except GrammarError:
            if not self._close(0):
                raise
            opened = self._kernel.open(grammar)  # now with more memory
        encode = partial(self._tokenizer.encode, continues=True)
        return _Kept(grammar, TokenGrammar(opened, encode, self._tokenizer.eos_ids))

    def _close(self, most: int) -> bool:
        """Close grammars that no answer follows until there are `most`. Returns True if there were some."""
        unused = [one for one in self._kept if not one.users]
        closed = unused[: max(0, len(self._kept) - most)]
        for one in closed:
            self._kept.remove(one)
            one.tokens.close()
        return bool(closed)

    def _let_go(self, kept: _Kept, failed: bool) -> None:
        kept.users -= 1
        if failed:  # for lack of memory, maybe
            self._close(0)


def shape_of(
    schema: str | None, grammar: str | None, regex: str | None, choice: Sequence[str] | None = None,
    after: str | None = None,
) -> Grammar | None:  # fmt: skip
    """Return the grammar of the one that is not None: the texts of a schema and of a grammar in GBNF, a pattern, or
    texts to choose from. None if there is none. It is the same one for the same texts. Raises GrammarError, also if
    there are several.

    after: a tag, as text or as a special token. The grammar is then that of free text, in which each tag begins the
    shape.
    """
    return _shape_of(schema, grammar, regex, None if choice is None else tuple(choice), after)


@lru_cache(maxsize=_MOST_KEPT + 1)  # answers without a shape are one of them
def _shape_of(
    schema: str | None, grammar: str | None, regex: str | None, choice: tuple[str, ...] | None, after: str | None
) -> Grammar | None:
    shape = _shape_alone(schema, grammar, regex, choice)
    if after is None:
        return shape
    if shape is None:
        raise GrammarError(
            "Give the shape that the tag begins, too: a schema, a grammar, a regular expression, or texts."
        )
    from py_core.grammar.triggers import Trigger, triggered

    tag = after.encode()
    return triggered([Trigger(tag, shape), Trigger(SPECIAL + tag, shape)])


def _shape_alone(
    schema: str | None, grammar: str | None, regex: str | None, choice: tuple[str, ...] | None
) -> Grammar | None:
    named = [one for one in (schema, grammar, regex, choice) if one is not None]
    if len(named) > 1:
        raise GrammarError("Give one shape: a schema, a grammar, a regular expression, or texts to choose from.")
    # Imported late: few answers have a shape.
    if schema is not None:
        from py_core.grammar.schema import schema_grammar

        return schema_grammar(schema)
    if grammar is not None:
        from py_core.grammar.gbnf import gbnf_grammar

        return gbnf_grammar(grammar)
    if regex is not None:
        from py_core.grammar.regex import regex_expression

        return Grammar({"root": regex_expression(regex)})
    if choice is None:
        return None
    if not choice or not all(choice):
        raise GrammarError("Name at least one text to choose from, and none that is empty.")
    return Grammar({"root": Choice(tuple(Literal(text.encode()) for text in choice))})
