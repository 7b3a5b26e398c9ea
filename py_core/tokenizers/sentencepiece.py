"""SentencePiece's byte-pair encoding: the tokenizer of Llama 2, Mistral, Phi-3 and Gemma, from a GGUF file's metadata.

Notable here:
- neighbours are joined by the score of the token they make, the highest first, and of equal ones the leftmost
- a space is U+2581; a character that is no token is spelled in bytes, <0x00> to <0xFF>
- before a text, and after each special token, comes a space, unless the file says otherwise
- control tokens and bytes are never made by joining, so a text cannot spell them
- Gemma 4's files have a list of merges, whose order takes the place of scores, and lines are cut off first

Source: https://github.com/google/sentencepiece/blob/master/src/bpe_model.cc; ids are those of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from py_core.tokenizers.base import VocabularyTokenizer
from py_core.tokenizers.merging import merge, merge_ranks
from py_core.tokenizers.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Defaults,
    Vocabulary,
    numbers,
    strings,
)

SPACE = "\u2581"


class SentencePiece(VocabularyTokenizer):
    """Converts text to token ids and back."""

    def __init__(
        self, vocabulary: Vocabulary, scores: Sequence[float], add_space_prefix: bool = True,
        merges: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """`scores` by id; if empty, all are 0. `merges` by rank, spelled as "left right".

        Raises TokenizerError if a merge does not give a token.
        """
        super().__init__(vocabulary)
        tokens = vocabulary.tokens
        scores = list(scores) or [0.0] * len(tokens)
        never_made = frozenset(vocabulary.of_types(CONTROL, UNKNOWN, BYTE))
        self._made = {token: index for token, index in vocabulary.ids.items() if index not in never_made}
        self._between = "" if merges is None else " "
        if merges is None:
            self._costs: Mapping[str, float] = {token: -scores[index] for token, index in self._made.items()}
        else:
            self._costs = merge_ranks(merges, vocabulary.ids)
        self._bytes = [vocabulary.ids.get(f"<0x{byte:02X}>") for byte in range(256)]
        self.drops_text = vocabulary.unknown_id is None and None in self._bytes
        self._verbatim = frozenset(vocabulary.of_types(CONTROL, UNKNOWN, USER_DEFINED))
        self._is_byte = frozenset(index for index in vocabulary.of_types(BYTE) if _BYTE_TOKEN.fullmatch(tokens[index]))
        self._add_space_prefix = self.strips_first_space = add_space_prefix
        # If no token crosses the end of a word, each word can be merged alone, and cached.
        crosses = re.search(f"[^{SPACE}\0]{SPACE}", "\0".join(self._made))
        lines, line = (r"\n+|", r"\n") if merges is not None else ("", "")
        word = f"{SPACE}*[^{SPACE}{line}]+|{SPACE}+" if crosses is None else f"[^{line}]+" if line else "(?s).+"
        self._word = re.compile(lines + word)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> SentencePiece:
        """The tokenizer that a GGUF file describes. Raises TokenizerError if it is damaged."""
        vocabulary = Vocabulary.from_gguf(metadata, Defaults(add_bos=True, bos_id=1, eos_id=2, unknown_id=0))
        scores = numbers(metadata, "tokenizer.ggml.scores", "fiu", len(vocabulary.tokens))
        add_space_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
        ranked = metadata.get("tokenizer.ggml.model") == "gemma4"
        merges = strings(metadata, "tokenizer.ggml.merges") if ranked else None
        return cls(vocabulary, scores, add_space_prefix, merges)

    def words(self, text: str, at_start: bool) -> Iterable[str]:
        if at_start and self._add_space_prefix:
            text = " " + text
        return self._word.findall(text.replace(" ", SPACE))

    def encode_word(self, word: str) -> list[int]:
        # Like llama.cpp, a token of lines only is taken whole.
        if self._between and word.startswith("\n") and word in self._made:
            return [self._made[word]]
        out: list[int] = []
        for part in merge(word, self._costs, self._between):
            index = self._made.get(part)
            out += self._spelled(part) if index is None else [index]
        return out

    def _spelled(self, character: str) -> list[int]:
        """A character's byte tokens, or the unknown token if the vocabulary lacks one of them."""
        ids = [self._bytes[byte] for byte in character.encode()]
        if None in ids:
            ids = [self.vocabulary.unknown_id]
        return [index for index in ids if index is not None]

    def token_bytes(self, index: int) -> bytes:
        token = self.tokens[index]
        if index in self._is_byte:
            return bytes([int(token[3:5], 16)])
        return (token if index in self._verbatim else token.replace(SPACE, " ")).encode()


_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")
