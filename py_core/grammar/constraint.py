"""A text that must follow a grammar, token by token."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from py_core.grammar.expressions import GrammarError

if TYPE_CHECKING:  # few answers have a grammar
    from py_core.grammar.kernel import OpenGrammar

Encode = Callable[[str], list[int]]
"""The tokens of a text that continues another one."""


class TokenGrammar:
    """A grammar, followed token by token. Any number of texts may follow it."""

    def __init__(self, grammar: OpenGrammar, encode: Encode, end_tokens: Collection[int]) -> None:
        self._grammar, self._encode, self.end_tokens = grammar, encode, end_tokens
        self.begins = grammar.begins
        """The state before the first token."""
        self._tokens: dict[bytes, list[int]] = {}
        """The tokens of texts that were the only way to go on."""
        self._forced: dict[int, list[int]] = {}
        """The same by state."""

    def mask(self, state: int) -> np.ndarray:
        """Return the tokens that may come next in a state, the end tokens among them if the text may end: uint32
        (tokens / 32,), the first token in the lowest bit. Raises GrammarError."""
        return self._with_ends(state, self._grammar.mask(state))

    def moves(self, state: int, most: int) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
        """Return the mask of a state, the tokens of it that lead back to the state, likewise, and at most `most` others
        with the states that they lead to. There may be more of either. Raises GrammarError."""
        mask, keeps, exits = self._grammar.moves(state, most)
        return self._with_ends(state, mask), keeps, exits

    def _with_ends(self, state: int, mask: np.ndarray) -> np.ndarray:
        if not self._grammar.may_end(state):
            return mask
        mask = mask.copy()
        for token in self.end_tokens:
            mask[token // 32] |= np.uint32(1 << token % 32)
        return mask

    def forced(self, state: int) -> list[int]:
        """Return tokens that are the only way to go on from a state. The last one is up to the model, which may choose
        one that goes on behind what is forced."""
        if state not in self._forced:
            text = self._grammar.forced(state)
            if text not in self._tokens:
                tokens = self._encode(text.decode("utf-8", "ignore")) if len(text) > 1 else []
                # A special token, the rest of a character, or a space that the tokenizer adds ends what is forced.
                self._tokens[text] = tokens[: len(self.along(state, tokens)) - 1]
            self._forced[state] = self._tokens[text]
        return self._forced[state]

    def along(self, state: int, tokens: Sequence[int]) -> list[int]:
        """Return the state before each of these tokens, as far as they may follow one another behind a state, and the
        one behind them. Raises GrammarError."""
        return self._grammar.along(state, tokens)

    def goes_on(self, state: int) -> bool:
        """Return True if something may follow besides the end."""
        return bool(self._grammar.mask(state).any())

    def closing(self, state: int) -> list[int]:
        """As `OpenGrammar.closing`; none if there would be too many."""
        return self._grammar.closing(state) or []

    def is_likely(self, token: int) -> bool:
        """Return True for tokens of whole characters without escapes, which texts have most."""
        data = self._grammar.token_bytes(token)
        return b"\\" not in data and data[-1] < 0x80

    def is_whole(self, text: str) -> bool:
        """Return True if a text is one of the grammar's. Raises GrammarError."""
        state, _ = self._grammar.after_bytes(self.begins, text.encode())
        return state is not None and self._grammar.may_end(state)

    @property
    def states(self) -> int:
        """The number of states that were made so far."""
        return self._grammar.states

    def close(self) -> None:
        self._grammar.close()


class Constraint:
    """The place of one text in a grammar, after each of its tokens."""

    def __init__(self, grammar: TokenGrammar, let_go: Callable[[bool], None]) -> None:
        """let_go: called once the text has ended, with True if the grammar was too large."""
        self.grammar, self._let_go = grammar, let_go
        self._state = grammar.begins
        self._has_ended = False
        self._error: GrammarError | None = None

    @property
    def state(self) -> int:
        """The grammar's state behind the text. Raises GrammarError if the grammar is too large there."""
        if self._error:
            raise self._error
        return self._state

    def mask(self) -> np.ndarray:
        """Return the tokens that may come next, as `TokenGrammar.mask`. Raises GrammarError."""
        return self.grammar.mask(self.state)

    def forced(self) -> list[int]:
        """Return tokens that are the only way to go on, as `TokenGrammar.forced`."""
        return [] if self._has_ended or self._error else self.grammar.forced(self.state)

    def forced_behind(self, tokens: Sequence[int]) -> list[list[int]]:
        """Return the tokens that alone may come behind each of the text's next tokens, which it has not noted yet."""
        forced: list[list[int]] = []
        with contextlib.suppress(GrammarError):  # `extend` tells
            forced = [self.grammar.forced(state)[:-1] for state in self.grammar.along(self.state, tokens)[1:]]
        return forced + [[]] * (len(tokens) - len(forced))

    def extend(self, tokens: Sequence[int]) -> None:
        """Note the text's next tokens. Raises ValueError if the grammar does not allow one. If the grammar is too large
        behind one, `mask` tells: by then other sequences have had their tokens of the same step."""
        end = next((at for at, token in enumerate(tokens) if token in self.grammar.end_tokens), len(tokens))
        try:
            states = self.grammar.along(self.state, tokens[:end])
        except GrammarError as error:
            self._error = error
            return
        if len(states) <= end:
            raise ValueError(f"The grammar does not allow token {tokens[len(states) - 1]} here.")
        self._state = states[-1]
        self._has_ended = end < len(tokens)

    @property
    def is_over(self) -> bool:
        """True if nothing can follow but the end."""
        return self._has_ended or not (self._error or self.grammar.goes_on(self._state))

    def closing(self) -> list[int]:
        """Return tokens that end the text in the shortest way that the grammar has; none if it may end here, or there
        would be more than 16,384 bytes."""
        return [] if self._error or self._has_ended else self.grammar.closing(self._state)

    def close(self) -> None:
        self._let_go(self._error is not None)
