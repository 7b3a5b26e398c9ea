"""all-MiniLM-L6-v2 in numpy: the ONNX file is made from it, calibrated on it and compared with it.

A BERT of 6 layers, 12 heads, hidden size 384; the sentence's vector is the mean over its tokens, of length 1. An
adapter may whiten it: without that, all requests to an agent are too close to tell anything else about them.

Source: https://arxiv.org/abs/2002.10957 (MiniLM), https://arxiv.org/abs/1908.10084 (pooling)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

HEADS = 12
HIDDEN = 384
LAYER_NORM_EPSILON = 1e-12
WHITENING = ("whitening.mean", "whitening.matrix")
STATES_CENTRE = "states.mean"
"""In an adapter: what is subtracted from each token's state for meanings. A model whose states all point the same way
tells texts apart only without it."""

Weights = Mapping[str, np.ndarray]
"""As in the model's safetensors file; the weight of a linear is (outputs, inputs)."""
Observe = Callable[[str, np.ndarray], None]

_erf = np.vectorize(math.erf, otypes=[np.float32])


def widened(weights: Weights) -> dict[str, np.ndarray]:
    """The floating-point tensors, as float32."""
    return {name: array.astype(np.float32) for name, array in weights.items() if array.dtype.kind == "f"}


def check_adapter(weights: Weights, adapter: Weights) -> None:
    """Raises ValueError when the adapter (see merge_adapter) does not fit the model."""
    for name in adapted_linears(adapter):
        a, b, weight = (adapter[f"{name}.lora_A"], adapter.get(f"{name}.lora_B"), weights.get(f"{name}.weight"))
        if b is None or weight is None or (b.shape[0], a.shape[1]) != weight.shape or b.shape[1] != a.shape[0]:
            raise ValueError(f"The adapter's {name} does not fit the model: train it again, or remove the adapter.")
    shapes = [adapter[name].shape for name in WHITENING if name in adapter]
    if shapes and shapes != [(HIDDEN,), (HIDDEN, HIDDEN)]:
        raise ValueError("The adapter's whitening does not fit the model: train it again, or remove the adapter.")


def adapted_linears(adapter: Weights) -> list[str]:
    return sorted(name.removesuffix(".lora_A") for name in adapter if name.endswith(".lora_A"))


def merge_adapter(weights: Weights, adapter: Weights) -> dict[str, np.ndarray]:
    """The weights with W + B A instead of W, for each "NAME.lora_A" (rank, inputs) and "NAME.lora_B" (outputs, rank);
    and the adapter's WHITENING, if it has one.

    Raises ValueError when the adapter does not fit the model.
    """
    check_adapter(weights, adapter)
    merged = widened(weights)
    for name in adapted_linears(adapter):
        # in float64, so that every machine rounds to the same weights
        a, b = (adapter[f"{name}.lora_{part}"].astype(np.float64) for part in "AB")
        merged[f"{name}.weight"] = (merged[f"{name}.weight"] + b @ a).astype(np.float32)
    return merged | {name: adapter[name].astype(np.float32) for name in (*WHITENING, STATES_CENTRE) if name in adapter}


def whitening(vectors: np.ndarray, ridge: float) -> dict[str, np.ndarray]:
    """WHITENING of vectors (n, 384) of length 1: after it, all directions have the same variance, except for `ridge`;
    float16.

    Source: https://arxiv.org/abs/2103.15316 (whitening of sentence vectors)
    """
    mean = vectors.mean(0, dtype=np.float64)
    centred = vectors - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / len(vectors))
    made = mean, directions / np.sqrt(np.maximum(variances, 0) + ridge)
    return {name: array.astype(np.float16) for name, array in zip(WHITENING, made, strict=True)}


def whitened(vectors: np.ndarray, weights: Weights) -> np.ndarray:
    """Vectors (n, 384) of length 1, transformed by the weights' WHITENING, if there is one."""
    if WHITENING[0] not in weights:
        return vectors
    mean, matrix = (weights[name].astype(np.float32) for name in WHITENING)
    moved = (vectors - mean) @ matrix
    return moved / np.linalg.norm(moved, axis=-1, keepdims=True)


def sentence_vector(weights: Weights, ids: Sequence[int]) -> np.ndarray:
    """float32 (384,), of length 1: the mean of the states, transformed by the weights' WHITENING."""
    mean = token_states(weights, ids).mean(0)
    return whitened(mean / np.linalg.norm(mean), weights).astype(np.float32)


def token_states(weights: Weights, ids: Sequence[int], observe: Observe | None = None) -> np.ndarray:
    """The last layer, (tokens, 384). observe gets the input (tokens, inputs) of each linear, by the linear's name."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        if observe:
            observe(name, x)
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def layer_norm(name: str, x: np.ndarray) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + LAYER_NORM_EPSILON)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = weights["embeddings.word_embeddings.weight"][list(ids)] + positions(weights)[: len(ids)]
    x = layer_norm("embeddings.LayerNorm", x)
    for layer in range(layers(weights)):
        block = f"encoder.layer.{layer}"
        mixed = attention(*(linear(f"{block}.attention.self.{part}", x) for part in ("query", "key", "value")))
        x = layer_norm(f"{block}.attention.output.LayerNorm", x + linear(f"{block}.attention.output.dense", mixed))
        inner = gelu(linear(f"{block}.intermediate.dense", x))
        x = layer_norm(f"{block}.output.LayerNorm", x + linear(f"{block}.output.dense", inner))
    return x


def layers(weights: Weights) -> int:
    """The number of the model's layers."""
    return sum(name.endswith(".attention.self.query.weight") for name in weights)


def positions(weights: Weights) -> np.ndarray:
    """(512, 384): the vector that is added to the token at each position of a single text."""
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    return weights["embeddings.position_embeddings.weight"] + kind


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(tokens, 384) each -> (tokens, 384)"""
    q, k, v = (x.reshape(len(x), HEADS, -1).transpose(1, 0, 2) for x in (query, key, value))
    scores = q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(q.shape[-1]))
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (scores / scores.sum(-1, keepdims=True)) @ v
    return mixed.transpose(1, 0, 2).reshape(query.shape)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * np.float32(0.5) * (1 + _erf(x / np.float32(math.sqrt(2))))
