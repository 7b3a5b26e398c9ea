"""Attention on the GPU: which kernels serve a pass, and over how many workgroups a sequence is split.

Few rows are flash decoding: one workgroup would leave the rest of a GPU idle, so several take a part of the sequence
each, and a second kernel merges what they found. While the sequence is short one part is all of it, and the second
kernel is left out. Many rows are flash attention over tiles. A software adapter walks the sequence row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from py_core.backends.base import BackendError
from py_core.backends.page_table import PAGE
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.tuning import FEW_ROWS, KernelShapes
from py_core.models.config import ModelConfig

NEAR = 256
"""Tokens that one workgroup attends to alone; a power of two."""

SPLIT = 128
"""Tokens of a part of a longer sequence."""

_WORKGROUP = 256
_MOST_HEADS = 4
"""Query heads of a workgroup: more would need too many registers."""


def reach_of(length: int) -> int:
    """The class of a sequence's length: NEAR, 2 NEAR, 4 NEAR ... Lists recorded for a class serve all lengths in it."""
    return max(NEAR, 1 << (length - 1).bit_length())


def heads_each(group: int, head_dim: int, split: int, most: int, memory: int) -> int:
    """How many of a key/value head's `group` query heads a workgroup of attention_split serves together.

    Up to `most`, as many as there is workgroup memory for (bytes), and about as many in each workgroup.
    Raises BackendError where there is not enough for one.
    """
    quads = head_dim // 4
    # queries and sums over positions, four partial scores a position, two figures for each of a team of 32
    a_head = 16 * quads * (1 + _WORKGROUP // quads) + 4 * 4 * split + 2 * 4 * 32
    most = min(most, memory // a_head)
    if most == 0 or quads > _WORKGROUP:
        raise BackendError(f"The GPU has too little workgroup memory for attention heads of {head_dim} values.")
    return -(-group // -(-group // most))


class AttentionKernels:
    """The kernels of one model; `pipeline` is `KernelBuilder.pipeline`, `sizes` the constants of heads and pages.

    Raises BackendError where heads do not fit.
    """

    def __init__(
        self, host: Host, config: ModelConfig, shapes: KernelShapes, pipeline: Callable[..., int], state: Binding,
        pages: KVPages, sizes: Mapping[str, Constant],
    ) -> None:  # fmt: skip
        self._config, self._shapes, self._pipeline = config, shapes, pipeline
        self._state, self._pages, self._memory = state, pages, host.adapter.max_workgroup_storage
        self._sizes = sizes
        width, token_bytes = config.num_attention_heads * config.head_dim, pages.page_bytes // PAGE
        self._cost = Cost(row_bytes=8 * width, token_bytes=token_bytes, token_flops=4 * width)
        self._merge_cost = Cost(row_bytes=8 * width)
        if shapes.flash_attention:
            splits = -(-pages.pages_per_slot * PAGE // SPLIT)
            size = FEW_ROWS * config.num_attention_heads * splits * (config.head_dim + 4) * 4
            self._partials = Binding(host.create_buffer(size, "attention parts"), 0, size)

    def kernels(self, q: Binding, out: Binding, layer: int, rows: str) -> list[Kernel]:
        """What turns rotated queries into attention's output, both (rows, HEADS * HEAD_DIM), over a layer's pages.

        `rows` as in `Lowering.plan`; "many" are rows of one sequence at consecutive positions.
        """
        if not self._shapes.flash_attention:
            return [self._walk(q, out, layer)]
        if rows == "many":
            return [self._tiles(q, out, layer)]
        near = self._split("attention", q, out, layer, NEAR, 1, lambda reach: int(reach == NEAR))
        far = self._split(
            "attention parts", q, self._partials, layer, SPLIT, _MOST_HEADS,
            lambda reach: 0 if reach == NEAR else reach // SPLIT,
        )  # fmt: skip
        return [near, far, self._merge(out)]

    def _walk(self, q: Binding, out: Binding, layer: int) -> Kernel:
        heads, workgroup = self._config.num_attention_heads, 4
        pipeline = self._over_pages("attention", WORKGROUP=workgroup)
        bindings = self._bindings(q, out, layer)
        return Kernel("attention", pipeline, bindings, lambda m: (-(-heads // workgroup), m, 1), self._cost)

    def _tiles(self, q: Binding, out: Binding, layer: int) -> Kernel:
        heads, pipeline = self._config.num_attention_heads, self._over_pages("attention_tiles")
        bindings = self._bindings(q, out, layer)
        return Kernel("attention", pipeline, bindings, lambda m: (heads, -(-m // 32), 1), self._cost)

    def _split(
        self, name: str, q: Binding, out: Binding, layer: int, split: int, most: int, splits: Callable[[int], int]
    ) -> Kernel:
        c = self._config
        group = c.num_attention_heads // c.num_key_value_heads
        each = heads_each(group, c.head_dim, split, most, self._memory)
        pipeline = self._over_pages(
            "attention_split", SPLIT=split, HEADS_EACH=each, DIRECT=split == NEAR, WORKGROUP=_WORKGROUP
        )
        chunks = c.num_key_value_heads * -(-group // each)
        bindings = self._bindings(q, out, layer)
        return Kernel(name, pipeline, bindings, lambda m: (1, chunks, m), self._cost, splits)

    def _merge(self, out: Binding) -> Kernel:
        pipeline = self._pipeline("attention_merge", {}, **self._sizes, SPLIT=SPLIT, WORKGROUP=_WORKGROUP)
        heads, bindings = self._config.num_attention_heads, (self._state, self._partials, out)
        return Kernel(
            "attention merge", pipeline, lambda: bindings, lambda m: (heads, m, 1), self._merge_cost,
            lambda reach: int(reach > NEAR),
        )  # fmt: skip

    def _over_pages(self, name: str, **constants: int) -> int:
        return self._pipeline(name, {}, **self._sizes, **constants)

    def _bindings(self, q: Binding, out: Binding, layer: int) -> Callable[[], tuple[Binding, ...]]:
        return lambda: (self._state, q, self._pages.table_binding, self._pages.binding(layer), out)
