"""all-MiniLM-L6-v2 in torch, with a low-rank adapter on each linear: for training only (the extra `train`).

app/building/embedder/minilm.py is the same model without gradients; app/training/embedder_adapter.py compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from app.building.embedder.minilm import HEADS, LAYER_NORM_EPSILON, Weights, layers

_TOGETHER = 24
LINEARS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


class LowRankLinear(nn.Module):
    """x W^T + b + (x A^T) B^T * scale; only A (rank, inputs) and B (outputs, rank) learn. B begins as zeros."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, rank: int, scale: float, dropout: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.a = nn.Parameter(torch.randn(rank, weight.shape[1]) / weight.shape[1] ** 0.5)
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank))
        self.scale = scale
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        learned = functional.linear(functional.dropout(x, self.dropout, self.training), self.a)
        return functional.linear(x, self.weight, self.bias) + functional.linear(learned, self.b) * self.scale


class AdaptedMiniLM(nn.Module):
    """Vectors (texts, 384) of length 1, for texts given as ids."""

    def __init__(self, weights: Weights, rank: int, scale: float = 2.0, dropout: float = 0.1) -> None:
        super().__init__()
        tensors = {
            name: torch.from_numpy(np.array(array, np.float32))
            for name, array in weights.items()
            if array.dtype.kind == "f"
        }
        self.dropout = dropout
        self.layers = layers(weights)
        self.linears = nn.ModuleDict(
            {
                _key(name): LowRankLinear(tensors[f"{name}.weight"], tensors[f"{name}.bias"], rank, scale, dropout)
                for name in linear_names(self.layers)
            }
        )
        kept = [name for name in tensors if "embeddings" in name or "LayerNorm" in name]
        for name in kept:
            self.register_buffer(_key(name), tensors[name])

    def forward(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Texts of similar length run together, so that little is spent on padding."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        parts = [order[start : start + _TOGETHER] for start in range(0, len(order), _TOGETHER)]
        vectors = torch.cat([self._vectors([texts[index] for index in part]) for part in parts])
        return vectors[torch.tensor(np.argsort(order), device=vectors.device)]

    def _vectors(self, texts: Sequence[Sequence[int]]) -> Tensor:
        device = self._kept("embeddings.LayerNorm.weight").device
        length = max(map(len, texts))
        ids = torch.tensor([[*text, *[0] * (length - len(text))] for text in texts], device=device)
        real = torch.tensor([[True] * len(text) + [False] * (length - len(text)) for text in texts], device=device)
        x = self._kept("embeddings.word_embeddings.weight")[ids]
        x = x + self._kept("embeddings.position_embeddings.weight")[:length]
        x = x + self._kept("embeddings.token_type_embeddings.weight")[0]
        x = self._drop(self._norm("embeddings", x))
        for layer in range(self.layers):
            x = self._block(f"encoder.layer.{layer}", x, real)
        weight = real[:, :, None].to(x.dtype)
        return functional.normalize((x * weight).sum(1) / weight.sum(1), dim=-1)

    def _block(self, block: str, x: Tensor, real: Tensor) -> Tensor:
        parts = (self._linear(f"{block}.attention.self.{part}", x) for part in ("query", "key", "value"))
        q, k, v = (part.view(*part.shape[:2], HEADS, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, real[:, None, None, :])
        mixed = mixed.transpose(1, 2).reshape(x.shape)
        x = self._norm(
            f"{block}.attention.output", x + self._drop(self._linear(f"{block}.attention.output.dense", mixed))
        )
        inner = functional.gelu(self._linear(f"{block}.intermediate.dense", x))
        return self._norm(f"{block}.output", x + self._drop(self._linear(f"{block}.output.dense", inner)))

    def adapter(self) -> dict[str, np.ndarray]:
        """float16 "NAME.lora_A" (rank, inputs) and "NAME.lora_B" (outputs, rank), with the scale included in B."""
        out = {}
        for name in linear_names(self.layers):
            linear = self._adapted(name)
            out[f"{name}.lora_A"] = linear.a.detach().cpu().numpy().astype(np.float16)
            out[f"{name}.lora_B"] = (linear.b.detach() * linear.scale).cpu().numpy().astype(np.float16)
        return out

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return self._adapted(name)(x)

    def _adapted(self, name: str) -> LowRankLinear:
        linear = self.linears[_key(name)]
        assert isinstance(linear, LowRankLinear)
        return linear

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = (self._kept(f"{name}.LayerNorm.{part}") for part in ("weight", "bias"))
        return functional.layer_norm(x, x.shape[-1:], weight, bias, LAYER_NORM_EPSILON)

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)

    def _kept(self, name: str) -> Tensor:
        return getattr(self, _key(name))


def linear_names(count: int) -> list[str]:
    """The linears of this number of layers."""
    return [f"encoder.layer.{layer}.{linear}" for layer in range(count) for linear in LINEARS]


def _key(name: str) -> str:
    return name.replace(".", "_")  # torch allows no dots in names
