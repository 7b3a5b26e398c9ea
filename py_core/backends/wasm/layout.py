"""The numbers that web/kernels/kernels.h and Python share, and an allocator for the kernels' memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from py_core.backends.wasm.host import HEAP_BASE
from py_core.formats.quantization import BlockFormat
from py_core.models.graph import Activation
from py_core.paging.page_table import PAGE, head_room
from py_core.paging.tiers import Tier

ABI = 26

GROUP_ROWS, BAND_ROWS = 4, 16
"""Repacked matrices: a group's rows are a vector's lanes, a band's groups lie together."""

EXTENT = 8
"""Hot pages that lie together, so that a head's pages are read in one run: [extent][layer][kv head][page]."""

TIER_BIT = 1 << 30
"""The tier's place in an entry of a page table."""

PART = 128
"""Positions that form one part of a row's attention; the parts are merged."""

MOST_GROUP, MOST_HEAD_DIM = 16, 512
"""The most query heads of one head of keys and values, and the most dimensions, for which the kernels have room."""


class OpKind(IntEnum):
    EMBED = 1
    QUANTIZE = 2
    LINEAR = 3
    ROPE_APPEND = 4
    ATTENTION = 5
    ARGMAX = 6
    SAMPLE = 7
    PENALTIES = 8
    LOGIT_ROWS = 9
    GLU = 10
    NORM = 11
    ROPE = 12
    ADD = 13
    SOFT_CAP = 14
    LORA_DOWN = 15
    LORA_LINEAR = 16
    HEAD_ADAPT = 17
    LOGIT_SUMS = 18
    HEAD_MIX = 19
    TOKEN_SCORES = 20
    COPY = 21
    DEMOTE = 22
    SHORT_CONV = 23
    ROUTE = 24
    EXPERT_LINEAR = 25
    MIX = 26
    DELTA_RULE = 27
    HALF = 28
    SCALE = 29
    UNLESS_WAITING = 30
    DRAW_COLUMNS = 31
    UNMASK = 32


class Epilogue(IntEnum):
    """The last step of a linear. SILU and GELU apply to the gates, the first half of the rows, and multiply the ups."""

    NONE = 0
    RESIDUAL = 1
    SILU = 2
    GELU = 3
    SOFT_CAP = 4


ACTIVATIONS: dict[Activation, Epilogue] = {"silu": Epilogue.SILU, "gelu": Epilogue.GELU}
GATES: dict[Activation, int] = {**ACTIVATIONS, "sigmoid": 5}
"""The numbers of activations in the kernel of gates that no linear makes."""


class Barrier(IntEnum):
    NEVER = 0
    ALWAYS = 1
    MANY_ROWS = 2
    """With one row each worker has a copy of its own."""


class MatrixKind(IntEnum):
    """How repacked weights lie in memory: codes of 4, 5, 6 or 8 bits, with scales for 16 columns in SPLIT (4 bits) and
    SIXES; or floats. See web/kernels/kernels.h."""

    NIBBLES = 1
    FIVES = 2
    EIGHTS = 3
    SPLIT = 4
    SIXES = 5
    FLOAT32 = 6
    FLOAT16 = 7
    BFLOAT16 = 8


class Mode(IntEnum):
    """How activations are prepared for a linear: one int8 limb a value, two (15 bits), or unchanged."""

    FAST = 1
    PRECISE = 2
    FLOAT = 3


MATRIX_KINDS = {
    "Q4_0": MatrixKind.NIBBLES,
    "Q4_1": MatrixKind.NIBBLES,
    "Q4_K": MatrixKind.NIBBLES,
    "TQ1_0": MatrixKind.NIBBLES,
    "TQ2_0": MatrixKind.NIBBLES,
    "Q5_0": MatrixKind.FIVES,
    "Q5_1": MatrixKind.FIVES,
    "Q5_K": MatrixKind.FIVES,
    "Q8_0": MatrixKind.EIGHTS,
    "IQ4_NL": MatrixKind.EIGHTS,
    "IQ4_XS": MatrixKind.EIGHTS,
    "MXFP4": MatrixKind.FIVES,
    "Q2_K": MatrixKind.SPLIT,
    "Q3_K": MatrixKind.SPLIT,
    "Q6_K": MatrixKind.SIXES,
    "F32": MatrixKind.FLOAT32,
    "F16": MatrixKind.FLOAT16,
    "BF16": MatrixKind.BFLOAT16,
}

_HEADER_BYTES = OP_BYTES = 64


@dataclass(frozen=True)
class Op:
    """One operation of a program, and whether the workers wait for each other after it."""

    kind: IntEnum
    arguments: tuple[int, ...] = ()
    barrier: Barrier = Barrier.ALWAYS


def real_bits(value: float) -> int:
    """Return a float32 as a word of an operation's arguments."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def program_bytes(ops: list[Op], state: int) -> bytes:
    """Return the bytes of a program over the state block at `state`."""
    out = bytearray(struct.pack("<II", len(ops), state).ljust(_HEADER_BYTES, b"\0"))
    for op in ops:
        words = list(op.arguments) + [0] * (14 - len(op.arguments))
        out += struct.pack("<16I", op.kind, *words, op.barrier)
    return bytes(out)


def matrix_bytes(form: BlockFormat, rows: int, columns: int) -> int:
    """Return the bytes of a repacked matrix: rows in bands of 16, blocks of 32 columns with float32 scales a row."""
    padded = -(-rows // BAND_ROWS) * BAND_ROWS
    kind = MATRIX_KINDS[form.name]
    if kind >= MatrixKind.FLOAT32:
        return padded * columns * form.block_bytes
    bits = {MatrixKind.FIVES: 5, MatrixKind.SIXES: 6, MatrixKind.EIGHTS: 8}.get(kind, 4)
    scales = 4 if kind == MatrixKind.SPLIT else 2
    return padded * (columns // 32) * (4 * bits + 4 * scales)


def activation_bytes(columns: int, rows: int) -> int:
    """Return the bytes of prepared activations in any mode (precise takes the most). Several rows lie in tiles of
    four."""
    return (1 if rows == 1 else -(-rows // 4) * 4) * columns * 9 // 2


def head_page_bytes(head_dim: int, limbs: int) -> int:
    """Return the bytes of a page's keys and values of one head, as one or two int8 limbs, with three float32 a
    position."""
    return PAGE * (2 * limbs * head_room(head_dim) + 12)


def head_tier_bytes(head_dim: int, limbs: int) -> tuple[int, ...]:
    """Return the bytes of a head's keys and values of a page in each tier (pages.h): codes have halves of scales and
    offsets."""
    halves = 4 * (head_room(head_dim) + PAGE)
    codes = [2 * PAGE * head_room(head_dim) // parts + halves for parts in (1, 2)]
    return head_page_bytes(head_dim, limbs), *(-(-size // 64) * 64 for size in codes)


def tier_pages(head_dim: int, limbs: int) -> tuple[int, ...]:
    """Return the number of pages of each tier that fit in the place of EXTENT hot pages."""
    sizes = head_tier_bytes(head_dim, limbs)
    return tuple(EXTENT * sizes[Tier.HOT] // size for size in sizes)


@dataclass(frozen=True)
class AttentionLayer:
    """The description of a layer's attention that the kernels read (`Layer` in pages.h).

    An entry of the page table, which has a row of `pages_per_slot` for each sequence, is TIER_BIT times a tier and a
    number e: a page at `pages` + e // n * `extent_bytes`, if an extent has n pages of that tier, the (e % n)th of each
    head there (kv_pages.py). A window or softcap of 0 is none.
    """

    heads: int
    kv_heads: int
    head_dim: int
    limbs: int
    pages: int
    extent_bytes: int
    page_table: int
    pages_per_slot: int
    scale: float
    softcap: float = 0.0
    window: int = 0

    def packed(self) -> bytes:
        sizes = (self.heads, self.kv_heads, head_room(self.head_dim), self.pages_per_slot, self.limbs)
        places = (self.extent_bytes, self.pages, self.page_table, self.window)
        tiers = (*tier_pages(self.head_dim, self.limbs), *head_tier_bytes(self.head_dim, self.limbs))
        return struct.pack("<9I2f7I", *sizes, *places, self.softcap, self.scale, *tiers, self.head_dim)

    BYTES = 72


@dataclass(frozen=True)
class RowsLayer:
    """The place of a convolution's rows (`RowsLayer` in short_conv.c): a page's rows lie side by side, the pages of an
    extent, too. `place` is this layer's in extent 0. If they lie in states, the table has addresses: an extent of 1
    byte has one page, and `place` is this layer's in a state."""

    place: int
    rows: int
    extent_bytes: int
    page_table: int
    pages_per_slot: int
    pages: int = EXTENT

    def packed(self) -> bytes:
        sizes = (self.rows, self.extent_bytes, self.pages, self.pages_per_slot)
        return struct.pack("<6I", self.place, *sizes, self.page_table)

    BYTES = 24


@dataclass(frozen=True)
class StateLayer:
    """The place of a delta rule in the states of pages (`StateLayer` in delta_rule.c), whose addresses are in a
    table."""

    offset: int
    table: int
    pages_per_slot: int

    def packed(self) -> bytes:
        return struct.pack("<3I", self.offset, self.pages_per_slot, self.table)

    BYTES = 12


@dataclass
class Arena:
    """Gives out the kernels' memory from HEAP_BASE on; nothing is given back."""

    end: int = HEAP_BASE
    writes: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, nbytes: int) -> int:
        """Return the address of `nbytes`, a multiple of 64 so that workers share no cache line by accident."""
        address = self.end
        self.end += -(-nbytes // 64) * 64
        return address

    def put(self, data: bytes) -> int:
        """Return the address of `data`, which is written once the memory exists."""
        address = self.take(len(data))
        self.writes.append((address, data))
        return address
