"""Byte-level byte-pair encoding: the tokenizer of GPT-2, SmolLM, Llama 3 and Qwen, from the metadata of a GGUF file.

Notable here:
- text that looks like a control token is plain text unless the caller allows special tokens
- words are cached, so a long text costs one lookup per word; a long word is merged with a heap, in n log n
- character classes come from our own tables (unicode_ranges.py), so every Python gives the same ids

Source: https://github.com/openai/gpt-2/blob/master/src/encoder.py. The ids equal llama.cpp's. They also equal those of
Hugging Face's `tokenizers`, except for texts that the latter normalizes or cuts differently (pretokenizers.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from py_core.display import shown
from py_core.tokenizers.base import NOT_COUNTED, VocabularyTokenizer
from py_core.tokenizers.merging import merge, merge_ranks
from py_core.tokenizers.pretokenizers import PRE_TOKENIZERS, split
from py_core.tokenizers.vocabulary import Defaults, TokenizerError, Vocabulary, strings


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's visible character for each byte: printable Latin-1 stands for itself, the rest for U+0100 onwards."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(0x100 + i) for i, byte in enumerate(hidden)}


BYTE_TO_CHAR = _byte_alphabet()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}
_COUNTED = [byte for byte in range(0xC0) if byte not in NOT_COUNTED]


class ByteBPE(VocabularyTokenizer):
    """Converts text to token ids and back."""

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], pre: str) -> None:
        """Tokens by id and `merges` by rank, both spelled in GPT-2's byte alphabet ("Ġthe", "Ġ t").

        pre: the name of a pre-tokenizer. Raises TokenizerError if they do not fit together.
        """
        super().__init__(vocabulary)
        self.pre = pre
        self._ranks = merge_ranks(merges, vocabulary.ids)
        self._whole_words = PRE_TOKENIZERS[pre].whole_words
        # A character's first byte may be missing (SmolLM2 has no tokens for 2 of them): its other bytes count.
        self.drops_text = any(BYTE_TO_CHAR[byte] not in vocabulary.ids for byte in _COUNTED)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> ByteBPE:
        """The tokenizer that a GGUF file describes. Raises TokenizerError if it is damaged or has unknown rules."""
        pre = metadata.get("tokenizer.ggml.pre", "default")
        if not isinstance(pre, str) or (pre := pre or "default") not in PRE_TOKENIZERS:
            raise TokenizerError(
                "tokenizer.unknown-rules",
                "The model splits its text by the rules {rules}, which Sonata does not know; it knows {known}.",
                rules=shown(pre),
                known=", ".join(PRE_TOKENIZERS),
            )
        vocabulary = Vocabulary.from_gguf(metadata, Defaults(add_bos=PRE_TOKENIZERS[pre].adds_bos))
        return cls(vocabulary, strings(metadata, "tokenizer.ggml.merges"), pre)

    def words(self, text: str, at_start: bool) -> list[str]:
        return split(self.pre, text)

    def encode_word(self, word: str) -> list[int]:
        # Latin-1 maps each byte to the character of the same number, which `translate` then spells.
        spelled = word.encode().decode("latin-1").translate(BYTE_TO_CHAR)
        ids = self.vocabulary.ids
        if self._whole_words and spelled in ids:
            return [ids[spelled]]
        parts = merge(spelled, self._ranks, between=" ")
        # A vocabulary may lack bytes (SmolLM2 lacks 21). Like llama.cpp, drop what cannot be spelled.
        return [ids[part] for part in parts if part in ids]

    def token_bytes(self, index: int) -> bytes:
        token = self.tokens[index]
        if token in self.special_tokens:
            return token.encode()
        try:
            return bytes([CHAR_TO_BYTE[char] for char in token])
        except KeyError:  # an added token that is not spelled in the byte alphabet
            return token.encode()
