"""Attention on the GPU: the kernels of a pass, and the number of workgroups over which a sequence is split.

Few rows use flash decoding: one workgroup would leave the rest of a GPU idle, so several workgroups take a part of the
sequence each, and a second kernel merges their results. A short sequence is a single part, and the second kernel is
left out. Many rows use flash attention over tiles. A software adapter goes over the sequence row by row, if all pages
are hot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from py_core.backend_errors import BackendError
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import AdapterInfo, Binding, Host
from py_core.backends.webgpu.kernel_shapes import FEW_ROWS, KernelShapes
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.lora import LoraNext, NextOf
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.shaders import Constant, Phase
from py_core.models.config import ModelConfig
from py_core.models.graph import Attention
from py_core.paging.page_table import PAGE

SHORT = 1024
"""The most tokens that one workgroup attends to alone; a power of two."""

SPLIT = 128
"""Tokens of a part of a longer sequence."""

_WORKGROUPS = (512, 256, 128, 64)
"""Workgroup sizes of attention_split: the largest that fits. For several parts, smaller ones share a GPU better."""
_MERGE_WORKGROUP = 256
_MOST_SLICES = 2
_MOST_TILED = 512
"""The most values of a head in attention_tiles."""
_MOST_OF_FEW_LANES = 256
"""The most values of a head that fewer than 32 lanes read together."""
_TILED_AT_ONCE = 256
"""The most values of an output of attention_tiles: for more, a workgroup makes a part of them."""
_SLICE_BYTES = 15 << 10
"""Workgroup memory of a slice of attention_tiles."""
_MOST_HEADS = 4
"""The most query heads of a workgroup: more would need too many registers."""


def length_class_of(length: int) -> int:
    """Round a sequence's length up to SHORT, 2 SHORT, 4 SHORT ... A recorded list serves all lengths of a class."""
    return max(SHORT, 1 << (length - 1).bit_length())


def heads_each(group: int, most: int) -> int:
    """Return how many of a key/value head's `group` query heads a workgroup serves: up to `most`, evenly spread."""
    return -(-group // -(-group // most))


def lane_group_shape(head_dim: int, most_lanes: int, most: int, adapter: AdapterInfo) -> tuple[int, int]:
    """Return the invocations that read a position together in attention_split, and those of its workgroup, at most
    `most`.

    Raises BackendError if there is not enough workgroup memory for a head.
    """
    quads = head_dim // 4
    lanes = min(most_lanes, 1 << (-(-quads // 2) - 1).bit_length())
    for workgroup in _WORKGROUPS:
        fits = _memory(quads, lanes, workgroup) <= adapter.max_workgroup_storage
        if fits and workgroup <= min(most, adapter.max_workgroup_size) and lanes <= workgroup and quads <= workgroup:
            return lanes, workgroup
    raise BackendError(
        "gpu.workgroup-memory",
        "The GPU has too little workgroup memory for attention heads of {size} values.",
        size=head_dim,
    )


def reduction_of(shapes: KernelShapes, head_dim: int) -> tuple[str, int]:
    """Return how attention_split adds up, and over how many lanes at most."""
    # A software adapter's kernels usually have one lane. Heads that are too large for one lane come here, and those of
    # which few lanes would need more workgroup memory than many GPUs have.
    few = shapes.lanes == 1 or (shapes.lanes < 32 and head_dim > _MOST_OF_FEW_LANES)
    return ("reduce_workgroup", 32) if few else (shapes.reduce, shapes.lanes)


def _memory(quads: int, lanes: int, workgroup: int) -> int:
    """Return the bytes of workgroup memory of attention_split."""
    # Sums of lane groups and over them, reduce_workgroup's own, and two figures of each lane group for each head.
    return 16 * quads * (workgroup // lanes) + 36 * workgroup + 8 * _MOST_HEADS * (workgroup // lanes)


class AttentionKernels:
    """The kernels of one model; `pipeline` is `KernelBuilder.pipeline`, `sizes` the constants of heads and pages.

    Raises BackendError if heads do not fit.
    """

    def __init__(
        self, host: Host, config: ModelConfig, shapes: KernelShapes, pipeline: Callable[..., int], state: Binding,
        pages: KVPages, sizes: Mapping[str, Constant],
    ) -> None:  # fmt: skip
        self._config, self._shapes, self._pipeline = config, shapes, pipeline
        self._state, self._pages, self._adapter = state, pages, host.adapter
        self._sizes = sizes
        self._width = config.num_attention_heads * config.head_dim
        self._token_bytes = 2 * config.num_key_value_heads * config.head_dim * 4
        if shapes.flash_attention:
            splits = -(-pages.pages_per_slot * PAGE // SPLIT)
            size = FEW_ROWS * config.num_attention_heads * splits * (config.head_dim + 4) * 4
            self._partials = Binding(host.create_buffer(size, "attention parts"), 0, size)

    def kernels(
        self, op: Attention, q: Binding, out: Binding, rows: str, next_of: NextOf | None = None, phase: int = 0
    ) -> list[Kernel]:
        """Return the kernels from `q`, rotated, to attention's output, both (rows, HEADS * HEAD_DIM), over a layer's
        pages.

        `rows` as in `PlanLowering.plan`; "some" and "many" are rows of one sequence at consecutive positions.
        `next_of`: how an adapter leaves parts for the linears that read the output of one row. `phase`: the
        invocations of a workgroup of a persistent kernel, of which attention of short sequences may be a phase; 0 if
        there is none.
        """
        if not self._shapes.flash_attention:
            return [self._walk(op, q, out)]
        if rows == "many" or (rows == "some" and op.window > SHORT):
            return [self._tiles(op, q, out)]
        single_row = rows == "one"
        following = self._following(next_of) if next_of else None
        if 0 < op.window <= SHORT:
            # However long the sequence gets, one workgroup covers the window.
            return [
                self._alone(op, q, out, self._pages.pages_per_slot * PAGE, single_row, lambda most: 1, following, phase)
            ]
        short = self._alone(op, q, out, SHORT, single_row, lambda most: int(most == SHORT), following, phase)
        if rows == "some":
            # Parts of this many rows would take too much memory.
            return [short, replace(self._tiles(op, q, out), splits=lambda most: int(most > SHORT))]
        long = self._split(
            "attention parts", op, q, self._partials, single_row, lambda most: 0 if most == SHORT else most // SPLIT,
            _MOST_HEADS, 256, None, 0, SPLIT=SPLIT, DIRECT=False,
        )  # fmt: skip
        return [short, long, self._merge(op, out, following)]

    def _alone(
        self, op: Attention, q: Binding, out: Binding, most: int, single_row: bool, splits: Callable[[int], int],
        following: LoraNext | None, phase: int,
    ) -> Kernel:  # fmt: skip
        """Return the kernel with one workgroup a query head, for sequences of up to `most` tokens."""
        return self._split(
            "attention", op, q, out, single_row, splits, 1, phase or _WORKGROUPS[0], following, phase,
            SPLIT=most, DIRECT=True,
        )  # fmt: skip

    def _walk(self, op: Attention, q: Binding, out: Binding) -> Kernel:
        heads, workgroup = self._config.num_attention_heads, 4
        pipeline = self._over_pages("attention", op, WORKGROUP=workgroup)
        bindings = self._bindings(op, q, out)
        return Kernel("attention", pipeline, bindings, lambda m: (-(-heads // workgroup), m, 1), self._cost(op))

    def _tiles(self, op: Attention, q: Binding, out: Binding) -> Kernel:
        limits = self._adapter
        if self._config.head_dim > _MOST_TILED:
            raise BackendError(
                "gpu.long-heads", "The GPU kernels support attention heads of up to {most} values.", most=_MOST_TILED
            )
        slices = min(_MOST_SLICES, limits.max_workgroup_storage // _SLICE_BYTES, limits.max_workgroup_size // 128)
        heads, pipeline = self._config.num_attention_heads, self._reading("attention_tiles", op, SLICES=slices)
        bindings = self._bindings(op, q, out)
        parts = -(-self._config.head_dim // _TILED_AT_ONCE)
        return Kernel("attention", pipeline, bindings, lambda m: (heads, -(-m // 32), parts), self._cost(op))

    def _split(
        self, name: str, op: Attention, q: Binding, out: Binding, single_row: bool, splits: Callable[[int], int],
        most_heads: int, widest: int, following: LoraNext | None, phase: int, **constants: Constant,
    ) -> Kernel:  # fmt: skip
        c = self._config
        group = c.num_attention_heads // c.num_key_value_heads
        each = heads_each(group, most_heads)
        reduce, most_lanes = reduction_of(self._shapes, self._config.head_dim)
        lanes, workgroup = lane_group_shape(c.head_dim, most_lanes, widest, self._adapter)
        if following:
            constants |= following.constants
        next_binding = 5 + len(self._pages.demoted(op.layer))
        snippets, constants = self._reader(
            op, {"reduce": reduce, **(following.snippets(next_binding) if following else {})},
            HEADS_EACH=each, LANES=lanes, WORKGROUP=workgroup, SINGLE_ROW=single_row, **constants,
        )  # fmt: skip
        chunks = c.num_key_value_heads * -(-group // each)
        kernel = Kernel(
            name, 0, self._bindings(op, q, out, following), lambda m: (1, chunks, m), self._cost(op), splits
        )
        if phase == workgroup and not self._pages.demoted(op.layer):
            made = {"MAX_ROWS": self._shapes.max_rows, **constants}
            return replace(kernel, phase=Phase("attention_split", made, snippets, chunks))
        return replace(kernel, pipeline=self._pipeline("attention_split", snippets, **constants))

    def _following(self, next_of: NextOf) -> LoraNext | None:
        """Return the parts that both kernels of attention's output leave: one of each head."""
        head_dim = self._config.head_dim
        lanes, workgroup = lane_group_shape(
            head_dim, reduction_of(self._shapes, self._config.head_dim)[1], _WORKGROUPS[0], self._adapter
        )
        least = min(workgroup, _MERGE_WORKGROUP)
        memory = _memory(head_dim // 4, lanes, workgroup) + 4 * (head_dim + least)
        fits = memory <= self._adapter.max_workgroup_storage
        return next_of(head_dim, self._config.num_attention_heads, least) if fits else None

    def _merge(self, op: Attention, out: Binding, following: LoraNext | None) -> Kernel:
        constants = following.constants if following else {}
        snippets = following.snippets(3) if following else {}
        pipeline = self._over_pages(
            "attention_merge", op, snippets, SPLIT=SPLIT, WORKGROUP=_MERGE_WORKGROUP, **constants
        )
        heads, before = self._config.num_attention_heads, (self._state, self._partials, out)
        bindings = lambda: (*before, *([following.sets.binding()] if following else []))  # noqa: E731
        return Kernel(
            "attention merge", pipeline, bindings, lambda m: (heads, m, 1), Cost(row_bytes=8 * self._width),
            lambda most: int(most > SHORT),
        )  # fmt: skip

    def _over_pages(
        self, name: str, op: Attention, snippets: dict[str, str] | None = None, **constants: Constant
    ) -> int:
        return self._pipeline(name, snippets or {}, **self._constants(op, **constants))

    def _constants(self, op: Attention, **constants: Constant) -> dict[str, Constant]:
        return {**self._sizes, "SCALE": op.scale, "SOFTCAP": op.softcap, "WINDOW": op.window, **constants}

    def _reading(
        self, name: str, op: Attention, snippets: Mapping[str, str] | None = None, **constants: Constant
    ) -> int:
        """Compile a kernel that reads the pages themselves."""
        readers, made = self._reader(op, snippets or {}, **constants)
        return self._pipeline(name, readers, **made)

    def _reader(
        self, op: Attention, snippets: Mapping[str, str], **constants: Constant
    ) -> tuple[dict[str, str], dict[str, Constant]]:
        """Return the snippets and constants of a kernel that reads the pages themselves."""
        readers, more = self._pages.reader
        if readers:
            readers = {**readers, "halves": self._shapes.halves}
        return {**readers, **snippets}, self._constants(op, **more, **constants)

    def _cost(self, op: Attention) -> Cost:
        width = self._width
        return Cost(row_bytes=8 * width, token_bytes=self._token_bytes, token_flops=4 * width, window=op.window)

    def _bindings(
        self, op: Attention, q: Binding, out: Binding, following: LoraNext | None = None
    ) -> Callable[[], tuple[Binding, ...]]:
        pages = self._pages
        after = [following.sets] if following else []
        return lambda: (
            self._state, q, pages.table(op.layer), pages.binding(op.layer), out, *pages.demoted(op.layer),
            *(sets.binding() for sets in after),
        )  # fmt: skip
