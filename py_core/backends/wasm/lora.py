"""Sets of LoRA matrices in the kernels' memory, as web/kernels/lora.h reads them.

A and B become 16-bit whole numbers with a scale for each block: half the bytes of float32, and twice the products an
instruction, at the cost of an error of 1e-4 of the set's contribution.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from py_core.adapters.lora import LoraAdapter, LoraPair
from py_core.backends.wasm.host import MAX_WORKERS
from py_core.backends.wasm.layout import GROUP_ROWS
from py_core.backends.wasm.weights import TensorRows

MOST_PARTS = 3
"""Tensors whose linears read one value together: queries, keys and values."""

SITE_BYTES = 64
_ROW_BYTES, _TABLE_BYTES = 128, 64
_A_LIMIT, _B_LIMIT = 4095, 16383


@dataclass(frozen=True)
class LoraSite:
    """Linears of one value of `columns`: the rows that they read, in the order of their outputs."""

    columns: int
    parts: tuple[TensorRows, ...]

    def packed(self, adapter: LoraAdapter, distance: int) -> tuple[bytes, bytes]:
        """Pack what the kernels read first of this site, and its matrices, which lie `distance` bytes after that."""
        pairs = [adapter.pairs.get(part.name) for part in self.parts]
        data = bytearray(_packed_a([pair.a for pair in pairs if pair]))
        words, first = [sum(_groups(pair) for pair in pairs if pair), distance], 0
        for part, pair in zip(self.parts, pairs, strict=True):
            words += [first, part.count, 2 * _groups(pair) if pair else 0, distance + len(data)]
            data += _packed_b(pair, part) if pair else b""
            first += part.count
        return struct.pack(f"<{len(words)}I", *words).ljust(SITE_BYTES, b"\0"), bytes(data)


def packed_set(sites: Sequence[LoraSite], adapter: LoraAdapter) -> bytes:
    """Pack what the kernels read first of each site, one after the other, then all matrices. It may lie anywhere."""
    heads, matrices = bytearray(), bytearray()
    for site in sites:
        head, data = site.packed(adapter, len(sites) * SITE_BYTES - len(heads) + len(matrices))
        heads += head
        matrices += data
    return bytes(heads + matrices)


def rows_bytes(max_rows: int) -> int:
    """Return the bytes of LoraSets: the sets' addresses, then A x of each worker's own row and of the rows of a
    pass."""
    return _TABLE_BYTES + _ROW_BYTES * (MAX_WORKERS + max_rows)


def _groups(pair: LoraPair) -> int:
    """Return the number of groups of ranks that the kernels take."""
    return -(-pair.rank // GROUP_ROWS)


def _packed_a(matrices: Sequence[np.ndarray]) -> bytes:
    """For each block of 32 columns and each group of 4 ranks 4 scales, then 16 vectors of 4 ranks x 2 columns."""
    if not matrices:
        return b""
    a = np.concatenate([_filled_up(matrix, GROUP_ROWS) for matrix in matrices])
    a = _filled_up(a.T, 32).T
    groups = a.reshape(len(a) // GROUP_ROWS, GROUP_ROWS, -1, 32)
    scales = np.abs(groups).max(axis=3, keepdims=True) / np.float32(_A_LIMIT)
    whole = _whole(groups, scales).reshape(*groups.shape[:3], 16, 2).transpose(2, 0, 3, 1, 4)
    worth = scales.astype(np.float32)[..., 0].transpose(2, 0, 1)
    packed = np.empty((*whole.shape[:2], 272), np.uint8)
    packed[..., :16] = np.ascontiguousarray(worth).view(np.uint8)
    packed[..., 16:] = np.ascontiguousarray(whole).view(np.uint8).reshape(*whole.shape[:2], -1)
    return packed.tobytes()


def _packed_b(pair: LoraPair, part: TensorRows) -> bytes:
    """For each group of 4 rows a vector for each pair of ranks, then a scale for each group, up to a multiple of 16."""
    b = np.float32(pair.scale) * pair.b[part.first : part.first + part.count]
    b = _filled_up(_filled_up(b, GROUP_ROWS).T, GROUP_ROWS).T
    groups = b.reshape(len(b) // GROUP_ROWS, GROUP_ROWS, -1, 2)
    scales = np.abs(groups).max(axis=(1, 2, 3), keepdims=True) / np.float32(_B_LIMIT)
    data = np.ascontiguousarray(_whole(groups, scales).transpose(0, 2, 1, 3)).tobytes()
    data += scales.astype(np.float32).tobytes()
    return data + bytes(-len(data) % 16)


def _filled_up(matrix: np.ndarray, multiple: int) -> np.ndarray:
    """Return the matrix with rows of zeros at the end, so that the number of rows is a multiple."""
    return np.pad(matrix, ((0, -len(matrix) % multiple), (0, 0)))


def _whole(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the nearest whole multiples of the scales, int16."""
    return np.rint(values / np.where(scales > 0, scales, 1)).astype(np.int16)
