"""The numbers that web/kernels/training.h and Python share, and the places of a training pass's values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from py_core.models.graph import Value

SCRATCH_BYTES = 256 << 10
"""Memory of each worker's own, for parts of matrices."""

SCRATCH_ARGUMENT = 13
"""The argument of an operation that has the address of the scratch memory."""

PART = 8192
"""Floats whose squares are summed together."""

CHUNK = 256
"""Tokens of the vocabulary whose logits exist at a time."""

PACK_BYTES, LOSS_ROW_BYTES, RUNNING_BYTES, RULE_BYTES, RESULT_BYTES = 64, 16, 32, 40, 16


class TrainKind(IntEnum):
    """Operations that only training programs have."""

    LINEAR = 64
    LINEAR_GRADIENT = 65
    LORA_DOWN = 66
    LORA_UP = 67
    LORA_UP_GRADIENT = 68
    LORA_DOWN_GRADIENT = 69
    ATTENTION = 70
    ATTENTION_GRADIENT_Q = 71
    ATTENTION_GRADIENT_KV = 72
    NORM_GRADIENT = 73
    ROPE_GRADIENT = 74
    GLU_GRADIENT = 75
    SOFT_CAP_GRADIENT = 76
    LOSS_BEGIN = 77
    LOSS_CHUNKS = 78
    LOSS_END = 79
    SUM_SQUARES = 80
    ADAMW = 81
    ADD_FISHER = 82
    CLEAR = 83
    ADD_PULL = 84
    PACKED_CONV = 85
    CONV_GRADIENT = 86


@dataclass(frozen=True)
class PackedLayer:
    """The description of a layer's attention in a pack that the kernels read (training_attention.c)."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int
    softcap: float
    scale: float
    pack: int
    room: int

    def packed(self) -> bytes:
        sizes = (self.heads, self.kv_heads, self.head_dim, self.window)
        return struct.pack("<4I2f2I", *sizes, self.softcap, self.scale, self.pack, self.room)


class Places:
    """The places of values. A buffer is used again once its value is released."""

    def __init__(self, take: Callable[[int], int]) -> None:
        """`take` returns the address of the given number of bytes."""
        self._take = take
        self._buffers: list[tuple[int, int]] = []
        self._free: dict[int, list[int]] = {}
        self._places: dict[Value, tuple[int, int]] = {}

    def begin(self) -> None:
        """Forget all values: all buffers are free."""
        self._places.clear()
        self._free.clear()
        for address, nbytes in reversed(self._buffers):
            self._free.setdefault(nbytes, []).append(address)

    def __getitem__(self, value: Value) -> int:
        return self._places[value][0]

    def make(self, value: Value, nbytes: int) -> int:
        free = self._free.setdefault(nbytes, [])
        if not free:
            free.append(self._take(nbytes))
            self._buffers.append((free[-1], nbytes))
        self._places[value] = (free.pop(), nbytes)
        return self._places[value][0]

    def replace(self, value: Value, by: Value) -> int:
        """Let a value overwrite another that nothing reads any more. Returns the address."""
        self._places[by] = self._places.pop(value)
        return self._places[by][0]

    def release(self, value: Value) -> None:
        if value in self._places:
            address, nbytes = self._places.pop(value)
            self._free[nbytes].append(address)
