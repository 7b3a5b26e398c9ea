"""Attention on the GPU: which kernels serve a pass, and over how many workgroups a sequence is split.

Few rows are flash decoding: one workgroup would leave the rest of a GPU idle, so several take a part of the sequence
each, and a second kernel merges what they found. While the sequence is short one part is all of it, and the second
kernel is left out. Many rows are flash attention over tiles. A software adapter goes over the sequence row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from py_core.backends.base import BackendError
from py_core.backends.page_table import PAGE
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import AdapterInfo, Binding, Host
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.tuning import FEW_ROWS, KernelShapes
from py_core.models.config import ModelConfig

SHORT = 1024
"""Tokens that one workgroup attends to alone; a power of two."""

SPLIT = 128
"""Tokens of a part of a longer sequence."""

_WORKGROUPS = (512, 256, 128, 64)
"""Workgroup sizes of attention_split: the largest that fits; for several parts smaller ones share a GPU better."""
_MERGE_WORKGROUP = 256
_MOST_HEADS = 4
"""Query heads of a workgroup: more would need too many registers."""


def length_class_of(length: int) -> int:
    """A sequence's length rounded up to SHORT, 2 SHORT, 4 SHORT ... A recorded list serves all lengths of a class."""
    return max(SHORT, 1 << (length - 1).bit_length())


def heads_each(group: int, most: int) -> int:
    """How many of a key/value head's `group` query heads a workgroup serves: up to `most`, about as many in each."""
    return -(-group // -(-group // most))


def lane_group_shape(head_dim: int, most_lanes: int, most: int, adapter: AdapterInfo) -> tuple[int, int]:
    """Invocations that read a position together in attention_split, and those of its workgroup, at most `most`.

    Raises BackendError where there is not enough workgroup memory for a head.
    """
    quads = head_dim // 4
    lanes = min(most_lanes, 1 << (-(-quads // 2) - 1).bit_length())
    for workgroup in _WORKGROUPS:
        # sums of lane groups and over them, reduce_workgroup's own, and two figures of each lane group for each head
        memory = 16 * quads * (workgroup // lanes) + 36 * workgroup + 8 * _MOST_HEADS * (workgroup // lanes)
        fits = memory <= adapter.max_workgroup_storage and workgroup <= min(most, adapter.max_workgroup_size)
        if fits and lanes <= workgroup and quads <= workgroup:
            return lanes, workgroup
    raise BackendError(f"The GPU has too little workgroup memory for attention heads of {head_dim} values.")


class AttentionKernels:
    """The kernels of one model; `pipeline` is `KernelBuilder.pipeline`, `sizes` the constants of heads and pages.

    Raises BackendError where heads do not fit.
    """

    def __init__(
        self, host: Host, config: ModelConfig, shapes: KernelShapes, pipeline: Callable[..., int], state: Binding,
        pages: KVPages, sizes: Mapping[str, Constant],
    ) -> None:  # fmt: skip
        self._config, self._shapes, self._pipeline = config, shapes, pipeline
        self._state, self._pages, self._adapter = state, pages, host.adapter
        self._sizes = sizes
        width, token_bytes = config.num_attention_heads * config.head_dim, pages.page_bytes // PAGE
        self._cost = Cost(row_bytes=8 * width, token_bytes=token_bytes, token_flops=4 * width)
        self._merge_cost = Cost(row_bytes=8 * width)
        if shapes.flash_attention:
            splits = -(-pages.pages_per_slot * PAGE // SPLIT)
            size = FEW_ROWS * config.num_attention_heads * splits * (config.head_dim + 4) * 4
            self._partials = Binding(host.create_buffer(size, "attention parts"), 0, size)

    def kernels(self, q: Binding, out: Binding, layer: int, rows: str) -> list[Kernel]:
        """The kernels from rotated queries to attention's output, both (rows, HEADS * HEAD_DIM), over a layer's pages.

        `rows` as in `PlanLowering.plan`; "many" are rows of one sequence at consecutive positions.
        """
        if not self._shapes.flash_attention:
            return [self._walk(q, out, layer)]
        if rows == "many":
            return [self._tiles(q, out, layer)]
        single_row = rows == "one"
        short = self._split("attention", q, out, layer, SHORT, 1, single_row, lambda most: int(most == SHORT))
        long = self._split(
            "attention parts", q, self._partials, layer, SPLIT, _MOST_HEADS, single_row,
            lambda most: 0 if most == SHORT else most // SPLIT,
        )  # fmt: skip
        return [short, long, self._merge(out)]

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
        self, name: str, q: Binding, out: Binding, layer: int, split: int, most: int, single_row: bool,
        splits: Callable[[int], int],
    ) -> Kernel:  # fmt: skip
        c = self._config
        group = c.num_attention_heads // c.num_key_value_heads
        each = heads_each(group, most)
        widest = 512 if split == SHORT else 256
        lanes, workgroup = lane_group_shape(c.head_dim, self._shapes.lanes, widest, self._adapter)
        pipeline = self._pipeline(
            "attention_split", {"reduce": self._shapes.reduce}, **self._sizes,
            SPLIT=split, HEADS_EACH=each, DIRECT=split == SHORT, LANES=lanes, WORKGROUP=workgroup,
            SINGLE_ROW=single_row,
        )  # fmt: skip
        chunks = c.num_key_value_heads * -(-group // each)
        bindings = self._bindings(q, out, layer)
        return Kernel(name, pipeline, bindings, lambda m: (1, chunks, m), self._cost, splits)

    def _merge(self, out: Binding) -> Kernel:
        pipeline = self._pipeline("attention_merge", {}, **self._sizes, SPLIT=SPLIT, WORKGROUP=_MERGE_WORKGROUP)
        heads, bindings = self._config.num_attention_heads, (self._state, self._partials, out)
        return Kernel(
            "attention merge", pipeline, lambda: bindings, lambda m: (heads, m, 1), self._merge_cost,
            lambda most: int(most > SHORT),
        )  # fmt: skip

    def _over_pages(self, name: str, **constants: int) -> int:
        return self._pipeline(name, {}, **self._sizes, **constants)

    def _bindings(self, q: Binding, out: Binding, layer: int) -> Callable[[], tuple[Binding, ...]]:
        return lambda: (self._state, q, self._pages.table_binding, self._pages.binding(layer), out)
