"""tokenizer.json and tokenizer_config.json as GGUF's tokenizer keys.

Two kinds are known: byte-level BPE ("gpt2" in GGUF), and SentencePiece's BPE with a token for each byte ("llama"). For
the second, GGUF wants a score per token instead of the list of merges: the earlier a merge makes a token, the higher.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from app.models.converting.folder import ConvertError, read_json
from py_core.display import shown

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types."""

_SPACE = "\u2581"
_ADDED_SCORE, _NO_MERGE_SCORE = -1000.0, -1e6
_SPECIAL = re.compile(r"<pad>|<mask>|<2mass>|\[@BOS@\]|<\|.*\|>|<\uff5c.*\uff5c>|<unused.*>", re.DOTALL)
"""Tokens that are not text, whatever tokenizer.json says; the same as in llama.cpp."""

# Fragments of the patterns that split words, by which rules are recognized.
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_THREE_DIGITS, _ONE_DIGIT = r"|\p{N}{1,3}|", r"|\p{N}|"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LETTERS_AND_MARKS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"


def vocabulary(folder: Path, rows: int) -> dict[str, Any]:
    """The keys for a model whose embedding has `rows` rows.

    Raises ConvertError for another kind of tokenizer, and if it has more tokens than the embedding has rows.
    """
    tokenizer = read_json(folder / "tokenizer.json")
    model = tokenizer.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else None
        raise ConvertError(f"tokenizer.json is of the kind {shown(kind)}, which cannot be converted: only BPE can.")
    sentencepiece = bool(model.get("byte_fallback"))
    tokens, types = _tokens(tokenizer, rows, sentencepiece)
    keys: dict[str, Any] = {
        "tokenizer.ggml.model": "llama" if sentencepiece else "gpt2",
        "tokenizer.ggml.pre": "default" if sentencepiece else pre_tokenizer_name(tokenizer),
        "tokenizer.ggml.tokens": tokens,
    }
    special = _special(folder, rows, load_merges=not sentencepiece)
    if sentencepiece:
        keys["tokenizer.ggml.scores"] = _scores(tokens, types, model.get("merges") or [])
        keys["tokenizer.ggml.add_space_prefix"] = _adds_space(tokenizer)
    keys["tokenizer.ggml.token_type"] = types
    return keys | special


def swallows_space(folder: Path) -> bool:
    """True if a special token absorbs the white space after it, as those of Phi-3 do."""
    added = read_json(folder / "tokenizer.json").get("added_tokens") or []
    return any(token.get("rstrip") and token.get("special") for token in added)


def _tokens(tokenizer: Mapping[str, Any], rows: int, sentencepiece: bool) -> tuple[list[str], list[int]]:
    """Texts and types of all tokens; tokens that the tokenizer lacks are named [PADn] and never used."""
    tokens, types = [f"[PAD{index}]" for index in range(rows)], [UNUSED] * rows
    model = tokenizer["model"]

    def put(token: str, index: int, kind: int) -> None:
        if not 0 <= index < rows:
            raise ConvertError(
                f"the token {shown(token)} has the number {index}, but the embedding has {rows} rows: "
                "tokenizer.json is not this model's."
            )
        tokens[index], types[index] = token, kind

    for token, index in model["vocab"].items():
        is_byte = sentencepiece and re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", token)
        put(token, index, BYTE if is_byte else NORMAL)
    for added in tokenizer.get("added_tokens") or []:
        token, index = added["content"], added["id"]
        if sentencepiece and token == model.get("unk_token"):
            put(token, index, UNKNOWN)
        elif added.get("special") or _SPECIAL.fullmatch(token):
            put(token, index, CONTROL)
        else:
            put(token.replace(_SPACE, " "), index, USER_DEFINED)
    return tokens, types


def _scores(tokens: list[str], types: list[int], merges: list[Any]) -> list[float]:
    """SentencePiece's scores: minus the number of the first merge that makes a token."""
    made: dict[str, int] = {}
    for number, merge in enumerate(merges):
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        made.setdefault(left + right, number)
    return [
        _ADDED_SCORE
        if kind in (CONTROL, USER_DEFINED)
        else 0.0
        if kind in (BYTE, UNKNOWN)
        else -float(made[token])
        if token in made
        else _NO_MERGE_SCORE
        for token, kind in zip(tokens, types, strict=True)
    ]


def _steps(part: Any, inside: str) -> Iterable[Mapping[str, Any]]:
    """The steps of a normalizer or pre-tokenizer; a sequence is flattened."""
    if not part:
        return []
    return part.get(inside) or [] if part.get("type") == "Sequence" else [part]


def _adds_space(tokenizer: Mapping[str, Any]) -> bool:
    """True if a text is treated as if a space preceded it."""
    for step in _steps(tokenizer.get("normalizer"), "normalizers"):
        if step.get("type") == "Prepend" and step.get("prepend") == _SPACE:
            return True
    for step in _steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "Metaspace":
            return step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never") != "never"
    return False


def pre_tokenizer_name(tokenizer: Mapping[str, Any]) -> str:
    """GGUF's name of the rule that splits words, recognized by its patterns. Raises ConvertError if it has no name."""
    steps = list(_steps(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    kinds = [step.get("type") for step in steps]
    patterns = [_pattern(step) for step in steps if step.get("type") == "Split"]
    whole_words = bool(tokenizer["model"].get("ignore_merges"))
    if not patterns and kinds[-1:] == ["ByteLevel"] and steps[-1].get("use_regex", True):
        if kinds == ["ByteLevel"]:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
            return "smollm"
    if len(patterns) == 1 and patterns[0] and set(kinds) <= {"Split", "ByteLevel"}:
        pattern = patterns[0]
        if _CASED in pattern and _THREE_DIGITS in pattern:
            return "gpt-4o"
        if _CASED in pattern and _ONE_DIGIT in pattern:
            return "tekken"
        if _LETTERS in pattern and _THREE_DIGITS in pattern:
            return "llama-bpe" if whole_words else "smaug-bpe"
        if _LETTERS in pattern and _ONE_DIGIT in pattern:
            return "qwen2"
        if _LETTERS_AND_MARKS in pattern and _ONE_DIGIT in pattern:
            return "qwen35"
    raise ConvertError(
        "tokenizer.json splits words by a rule that Sonata does not know; it knows the rules of gpt-2, smollm, "
        "llama-bpe, qwen2, qwen35, tekken and gpt-4o."
    )


def _pattern(step: Mapping[str, Any]) -> str:
    pattern = step.get("pattern") or {}
    return pattern.get("Regex") or ""


def _special(folder: Path, rows: int, load_merges: bool) -> dict[str, Any]:
    """Merges, the ids of special tokens, whether a prompt gets them, and the chat template."""
    from gguf import SpecialVocab  # from the extra `convert`

    logging.getLogger("gguf.vocab").setLevel(logging.ERROR)  # it warns about templates for pairs, which are not used
    found = SpecialVocab(folder, load_merges=load_merges, n_vocab=rows)
    keys: dict[str, Any] = {"tokenizer.ggml.merges": list(found.merges)} if load_merges else {}
    names = {"unk": "unknown", "sep": "seperator", "pad": "padding"}  # spelled as in GGUF
    for kind, index in found.special_token_ids.items():
        keys[f"tokenizer.ggml.{names.get(kind, kind)}_token_id"] = index
    for kind, adds in found.add_special_token.items():
        keys[f"tokenizer.ggml.add_{kind}_token"] = adds
    templates = found.chat_template
    if isinstance(templates, str):
        keys["tokenizer.chat_template"] = templates
    elif templates:
        named = {str(one["name"]): str(one["template"]) for one in templates}
        if default := named.pop("default", None):
            keys["tokenizer.chat_template"] = default
        if named:
            keys["tokenizer.chat_templates"] = list(named)
            keys |= {f"tokenizer.chat_template.{name}": template for name, template in named.items()}
    return keys
