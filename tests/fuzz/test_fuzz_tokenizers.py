"""Any vocabulary gives a tokenizer that encodes and decodes every text, or is refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from py_core.tokenizers.base import TokenizerError
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.wordpiece import WordPiece, WordPieceError
from tests.fuzz.harness import found_before, fuzzed, hostile, read_or_refused

TEXTS = ["", "Hello, <|im_end|> wörld\n\n  ab", "aaaa" * 40, "\ud800\U0010ffff\x00"]

tokens = st.lists(
    st.text("ab<|>Ġ▁ \x00é", max_size=4) | st.sampled_from(["<|im_end|>", "</s>", "<0x41>", "<0x4", "[PAD]"]),
    max_size=12,
)
vocabularies = st.fixed_dictionaries(
    {"model": st.sampled_from(["gpt2", "llama"]), "tokens": tokens},
    optional={
        "pre": st.sampled_from(["default", "llama-bpe", "deepseek-llm", ""]) | hostile,
        "merges": st.lists(st.sampled_from(["a b", "b a", "ab a", "a  b", "a"]), max_size=4) | hostile,
        "token_type": st.lists(st.integers(-1, 9), max_size=12) | hostile,
        "scores": st.lists(st.floats(width=32), max_size=12) | hostile,
        **{f"{name}_token_id": st.integers(-1, 12) | hostile for name in ("bos", "eos", "unknown", "eot")},
        **{f"add_{name}": st.booleans() | hostile for name in ("bos_token", "eos_token", "space_prefix")},
    },
)
pieces = st.dictionaries(
    st.text("ab#é", max_size=3) | st.sampled_from(["[CLS]", "[SEP]", "[UNK]"]), st.integers(-1, 8), max_size=8
)
RULES = {"type": "BertNormalizer", "strip_accents": None, "clean_text": True} | {
    "handle_chinese_chars": True, "lowercase": True,
}  # fmt: skip
word_pieces = st.fixed_dictionaries(
    {"type": st.just("WordPiece"), "vocab": pieces | hostile},
    optional={
        "unk_token": st.just("[UNK]") | hostile,
        "continuing_subword_prefix": st.just("##") | hostile,
        "max_input_chars_per_word": st.integers(-1, 200) | hostile,
    },
)


def read_vocabulary(settings: dict[str, Any]) -> None:
    metadata = {f"tokenizer.ggml.{key}": value for key, value in settings.items() if value is not None}
    with read_or_refused(TokenizerError):
        tokenizer = tokenizer_from_gguf(metadata)
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text, special=True))


def read_word_pieces(described: str | bytes) -> None:
    with read_or_refused(WordPieceError):
        tokenizer = WordPiece.from_json(described)
        for text in TEXTS:
            assert all(0 <= index < tokenizer.vocab_size for index in tokenizer.encode(text))


@found_before("vocabularies")
def test_vocabularies_that_were_found_before(path: Path) -> None:
    read_vocabulary(json.loads(path.read_text(encoding="utf-8")))


@found_before("wordpiece")
def test_files_of_word_pieces_that_were_found_before(path: Path) -> None:
    read_word_pieces(path.read_bytes())


@fuzzed(vocabularies)
def test_any_vocabulary_is_read_or_refused(settings: dict[str, Any]) -> None:
    read_vocabulary(settings)


@fuzzed(word_pieces, hostile, st.binary(max_size=60))
def test_any_word_pieces_are_read_or_refused(model: dict[str, Any], other: object, content: bytes) -> None:
    described = {"model": model, "normalizer": RULES, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    read_word_pieces(json.dumps(described))
    read_word_pieces(json.dumps(described | {"normalizer": other}))
    read_word_pieces(content)
