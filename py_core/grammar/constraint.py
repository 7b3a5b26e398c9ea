"""A text that must follow a grammar, token by token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from py_core.grammar.expressions import GrammarError

if TYPE_CHECKING:  # few answers have a grammar
    from py_core.grammar.kernel import OpenGrammar

Encode = Callable[[str], list[int]]
"""The tokens of a text."""


class Constraint:
    """The place of one text in a grammar, after each of its tokens."""

    def __init__(self, grammar: OpenGrammar, encode: Encode, end_tokens: Collection[int]) -> None:
        self._grammar, self._encode, self._end_tokens = grammar, encode, end_tokens
        self._states: list[int] = [grammar.begins]
        self._has_ended = False
        self._error: GrammarError | None = None

    def mask(self) -> np.ndarray:
        """Return the tokens that may come next, the end tokens among them if the text may end: uint32 (tokens / 32,),
        the first token in the lowest bit. Raises GrammarError."""
        if self._error:
            raise self._error
        state = self._states[-1]
        mask = self._grammar.mask(state).copy()
        if self._grammar.may_end(state):
            for token in self._end_tokens:
                mask[token // 32] |= np.uint32(1 << token % 32)
        return mask

    def forced(self) -> list[int]:
        """Return tokens that are the only way to go on. The last one is left to the model, which may choose one that
        goes on behind what is forced."""
        if self._has_ended:
            return []
        text = self._grammar.forced(self._states[-1])
        return self._encode(text.decode("utf-8", "ignore"))[:-1] if len(text) > 1 else []

    def extend(self, tokens: Sequence[int]) -> None:
        """Note the text's next tokens. Raises ValueError if the grammar does not allow one. If the grammar is too large
        behind one, `mask` tells: by then other sequences have had their tokens of the same step."""
        for token in tokens:
            if token in self._end_tokens:
                self._has_ended = True
                self._states.append(self._states[-1])
                continue
            try:
                state = self._grammar.after_token(self._states[-1], token)
            except GrammarError as error:
                self._error = error
                return
            if state is None:
                raise ValueError(f"The grammar does not allow token {token} here.")
            self._states.append(state)

    def close(self) -> None:
        self._grammar.close()
