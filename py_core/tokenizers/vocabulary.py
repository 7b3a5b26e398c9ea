"""A GGUF file's data about tokens, common to all tokenizers: their types, BOS and EOS, and which tokens end an answer.

Much of it is not in the file but follows from a token's name, by the rules of llama.cpp (src/llama-vocab.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from py_core.display import shown
from py_core.limits import MAX_SPECIAL_TOKENS, MAX_TOKENS
from py_core.messages import UserError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Token types (tokenizer.ggml.token_type). CONTROL and UNKNOWN tokens are found only if special tokens are parsed,
USER_DEFINED ones in every text."""

END_NAMES = frozenset(
    (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<eos>",
        "<end_of_utterance>", "<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
        # The end of a file in the training data of code models.
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
        "<REPO>", "<reponame>", "<|file_sep|>",
    )
)  # fmt: skip
"""Any of these ends an answer, even if the file declares only one end token."""

_CONTROL_NAMES = END_NAMES | {
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>"),
    *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>", "\u2581<SUF>"),
    *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>", "\u2581<MID>"),
}
"""CONTROL, whatever type the file gives them."""

_OTHER_ENDS = ("eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_OPTIONAL_KEYS = ("unknown", *_OTHER_ENDS)
_KEEP_SPACE = ("<unk>", "<s>", "<|endoftext|>")


class TokenizerError(UserError, ValueError):
    """The model file's tokenizer cannot be used; the message says why."""


@dataclass(frozen=True)
class Defaults:
    """Values used if the file does not say otherwise. An id is used only if it is within the vocabulary."""

    add_bos: bool = False
    bos_id: int | None = None
    eos_id: int | None = None
    unknown_id: int | None = None


@dataclass
class Vocabulary:
    """Tokens by id, with their types.

    `swallowing`: special tokens that swallow the white space after them. `add_bos`, `add_eos`: a prompt begins with
    BOS, ends with EOS.
    """

    tokens: Sequence[str]
    types: Sequence[int] = ()
    bos_id: int | None = None
    eos_id: int | None = None
    unknown_id: int | None = None
    end_ids: frozenset[int] = frozenset()
    add_bos: bool = False
    add_eos: bool = False
    swallowing: frozenset[int] = frozenset()
    ids: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises TokenizerError if there are too many tokens, or a token appears twice. The empty token may, as it
        stands for nothing."""
        if len(self.tokens) > MAX_TOKENS:
            raise TokenizerError(
                "tokenizer.many-tokens",
                "The model's vocabulary is damaged: it has {count} tokens, more than the {most} that any model may "
                "have. Choose another file of this model.",
                count=len(self.tokens),
                most=MAX_TOKENS,
            )
        ids = {token: index for index, token in enumerate(self.tokens) if token}
        if len(ids) + sum(not token for token in self.tokens) != len(self.tokens):
            raise TokenizerError(
                "tokenizer.token-twice",
                "The model's vocabulary is damaged: a token appears twice. Download the model again.",
            )
        self.ids = ids
        self.types = types = list(self.types) or [NORMAL] * len(self.tokens)
        for name in _CONTROL_NAMES & ids.keys():
            types[ids[name]] = CONTROL
        if (special := len(self.of_types(CONTROL, UNKNOWN, USER_DEFINED))) > MAX_SPECIAL_TOKENS:
            raise TokenizerError(
                "tokenizer.many-special",
                "The model's vocabulary is damaged: {count} of its tokens are special, more than the {most} that any "
                "model may have. Choose another file of this model.",
                count=special,
                most=MAX_SPECIAL_TOKENS,
            )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], defaults: Defaults) -> Vocabulary:
        """Raises TokenizerError if the file's vocabulary is damaged."""
        tokens = strings(metadata, "tokenizer.ggml.tokens")
        made = cls(tokens, numbers(metadata, "tokenizer.ggml.token_type", "iu", len(tokens)))
        declared = {name: _token_id(metadata, name, len(tokens)) for name in ("bos", "eos", *_OPTIONAL_KEYS)}

        def id_of(name: str, default: int | None) -> int | None:
            if declared[name] is None and default is not None and default < len(tokens):
                return default
            return declared[name]

        made.bos_id = id_of("bos", defaults.bos_id)
        made.eos_id = declared["eos"] = id_of("eos", defaults.eos_id)
        made.unknown_id = id_of("unknown", defaults.unknown_id)
        made.end_ids = _end_ids(made.ids, [declared[name] for name in ("eos", *_OTHER_ENDS)])
        add_bos = metadata.get("tokenizer.ggml.add_bos_token", defaults.add_bos)
        made.add_bos = add_bos is True and made.bos_id is not None
        made.add_eos = metadata.get("tokenizer.ggml.add_eos_token") is True and made.eos_id is not None
        made.swallowing = _swallowing(made, metadata.get("general.name"))
        return made

    def of_types(self, *types: int) -> list[int]:
        """The ids of these types, in order."""
        return np.flatnonzero(np.isin(np.asarray(self.types), types)).tolist()


def strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """Raises TokenizerError if the metadata has no list of strings of this name."""
    values = metadata.get(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TokenizerError(
            "tokenizer.no-list", "The model file has no usable list {key}. Choose another file of this model.", key=key
        )
    return values


def numbers(metadata: Mapping[str, Any], key: str, kinds: str, tokens: int) -> list[Any]:
    """A list of numbers, one for each token; empty if the metadata has none. `kinds`: the accepted numpy kinds.

    Raises TokenizerError if it holds anything else, or has another length.
    """
    values = metadata.get(key)
    if values is None:
        return []
    usable = isinstance(values, np.ndarray | list) and len(values) <= MAX_TOKENS
    numbers = np.asarray(values if usable else "")
    if numbers.ndim == 1 and len(numbers) == 0:
        return []
    if numbers.dtype.kind not in kinds or numbers.ndim != 1 or np.isnan(numbers).any():
        raise TokenizerError(
            "tokenizer.no-list", "The model file has no usable list {key}. Choose another file of this model.", key=key
        )
    if len(numbers) != tokens:
        raise TokenizerError(
            "tokenizer.other-length",
            "The model's vocabulary is damaged: {tokens} tokens, but {count} entries in {key}. Download the model "
            "again.",
            tokens=tokens,
            count=len(numbers),
            key=key,
        )
    return numbers.tolist()


def _token_id(metadata: Mapping[str, Any], name: str, vocab_size: int) -> int | None:
    """A token id, or None. None also for an id beyond the vocabulary: published files have -1, 4294967295 or the
    vocabulary's size to say none.

    Raises TokenizerError if it is not a number.
    """
    key = f"tokenizer.ggml.{name}_token_id"
    value = metadata.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < vocab_size else None
    if value is not None and name not in _OPTIONAL_KEYS:
        raise TokenizerError(
            "tokenizer.no-token",
            "The model file is damaged: {key} is {value}, not the id of a token.",
            key=key,
            value=shown(value),
        )
    return None


def _end_ids(ids: Mapping[str, int], declared: Sequence[int | None]) -> frozenset[int]:
    names = END_NAMES & ids.keys()
    # In these families <|end|> ends a part of an answer.
    if {"<|return|>", "<|call|>"} <= names or {"<|calls|>", "<|flush|>"} <= names:
        names -= {"<|end|>"}
    if "<|tool_response>" in names:
        names -= {"</s>"}
    return frozenset(index for index in (*declared, *(ids[name] for name in names)) if index is not None)


def _swallowing(vocabulary: Vocabulary, model_name: object) -> frozenset[int]:
    """Phi-3's special tokens swallow the white space after them. Files do not say so; the model's name tells."""
    if not isinstance(model_name, str) or not any(name in model_name.lower() for name in ("phi-3", "phi3")):
        return frozenset()
    keep = {vocabulary.ids.get(name) for name in _KEEP_SPACE}
    return frozenset(vocabulary.of_types(UNKNOWN, CONTROL, USER_DEFINED)) - keep
