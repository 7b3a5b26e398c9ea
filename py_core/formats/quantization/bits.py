"""Packs codes and scales into bytes, and unpacks them (blocks.py has the layouts)."""

from __future__ import annotations

import numpy as np


def unpack(packed: np.ndarray, bits: int, run: int) -> np.ndarray:
    """uint8 (blocks, bytes) -> uint8 (blocks, bytes * 8 / bits).

    In each group of `run` bytes, byte j holds elements j, j + run, j + 2 * run ..., `bits` each, lowest bits first.
    """
    bytes_ = packed.reshape(packed.shape[0], -1, run)
    out = np.empty((*bytes_.shape[:2], 8 // bits, run), np.uint8)
    for place in range(8 // bits):
        np.right_shift(bytes_, bits * place, out=out[:, :, place])
    out &= (1 << bits) - 1
    return out.reshape(packed.shape[0], -1)


def pack(codes: np.ndarray, bits: int, run: int) -> np.ndarray:
    """The inverse of unpack; only the lower `bits` of the codes are used."""
    places = (codes & ((1 << bits) - 1)).reshape(codes.shape[0], -1, 8 // bits, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(places << shifts[:, None], axis=2).reshape(codes.shape[0], -1)


_RUNS = ((0, 32, 5), (32, 48, 5), (48, 52, 4))
"""The bytes of TQ1_0's codes that belong together: from, to, codes in each byte."""


def unpack_trits(packed: np.ndarray) -> np.ndarray:
    """uint8 (blocks, 52) -> codes of TQ1_0: uint8 (blocks, 256), each 0 to 2."""
    runs = []
    for start, stop, count in _RUNS:
        powers = 3 ** np.arange(count, dtype=np.uint8)
        left = packed[:, None, start:stop] * powers[:, None]  # modulo 256
        runs.append((left.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(packed), -1))
    return np.hstack(runs)


def pack_trits(codes: np.ndarray) -> np.ndarray:
    """The inverse of unpack_trits."""
    packed, done = np.empty((len(codes), 52), np.uint8), 0
    for start, stop, count in _RUNS:
        run = codes[:, done : done + count * (stop - start)].reshape(len(codes), count, -1)
        digits = (3 ** np.arange(4, 4 - count, -1, dtype=np.uint16))[:, None]
        packed[:, start:stop] = ((run * digits).sum(axis=1) * 256 + 242) // 243  # rounded up, for the floor
        done += count * (stop - start)
    return packed


def unpack_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (blocks, 12) -> scales and minima of Q4_K and Q5_K: uint8 (blocks, 8) both."""
    first, last = packed[:, :8] & 63, unpack(packed[:, 8:], 4, 4) | (packed[:, :8] >> 6) << 4
    return np.hstack((first[:, :4], last[:, :4])), np.hstack((first[:, 4:], last[:, 4:]))


def pack_scales(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """The inverse of unpack_scales."""
    first, last = np.hstack((scales[:, :4], minima[:, :4])), np.hstack((scales[:, 4:], minima[:, 4:]))
    return np.hstack((first | (last >> 4) << 6, pack(last, 4, 4)))


def half_column(blocks: np.ndarray, start: int) -> np.ndarray:
    """The half at byte `start` of every block: float32 (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def unpack_q3_scales(packed: np.ndarray) -> np.ndarray:
    """uint8 (blocks, 12) -> scales of Q3_K, minus their bias: int8 (blocks, 16)."""
    return (unpack(packed[:, :8], 4, 8) | unpack(packed[:, 8:], 2, 4) << 4).view(np.int8) - np.int8(32)


def pack_q3_scales(scales: np.ndarray) -> np.ndarray:
    """The inverse of unpack_q3_scales."""
    codes = (scales + np.int8(32)).view(np.uint8)
    return np.hstack((pack(codes, 4, 8), pack(codes >> 4, 2, 4)))


def unpack_iq4_scales(packed: np.ndarray) -> np.ndarray:
    """uint8 (blocks, 6) -> scales of IQ4_XS, minus their bias: int8 (blocks, 8)."""
    return (unpack(packed[:, 2:], 4, 1) | unpack(packed[:, :2], 2, 1) << 4).view(np.int8) - np.int8(32)


def pack_iq4_scales(scales: np.ndarray) -> np.ndarray:
    """The inverse of unpack_iq4_scales."""
    codes = (scales + np.int8(32)).view(np.uint8)
    return np.hstack((pack(codes >> 4, 2, 1), pack(codes, 4, 1)))
