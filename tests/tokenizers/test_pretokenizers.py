"""Texts are split into words as by llama.cpp's patterns, run by another regex engine."""

from __future__ import annotations

import json
import random
import re
import runpy
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from tokenizers import Regex, models, pre_tokenizers

from py_core.tokenizers import pretokenizers, unicode_ranges
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR
from py_core.tokenizers.pretokenizers import PRE_TOKENIZERS, split
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.tokenizers.texts import any_text, random_text

REPOSITORY = Path(__file__).parents[2]

# As src/llama-vocab.cpp of llama.cpp writes them.
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
LLAMA_3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+%s|"
CASED += r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*%s|"
CASED += r"\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ASIAN = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}&&[^\s]]+"
# As the tokenizer.json of these models write them; llama.cpp's own engine counts every letter as both cases.
BY_CASE = (
    r"[^\r\n\p{L}\p{N}]?[%(capital)s]*[%(small)s]+%(suffix)s|[^\r\n\p{L}\p{N}]?[%(capital)s]+[%(small)s]*%(suffix)s|"
)
BY_CASE += r"\p{N}%(digits)s| ?[^\s\p{L}\p{N}]+[\r\n%(slash)s]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASES = {"capital": r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", "small": r"\p{Ll}\p{Lm}\p{Lo}\p{M}", "suffix": CONTRACTIONS + "?"}
NO_HAN = {name: rf"{CASES[name]}&&[^\p{{Han}}]" for name in ("capital", "small")}
BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+"
PATTERNS = {
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "seed-coder": [
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "minicpm5": [r"\p{N}{1,3}", LLAMA_3.replace("{1,3}", "+")],
    "ufakzeka": [LLAMA_3.replace("{1,3}", "").removeprefix(CONTRACTIONS + "|")],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "kimi-k2": [r"[\p{Han}]+|" + BY_CASE % {**CASES, **NO_HAN, "digits": "{1,3}", "slash": ""}],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", BY_CASE % {**CASES, "digits": "{1,3}", "slash": "/"}],
    "youtu": [
        r"[\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}"
        r"\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+",
        BY_CASE % {**CASES, "digits": "", "slash": "/"},
    ],
    "gpt-2": [GPT_2],
    "olmo": [GPT_2],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT_2, "[0-9][0-9][0-9]"],
    "smollm": [r"\p{N}", GPT_2],
    "command-r": [r"\p{N}", GPT_2],
    "llama-bpe": [LLAMA_3],
    "smaug-bpe": [LLAMA_3],
    "qwen2": [LLAMA_3.replace("{1,3}", "")],
    "tekken": [CASED % ("", "", "")],
    "gpt-4o": [CASED % (f"{CONTRACTIONS}?", f"{CONTRACTIONS}?", "{1,3}")],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", ASIAN, r"\p{N}"],
}


def _peer(patterns: list[str]) -> pre_tokenizers.PreTokenizer:
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)])


PEERS = {name: _peer(patterns) for name, patterns in PATTERNS.items()}

# The peer's regex engine is of an older Unicode than its Digits, so it does not know these 13 as numbers.
NEWER = set("".join(map(chr, [*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)])))


@pytest.mark.parametrize("name", list(PEERS))
def test_every_pre_tokenizer_cuts_as_another_regex_engine_does(name: str) -> None:
    rng = random.Random(name)
    for text in [random_text(rng) for _ in range(600)]:
        if NEWER & set(text):
            continue
        words = [word for word, _ in PEERS[name].pre_tokenize_str(text)]
        ours = ["".join(BYTE_TO_CHAR[byte] for byte in word.encode()) for word in split(name, text)]
        assert ours == words, repr(text)


ORACLE = json.loads((REPOSITORY / "tests" / "oracle" / "tokenizers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", list(PEERS))
def test_the_ids_of_trained_merges_are_the_peers(name: str) -> None:
    metadata = {**ORACLE["vocabularies"]["bpe"], "tokenizer.ggml.pre": name, "tokenizer.ggml.token_type": None}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    ids = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    peer = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=PRE_TOKENIZERS[name].whole_words))
    peer.pre_tokenizer = PEERS[name]
    tokenizer = tokenizer_from_gguf(metadata)
    rng = random.Random(name)
    for text in [random_text(rng) for _ in range(200)]:
        if not NEWER & set(text):
            assert tokenizer.encode(text) == peer.encode(text).ids, repr(text)


EXPECTED = {
    "gpt-2": ("I'm 12 x!\n\n y", ["I", "'m", " 12", " x", "!", "\n\n", " y"]),
    "default": (" a1234, `b", [" a", "123", "4", ",", " `", "b"]),
    "falcon": (" a1234, `b", [" a", "123", "4", ",", " ", "`", "b"]),
    "smollm": ("a 12", ["a", " ", "1", "2"]),
    "qwen2": ("WE'LL 12", ["WE", "'LL", " ", "1", "2"]),
    "llama-bpe": ("we'll 1234\r\n x", ["we", "'ll", " ", "123", "4", "\r\n", " x"]),
    # Letters beyond ASCII count as upper and lower case, and marks are not letters, unlike in tokenizer.json.
    "tekken": ("CamelCase fooÉ e\u0301a 12//", ["Camel", "Case", " fooÉ", " e", "\u0301a", " ", "1", "2", "//"]),
    "gpt-4o": ("We'RE 1234", ["We'RE", " ", "123", "4"]),
    "deepseek-llm": ("a b漢字12, \n ", ["a", " b", "漢字", "12", ",", " ", "\n", " "]),
    "deepseek-v3": ("a.bc 1234漢", ["a", ".bc", " ", "123", "4", "漢"]),
    "qwen35": ("e\u0301a ก\u0e33", ["e\u0301a", " ก\u0e33"]),
}


@pytest.mark.parametrize("name", list(EXPECTED))
def test_each_rule_cuts_as_llama_cpp_does(name: str) -> None:
    text, words = EXPECTED[name]
    assert split(name, text) == words


def test_a_long_s_is_no_contraction() -> None:
    """For Hugging Face it is one, because it ignores case by Unicode's rules; for llama.cpp it is a letter."""
    assert split("qwen2", "it'\u017fx") == split("llama-bpe", "it'\u017fx") == ["it", "'\u017fx"]


@given(text=any_text)
def test_words_joined_are_the_text_and_small_patterns_cut_as_the_full_ones(text: str) -> None:
    for name in _one_name_of_each_rule():
        words = split(name, text)
        assert "".join(words) == text
        expected = [text] if text else []
        patterns = pretokenizers.compiled(name)
        for pattern in patterns:
            if isinstance(pattern, re.Pattern) and len(patterns) == 1:
                expected = pattern.findall(text)
            else:
                expected = [part for word in expected for part in pattern.split(word) if part]
        assert words == expected


def _one_name_of_each_rule() -> list[str]:
    return list({rule: name for name, rule in PRE_TOKENIZERS.items()}.values())


def test_whole_words_and_bos_belong_to_two_rules_only() -> None:
    assert {name for name in EXPECTED if PRE_TOKENIZERS[name].whole_words} == {"llama-bpe", "tekken"}
    assert {name for name in EXPECTED if PRE_TOKENIZERS[name].adds_bos} == {"llama-bpe", "tekken"}
    assert PRE_TOKENIZERS["smaug-bpe"].patterns == PRE_TOKENIZERS["llama-bpe"].patterns
    assert not PRE_TOKENIZERS["smaug-bpe"].whole_words


@pytest.mark.no_cover
@pytest.mark.all
def test_every_character_is_classed_as_the_peer_classes_it() -> None:
    """The committed tables equal the generator's output with the installed library."""
    generator = runpy.run_path(str(REPOSITORY / "tests" / "oracle" / "make_unicode_ranges.py"))
    assert Path(unicode_ranges.__file__).read_text() == generator["module_text"]()
