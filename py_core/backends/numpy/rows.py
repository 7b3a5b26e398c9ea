"""The operations of a graph in numpy: the reference for the kernels. Results of float64 inputs stay float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_core.models import graph as ops


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x (M, n), weight (n,), or (n / heads,) if each head of a row is normalized by itself."""
    heads = x.reshape(len(x), -1, len(weight))
    scale = np.sqrt(np.mean(heads * heads, axis=-1, keepdims=True) + np.float32(eps))
    return (heads / scale * weight).reshape(x.shape)


def rope(x: np.ndarray, table: np.ndarray, num_heads: int, interleaved: bool) -> np.ndarray:
    """x (M, heads * head_dim), table (M, pairs, 2) of cos and sin; the first 2 * pairs values of a head rotate."""
    heads = x.reshape(len(x), num_heads, -1)
    half = table.shape[1]
    first, second = slice(half), slice(half, 2 * half)
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    out = heads.copy()
    out[..., first] = heads[..., first] * cos - heads[..., second] * sin
    out[..., second] = heads[..., first] * sin + heads[..., second] * cos
    return out.reshape(x.shape)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray, num_heads: int, scale: float,
    softcap: float = 0.0, window: int = 0, ahead: Sequence[int] = (),
) -> np.ndarray:  # fmt: skip
    """q (M, heads * head_dim), k and v (T, kv_heads, head_dim). Row m sees tokens 0..positions[m], or the last of them,
    and as many behind its own as `ahead` says.

    See `graph.Attention` for the rest.
    """
    m, (t, kv_heads, head_dim) = len(q), k.shape
    grouped = q.reshape(m, kv_heads, num_heads // kv_heads, head_dim)
    scores = np.einsum("mkgd,tkd->kgmt", grouped, k, optimize=True) * np.float32(scale)
    if softcap:
        scores = soft_cap(scores, softcap)
    last = positions + np.array(ahead, np.int64) if ahead else positions
    unseen = np.arange(t) > last[:, None]
    if window:
        unseen |= np.arange(t) <= positions[:, None] - window
    scores = np.where(unseen, np.float32(-np.inf), scores)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.einsum("kgmt,tkd->mkgd", scores, v, optimize=True).reshape(m, -1)


def short_conv(
    x: np.ndarray, weight: np.ndarray, past: np.ndarray, gated: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """x (M, 3 width) if gated, else (M, width), weight (width, taps), past (taps - 1, width): z of the positions
    before. Returns the output and z, (M, width) each; see `graph.ShortConv`."""
    b, c, u = np.split(x, 3, axis=1) if gated else (1, 1, x)
    z = b * u
    rows, taps = np.concatenate([past, z]), weight.shape[1]
    out = c * sum(weight[:, j] * rows[j : j + len(x)] for j in range(taps))
    return out if gated else glu(out, np.ones_like(out)), z


def delta_rule(
    x: np.ndarray, alpha: np.ndarray, beta: np.ndarray, rate: np.ndarray, bias: np.ndarray, key_heads: int,
    past: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """x (M, (2 key_heads + heads) size), alpha and beta (M, heads), rate and bias (heads,), past: k, u and g of all
    positions before. Returns the output, and k (M, key_heads size), u (M, heads size) and g (M, heads); see
    `graph.DeltaRule`. S is the sum of k^T u over the rows so far, each by the exponential of the g since it, so it need
    not be kept."""
    m, heads = alpha.shape
    size = x.shape[1] // (2 * key_heads + heads)
    q, k, v = np.split(x.reshape(m, -1, size), [key_heads, 2 * key_heads], axis=1)
    q, k = (each / np.sqrt((each * each).sum(-1, keepdims=True) + np.float32(1e-6)) for each in (q, k))
    g = rate * np.logaddexp(np.zeros_like(alpha), alpha + bias)
    shares = glu(beta, np.ones_like(beta), "sigmoid")
    first, since = len(past[0]), np.concatenate([past[2], g]).cumsum(0, dtype=np.float64)
    keys = np.tile(np.concatenate([past[0].reshape(-1, key_heads, size), k]), (1, heads // key_heads, 1))
    queries = np.tile(q, (1, heads // key_heads, 1)) / np.sqrt(np.float32(size))
    updates = np.concatenate([past[1].reshape(-1, heads, size), np.zeros_like(v)])
    out = np.empty_like(v)
    for row, at in enumerate(range(first, first + m)):
        decay = np.exp(since[at] - since[: at + 1]).astype(x.dtype)
        seen = np.einsum("hd,jhd->jh", keys[at], keys[:at]) * decay[:at]
        updates[at] = shares[row, :, None] * (v[row] - np.einsum("jh,jhd->hd", seen, updates[:at]))
        asked = np.einsum("hd,jhd->jh", queries[row], keys[: at + 1]) * decay
        out[row] = np.einsum("jh,jhd->hd", asked, updates[: at + 1])
    return out.reshape(m, -1), k.reshape(m, -1), updates[first:].reshape(m, -1), g


def half(x: np.ndarray, size: int, second: bool) -> np.ndarray:
    """x (M, 2 n size): every second head of a row, (M, n size)."""
    return x.reshape(len(x), -1, 2, size)[:, :, int(second)].reshape(len(x), -1)


def route(logits: np.ndarray, used: int, normalized: bool) -> np.ndarray:
    """logits (M, experts). Returns the experts' numbers, then their shares: (M, 2 used); see `graph.Route`."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    experts = np.argsort(-shares, axis=1, kind="stable")[:, :used]
    shares = np.take_along_axis(shares, experts, axis=1)
    if normalized:
        shares /= shares.sum(axis=1, keepdims=True)
    return np.concatenate([experts.astype(shares.dtype), shares], axis=1)


def expert_linear(x: np.ndarray, routed: np.ndarray, weight: np.ndarray, used: int) -> np.ndarray:
    """x (M, k) or (M, used * k), routed (M, 2 used) as `route` returns it, weight (experts, n, k): (M, used * n)."""
    _, n, k = weight.shape
    experts = routed[:, :used].astype(np.int64)
    rows = np.broadcast_to(x.reshape(len(x), -1, k), (len(x), used, k))
    out = np.empty((len(x), used, n), x.dtype)
    for expert in np.unique(experts):
        chosen = experts == expert
        out[chosen] = rows[chosen] @ weight[expert].T
    return out.reshape(len(x), -1)


def mix(x: np.ndarray, routed: np.ndarray, used: int) -> np.ndarray:
    """x (M, used * n), routed (M, 2 used): the sum of a row's parts, by their shares (M, n)."""
    return np.einsum("ms,msn->mn", routed[:, used:], x.reshape(len(x), used, -1))


def soft_cap(x: np.ndarray, cap: float) -> np.ndarray:
    """cap * tanh(x / cap)"""
    return np.tanh(x / np.float32(cap)) * np.float32(cap)


def glu(gate: np.ndarray, up: np.ndarray, activation: ops.Activation = "silu") -> np.ndarray:
    """activation(gate) * up. Exponents are clipped in the range in which silu is 0 in float32 anyway."""
    if activation != "gelu":
        share = 1 / (1 + np.exp(-np.maximum(gate, np.float32(-80))))
        return (gate * share if activation == "silu" else share) * up
    inner = np.float32(0.7978845608028654) * (gate + np.float32(0.044715) * gate * gate * gate)  # sqrt(2 / pi)
    return np.float32(0.5) * gate * (1 + np.tanh(inner)) * up
