"""The shapes of answers that a user names, as grammars, and the grammars of a model's vocabulary."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from py_core.grammar.constraint import Constraint
from py_core.grammar.expressions import Choice, Grammar, GrammarError, Literal
from py_core.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from py_core.grammar.kernel import GrammarKernel, KernelHost


def token_bytes(tokenizer: Tokenizer, vocab_size: int = 0) -> list[bytes]:
    """Return the bytes of each token; special tokens have none, for no grammar allows them. vocab_size: of the model,
    which may have more logits than there are tokens."""
    special = {*tokenizer.control_tokens.values(), *tokenizer.special_tokens.values()}
    found = [b"" if index in special else tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]
    return found + [b""] * (vocab_size - len(found))


class VocabularyGrammars:
    """Makes the constraints of a model's answers. The kernel is made with the first one."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, host: Callable[[], Awaitable[KernelHost]]) -> None:
        self._tokenizer, self._vocab_size, self._host = tokenizer, vocab_size, host
        self._kernel: GrammarKernel | None = None

    async def constraint(self, grammar: Grammar) -> Constraint:
        """Raises GrammarError if no text fits the grammar, or it is too large."""
        if self._kernel is None:
            from py_core.grammar.kernel import GrammarKernel  # late: few answers have a grammar

            self._kernel = GrammarKernel(await self._host(), token_bytes(self._tokenizer, self._vocab_size))
        return Constraint(self._kernel.open(grammar), self._tokenizer.encode, self._tokenizer.eos_ids)


def shape_of(
    schema: str | None, grammar: str | None, regex: str | None, choice: Sequence[str] | None = None
) -> Grammar | None:
    """Return the grammar of the one that is not None: the texts of a schema and of a grammar in GBNF, a pattern, or
    texts to choose from. None if there is none. Raises GrammarError, also if there are several."""
    named = [one for one in (schema, grammar, regex, choice) if one is not None]
    if len(named) > 1:
        raise GrammarError("Give one shape: a schema, a grammar, a regular expression, or texts to choose from.")
    # Imported late: few answers have a shape.
    if schema is not None:
        from py_core.grammar.schema import schema_grammar

        try:
            read = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise GrammarError(f"The schema is not JSON: {error}.") from None
        return schema_grammar(read)
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
