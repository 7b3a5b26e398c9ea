"""BERT's tokenizer: the same ids as Hugging Face's `tokenizers` gives from the same tokenizer.json.

Notable here:
- the treatment of a character does not depend on its neighbours. So cleaning, spaces around CJK characters and
  punctuation, NFD, accents and lower case are one `str.translate`, and `split` gives the words
- the classes of characters come from our own tables (unicode_ranges.py), so every Python gives the same ids
- words are looked up once and cached

"[SEP]" and the like in a text are ordinary characters: a text cannot end itself by containing them.

Sources: https://arxiv.org/abs/1810.04805 and google-research/bert, tokenization.py
"""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from py_core import limits
from py_core.display import shown
from py_core.messages import UserError
from py_core.tokenizers import unicode_ranges

MAX_TOKENS = 256
"""The sequence length that all-MiniLM-L6-v2 was trained with, including [CLS] and [SEP]."""
_FIRST_CHARACTERS = 16_384
_REMEMBERED_WORDS = 20_000


class WordPieceError(UserError, ValueError):
    """The tokenizer's file is damaged or of another kind; the message says what to do."""


class _Ranges:
    """Membership of code points in this table of unicode_ranges.py."""

    def __init__(self, table: str) -> None:
        ends = [item.partition("-") for item in table.split()]
        self._firsts = [int(first, 16) for first, _, _ in ends]
        self._lasts = [int(last or first, 16) for first, _, last in ends]

    def __contains__(self, code: int) -> bool:
        index = bisect_right(self._firsts, code) - 1
        return index >= 0 and code <= self._lasts[index]


class _Translation(dict[int, str]):
    """A table for str.translate: the replacement of each code point. It is filled as characters occur."""

    def __init__(self) -> None:
        self._removed = _Ranges(unicode_ranges.BERT_REMOVED)
        self._spaces = _Ranges(unicode_ranges.SPACES)
        self._cjk = _Ranges(unicode_ranges.BERT_CJK)
        self._marks = _Ranges(unicode_ranges.BERT_NONSPACING_MARKS)
        self._punctuation = _Ranges(unicode_ranges.BERT_PUNCTUATION)

    def __missing__(self, code: int) -> str:
        self[code] = made = self._translate(code)
        return made

    def _translate(self, code: int) -> str:
        if code in self._removed:
            return ""
        if 0xD800 <= code <= 0xDFFF:  # half of a pair: replaced, as a decoder would
            return self[0xFFFD]
        if code in self._spaces:
            return " "
        out = ""
        for part in unicodedata.normalize("NFD", chr(code)):
            if ord(part) not in self._marks:
                out += "".join(f" {c} " if ord(c) in self._punctuation else c for c in part.lower())
        return f" {out} " if code in self._cjk else out


_TRANSLATION = _Translation()


class WordPiece:
    """Encodes a text, between [CLS] and [SEP], as a row for a model.

    vocabulary: token -> id; pieces that do not begin a word begin with `prefix`. A word of more than
    `max_characters_per_word` characters, or with a part that is not in the vocabulary, is one `unknown`.
    """

    def __init__(
        self,
        vocabulary: dict[str, int],
        max_tokens: int = MAX_TOKENS,
        unknown: str = "[UNK]",
        prefix: str = "##",
        max_characters_per_word: int = 100,
    ) -> None:
        """Raises WordPieceError if [CLS], [SEP] or `unknown` is not in the vocabulary."""
        if missing := [token for token in ("[CLS]", "[SEP]", unknown) if token not in vocabulary]:
            raise WordPieceError(
                "wordpiece.no-token",
                "The tokenizer has no token {name}, so it is not a BERT tokenizer. Download it again.",
                name=shown(missing[0]),
            )
        if max_tokens < 2:
            raise WordPieceError(
                "wordpiece.few-tokens",
                "{tokens} tokens leave no room for [CLS] and [SEP]: allow 2 or more.",
                tokens=max_tokens,
            )
        self._begin, self._end = vocabulary["[CLS]"], vocabulary["[SEP]"]
        self._unknown = [vocabulary[unknown]]
        self._whole = vocabulary
        self._inner = {token[len(prefix) :]: i for token, i in vocabulary.items() if token.startswith(prefix)}
        self._longest = max_characters_per_word
        self._longest_piece = max(len(token) for token in vocabulary)
        self._words: dict[str, list[int]] = {}
        self.max_tokens = max_tokens
        self.vocab_size = len(vocabulary)

    @classmethod
    def from_json(cls, text: str | bytes, max_tokens: int = MAX_TOKENS) -> WordPiece:
        """Load the content of a tokenizer.json. Its settings for truncation and padding are ignored.

        Raises WordPieceError if it is damaged, or if its rules are not those of BERT's uncased models.
        """
        try:
            described = json.loads(text)
            model, normalizer = described["model"], described["normalizer"]
            vocabulary = model["vocab"]
            strips_accents = normalizer["strip_accents"] in (None, True)
            rules = [model["type"], normalizer["type"], described["pre_tokenizer"]["type"]]
            rules += [normalizer["clean_text"], normalizer["handle_chinese_chars"], normalizer["lowercase"]]
            options = (model["unk_token"], model["continuing_subword_prefix"], model["max_input_chars_per_word"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise WordPieceError(
                "wordpiece.damaged-file", "The tokenizer's file is damaged. Download it again."
            ) from error
        if rules != ["WordPiece", "BertNormalizer", "BertPreTokenizer", True, True, True] or not strips_accents:
            raise WordPieceError(
                "wordpiece.not-uncased",
                "This is not the tokenizer of an uncased BERT model: use the tokenizer.json of one.",
            )
        if not _is_vocabulary(vocabulary) or not _are_options(*options):
            raise WordPieceError(
                "wordpiece.damaged-vocabulary", "The tokenizer's vocabulary is damaged. Download it again."
            )
        return cls(vocabulary, max_tokens, *options)

    def encode(self, text: str) -> list[int]:
        """[CLS], the text's ids, [SEP]: at most `max_tokens`; the rest is cut off."""
        room = self.max_tokens - 2
        ids = [self._begin]
        remembered = self._words
        for word in _first_words(text, room):
            ids += remembered.get(word) or self._pieces(word)
            if len(ids) > room:
                del ids[room + 1 :]
                break
        ids.append(self._end)
        return ids

    def _pieces(self, word: str) -> list[int]:
        """The longest piece that is in the vocabulary, then the longest of the rest, and so on."""
        if len(word) > self._longest:
            return self._unknown
        ids: list[int] = []
        start = 0
        table = self._whole
        while start < len(word):
            for stop in range(min(len(word), start + self._longest_piece), start, -1):
                if (found := table.get(word[start:stop])) is not None:
                    break
            else:
                break
            ids.append(found)
            start, table = stop, self._inner
        if start < len(word):
            ids = self._unknown
        if len(self._words) >= _REMEMBERED_WORDS:
            self._words.clear()
        self._words[word] = ids
        return ids


def _first_words(text: str, count: int) -> Iterable[str]:
    """The text's first words, cleaned, at most `count`. Of a long text only the necessary part is read."""
    words = text[:_FIRST_CHARACTERS].translate(_TRANSLATION).split(None, count)
    if len(words) <= count and len(text) > _FIRST_CHARACTERS:
        words = text.translate(_TRANSLATION).split(None, count)
    return words[:count]


def _is_vocabulary(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and 0 < len(found) <= limits.MAX_TOKENS
        and all(type(index) is int and 0 <= index < len(found) for index in found.values())
        and len(set(found.values())) == len(found)
    )


def _are_options(unknown: Any, prefix: Any, longest: Any) -> bool:
    return (
        isinstance(unknown, str)
        and isinstance(prefix, str)
        and bool(prefix)
        and type(longest) is int
        and 0 < longest <= limits.MAX_WORD_CHARACTERS
    )
