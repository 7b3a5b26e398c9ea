"""The supported tokenizers, by the name of their kind in GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py_core.display import shown
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.byte_bpe import ByteBPE
from py_core.tokenizers.sentencepiece import SentencePiece
from py_core.tokenizers.vocabulary import TokenizerError

TOKENIZERS = {"gpt2": ByteBPE.from_gguf, "llama": SentencePiece.from_gguf, "gemma4": SentencePiece.from_gguf}


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file describes. Raises TokenizerError if its kind is unknown, or it is damaged."""
    kind = metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str) or kind not in TOKENIZERS:
        raise TokenizerError(
            "tokenizer.unknown-kind",
            "The model's tokenizer is of kind {kind}, which Sonata cannot read. Choose a model with a byte-level BPE "
            "('gpt2') or a SentencePiece ('llama', 'gemma4') tokenizer, such as SmolLM2, Qwen2.5, Llama or Gemma.",
            kind=shown(kind),
        )
    return TOKENIZERS[kind](metadata)
