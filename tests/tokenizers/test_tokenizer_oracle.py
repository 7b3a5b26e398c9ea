"""Every kind of tokenizer and pre-tokenizer gives llama.cpp's ids (tests/oracle/make_tokenizer_oracle.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from py_core.tokenizers.prompts import encode_text
from py_core.tokenizers.registry import tokenizer_from_gguf

ORACLE = json.loads((Path(__file__).parents[1] / "oracle" / "tokenizers.json").read_text(encoding="utf-8"))
CASES = ORACLE["cases"]
TEXTS = ORACLE["texts"]


def metadata(name: str) -> dict[str, Any]:
    return {**ORACLE["vocabularies"][CASES[name]["vocabulary"]], **CASES[name]["changes"]}


@pytest.mark.parametrize("name", list(CASES))
def test_texts_give_llama_cpps_ids(name: str) -> None:
    tokenizer = tokenizer_from_gguf(metadata(name))
    assert [tokenizer.encode(text) for text in TEXTS] == CASES[name]["plain"]


@pytest.mark.parametrize("name", list(CASES))
def test_prompts_give_llama_cpps_ids_with_bos_and_eos_and_special_tokens(name: str) -> None:
    tokenizer = tokenizer_from_gguf(metadata(name))
    assert [encode_text(tokenizer, text, special=True) for text in TEXTS] == CASES[name]["prompt"]


def test_the_oracle_has_every_rule() -> None:
    names = {"gpt-2", "default", "no rules", "llama-bpe", "qwen2", "smollm", "smaug-bpe", "deepseek-llm", "command-r"}
    assert names | {"tekken", "gpt-4o", "olmo", "llama", "gemma", "phi-3"} <= CASES.keys()
