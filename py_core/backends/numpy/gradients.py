"""Gradient operations in numpy: the reference for the kernels. Results of float64 inputs stay float64."""

from __future__ import annotations

import numpy as np

from py_core.models import graph as ops
from py_core.training.session import Pack


def seen_rows(pack: Pack, window: int) -> np.ndarray:
    """True if row i sees row j: bool (M, M), as defined by `gradient_ops.PackedAttention`."""
    i, j = np.arange(pack.rows)[:, None], np.arange(pack.rows)
    seen = (j <= i) & ((j < pack.prefix) | (j >= pack.starts[:, None]))
    if window:
        seen &= pack.positions[:, None] - pack.positions < window
    return seen


def packed_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, op: ops.Attention
) -> tuple[np.ndarray, np.ndarray]:
    """q (M, heads * head_dim), k and v (M, kv_heads * head_dim). Returns the output, shaped as q, and log_sums (M,
    heads)."""
    queries, keys, values = _heads(q, k, v, op)
    scores = np.where(seen, _scores(queries, keys, op), -np.inf)
    most = scores.max(axis=-1, keepdims=True)
    shares = np.exp(scores - most)
    sums = shares.sum(axis=-1, keepdims=True)
    out = np.einsum("kgmt,tkd->mkgd", shares / sums, values, optimize=True)
    log_sums = (most + np.log(sums))[..., 0]
    return out.reshape(q.shape), log_sums.transpose(2, 0, 1).reshape(len(q), -1)


def attention_gradient(
    dout: np.ndarray, out: np.ndarray, log_sums: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray,
    seen: np.ndarray, op: ops.Attention,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return dq, dk, dv of `packed_attention`."""
    queries, keys, values = _heads(q, k, v, op)
    given, made = dout.reshape(queries.shape), out.reshape(queries.shape)
    scores = _scores(queries, keys, op)
    sums = log_sums.reshape(len(q), *queries.shape[1:3]).transpose(1, 2, 0)[..., None]
    shares = np.where(seen, np.exp(np.where(seen, scores - sums, 0)), 0)
    dv = np.einsum("kgmt,mkgd->tkd", shares, given, optimize=True)
    weighted = np.sum(given * made, axis=-1).transpose(1, 2, 0)[..., None]
    ds = shares * (np.einsum("mkgd,tkd->kgmt", given, values, optimize=True) - weighted)
    if op.softcap:
        ds *= 1 - (scores / op.softcap) ** 2
    ds *= op.scale
    dq = np.einsum("kgmt,tkd->mkgd", ds, keys, optimize=True)
    dk = np.einsum("kgmt,mkgd->tkd", ds, queries, optimize=True)
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def rows_before(pack: Pack, distance: int) -> np.ndarray:
    """The row at a distance before each in its sequence (`gradient_ops.PackedConv`): int (M,), below 0 for none."""
    rows = np.arange(pack.rows)
    found = rows - distance
    return np.where((rows >= pack.prefix) & (found < pack.starts), found - pack.starts + pack.prefix, found)


def packed_conv(x: np.ndarray, weight: np.ndarray, pack: Pack) -> np.ndarray:
    """x (M, 3 width), weight (width, taps). Returns (M, width)."""
    return np.split(x, 3, axis=1)[1] * _convolved(x, weight, pack)


def conv_gradient(dy: np.ndarray, x: np.ndarray, weight: np.ndarray, pack: Pack) -> np.ndarray:
    """Return dx of `packed_conv`."""
    b, c, u = np.split(x, 3, axis=1)
    dz, taps = np.zeros_like(b), weight.shape[1]
    for j in range(taps):
        rows = rows_before(pack, taps - 1 - j)
        np.add.at(dz, rows[rows >= 0], (weight[:, j] * dy * c)[rows >= 0])
    return np.concatenate([dz * u, dy * _convolved(x, weight, pack), dz * b], axis=1)


def _convolved(x: np.ndarray, weight: np.ndarray, pack: Pack) -> np.ndarray:
    b, _, u = np.split(x, 3, axis=1)
    z, taps = b * u, weight.shape[1]
    found = np.zeros_like(z)
    for j in range(taps):
        rows = rows_before(pack, taps - 1 - j)
        found += weight[:, j] * np.where(rows[:, None] >= 0, z[rows], 0)
    return found


def rms_norm_gradient(dy: np.ndarray, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """dy and x (M, n), weight (n,), or (n / heads,) if each head of a row is normalized by itself."""
    heads, given = x.reshape(len(x), -1, len(weight)), dy.reshape(len(x), -1, len(weight)) * weight
    r = 1 / np.sqrt(np.mean(heads * heads, axis=-1, keepdims=True) + eps)
    return (r * given - r**3 * heads * np.mean(given * heads, axis=-1, keepdims=True)).reshape(x.shape)


def glu_gradient(
    dy: np.ndarray, gate: np.ndarray, up: np.ndarray, activation: ops.Activation
) -> tuple[np.ndarray, np.ndarray]:
    """Return dgate and dup of activation(gate) * up."""
    if activation == "silu":
        share = 1 / (1 + np.exp(-np.maximum(gate, -80)))
        return dy * up * share * (1 + gate * (1 - share)), dy * gate * share
    factor = 0.7978845608028654  # sqrt(2 / pi)
    t = np.tanh(factor * (gate + 0.044715 * gate**3))
    slope = 0.5 * (1 + t) + 0.5 * gate * (1 - t * t) * factor * (1 + 3 * 0.044715 * gate * gate)
    return dy * up * slope, dy * 0.5 * gate * (1 + t)


def soft_cap_gradient(dy: np.ndarray, y: np.ndarray, cap: float) -> np.ndarray:
    """The gradient of y = cap * tanh(x / cap)."""
    return dy * (1 - (y / cap) ** 2)


def _heads(q: np.ndarray, k: np.ndarray, v: np.ndarray, op: ops.Attention) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q as (M, kv_heads, group, head_dim), k and v as (M, kv_heads, head_dim)."""
    m, kv_heads = len(q), op.num_key_value_heads
    return (
        q.reshape(m, kv_heads, op.num_attention_heads // kv_heads, -1),
        k.reshape(m, kv_heads, -1),
        v.reshape(m, kv_heads, -1),
    )


def _scores(queries: np.ndarray, keys: np.ndarray, op: ops.Attention) -> np.ndarray:
    """Return the capped scores of all rows with all: (kv_heads, group, M, M)."""
    scores = np.einsum("mkgd,tkd->kgmt", queries, keys, optimize=True) * op.scale
    return op.softcap * np.tanh(scores / op.softcap) if op.softcap else scores
