"""Features of the gate from the words of a message and a lesson: what is asked for, whose it is, names, and spelling.

All of this is for English. Words that look alike (typos, endings) are compared by their letter trigrams.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np

WORD_FEATURES = 33
_LONGEST = 2000
"""The characters of a text that are read: about as many as the embedder reads."""
_MOST_WORDS = 32
"""The most words missing in the other text that are compared by their letters."""
_WORD = re.compile(r"[^\W_]+")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PERSON, _TIME, _PLACE, _REASON, _WAY, _AMOUNT, _WHAT = range(1, 8)
_ASKED_OF = {
    **dict.fromkeys(("who", "whom", "whose"), _PERSON),
    "when": _TIME,
    "where": _PLACE,
    "why": _REASON,
}
_NOUN_ASKS = {
    **dict.fromkeys(("person", "man", "woman", "colleague", "professor", "doctor"), _PERSON),
    **dict.fromkeys(("time", "day", "date", "year", "month", "hour", "weekday"), _TIME),
    **dict.fromkeys(("place", "town", "address", "spot"), _PLACE),
}
_COUNTED = _set("many much long old far high fast often large big tall heavy expensive hot deep")
_MINE = _set("my our i we me us mine")
_YOURS = _set("your yours yourself")
_TASKS = _set(
    "write draft compose translate summarise summarize rewrite suggest invent correct convert design shorten create "
    "generate list plan help"
)
"""A message that begins with one of these words wants something made, not remembered."""
SMALL = _set(
    "the a an of to in on at is are was were be been am do does did have has had i my our we you your me us it its for "
    "and or with by from that this there what which who whom whose when where why how tell name please can could would "
    "should give need want know say"
)
"""Words that say little about what is asked for."""
_KINDS = (
    "monday tuesday wednesday thursday friday saturday sunday",
    "january february march april may june july august september october november december",
    "spring summer autumn/fall winter",
    "breakfast lunch dinner/supper",
    "morning afternoon evening noon night",
    "first second third fourth fifth last next previous",
    "up/upstairs/above down/downstairs/below",
    "red blue green yellow black white orange purple grey brown",
    "open/opens/opening close/closes/closing/shut",
    "start/starts/begin/begins end/ends/finish",
    "old/older young/younger new/newer",
    "left right",
    "north south east west",
    "brother/brothers sister/sisters mother/mum/mom/mothers father/dad uncle aunt/auntie cousin daughter/girl son/boy "
    "wife husband grandmother/grandma/granny grandfather/grandpa niece nephew",
    "cat/kitty/cats dog/puppy/dogs parrot rabbit/rabbits horse hamster fish goat",
    "wet dry",
    "hot cold/warm",
    "big/large small/little",
    "front back/rear",
    "indoor outdoor",
    "male female",
    "buy/bought sell/sold",
    "win/won lose/lost",
    "production/prod staging/stage test/testing",
    "name/called birthday/born age address phone/number password colour/color price/cost",
)
"""One group a line: words that exclude each other; words joined by / mean the same."""
_KIND_OF = {
    word: (kind, which)
    for kind, line in enumerate(_KINDS)
    for which, group in enumerate(line.split())
    for word in group.split("/")
}


class Wording:
    """The words of a text. pieces: the trigrams of each word so far, a cache shared by the texts of a call."""

    def __init__(self, text: str, pieces: dict[str, frozenset[str]]) -> None:
        self._found = _WORD.findall(text[:_LONGEST])
        self._lower = [word.lower() for word in self._found]
        self._of_word = pieces
        self.words = frozenset(self._lower)
        self.letters = _pieces(" ".join(self._lower))

    @cached_property
    def content(self) -> frozenset[str]:
        return self.words - SMALL

    @cached_property
    def names(self) -> set[str]:
        return {word.lower() for word in self._found[1:] if word[0].isupper() and word != "I"}

    @cached_property
    def numbers(self) -> set[str]:
        return {word for word in self.words if word.isdigit()}

    @cached_property
    def asks(self) -> int:
        return _asked_for(self._lower)

    @cached_property
    def is_task(self) -> bool:
        return not _TASKS.isdisjoint(self._lower[:2])

    @cached_property
    def mine(self) -> bool:
        return not self.words.isdisjoint(_MINE)

    @cached_property
    def my(self) -> bool:
        return "my" in self.words or "our" in self.words

    @cached_property
    def indefinite(self) -> bool:
        return "a" in self.words or "an" in self.words

    @cached_property
    def kinds(self) -> dict[int, set[int]]:
        made: dict[int, set[int]] = {}
        for word in self.words & _KIND_OF.keys():
            kind, which = _KIND_OF[word]
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
    words, others = (set(_WORD.findall(text[:_LONGEST].lower())) for text in (asked, question))
    return (
        _YOURS.isdisjoint(others)
        and words.isdisjoint(_MINE)
        and not (words.isdisjoint(_YOURS) or others.isdisjoint(_MINE))
    )


def _pieces(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset([padded[at : at + 3] for at in range(len(padded) - 2)])


def _asked_for(words: Sequence[str]) -> int:
    """The kind of thing that is asked for; 0 if unknown."""
    for at, word in enumerate(words):
        if word in _ASKED_OF:
            return _ASKED_OF[word]
        if word in ("how", "what", "which"):
            following = words[at + 1] if at + 1 < len(words) else ""
            if word == "how":
                return _AMOUNT if following in _COUNTED else _WAY
            return _NOUN_ASKS.get(following, _WHAT)
    return 0


def _asked_alike(asked: Wording, question: Wording) -> list[float]:
    """16 features: whether both ask for the same kind of thing, and whose it is."""
    a, q = asked.asks, question.asks
    clear_a, clear_q = _PERSON <= a < _WHAT, _PERSON <= q < _WHAT
    return [
        a == q and a > 0, clear_a and clear_q and a != q, clear_a and q == _WHAT, a == _WHAT and clear_q, a == 0,
        *(a == kind != q for kind in (_PERSON, _TIME, _PLACE, _WAY, _AMOUNT)),
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
