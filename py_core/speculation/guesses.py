"""Tokens that are guessed before they are sampled, and run together: exact, since each is sampled where it was guessed.

Nobody needs a second model for a guess (prompt lookup): where the end of the text was there before, what came after it
may come again. A smaller model of the same vocabulary guesses what was not there before (draft.py). A pass over
several rows costs less than as many passes, since it reads the weights once. The sampler draws a token from its row's
logits, the seed and the position, so the tokens are those of a decode without guesses; those behind the first wrong
guess are thrown away (arXiv 2211.17192 with a draft that is certain of its tokens).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SIZES = (2, 4, 8)
"""Rows of a pass with guesses: the last token, and the others guessed. Kernels take rows in tiles of two and four."""

LEAST_MATCH = 3
"""Tokens at the end of a text that must have been there before a guess is made in a pass that is waited for."""

_WIDTHS = (LEAST_MATCH, 1)
"""Earlier places are found by so many of the last tokens: first by more of them."""

MOST_MATCH = 32
"""More of them say no more."""

MOST_LOOKED_AT = 8
"""Earlier places that are compared of each width, the newest ones."""

MOST_TOKENS = 8192
"""Of a longer text only so many of the last are looked through."""

NEWEST_SHARE = 0.2
"""The newest pass's weight in what is known of guesses and of times."""


class Rehearsal:
    """What guesses would have been worth in a text that grows, whether they were made or not.

    Guesses for SIZES[-1] rows are made at the end of the text, and again behind the first of them that was wrong; what
    fewer rows would have given is the beginning of that.
    """

    def __init__(self, gains: Mapping[int, float], guess: list[int]) -> None:
        self.gains = dict(gains)
        """Tokens of a pass with so many rows, on average over the last ones."""
        self.seen = 0
        """Tokens that the text grew by."""
        self.is_judged = False
        """Whether somebody has learned from the beginning."""
        self._guess, self._right = guess, 0

    def ends_with(self, token: int) -> bool:
        """The text goes on with this: whether that ends a pass, whose next guess `go_on` is told."""
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
    """Finds what came after the end of a text where that was there before. Places are chained by their last tokens."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._newest: dict[int, dict[tuple[int, ...], int]] = {width: {} for width in _WIDTHS}
        """By width: where the last of so many tokens was, the newest time that they were there."""
        self._before: dict[int, list[int]] = {width: [] for width in _WIDTHS}
        """The time before, for each place; -1 for none."""
        self._found: tuple[int, int] | None = None
        """The earlier place that is most like the end, and how many tokens before it are the same; None: not known."""
        self.rehearsal: Rehearsal | None = None
        self.extend(tokens[-MOST_TOKENS:])

    def extend(self, tokens: Sequence[int]) -> None:
        """The text goes on with these."""
        for token in tokens:
            self._tokens.append(token)
            for width, before in self._before.items():
                key = tuple(self._tokens[-width:])  # the first ones are shorter, and no keys of this width
                before.append(self._newest[width].get(key, -1))
                self._newest[width][key] = len(self._tokens) - 1
            self._found = None
            if self.rehearsal and self.rehearsal.ends_with(token):
                self.rehearsal.go_on(self._rehearsed())

    @property
    def tokens(self) -> Sequence[int]:
        """The text."""
        return self._tokens

    @property
    def match(self) -> int:
        """How many tokens at the end were there before, up to MOST_MATCH."""
        return self._best()[1]

    def rehearse(self, gains: Mapping[int, float]) -> Rehearsal:
        """From now on it is known what guesses would be worth; `gains` are what they seem to be."""
        self.rehearsal = Rehearsal(gains, self._rehearsed())
        return self.rehearsal

    def _rehearsed(self) -> list[int]:
        return self.propose(SIZES[-1] - 1) if self.match else []

    def propose(self, count: int) -> list[int]:
        """The tokens that came after the place found. A text that has turned to repeating itself goes on so."""
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
        """How many tokens up to this place are those up to the end; the last is."""
        tokens, length = self._tokens, 1
        while length < min(MOST_MATCH, place + 1) and tokens[place - length] == tokens[-1 - length]:
            length += 1
        return length
