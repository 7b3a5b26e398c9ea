"""Search by words with BM25 (Robertson & Zaragoza 2009): rare words count, and names and numbers are rare."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from py_core.text_search import fold

K1, B = 1.2, 0.75
"""How soon repetitions of a word stop counting, and how much longer texts are discounted: the usual values."""
_RUN = re.compile(r"\w+(?:[-./:,']\w+)*")
_SOFT_HYPHEN = re.compile("\u00ad(?:\n[ \t]*)?")
_HYPHENATED = re.compile(r"(\b\w+)[-\u2010]\n[ \t]*(\w+)")
_PART = re.compile(r"\w+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_FUNCTION_WORDS = """
    a an the of to in on at for from by with and or is are was were be been do does did has have had it its this that
    these those there they them i you he she we my your his her our their what who whom whose which when where why how
    can could may should would will shall not no so as if than then about into me us one any some
    der die das den dem des ein eine einen einem einer und oder ist sind war waren wird wurde hat haben im in am an auf
    von zu zum zur mit bei aus fur es er sie wir ihr ich du nicht was wer wen wem wie wo wann warum welche welcher
    welches
"""
_SAY_NOTHING = frozenset(_FUNCTION_WORDS.split())
"""Words of a question that every text has, English and German."""


def words_of(text: str) -> Iterator[str]:
    """The folded words; for "A-113" also "a" and "113"; for scripts without spaces each pair of neighbours; for a word
    hyphenated at the end of a line also the whole word."""
    text = _SOFT_HYPHEN.sub("", text)
    for match in _HYPHENATED.finditer(text):
        yield fold(match[1] + match[2])
    for match in _RUN.finditer(fold(text)):
        parts = _PART.findall(match[0])
        if len(parts) > 1:
            yield match[0]
        for part in parts:
            if _UNSPACED.search(part):
                yield from (part[at : at + 2] for at in range(max(len(part) - 1, 1)))
            else:
                yield part


def telling_words(text: str) -> set[str]:
    """The folded words of a text, except those that every text has."""
    return set(words_of(text)) - _SAY_NOTHING


class WordIndex:
    """The words of several texts."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._places: dict[str, list[tuple[int, int]]] = {}  # for each word: (text, count)
        self._lengths: list[int] = []
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        counts = Counter(words_of(text))
        for word, count in counts.items():
            self._places.setdefault(word, []).append((len(self._lengths), count))
        self._lengths.append(counts.total())

    def shares(self, question: str) -> np.ndarray:
        """float64 (texts,), 0 to 1: each text's BM25, relative to a text with all words of the question."""
        texts, lengths = len(self._lengths), np.array(self._lengths, float)
        norm = K1 * (1 - B + B * lengths / max(lengths.mean() if texts else 1.0, 1.0))
        out, most = np.zeros(texts), 0.0
        asked = list(dict.fromkeys(words_of(question)))
        for word in [word for word in asked if word not in _SAY_NOTHING] or asked:
            places = self._places.get(word, [])
            rarity = math.log(1 + (texts - len(places) + 0.5) / (len(places) + 0.5))
            most += rarity * (K1 + 1)
            if places:
                numbers, counts = np.array(places).T
                out[numbers] += rarity * counts * (K1 + 1) / (counts + norm[numbers])
        return out / most if most else out
