"""The cases of the expected gradients: tiny models, sets of LoRA matrices, packs, and ten steps of the optimizer.

All numbers are drawn by seed, so that make_expected.py and the tests have the same ones. Sizes repeat, so that a
software GPU compiles few kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from py_core.adapters.lora import LoraAdapter, LoraPair
from py_core.training.session import AdamW, Pack
from tests.models.architectures.variants import VARIANTS, VOCABULARY
from tests.tiny.models import PERMUTED, Variant, neighbours_rotate, tensors

RANK, SCALE = 2, 0.7
PREFIX = 11
LENGTHS = (25, 9, 17)
"""Lengths of the sequences behind the prefix: with it the first is longer than two windows of gemma2."""
STEPS = 10


def _short(like: str, matrices: str, **config: Any) -> Variant:
    changed = VARIANTS[like].changed(num_hidden_layers=2, **config)
    return replace(changed, format=matrices, padding=0)


CASES = {
    "llama": _short("llama", "Q4_1"),
    "qwen2": _short("qwen2", "Q8_0"),
    "gemma2": _short("gemma2", "F32"),
    "lfm2": replace(_short("lfm2", "F32", layer_types=["conv", "full_attention"]), embedding_spread=0.2),
}
"""Settings with two layers: gemma2's first layer has a window, lfm2's a convolution."""


@dataclass(frozen=True)
class DrawnPair:
    """The pair of a linear: a (rank, columns) and b (rows, rank) in the order of `transformers`."""

    name: str
    gguf_name: str
    a: np.ndarray
    b: np.ndarray


def pairs(variant: Variant) -> Iterator[DrawnPair]:
    """Pairs for every linear of the blocks. b is not 0, and large enough to have a visible effect."""
    draw = np.random.default_rng(2)
    for tensor in tensors(variant):
        if len(tensor.shape) == 2 and tensor.gguf_name.startswith("blk."):
            rows, columns = tensor.shape
            a = (2 * draw.random((RANK, columns)) - 1) / math.sqrt(columns)
            b = (2 * draw.random((rows, RANK)) - 1) / math.sqrt(RANK)
            yield DrawnPair(tensor.name, tensor.gguf_name, a.astype(np.float32), b.astype(np.float32))


def in_file_order(variant: Variant, gguf_name: str, b: np.ndarray) -> np.ndarray:
    """b in the row order of the file's tensor."""
    heads = {"attn_q": variant.config["num_attention_heads"], "attn_k": variant.config["num_key_value_heads"]}
    part = gguf_name.split(".")[-2]
    if variant.architecture in PERMUTED and part in heads:
        return neighbours_rotate(b, heads[part])
    return b


def adapter(variant: Variant) -> LoraAdapter:
    """The drawn pairs, in the row order of the file's tensors."""
    drawn = {
        pair.gguf_name: LoraPair(pair.a, in_file_order(variant, pair.gguf_name, pair.b), SCALE)
        for pair in pairs(variant)
    }
    return LoraAdapter("drawn", drawn)


def packs() -> list[Pack]:
    """Two: one of three sequences behind a prefix, with both losses, and a plain text without any.

    They have no `base_states` yet, although they have kl_weights.
    """
    draw = np.random.default_rng(3)
    lengths = np.array(LENGTHS)
    first = PREFIX + np.cumsum(lengths) - lengths
    found = []
    for prefix, starts, positions in (
        (PREFIX, np.concatenate([np.zeros(PREFIX), np.repeat(first, lengths)]), _counted(PREFIX, LENGTHS)),
        (0, np.zeros(20), np.arange(20)),
    ):
        tokens, targets = draw.integers(0, VOCABULARY, (2, len(starts)))
        rows = np.flatnonzero(draw.random(len(starts)) < 0.5)
        weights, kl_weights = draw.random((2, len(rows))) / 30
        kl_weights[draw.random(len(rows)) < (0.3 if prefix else 1)] = 0
        weights[kl_weights > 0.03] = 0
        found.append(
            Pack(
                *(numbers.astype(np.int32) for numbers in (tokens, positions)), prefix,
                *(numbers.astype(np.int32) for numbers in (starts, rows, targets[rows])),
                *(numbers.astype(np.float32) for numbers in (weights, kl_weights)),
            )
        )  # fmt: skip
    return found


def _counted(prefix: int, lengths: Sequence[int]) -> np.ndarray:
    """Positions of the prefix, and of sequences behind it."""
    return np.concatenate([np.arange(prefix), *(prefix + np.arange(length) for length in lengths)])


def micro_batches(step: int) -> list[int]:
    """The packs of the gradient of a step."""
    return [[0], [1], [0, 1]][step % 3]


def rule(step: int) -> AdamW:
    """The rate rises, then falls; some gradients are longer than `clip`, some are not."""
    return AdamW(rate=0.02 * math.sin((step + 1) / 4), decay=0.1, clip=0.5, eps=1e-5)
