"""Byte-level byte-pair encoding: the tokenizer of GPT-2, SmolLM, Llama 3 and Qwen, from the metadata of a GGUF file.

Notable here:
- text that looks like a special token is plain text unless the caller says that it may be special
- words are cached, so a long text costs one lookup a word; a long word is merged with a heap, in n log n
- characters are looked up in tables of our own (unicode_ranges.py), so every Python gives the same ids

Source: https://github.com/openai/gpt-2/blob/master/src/encoder.py; ids are those of Hugging Face's `tokenizers`.
"""

from __future__ import annotations

import codecs
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from py_core.tokenizers.pretokenizers import PRE_TOKENIZERS, split

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Token types (tokenizer.ggml.token_type) that are special: they are text of their own, never merged from bytes."""

# Any token with one of these names ends an answer, even where the file declares only one (as in llama.cpp).
END_NAMES = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>")

CACHE_WORDS = 1 << 15
CACHE_WORD_LENGTH = 64
HEAP_FROM = 96
"""Words of at least so many bytes are merged with a heap; for shorter ones, scanning a list in C is faster."""

_NO_RANK = 1 << 60
_SURROGATES = re.compile("[\ud800-\udfff]")


class TokenizerError(ValueError):
    """The model file's tokenizer cannot be used; the message says why."""


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's visible character for each byte: printable Latin-1 stands for itself, the rest for U+0100 onwards."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(0x100 + i) for i, byte in enumerate(hidden)}


BYTE_TO_CHAR = _byte_alphabet()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


class ByteBPE:
    """Text to token ids and back."""

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        *,
        pre: str = "gpt-2",
        special_ids: Iterable[int] = (),
        bos_id: int | None = None,
        eos_id: int | None = None,
        add_bos: bool = False,
    ) -> None:
        """`tokens` by id and `merges` by rank, both spelled in GPT-2's byte alphabet ("Ġthe", "Ġ t").

        Raises TokenizerError where they do not fit together.
        """
        if pre not in PRE_TOKENIZERS:
            raise TokenizerError(
                f"the model cuts its text by the rules {pre!r}, which Sonata does not know; "
                f"it knows {', '.join(PRE_TOKENIZERS)}"
            )
        self.tokens = tokens
        self.pre = pre
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.add_bos = add_bos
        self._ids = {token: index for index, token in enumerate(tokens)}
        if len(self._ids) != len(tokens):
            raise TokenizerError("the model's vocabulary is damaged: a token appears twice; download the model again")
        self._ranks = _merge_ranks(merges, self._ids)
        self._whole_words = PRE_TOKENIZERS[pre].whole_words
        # A vocabulary may lack bytes (SmolLM2 lacks 21). What cannot be spelled is dropped, as peers do.
        self._alphabet = {byte: char if char in self._ids else "" for byte, char in BYTE_TO_CHAR.items()}
        self.special_tokens: dict[str, int] = {tokens[index]: index for index in special_ids if tokens[index]}
        self._special_ids = frozenset(self.special_tokens.values())
        longest_first = sorted(self.special_tokens, key=len, reverse=True)
        self.special_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        ends = (self.special_tokens.get(name) for name in END_NAMES)
        self.eos_ids = frozenset(index for index in (eos_id, *ends) if index is not None)
        self._cache: dict[str, list[int]] = {}
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> ByteBPE:
        """The tokenizer that a GGUF file describes. Raises TokenizerError where it is of another kind, or damaged."""
        model = metadata.get("tokenizer.ggml.model")
        if model != "gpt2":
            raise TokenizerError(
                f"the model's tokenizer is of kind {model!r}, which Sonata cannot read yet; "
                "choose a model with a byte-level BPE tokenizer ('gpt2'), such as SmolLM2, Qwen2.5 or Llama 3"
            )
        tokens = _strings(metadata, "tokenizer.ggml.tokens")
        merges = _strings(metadata, "tokenizer.ggml.merges")
        types = [int(kind) for kind in metadata.get("tokenizer.ggml.token_type", [])]
        if types and len(types) != len(tokens):
            raise TokenizerError(
                f"the model's vocabulary is damaged: {len(tokens)} tokens, but {len(types)} token types; "
                "download the model again"
            )
        return cls(
            tokens,
            merges,
            pre=str(metadata.get("tokenizer.ggml.pre", "default")),
            special_ids=[index for index, kind in enumerate(types) if kind in (UNKNOWN, CONTROL, USER_DEFINED)],
            bos_id=_token_id(metadata, "tokenizer.ggml.bos_token_id", len(tokens)),
            eos_id=_token_id(metadata, "tokenizer.ggml.eos_token_id", len(tokens)),
            add_bos=metadata.get("tokenizer.ggml.add_bos_token") is True,
        )

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`; no BOS is added.

        With special=True the text of a special token becomes its id (the longest that fits, from left to right);
        otherwise it is plain text, so text from outside cannot steer the model. Half a surrogate pair, which no
        encoding can hold, becomes U+FFFD.
        """
        if not special:
            return self._encode_plain(text)
        out: list[int] = []
        at = 0
        for match in self.special_pattern.finditer(text):
            out += self._encode_plain(text[at : match.start()])
            out.append(self.special_tokens[match[0]])
            at = match.end()
        out += self._encode_plain(text[at:])
        return out

    def decode_bytes(self, ids: Iterable[int], *, skip_special: bool = False) -> bytes:
        """The bytes that `ids` stand for. Raises ValueError for an id outside of the vocabulary."""
        pieces = self._pieces
        out = []
        for index in ids:
            if skip_special and index in self._special_ids:
                continue
            piece = pieces.get(index)
            out.append(self._piece(index) if piece is None else piece)
        return b"".join(out)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids, skip_special=skip_special).decode("utf-8", "replace")

    def stream(self, *, skip_special: bool = False) -> StreamDecoder:
        """A decoder for ids that come one at a time."""
        return StreamDecoder(self, skip_special)

    def _encode_plain(self, text: str) -> list[int]:
        if not text.isascii() and _SURROGATES.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        cache = self._cache
        out: list[int] = []
        for word in split(self.pre, text):
            ids = cache.get(word)
            if ids is None:
                ids = self._encode_word(word)
                if len(word) <= CACHE_WORD_LENGTH:
                    if len(cache) >= CACHE_WORDS:
                        cache.clear()
                    cache[word] = ids
            out += ids
        return out

    def _encode_word(self, word: str) -> list[int]:
        # Latin-1 gives each byte as the character of the same number, which `translate` then spells.
        spelled = word.encode().decode("latin-1").translate(self._alphabet)
        if self._whole_words and spelled in self._ids:
            return [self._ids[spelled]]
        parts = merge_short(spelled, self._ranks) if len(spelled) < HEAP_FROM else merge_long(spelled, self._ranks)
        ids = self._ids
        return [ids[part] for part in parts]

    def _piece(self, index: int) -> bytes:
        if not 0 <= index < len(self.tokens):
            raise ValueError(f"token id {index} is outside of the vocabulary of {len(self.tokens)} tokens")
        token = self.tokens[index]
        if index in self._special_ids:
            piece = token.encode()
        else:
            try:
                piece = bytes([CHAR_TO_BYTE[char] for char in token])
            except KeyError:  # a token added to the vocabulary without being spelled in the byte alphabet
                piece = token.encode()
        self._pieces[int(index)] = piece
        return piece


class StreamDecoder:
    """Text of ids as they come. A character whose bytes are spread over several tokens comes with its last byte."""

    def __init__(self, tokenizer: ByteBPE, skip_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, index: int) -> str:
        """The text that has become whole with this id; often empty within an emoji."""
        return self._utf8.decode(self._tokenizer.decode_bytes((index,), skip_special=self._skip_special))

    def flush(self) -> str:
        """The rest at the end: U+FFFD for a character that never became whole. The decoder can be used again."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


def merge_short(spelled: str, ranks: Mapping[str, int]) -> list[str]:
    """Join neighbours, the pair of lowest rank first and of equals the leftmost, until no pair has a rank."""
    parts = list(spelled)
    rank = ranks.get
    pairs = [rank(f"{left} {right}", _NO_RANK) for left, right in pairwise(parts)]
    while pairs:
        best = min(pairs)
        if best == _NO_RANK:
            break
        at = pairs.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pairs[at]
        if at:
            pairs[at - 1] = rank(f"{parts[at - 1]} {parts[at]}", _NO_RANK)
        if at < len(pairs):
            pairs[at] = rank(f"{parts[at]} {parts[at + 1]}", _NO_RANK)
    return parts


def merge_long(spelled: str, ranks: Mapping[str, int]) -> list[str]:
    """Does the same as merge_short, in n log n: a heap of (rank, position) over a linked list."""
    parts: list[str] = list(spelled)
    count = len(parts)
    following, preceding = list(range(1, count + 1)), list(range(-1, count - 1))
    rank = ranks.get
    heap = [
        (found, at) for at in range(count - 1) if (found := rank(f"{parts[at]} {parts[at + 1]}", _NO_RANK)) < _NO_RANK
    ]
    heapq.heapify(heap)
    while heap:
        best, at = heapq.heappop(heap)
        right = following[at]
        # An entry is stale once its pair has changed. If the same pair has come back, the entry is valid again.
        if right >= count or not parts[at] or rank(f"{parts[at]} {parts[right]}") != best:
            continue
        parts[at] += parts[right]
        parts[right] = ""
        after = following[at] = following[right]
        if after < count:
            preceding[after] = at
            if (found := rank(f"{parts[at]} {parts[after]}", _NO_RANK)) < _NO_RANK:
                heapq.heappush(heap, (found, at))
        before = preceding[at]
        if before >= 0 and (found := rank(f"{parts[before]} {parts[at]}", _NO_RANK)) < _NO_RANK:
            heapq.heappush(heap, (found, before))
    return [part for part in parts if part]


def _merge_ranks(merges: Sequence[str], ids: Mapping[str, int]) -> dict[str, int]:
    """Rank of each "left right". Keyed by the joined text: building pairs of ids would cost ten times as long."""
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    for merge in ranks:
        if merge.count(" ") != 1 or merge.replace(" ", "") not in ids:
            raise TokenizerError(
                f"the model's vocabulary is damaged: the merge {merge!r:.80} gives no token; download the model again"
            )
    return ranks


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values = metadata.get(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TokenizerError(f"the model file has no usable list {key}; choose another file of this model")
    return values


def _token_id(metadata: Mapping[str, Any], key: str, vocab_size: int) -> int | None:
    value = metadata.get(key)
    if value is not None and (not isinstance(value, int) or not 0 <= value < vocab_size):
        raise TokenizerError(f"the model file is damaged: {key} is {value!r}, not the id of one of {vocab_size} tokens")
    return value
