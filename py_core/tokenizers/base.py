"""The interface of a chat model's tokenizer, and its shared parts: special tokens, caching of words, decoding.

tokenizer_from_gguf (registry.py) chooses a tokenizer by a file's metadata.
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Protocol

from py_core.tokenizers.special_tokens import SpecialTokens
from py_core.tokenizers.vocabulary import UNUSED, TokenizerError, Vocabulary

__all__ = ["StreamDecoder", "Tokenizer", "TokenizerError", "VocabularyTokenizer"]

THINKING_TAGS = ("<think>", "</think>")
"""A model's thoughts stand between these. If they are tokens, they are shown even if they are CONTROL."""

NOT_COUNTED = bytes([*range(0x21), 0x7F])
"""White space and control characters are ignored when a text's length gives a lower bound for its tokens: some
vocabularies lack a few of them, Phi-3's special tokens swallow spaces, and templates trim messages."""
MAX_CHARACTER_BYTES = 4
LONG_TOKEN = 24

CACHE_WORDS = 1 << 15
CACHE_WORD_LENGTH = 64

WORDS_AT_ONCE = 256

_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer(Protocol):
    """Converts text to token ids and back.

    `eos_ids`: every token that ends an answer. `unused_ids`: tokens that no text has. `add_bos`, `add_eos`: a prompt
    begins with BOS, ends with EOS (prompts.py). `control_tokens`: text -> id of the tokens that must not come from text
    that people write; `special_tokens`: these and the user-defined ones.
    """

    tokens: Sequence[str]
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    unused_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    control_tokens: Mapping[str, int]
    special_tokens: Mapping[str, int]

    @property
    def vocab_size(self) -> int: ...

    @property
    def longest_token(self) -> int:
        """The most bytes that a token stands for, without NOT_COUNTED ones. 0 if unknown, as text may be dropped."""
        ...

    def exceeds(self, text: str, limit: int) -> bool:
        """True if `text` surely has more than `limit` tokens, judged by its length without encoding it."""
        ...

    def encode(self, text: str, *, special: bool = False, continues: bool = False) -> list[int]:
        """Token ids of `text`, without BOS and EOS. continues: it continues a text, and gets no space before it.

        With special=True the text of a control token becomes its id; otherwise it is plain text, so that outside text
        cannot steer the model. User-defined tokens are found in both cases. Half a surrogate pair, which no encoding
        can represent, becomes U+FFFD.
        """
        ...

    def encode_parts(
        self, parts: Iterable[tuple[str, bool]], guarded: Collection[str] = (), continues: bool = False
    ) -> list[int]:
        """Like `encode` on the joined texts of (text, special), but control tokens are found only within a single
        special part. Everything between two special tokens is one text, across parts.

        guarded: user-defined tokens that are treated like control tokens."""
        ...

    def encode_pieces(
        self, parts: Iterable[tuple[str, bool]], guarded: Collection[str] = (), continues: bool = False
    ) -> Iterator[list[int]]:
        """Yield what `encode_parts` returns, some words at a time."""
        ...

    def token_bytes(self, index: int) -> bytes:
        """The bytes that a token stands for within a text."""
        ...

    def decode_bytes(self, ids: Iterable[int], *, skip_special: bool = False, continues: bool = False) -> bytes:
        """The bytes that `ids` stand for. Raises ValueError for an id outside of the vocabulary.

        skip_special: control tokens are left out. continues: the ids continue a text, so that a space that encoding
        puts before the first word belongs to it.
        """
        ...

    def decode(self, ids: Iterable[int], *, skip_special: bool = False, continues: bool = False) -> str:
        """The text of `ids`, like decode_bytes; bytes that are not UTF-8 become U+FFFD."""
        ...

    def stream(
        self, *, skip_special: bool = False, continues: bool = False, shown: Collection[str] = ()
    ) -> StreamDecoder:
        """A decoder for ids that arrive one at a time. shown: control tokens that are not left out."""
        ...


class VocabularyTokenizer(ABC):
    """A Tokenizer over a Vocabulary. Subclasses cut a text into words, encode a word, and give a token's bytes."""

    strips_first_space = False
    """True if `decode` removes the space at the beginning that `encode` has added."""

    drops_text = False
    """True if `encode` drops text, besides NOT_COUNTED, for which the vocabulary has no token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tokens = vocabulary.tokens
        self.bos_id, self.eos_id = vocabulary.bos_id, vocabulary.eos_id
        self.eos_ids, self.unused_ids = vocabulary.end_ids, frozenset(vocabulary.of_types(UNUSED))
        self.add_bos, self.add_eos = vocabulary.add_bos, vocabulary.add_eos
        self._special = SpecialTokens(vocabulary)
        self.control_tokens: Mapping[str, int] = self._special.control
        self.special_tokens: Mapping[str, int] = self._special.control | self._special.user_defined
        tags = {vocabulary.ids.get(tag) for tag in THINKING_TAGS}
        self._hidden_ids = frozenset(self.control_tokens.values()) - tags
        self._cache: dict[str, list[int]] = {}
        self._pieces: dict[int, bytes] = {}

    @abstractmethod
    def words(self, text: str, at_start: bool) -> Iterable[str]:
        """Cut `text`, which has no special token, into words that are encoded independently.

        at_start: nothing or a special token comes before it.
        """

    @abstractmethod
    def encode_word(self, word: str) -> list[int]:
        """The ids of a word."""

    @abstractmethod
    def token_bytes(self, index: int) -> bytes:
        """The bytes that the token stands for."""

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    @cached_property
    def longest_token(self) -> int:
        if self.drops_text:
            return 0
        best, shortest = MAX_CHARACTER_BYTES, LONG_TOKEN
        while True:
            longer = (index for index, token in enumerate(self.tokens) if len(token) >= shortest)
            best = max([best, *(len(self.token_bytes(i).translate(None, NOT_COUNTED)) for i in longer)])
            if MAX_CHARACTER_BYTES * (shortest - 1) <= best:  # no shorter token can have more bytes
                return best
            shortest = best // MAX_CHARACTER_BYTES + 1

    def exceeds(self, text: str, limit: int) -> bool:
        if len(text) <= limit or not self.longest_token:  # a short text does not need the longest token
            return False
        most = limit * self.longest_token
        return len(text) > most and len(text) - sum(text.count(chr(code)) for code in NOT_COUNTED) > most

    def encode(self, text: str, *, special: bool = False, continues: bool = False) -> list[int]:
        return self.encode_parts([(text, special)], continues=continues)

    def encode_parts(
        self, parts: Iterable[tuple[str, bool]], guarded: Collection[str] = (), continues: bool = False
    ) -> list[int]:
        return list(chain.from_iterable(self.encode_pieces(parts, guarded, continues)))

    def encode_pieces(
        self, parts: Iterable[tuple[str, bool]], guarded: Collection[str] = (), continues: bool = False
    ) -> Iterator[list[int]]:
        texts: list[str] = []
        spans: list[tuple[int, int]] = []
        length = 0
        for text, special in parts:
            if not text.isascii() and _SURROGATES.search(text):
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if special and text:
                spans.append((length, length + len(text)))
            texts.append(text)
            length += len(text)
        at_start = not continues
        for piece in self._special.split("".join(texts), spans, guarded):
            if isinstance(piece, int):
                yield [piece]
            else:
                words = iter(self.words(piece, at_start))
                while some := list(islice(words, WORDS_AT_ONCE)):
                    yield self._encode_words(some)
            at_start = isinstance(piece, int)

    def _encode_words(self, words: Iterable[str]) -> list[int]:
        cache = self._cache
        out: list[int] = []
        for word in words:
            ids = cache.get(word)
            if ids is None:
                ids = self.encode_word(word)
                if len(word) <= CACHE_WORD_LENGTH:
                    if len(cache) >= CACHE_WORDS:
                        cache.clear()
                    cache[word] = ids
            out += ids
        return out

    def decode_bytes(self, ids: Iterable[int], *, skip_special: bool = False, continues: bool = False) -> bytes:
        pieces = self._pieces
        out = []
        for index in ids:
            piece = pieces.get(index)
            if piece is None:
                piece = self._piece(index)
            if not continues and self.strips_first_space:
                piece = piece.removeprefix(b" ")
            continues = True
            if not (skip_special and index in self._hidden_ids):
                out.append(piece)
        return b"".join(out)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False, continues: bool = False) -> str:
        return self.decode_bytes(ids, skip_special=skip_special, continues=continues).decode("utf-8", "replace")

    def stream(
        self, *, skip_special: bool = False, continues: bool = False, shown: Collection[str] = ()
    ) -> StreamDecoder:
        return StreamDecoder(self, skip_special, continues, shown)

    def _piece(self, index: int) -> bytes:
        if not 0 <= index < len(self.tokens):
            raise ValueError(f"token id {index} is outside of the vocabulary of {len(self.tokens)} tokens")
        self._pieces[int(index)] = piece = self.token_bytes(index)
        return piece


class StreamDecoder:
    """Decodes ids as they arrive. A character whose bytes are spread over several tokens is emitted with its last byte,
    and not at all if the ids end before."""

    def __init__(
        self, tokenizer: Tokenizer, skip_special: bool = False, continues: bool = False, shown: Collection[str] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._shown = frozenset(tokenizer.control_tokens[mark] for mark in shown if mark in tokenizer.control_tokens)
        self._continues = continues
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, index: int) -> str:
        """The text that this id completes; often empty within an emoji."""
        skips = self._skip_special and index not in self._shown
        piece = self._tokenizer.decode_bytes((index,), skip_special=skips, continues=self._continues)
        self._continues = True
        return self._utf8.decode(piece)
