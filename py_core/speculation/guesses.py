"""Guesses tokens before they are sampled, and runs them together: exact, since each token is sampled at its place.

A guess needs no second model (prompt lookup): if the end of the text occurred before, its continuation may come again.
A smaller model with the same vocabulary guesses text that did not occur before (draft.py). A pass over several rows
costs less than as many passes, since it reads the weights once. The sampler draws a token from its row's logits, the
seed and the position, so the tokens are those of a decode without guesses. Tokens after the first wrong guess are
thrown away (arXiv 2211.17192 with a draft that is certain of its tokens).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SIZES = (2, 4, 8)
"""Rows of a pass with guesses: the last token, and the guesses. Kernels take rows in tiles of two and four."""

LEAST_MATCH = 3
"""Tokens at the end of a text that must have occurred before, for a guess in a pass that is waited for."""

_WIDTHS = (LEAST_MATCH, 1)
"""The numbers of last tokens by which earlier places are found, the larger first."""

MOST_MATCH = 32
"""A longer match tells nothing more."""

MOST_LOOKED_AT = 8
"""The number of earlier places that are compared for each width, the newest first."""

MOST_TOKENS = 8192
"""The number of last tokens that are searched in a longer text."""

NEWEST_SHARE = 0.2
"""The newest pass's weight in the averages of guesses and times."""


class Rehearsal:
    """Measures how much guesses would have gained in a growing text, if they were made or not.

    Guesses for SIZES[-1] rows are made at the end of the text, and again after the first wrong guess. The gain of fewer
    rows is that of the first of these guesses.
    """

    def __init__(self, gains: Mapping[int, float], guess: list[int]) -> None:
        self.gains = dict(gains)
        """The average number of tokens of a pass by its number of rows, over the last passes."""
        self.seen = 0
        """The number of tokens that the text grew by."""
        self.is_judged = False
        """True if the gains of the beginning have been used already."""
        self._guess, self._right = guess, 0

    def ends_with(self, token: int) -> bool:
        """Add the next token. Return True if it ends a pass; the guess of the next pass is given to `go_on`."""
        self.seen += 1
        if self._right < len(self._guess) and self._guess[self._right] == token:
            self._right += 1
            return False
        for size, gain in self.gains.items():
            self.gains[size] = gain + (min(self._right + 1, size) - gain) * NEWEST_SHARE
        return True

    def go_on(self, guess: list[int]) -> None:
        self._guess, self._right = guess, 0


class PromptLookup:
    """Finds the continuation of the end of a text if that end occurred before. Places are chained by their last
    tokens."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._newest: dict[int, dict[tuple[int, ...], int]] = {width: {} for width in _WIDTHS}
        """By width: the newest place of each tuple of `width` tokens, given by its last token."""
        self._before: dict[int, list[int]] = {width: [] for width in _WIDTHS}
        """The previous place with the same tokens, for each place; -1 for none."""
        self._found: tuple[int, int] | None = None
        """The earlier place most similar to the end, and the number of equal tokens before it; None: not known."""
        self.rehearsal: Rehearsal | None = None
        self.extend(tokens[-MOST_TOKENS:])

    def extend(self, tokens: Sequence[int], forced: Sequence[Sequence[int]] = ()) -> None:
        """Add the next tokens of the text. forced: behind each of them, what alone may come next."""
        for token, alone in zip(tokens, forced or [()] * len(tokens), strict=True):
            self._tokens.append(token)
            for width, before in self._before.items():
                key = tuple(self._tokens[-width:])  # the first ones are shorter, and no keys of this width
                before.append(self._newest[width].get(key, -1))
                self._newest[width][key] = len(self._tokens) - 1
            self._found = None
            if self.rehearsal and self.rehearsal.ends_with(token):
                self.rehearsal.go_on(self._rehearsed(list(alone)))

    @property
    def tokens(self) -> Sequence[int]:
        """The text."""
        return self._tokens

    @property
    def match(self) -> int:
        """The number of tokens at the end that occurred before, up to MOST_MATCH."""
        return self._best()[1]

    def rehearse(self, gains: Mapping[int, float]) -> Rehearsal:
        """Measure from now on how much guesses would gain; `gains` are the current estimates."""
        self.rehearsal = Rehearsal(gains, self._rehearsed([]))
        return self.rehearsal

    def _rehearsed(self, forced: list[int]) -> list[int]:
        guess = self.propose(SIZES[-1] - 1) if self.match else []
        return guess if guess[: len(forced)] == forced[: len(guess)] and guess else forced[: SIZES[-1] - 1]

    def propose(self, count: int) -> list[int]:
        """The tokens that followed the place found. If the text has begun to repeat itself, the guess repeats it
        further."""
        place, _ = self._best()
        period = len(self._tokens) - 1 - place
        found = self._tokens[place + 1 : place + 1 + count]
        while len(found) < count:
            found.append(found[len(found) - period])
        return found

    def _best(self) -> tuple[int, int]:
        if self._found is None:
            self._found = self._longest()
        return self._found

    def _longest(self) -> tuple[int, int]:
        for before in self._before.values():
            best, most = -1, 0
            place = before[-1] if before else -1
            for _ in range(MOST_LOOKED_AT):
                if place < 0:
                    break
                if (length := self._alike(place)) > most:
                    best, most = place, length
                place = before[place]
            if most:
                return best, most
        return -1, 0

    def _alike(self, place: int) -> int:
        """The number of equal tokens up to this place and up to the end. The last token is equal."""
        tokens, length = self._tokens, 1
        while length < min(MOST_MATCH, place + 1) and tokens[place - length] == tokens[-1 - length]:
            length += 1
        return length
