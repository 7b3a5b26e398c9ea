"""The kernels of attention within a pack, and of its gradients."""

from __future__ import annotations

from collections.abc import Callable

from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.plan import Grid, Kernel, fixed, per_row
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.training.values import TrainingValues
from py_core.models.graph import Attention, Value
from py_core.training.gradient_ops import AttentionGradient, PackedAttention

_TILE = 32
"""Rows and keys of a tile."""
_COLUMNS = 64
"""The columns of a head that a workgroup makes."""

At = Callable[[Value], Binding]


class PackedAttentionLowering:
    """Attention over the rows of a pack; `state` and `pack` are its buffers."""

    def __init__(self, builder: KernelBuilder, values: TrainingValues, state: Binding, pack: Binding) -> None:
        self._builder, self._values, self._state, self._pack = builder, values, state, pack

    def forward(self, op: PackedAttention, at: At) -> list[Kernel]:
        attention = op.attention
        bindings = (self._pack, at(attention.q), at(attention.k), at(attention.v), at(op.out), at(op.log_sums))
        return [self._tiles("packed_attention", attention, attention.num_attention_heads, bindings)]

    def gradient(self, op: AttentionGradient, at: At) -> list[Kernel]:
        forward, attention = op.forward, op.forward.attention
        heads, width = attention.num_attention_heads, attention.q.width
        stats = self._values.scratch("attention", 2 * heads)
        pipeline = self._builder.pipeline("attention_dots", {}, HEADS=heads, HEAD_DIM=width // heads, WORKGROUP=32)
        before = fixed((self._state, at(forward.log_sums), at(op.dout), at(forward.out), stats))
        dots = Kernel("attention_dots", pipeline, before, per_row(heads, 32), Cost(row_bytes=8 * width))
        read = (self._pack, at(attention.q), at(attention.k), at(attention.v), at(op.dout), stats)
        return [
            dots,
            self._tiles("attention_gradient_rows", attention, heads, (*read, at(op.dq))),
            self._tiles(
                "attention_gradient_keys", attention, attention.num_key_value_heads, (*read, at(op.dk), at(op.dv))
            ),
        ]

    def _tiles(self, name: str, op: Attention, heads: int, bindings: tuple[Binding, ...]) -> Kernel:
        """Return a kernel with a workgroup for each tile of rows, or of keys, of `heads` heads."""
        head_dim = op.q.width // op.num_attention_heads
        constants: dict[str, Constant] = {
            "HEADS": op.num_attention_heads, "KV_HEADS": op.num_key_value_heads, "HEAD_DIM": head_dim,
            "SCALE": float(op.scale), "SOFTCAP": float(op.softcap), "WINDOW": op.window,
        }  # fmt: skip
        pipeline = self._builder.pipeline(name, {}, **constants)
        grid: Grid = lambda m: (heads, -(-m // _TILE), -(-head_dim // _COLUMNS))  # noqa: E731
        cost = Cost(row_bytes=4 * (2 * op.q.width + 2 * op.k.width), token_flops=4 * op.q.width)
        return Kernel(name, pipeline, fixed(bindings), grid, cost)
