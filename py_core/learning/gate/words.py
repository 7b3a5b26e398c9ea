"""Features of the gate from the words of a message and a lesson: what is asked for, whose it is, names, and spelling.

Words that look alike (typos, endings) are compared by their letter trigrams. The words of questions and their kinds are
those of the text's language: lexicon.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from py_core.learning.gate.lexicon import AMOUNT, PERSON, PLACE, TIME, WAY, WHAT, Lexicon, lexicon_of

WORD_FEATURES = 33
_LONGEST = 2000
"""The characters of a text that are read: about as many as the embedder reads."""
_MOST_WORDS = 32
"""The most words missing in the other text that are compared by their letters."""
_WORD = re.compile(r"[^\W_]+")


class Wording:
    """The words of a text. pieces: the trigrams of each word so far, a cache shared by the texts of a call."""

    def __init__(self, text: str, pieces: dict[str, frozenset[str]]) -> None:
        self._found = _WORD.findall(text[:_LONGEST])
        self._lower = [word.lower() for word in self._found]
        self._of_word = pieces
        self.words = frozenset(self._lower)
        self._of = lexicon_of(self._lower)
        self.letters = _pieces(" ".join(self._lower))

    @cached_property
    def content(self) -> frozenset[str]:
        return self.words - self._of.small

    @cached_property
    def names(self) -> set[str]:
        if not self._of.names_by_capitals:
            return set()
        return {word.lower() for word in self._found[1:] if word[0].isupper() and word != "I"}

    @cached_property
    def numbers(self) -> set[str]:
        return {word for word in self.words if word.isdigit()}

    @cached_property
    def asks(self) -> int:
        return _asked_for(self._lower, self._of)

    @cached_property
    def is_task(self) -> bool:
        return not self._of.tasks.isdisjoint(self._lower[:2])

    @cached_property
    def mine(self) -> bool:
        return not self.words.isdisjoint(self._of.mine)

    @cached_property
    def my(self) -> bool:
        return not self.words.isdisjoint(self._of.my)

    @cached_property
    def indefinite(self) -> bool:
        return not self.words.isdisjoint(self._of.indefinite)

    @cached_property
    def kinds(self) -> dict[int, set[int]]:
        made: dict[int, set[int]] = {}
        for word in self.words & self._of.kind_of.keys():
            kind, which = self._of.kind_of[word]
            made.setdefault(kind, set()).add(which)
        return made

    def alikeness(self, words: frozenset[str]) -> list[float]:
        """For each word, the distance to the most similar word of this text: 0 to 1."""
        mine = [self._letters_of(word) for word in self.words]
        made = []
        for word in sorted(words)[:_MOST_WORDS]:
            own, best = self._letters_of(word), 0.0
            for other in mine:
                if shared := len(own & other):
                    best = max(best, shared / (len(own) + len(other) - shared))
            made.append(1 - best)
        return made

    def _letters_of(self, word: str) -> frozenset[str]:
        letters = self._of_word.get(word)
        if letters is None:
            letters = self._of_word[word] = _pieces(word)
        return letters


def word_features(asked: str, lessons: Sequence[tuple[str, str]]) -> np.ndarray:
    """float32 (lessons, WORD_FEATURES). A lesson: its question, and its question and answer."""
    pieces: dict[str, frozenset[str]] = {}
    mine = Wording(asked, pieces)
    rows = []
    for question, both in lessons:
        of_question, of_both = Wording(question, pieces), Wording(both, pieces)
        rows.append(_asked_alike(mine, of_question) + _worded_alike(mine, of_question, of_both))
    return np.array(rows, np.float32).reshape(-1, WORD_FEATURES)


def is_latin(text: str) -> bool:
    """True if at least half of the letters are Latin ones without accents, or if there are no letters."""
    letters = [letter for letter in text[:_LONGEST] if letter.isalpha()]
    return 2 * sum(map(str.isascii, letters)) >= len(letters)


def same_words(first: str, second: str) -> bool:
    """True if both have the same words in the same order, at least one, ignoring punctuation and case."""
    words = _WORD.findall(first[:_LONGEST].lower())
    return bool(words) and words == _WORD.findall(second[:_LONGEST].lower())


def asks_of_you(asked: str, question: str) -> bool:
    """True if the message asks for something of the assistant's ("your") that the question has of the user ("my")."""
    first, second = (_WORD.findall(text[:_LONGEST].lower()) for text in (asked, question))
    words, others, of, of_others = set(first), set(second), lexicon_of(first), lexicon_of(second)
    return (
        of_others.yours.isdisjoint(others)
        and words.isdisjoint(of.mine)
        and not (words.isdisjoint(of.yours) or others.isdisjoint(of_others.mine))
    )


def _pieces(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset([padded[at : at + 3] for at in range(len(padded) - 2)])


def _asked_for(words: Sequence[str], of: Lexicon) -> int:
    """The kind of thing that is asked for; 0 if unknown."""
    for at, word in enumerate(words):
        if word in of.asked_of:
            return of.asked_of[word]
        if word in of.how or word in of.which:
            following = words[at + 1] if at + 1 < len(words) else ""
            if word in of.how:
                return AMOUNT if following in of.counted else WAY
            return of.noun_asks.get(following, WHAT)
    return 0


def _asked_alike(asked: Wording, question: Wording) -> list[float]:
    """16 features: whether both ask for the same kind of thing, and whose it is."""
    a, q = asked.asks, question.asks
    clear_a, clear_q = PERSON <= a < WHAT, PERSON <= q < WHAT
    return [
        a == q and a > 0, clear_a and clear_q and a != q, clear_a and q == WHAT, a == WHAT and clear_q, a == 0,
        *(a == kind != q for kind in (PERSON, TIME, PLACE, WAY, AMOUNT)),
        asked.mine, question.mine, asked.mine != question.mine, asked.indefinite and not question.indefinite,
        asked.my, question.my,
    ]  # fmt: skip


def _worded_alike(asked: Wording, question: Wording, both: Wording) -> list[float]:
    """17 features: shared letters and words; names, numbers and kinds that only one has; the words that differ."""
    of_asked, of_question, of_both = asked.letters, question.letters, both.letters
    shared = len(of_question & of_asked)
    joint = asked.kinds.keys() & question.kinds.keys()
    missing = both.alikeness(asked.content - both.words) or [0.0]
    left = asked.alikeness(question.content - asked.words) or [0.0]
    return [
        asked.words == question.words, len(of_asked & of_both) / max(1, len(of_asked)),
        shared / max(1, len(of_question)), shared / max(1, len(of_asked) + len(of_question) - shared),
        min(3, len(asked.names - both.words)), min(3, len(question.names - asked.words)),
        not asked.names.isdisjoint(both.words), min(2, len(asked.numbers - both.numbers)),
        sum(asked.kinds[kind].isdisjoint(question.kinds[kind]) for kind in joint),
        min(2, len(asked.kinds) - len(joint)), sum(missing) / 3, max(missing), sum(left) / 3, max(left),
        len(asked.content & both.words) / max(1, len(asked.content)),
        len(question.content & asked.words) / max(1, len(question.content)),
        asked.is_task and not question.is_task,
    ]  # fmt: skip
