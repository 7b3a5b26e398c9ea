"""A model's sizes, read from GGUF metadata under the names that Hugging Face configurations use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_core.formats.gguf import GGUFError, GGUFHeader


@dataclass(frozen=True)
class ModelConfig:
    architecture: str
    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool

    def residual_at(self, depth: float) -> str:
        """The name by which `Backend.hidden` reads the residual at a share of the depth: 0.25 is after a quarter of the
        blocks, rounded up. Raises ValueError outside of 0 < depth <= 1."""
        if not 0 < depth <= 1:
            raise ValueError(f"The depth is {depth}, but must be over 0 and at most 1.")
        return f"residual.{math.ceil(depth * self.num_hidden_layers)}"


def config_from_gguf(header: GGUFHeader) -> ModelConfig:
    """Raises GGUFError, naming the setting, where one is missing or makes no sense."""
    metadata = header.metadata
    architecture = _get(metadata, "general.architecture", str)

    def integer(key: str, default: int | None = None, most: int = 1 << 20) -> int:
        value = _get(metadata, f"{architecture}.{key}", int, default)
        if not 0 < value <= most:
            raise GGUFError(f"The model file says {architecture}.{key} = {value}, which no model has: it is damaged.")
        return value

    def real(key: str, default: float | None = None) -> float:
        value = float(_get(metadata, f"{architecture}.{key}", (int, float), default))
        if not (math.isfinite(value) and value > 0):
            raise GGUFError(f"The model file says {architecture}.{key} = {value}, which no model has: it is damaged.")
        return value

    if "token_embd.weight" not in header.tensors:
        raise GGUFError("The model file has no tensor 'token_embd.weight': it is not a complete language model.")
    hidden_size = integer("embedding_length")
    heads = integer("attention.head_count")
    kv_heads = integer("attention.head_count_kv", heads)
    head_dim = integer("attention.key_length", max(hidden_size // heads, 1))
    if heads % kv_heads:
        raise GGUFError(f"The model file has {heads} attention heads and {kv_heads} key/value heads: it is damaged.")
    if head_dim % 8:
        raise GGUFError(f"This model's attention heads have {head_dim} values; Sonata reads multiples of 8 only.")
    if integer("rope.dimension_count", head_dim) != head_dim:
        raise GGUFError("This model rotates only a part of each attention head, which Sonata cannot do yet.")
    scaling = _get(metadata, f"{architecture}.rope.scaling.type", str, "none")
    if scaling != "none":
        raise GGUFError(f"This model stretches its context by {scaling!r}, which Sonata cannot do yet.")
    return ModelConfig(
        architecture=architecture,
        name=str(metadata.get("general.name", architecture)),
        vocab_size=header.tensors["token_embd.weight"].shape[0],
        hidden_size=hidden_size,
        intermediate_size=integer("feed_forward_length"),
        num_hidden_layers=integer("block_count", most=1024),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=real("attention.layer_norm_rms_epsilon"),
        rope_theta=real("rope.freq_base", 10000.0),
        max_position_embeddings=integer("context_length", most=1 << 24),
        tie_word_embeddings="output.weight" not in header.tensors,
    )


def rope_table(config: ModelConfig, positions: int) -> np.ndarray:
    """cos and sin of every position's angles: float32 (positions, head_dim // 2, 2).

    Computed in float64 here once: a GPU's own sine of a large angle is too coarse.
    """
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-np.arange(half, dtype=np.float64) / half)
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def _get(metadata: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    value = metadata.get(key, default)
    if value is None:
        raise GGUFError(f"The model file does not say {key!r}: it is damaged or no language model.")
    if not isinstance(value, kind) or isinstance(value, bool):
        raise GGUFError(f"The model file has {key!r} = {value!r}, which is not of the expected kind: it is damaged.")
    return value
