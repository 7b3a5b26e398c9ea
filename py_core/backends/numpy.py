"""The reference backend: runs a model's graph with numpy, one operation after the other, in float32.

Every kernel is tested against it, and it is the fallback in a page without WebGPU. Weights are dequantized once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

import numpy as np

from py_core.backends.base import (
    AfterPass,
    BackendError,
    Capabilities,
    Progress,
    TokenSequence,
    check_not_empty,
    check_prefill,
)
from py_core.formats.gguf import GGUFHeader
from py_core.formats.quantization import dequantize
from py_core.formats.source import WeightSource
from py_core.models import graph as ops
from py_core.models.config import ModelConfig, rope_table
from py_core.models.graph import Graph, Value
from py_core.sampling import SamplingParams, sample

# Tokens in one pass. In the browser there is no BLAS: small passes let messages (Stop) in between.
CHUNK = 8 if sys.platform == "emscripten" else 64


async def load_weights(
    source: WeightSource, header: GGUFHeader, graph: Graph, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """The graph's weights as float32 arrays, read in the file's order."""
    infos = sorted((header.tensors[name] for name in graph.weights), key=lambda info: info.offset)
    weights = {}
    for info in infos:
        data = await source.read(info.offset, info.nbytes)
        weights[info.name] = dequantize(data, info.format, info.shape)
        if progress:
            progress(info.offset + info.nbytes, header.end_offset)
        await asyncio.sleep(0)
    return weights


class NumpyBackend:
    """See `Backend` for the contract of each method."""

    def __init__(self, config: ModelConfig, graph: Graph, weights: dict[str, np.ndarray], max_context: int = 8192):
        self.capabilities = Capabilities(backend="numpy", adapter=f"numpy {np.__version__}", software=True)
        self.context_length = min(config.max_position_embeddings, max_context)
        self._config, self._graph, self._weights = config, graph, weights
        self._rope = rope_table(config, self.context_length)
        self._states: dict[int, _State] = {}
        self._slots = 0

    def new_sequence(self) -> TokenSequence:
        self._slots += 1
        self._states[self._slots] = _State(self._config)
        return TokenSequence(self._slots)

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        check_prefill(sequence, tokens, self._config.vocab_size, self.context_length)
        sequence.tokens.extend(tokens)
        await self._run_pending(sequence, after_pass)

    async def decode(self, sequence: TokenSequence, n: int, sampling: SamplingParams) -> AsyncIterator[list[int]]:
        check_not_empty(sequence)
        for _ in range(min(n, self.context_length - sequence.length)):
            await self._run_pending(sequence)
            logits = self._state(sequence).logits
            token = sample(logits, sequence.tokens, sequence.length, sampling)
            sequence.tokens.append(token)
            yield [token]

    async def logits(self, sequence: TokenSequence) -> np.ndarray:
        check_not_empty(sequence)
        await self._run_pending(sequence)
        return self._state(sequence).logits.copy()

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        del sequence.tokens[length:]
        # The last token runs again: its logits are gone.
        sequence.stored = min(sequence.stored, max(length - 1, 0))

    def free(self, sequence: TokenSequence) -> None:
        self._states.pop(sequence.slot, None)

    def close(self) -> None:
        self._states.clear()
        self._weights = {}

    def _state(self, sequence: TokenSequence) -> _State:
        if sequence.slot not in self._states:
            raise BackendError("This conversation was closed. Start a new one.")
        return self._states[sequence.slot]

    async def _run_pending(self, sequence: TokenSequence, after_pass: AfterPass | None = None) -> None:
        """Run the tokens whose keys and values are not stored yet."""
        state = self._state(sequence)
        while sequence.stored < sequence.length:
            chunk = sequence.tokens[sequence.stored : sequence.stored + CHUNK]
            positions = np.arange(sequence.stored, sequence.stored + len(chunk))
            state.logits = (await self._forward(np.array(chunk), positions, state))[0]
            sequence.stored += len(chunk)
            if after_pass:
                await after_pass(sequence.stored)

    async def _forward(self, tokens: np.ndarray, positions: np.ndarray, state: _State) -> np.ndarray:
        values: dict[Value, np.ndarray] = {}
        for op in self._graph.ops:
            match op:
                case ops.Embedding():
                    out = self._weights[op.weight][tokens]
                case ops.RMSNorm():
                    out = rms_norm(values[op.x], self._weights[op.weight], op.eps)
                case ops.Linear():
                    out = values[op.x] @ self._weights[op.weight].T
                case ops.Rope():
                    out = rope(values[op.x], self._rope[positions], op.num_heads, op.interleaved)
                case ops.Attention():
                    keys, all_values = state.append(op.layer, positions[0], values[op.k], values[op.v])
                    out = attention(values[op.q], keys, all_values, positions, op.num_attention_heads)
                    await asyncio.sleep(0)
                case ops.SwiGLU():
                    out = swiglu(values[op.gate], values[op.up])
                case ops.Add():
                    out = values[op.a] + values[op.b]
                case ops.LastToken():
                    out = values[op.x][-1:]
            values[op.out] = out
        return values[self._graph.output]


class _State:
    """One sequence's keys and values: two arrays (capacity, kv_heads, head_dim) a layer, grown by doubling."""

    def __init__(self, config: ModelConfig) -> None:
        self.logits = np.zeros(config.vocab_size, np.float32)
        self._heads = (config.num_key_value_heads, config.head_dim)
        empty = np.zeros((2, 0, *self._heads), np.float32)
        self._cache = [empty] * config.num_hidden_layers

    def append(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store k and v (M, kv_heads * head_dim) at position `start`; all keys and values up to there come back."""
        cache, end = self._cache[layer], start + len(k)
        if end > cache.shape[1]:
            grown = np.zeros((2, max(64, 2 * end), *self._heads), np.float32)
            grown[:, :start] = cache[:, :start]
            cache = self._cache[layer] = grown
        cache[0, start:end] = k.reshape(-1, *self._heads)
        cache[1, start:end] = v.reshape(-1, *self._heads)
        return cache[0, :end], cache[1, :end]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x (M, n), weight (n,)"""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def rope(x: np.ndarray, table: np.ndarray, num_heads: int, interleaved: bool) -> np.ndarray:
    """x (M, heads * head_dim), table (M, head_dim // 2, 2) of cos and sin."""
    heads = x.reshape(len(x), num_heads, -1)
    half = heads.shape[-1] // 2
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    out = np.empty_like(heads)
    out[..., first] = heads[..., first] * cos - heads[..., second] * sin
    out[..., second] = heads[..., first] * sin + heads[..., second] * cos
    return out.reshape(x.shape)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray, num_heads: int) -> np.ndarray:
    """q (M, heads * head_dim), k and v (T, kv_heads, head_dim); row m sees tokens 0..positions[m]."""
    m, (t, kv_heads, head_dim) = len(q), k.shape
    grouped = q.reshape(m, kv_heads, num_heads // kv_heads, head_dim)
    scores = np.einsum("mkgd,tkd->kgmt", grouped, k, optimize=True) / np.float32(np.sqrt(head_dim))
    scores = np.where(np.arange(t) > positions[:, None], np.float32(-np.inf), scores)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.einsum("kgmt,tkd->mkgd", scores, v, optimize=True).reshape(m, -1)


def swiglu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """silu(gate) * up; the exponent is clipped where silu is 0 in float32 anyway."""
    return gate / (1 + np.exp(-np.maximum(gate, np.float32(-80)))) * up
