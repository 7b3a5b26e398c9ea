"""The kernels between the final norm and the logits: adapters at the head's input in slots, and scores of given tokens.

The kernels and their buffers are made when the first is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py_core.adapters.head import MAX_NEIGHBOURS, NeighbourAdapter
from py_core.backend_errors import BackendError
from py_core.backends.checks import HEAD_SLOTS, MAX_LOGIT_ROWS
from py_core.backends.fusion import Fused
from py_core.backends.head_slots import slot_bytes, slot_data
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import HEAD_ADAPTERS, Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.lowering.linear import LinearLowering
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.values import PassContext, Values
from py_core.backends.webgpu.weights.vectors import Vectors
from py_core.models.graph import Graph, Linear, RMSNorm, SoftCap

Lower = Callable[[Sequence[Fused], PassContext], list[Kernel]]

_NEAR = 1 + MAX_NEIGHBOURS
ADAPTED = " adapted"
"""The end of the names of the heads for rows with adapters."""


class HeadLowering:
    """`head`: the fused operations of a graph's head, from which `lower` makes kernels. `state` and `logits` are the
    plans' buffers. `linears_over` makes linears of values and of a state that lie elsewhere. `logit_bytes` is the
    memory for the logits of the rows scored at a time."""

    def __init__(
        self, host: Host, graph: Graph, head: Sequence[Fused], builder: KernelBuilder, values: Values, vectors: Vectors,
        state: Binding, logits: Binding, lower: Lower, linears_over: Callable[[Values, Binding], LinearLowering],
        logit_bytes: int,
    ) -> None:  # fmt: skip
        self._host, self._graph, self._head, self._builder = host, graph, head, builder
        self._values, self._vectors, self._state, self._logits = values, vectors, state, logits
        self._lower, self._linears_over = lower, linears_over
        self._width, self._vocab_size = graph.head_input.width, graph.output.width
        self._slot_bytes = slot_bytes(self._width)
        self._made: dict[str, Binding] = {}
        most = builder.shapes.max_rows
        self.chunk = min(most, max(32, logit_bytes // (4 * self._vocab_size) // 32 * 32))
        """Rows scored at a time."""

    def write(self, number: int, adapter: NeighbourAdapter) -> bool:
        """Bring an adapter to a slot. Returns True if the slots' buffer is new: earlier recordings bind another one."""
        is_new = HEAD_ADAPTERS not in self._made
        size = HEAD_SLOTS * self._slot_bytes
        if is_new and size > self._host.adapter.max_binding_size:
            raise BackendError(
                "gpu.head-adapters",
                "Adapters at the head's input take {size} MiB for this model, more than this "
                "GPU can bind. Choose another backend.",
                size=size >> 20,
            )
        slots = self._buffer(HEAD_ADAPTERS, size)
        self._host.write(slots.buffer, (number - 1) * self._slot_bytes, slot_data(adapter))
        return is_new

    def changed(self) -> dict[str, list[Kernel]]:
        """Return the heads with each row's adapter at their inputs.

        "head" is for one row that needs logits, "heads" for up to MAX_LOGIT_ROWS, "step" for a state of one row;
        ADAPTED ends their names.
        """
        rows = {"head": "one", "heads": "few", "step": "one"}
        return {f"{name}{ADAPTED}": self._changed(rows[name], name == "step") for name in rows}

    def _changed(self, rows: str, single_row: bool) -> list[Kernel]:
        h = self._values.of(self._graph.head_input)
        after = [op for op in self._head if op.out != self._graph.head_input]
        return [self._adapt(self._state, h), *self._lower(after, PassContext(rows, False, single_row)), self._mix()]

    def scored(self) -> list[Kernel]:
        """Score the tokens of `targets`, whose slots are the rows of the body's last pass."""
        found = lambda: (self.targets, self._slots(), self._near())  # noqa: E731
        return self._over_targets("token_scores", found, self.scores, K=self._width)

    def unmasked(self, mask: int, grammars: Binding) -> list[Kernel]:
        """Draw tokens for the rows of `targets`, whose slots are rows of the body's last pass."""
        return self._over_targets("unmask", lambda: (self.targets, grammars), self.drawn, MASK=mask)

    def _over_targets(
        self, name: str, before: Callable[[], tuple[Binding, ...]], out: Binding, **constants: int
    ) -> list[Kernel]:
        """Make the logits of the rows of `targets`, and run a kernel over them whose bindings are `before`, the logits
        and `out`."""
        builder, vocab = self._builder, self._vocab_size
        h = self._buffer("changed states", 4 * builder.shapes.max_rows * self._width)
        logits = self._buffer("logits to score", 4 * self.chunk * vocab)
        linear = next(op for op in self._graph.head if isinstance(op, Linear) and op.x == self._graph.head_input)
        cap = next((op.cap for op in self._graph.head if isinstance(op, SoftCap)), 0.0)
        linears = self._linears_over(self._values.elsewhere({self._graph.head_input: h}), self.targets)
        context = PassContext("many", builder.shapes.tiled_matmul, single_row=False)
        pipeline = builder.pipeline(name, {}, **constants, VOCAB=vocab, CAP=cap, WORKGROUP=256)
        last = Kernel(
            name.replace("_", " "),
            pipeline,
            lambda: (*before(), logits, out),
            lambda m: (m, 1, 1),
            Cost(row_bytes=4 * vocab, row_flops=3 * vocab),
        )
        return [self._adapt(self.targets, h, scored=True), *linears.kernels([linear], logits, context), last]

    @property
    def targets(self) -> Binding:
        """A state of the rows to score: the token of each row is the one whose log p is wanted."""
        return self._buffer("targets", self._state.size)

    @property
    def scores(self) -> Binding:
        """log p of each row of a pass: (max_rows,)."""
        return self._buffer("scores", 4 * self._builder.shapes.max_rows)

    @property
    def drawn(self) -> Binding:
        """A token for each row of a pass and log p of it: (max_rows, 2)."""
        return self._buffer("drawn", 8 * self._builder.shapes.max_rows)

    def _adapt(self, state: Binding, out: Binding, scored: bool = False) -> Kernel:
        norm = next(op for op in self._graph.head if isinstance(op, RMSNorm) and op.out == self._graph.head_input)
        shapes, width = self._builder.shapes, self._width
        # One workgroup a row: the more invocations, the more loads are in flight at once. Without subgroups each
        # takes 16 bytes of workgroup memory.
        widest = min(1024, self._host.adapter.max_workgroup_size) if shapes.reduce == "reduce_subgroup" else 256
        pipeline = self._builder.pipeline(
            "head_adapt", {"reduce": shapes.reduce}, K=width, EPS=norm.eps, LANES=shapes.lanes, SCORED=scored,
            WORKGROUP=MAX_NEIGHBOURS if shapes.lanes == 1 else widest,
        )  # fmt: skip
        x, weight = self._values.of(norm.x), self._vectors.norm(norm)
        cost = Cost(row_bytes=8 * width + self._slot_bytes, row_flops=2 * MAX_NEIGHBOURS * width)
        return Kernel(
            "adapter at the head's input",
            pipeline,
            lambda: (state, weight, x, self._slots(), out, self._near()),
            lambda m: (m, 1, 1),
            cost,
        )

    def _mix(self) -> Kernel:
        vocab, adapter = self._vocab_size, self._host.adapter
        # As for argmax: one workgroup reads all the logits.
        workgroup = 256 if adapter.software else min(1024, adapter.max_workgroup_size)
        pipeline = self._builder.pipeline("head_mix", {}, K=self._width, VOCAB=vocab, WORKGROUP=workgroup)
        return Kernel(
            "logits of neighbours",
            pipeline,
            lambda: (self._state, self._slots(), self._near(), self._logits),
            lambda m: (m, 1, 1),
            Cost(row_bytes=4 * vocab, row_flops=3 * vocab),
        )

    def _slots(self) -> Binding:
        """Return the slots, or any buffer if there was no adapter yet: no row names one then."""
        return self._made.get(HEAD_ADAPTERS) or self._buffer("no slots", 16)

    def _near(self) -> Binding:
        return self._buffer("neighbours", 4 * _NEAR * max(MAX_LOGIT_ROWS, self.chunk))

    def _buffer(self, label: str, size: int) -> Binding:
        if label not in self._made:
            self._made[label] = Binding(self._host.create_buffer(size, label), 0, size)
        return self._made[label]
