"""Tokenizers small enough to be written by hand."""

from __future__ import annotations

from typing import Any

from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR
from py_core.tokenizers.vocabulary import NORMAL


def bpe(special: dict[str, int], **changes: Any) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer without merges: a byte is a token."""
    tokens = [*BYTE_TO_CHAR.values(), *special]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.token_type": [NORMAL] * 256 + list(special.values()),
    }
    return metadata | changes
