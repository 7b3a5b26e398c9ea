"""XLM-RoBERTa's tokenizer for an embedder: the pieces of each word that are likeliest together (a unigram model).

Notable here:
- no piece goes over a space, so each word is taken apart on its own, once, and cached
- the text is normalized by NFKC, as SentencePiece's nmt_nfkc does: control characters vanish, and characters of no
  width and all kinds of spaces are spaces
- the file is our own (app/building/embedder/multilingual.py writes it), with the pieces that the model kept

"<s>" and the like in a text are ordinary characters: a text cannot end itself by containing them.

Sources: https://arxiv.org/abs/1804.10959 (unigram models), google/sentencepiece, doc/normalization.md
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Sequence

from py_core import limits
from py_core.messages import UserError
from py_core.tokenizers.wordpiece import MAX_TOKENS

KIND = "sonata unigram 1"
SPACE = "\u2581"
"""The mark of a word's beginning in its first piece."""
_FIRST_CHARACTERS = 16_384
_REMEMBERED_WORDS = 20_000
_UNKNOWN_BELOW = 10.0
"""The score of an unknown character lies this far below that of the rarest piece, as in SentencePiece."""
_SPACES = (0x09, 0x0A, 0x0C, 0x0D, *range(0x200B, 0x2010), 0x2581, *range(0xD800, 0xE000), 0xFEFF, 0xFFFD)
"""Spaces besides those of Python's str.split; half of a pair is U+FFFD, as a decoder makes it."""
_REMOVED = (*range(0x20), 0x7F, 0x8F, 0x9F)
_TRANSLATION = {**dict.fromkeys(_REMOVED), **dict.fromkeys(_SPACES, " ")}


class UnigramError(UserError, ValueError):
    """The tokenizer's file is damaged or of another kind; the message says what to do."""


class Unigram:
    """Encodes a text as a row for a model: <s>, a prefix that says what the text is for, the text's pieces, </s>."""

    def __init__(
        self,
        pieces: Sequence[str],
        scores: Sequence[float],
        *,
        begin: int,
        end: int,
        unknown: int,
        prefix: Sequence[int] = (),
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        """pieces: by id; "" for an id that no text gets. scores: log probabilities. prefix: ids after <s>."""
        self._ids = {piece: id for id, piece in enumerate(pieces) if piece}
        self._scores = scores
        self._begin, self._end, self._unknown = [begin, *prefix], end, unknown
        self._longest = max(map(len, self._ids))
        self._unknown_score = min(scores) - _UNKNOWN_BELOW
        self._words: dict[str, list[int]] = {}
        self.max_tokens = max_tokens
        self.vocab_size = len(pieces)

    @classmethod
    def from_json(cls, text: str | bytes, max_tokens: int = MAX_TOKENS) -> Unigram:
        """Load a file of app/building/embedder/multilingual.py. Raises UnigramError if it is damaged."""
        try:
            told = json.loads(text)
            pieces, scores = told["pieces"], told["scores"]
            special = {name: told[name] for name in ("begin", "end", "unknown")}
            prefix = told["prefix"]
            kind = told["kind"]
        except (ValueError, LookupError, TypeError, RecursionError):
            kind = None
        if (
            kind != KIND
            or not _are(str, pieces)
            or not _are(float, scores)
            or not any(pieces)
            or not len(pieces) == len(scores) <= limits.MAX_TOKENS
            or not all(map(math.isfinite, scores))
            or not _are(int, prefix)
            or not _are(int, list(special.values()))
            or not all(0 <= id < len(pieces) for id in (*prefix, *special.values()))
            or len(prefix) + 2 > max_tokens
        ):
            raise UnigramError("unigram.damaged-file", "The tokenizer's file is damaged. Download it again.")
        return cls(pieces, scores, **special, prefix=prefix, max_tokens=max_tokens)

    def encode(self, text: str) -> list[int]:
        """<s>, the prefix, the text's ids, </s>: at most `max_tokens`; the rest is cut off."""
        room = self.max_tokens - 1
        ids = [*self._begin]
        for word in _first_words(text, room):
            ids += self._words.get(word) or self._pieces(word)
            if len(ids) > room:
                del ids[room:]
                break
        ids.append(self._end)
        return ids

    def _pieces(self, word: str) -> list[int]:
        """The likeliest pieces of a word; characters without a piece, however many in a row, are one unknown token."""
        marked = SPACE + word
        # for each end: the best score up to there, where its last piece begins, and that piece
        best = [0.0, *[-math.inf] * len(marked)]
        begins, ids = [0] * len(best), [self._unknown] * len(best)
        for begin in range(len(marked)):
            for end in range(begin + 1, min(len(marked), begin + self._longest) + 1):
                id = self._ids.get(marked[begin:end])
                if id is None:
                    if end > begin + 1:
                        continue
                    id, score = self._unknown, best[begin] + self._unknown_score
                else:
                    score = best[begin] + self._scores[id]
                if score > best[end]:
                    best[end], begins[end], ids[end] = score, begin, id
        made: list[int] = []
        end = len(marked)
        while end:
            if ids[end] != self._unknown or made[-1:] != [self._unknown]:
                made.append(ids[end])
            end = begins[end]
        made.reverse()
        if len(self._words) >= _REMEMBERED_WORDS:
            self._words.clear()
        self._words[word] = made
        return made


def normalized(text: str) -> str:
    """The text as the pieces are looked up in."""
    return unicodedata.normalize("NFKC", text.translate(_TRANSLATION))


def _first_words(text: str, count: int) -> list[str]:
    """The text's first words, normalized, at most `count`. Of a long text only the necessary part is read."""
    words = normalized(text[:_FIRST_CHARACTERS]).split(None, count)
    if len(words) <= count and len(text) > _FIRST_CHARACTERS:
        words = normalized(text).split(None, count)
    return words[:count]


def _are(kind: type, values: object) -> bool:
    return isinstance(values, list) and all(type(one) is kind for one in values)
