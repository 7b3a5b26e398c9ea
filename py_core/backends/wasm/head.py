"""Operations on the head's input and on logits besides linears: adapters in slots, scores of given tokens, and tokens
for masks."""

from __future__ import annotations

import numpy as np

from py_core.adapters.head import MAX_NEIGHBOURS, NeighbourAdapter
from py_core.backends.checks import HEAD_SLOTS
from py_core.backends.head_slots import slot_bytes, slot_data
from py_core.backends.wasm.host import MAX_WORKERS, KernelHost
from py_core.backends.wasm.kv_pages import KVPages
from py_core.backends.wasm.layout import Arena, Op, OpKind
from py_core.models.diffusion import Diffusion

_NEAR = 16 + 4 * MAX_NEIGHBOURS
_SLOTS_AT_A_TIME = 8


class HeadMemory:
    """Memory of head.c's operations, for up to `max_rows` rows of a pass. `width` is the hidden size."""

    def __init__(self, width: int, max_rows: int, arena: Arena) -> None:
        self._width = width
        self._slots = np.zeros(HEAD_SLOTS + 1, np.uint32)
        self._table = arena.put(self._slots.tobytes())
        self._places: list[int] = []
        self.h = arena.take(4 * max_rows * width)
        """The states of rows with adapters, after the final norm: (rows, width)."""
        self._near = arena.take(_NEAR * max_rows)
        self._sums = arena.take(8 * MAX_WORKERS * max_rows)
        self.targets, self.scores = arena.take(4 * max_rows), arena.take(4 * max_rows)
        self._target_logits = arena.take(4 * max_rows)
        self._drawn = arena.take(16 * MAX_WORKERS * max_rows)
        self.unmasked = arena.take(8 * max_rows)
        """A token for each row that needs logits, and log p of it."""

    async def place(self, host: KernelHost, pages: KVPages, number: int, adapter: NeighbourAdapter) -> None:
        """Bring an adapter to a slot. Memory for slots is taken as they are used."""
        size = slot_bytes(self._width)
        while len(self._places) < number:
            first = await pages.take(_SLOTS_AT_A_TIME * size)
            self._places += [first + at * size for at in range(_SLOTS_AT_A_TIME)]
        host.write(self._places[number - 1], slot_data(adapter))
        self._slots[number] = self._places[number - 1]
        host.write(self._table, self._slots.tobytes())
        await host.read(self._table, 4)  # an answer: the writes before it are done

    def adapt(self) -> Op:
        """Return the operation that weighs the neighbours of each row of `h`."""
        return Op(OpKind.HEAD_ADAPT, (self.h, self._width, self._table, self._near))

    def mix(self, logits: int, vocab_size: int) -> list[Op]:
        """Return the operations that change the logits of rows whose neighbours are near."""
        return [
            self._sum(logits, vocab_size, vocab_size, 0, self._near, 0),
            Op(OpKind.HEAD_MIX, (logits, vocab_size, self._near, self._sums)),
        ]

    def sum_columns(self, logits: int, columns: int, stride: int, first: int) -> list[Op]:
        """Return the operation that adds logits of the tokens from `first` on to each row's sums, and notes the
        target's."""
        return [self._sum(logits, columns, stride, first, 0, self.targets)]

    def score(self) -> Op:
        """Return the operation that writes log p of each row's target to `scores`, once all columns are summed."""
        return Op(OpKind.TOKEN_SCORES, (self.targets, self._target_logits, self._sums, self._near, self.scores))

    def draw_columns(
        self, diffusion: Diffusion, grammars: int, logits: int, columns: int, stride: int, first: int
    ) -> list[Op]:
        """Return the operations that add logits of the tokens from `first` on to each row's sums, and draw from
        them. grammars: states of grammars."""
        places = (self._drawn, int(first == 0), diffusion.mask, int(diffusion.shifted), grammars)
        drawn = Op(OpKind.DRAW_COLUMNS, (logits, columns, stride, first, *places))
        return [self._sum(logits, columns, stride, first, 0, 0), drawn]

    def unmask(self) -> Op:
        """Return the operation that writes `unmasked`, once all columns are drawn from."""
        return Op(OpKind.UNMASK, (self._drawn, self._sums, self.unmasked))

    def _sum(self, logits: int, columns: int, stride: int, first: int, near: int, targets: int) -> Op:
        places = (self._sums, int(first == 0), near, targets, self._target_logits)
        return Op(OpKind.LOGIT_SUMS, (logits, columns, stride, first, *places))
