"""Turns a TrainingPlan into programs of the WASM kernels: short pieces of a pack's pass, between which others run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from py_core.backend_errors import BackendError
from py_core.backends.sampling_state import ROW_BYTES, STATE_HEADER
from py_core.backends.wasm.layout import (
    ACTIVATIONS,
    GROUP_ROWS,
    Arena,
    Op,
    OpKind,
    program_bytes,
    real_bits,
)  # fmt: skip
from py_core.backends.wasm.lowering import ProgramLowering
from py_core.backends.wasm.training_layout import (
    CHUNK,
    LOSS_ROW_BYTES,
    PACK_BYTES,
    PART,
    RESULT_BYTES,
    RULE_BYTES,
    RUNNING_BYTES,
    SCRATCH_ARGUMENT,
    SCRATCH_BYTES,
    PackedLayer,
    Places,
    TrainKind,
)
from py_core.backends.wasm.weights import TensorRows
from py_core.models import graph as ops
from py_core.models.graph import Value
from py_core.training import gradient_ops as gradients
from py_core.training.gradient_ops import ForwardOp, GradientOp, values_made, values_read
from py_core.training.plan import TrainingPlan

PIECE_FLOPS = 4e9
"""Floating-point operations of a piece: about 100 ms on one core."""

Lowered = list[tuple[list[Op], float]]
"""Operations that stay together, and their number of floating-point operations."""


@dataclass(frozen=True)
class AnchorPlace:
    """Memory that a session takes only if its state has an anchor: for the anchor, for the sums of the penalty's parts,
    and for a `pulled_step` that is written there before it runs.
    """

    anchor: int
    sums: int
    parts: int
    step: int
    end: int


class TrainingLowering:
    """One plan in the kernels' memory from `base` to `end`; programs and constants are in `arena.writes`.

    The programs of a pack's way are addresses in the order in which they run: `forward` up to the head's states,
    `forward_base` likewise without the pairs, `loss` up to the gradient of the head's states (of which there is one
    with the base's states and one without), `backward` from there.
    """

    def __init__(
        self, plan: TrainingPlan, model: ProgramLowering, base: int, workers: int, max_rows: int, vocab_size: int
    ) -> None:
        self._plan, self._model, self._rows, self._vocab_size = plan, model, max_rows, vocab_size
        self.arena = Arena(base)
        take, size, width = self.arena.take, plan.layout.size, plan.loss.h.width
        self._wide = -(-plan.layout.rank // 4) * 4
        self.parameters, self.gradient, self.first_moment, self.second_moment, self.fisher = [
            take(4 * size + 64) for _ in range(5)
        ]
        self.state = take(STATE_HEADER + ROW_BYTES * max_rows)
        self.room = -(-max_rows // 32) * 32 + 32
        """The room of each of a pack's lists, in numbers; kernels read whole blocks of rows."""
        self.pack = take(PACK_BYTES + 8 * self.room)
        self.loss_rows, self._running = take(LOSS_ROW_BYTES * max_rows), take(RUNNING_BYTES * max_rows)
        self.losses = take(8 * max_rows)
        self.states, self._sums, self.base_states, self._base_sums = [take(4 * width * max_rows) for _ in range(4)]
        self._scratch = take(SCRATCH_BYTES * workers)
        self.rule, self.result = take(RULE_BYTES), take(RESULT_BYTES)
        self._parts = -(-size // PART)
        self._squares = take(8 * self._parts)
        self._layers: dict[bytes, int] = {}
        attentions = [op for block in plan.blocks for op in block.forward if isinstance(op, gradients.PackedAttention)]
        self._dots = take(4 * max_rows * max((op.log_sums.width for op in attentions), default=0))
        self._places = Places(take)
        self.forward = self._forward()
        self.loss = {with_base: self._loss(with_base) for with_base in (False, True)}
        self.backward = self._backward()
        self.forward_base = self._forward(base=True)
        vector = (self.gradient, size)
        moments = (self.parameters, self.first_moment, self.second_moment, self.rule, self.result)
        self._step = [
            Op(TrainKind.SUM_SQUARES, (*vector, self._squares)), Op(TrainKind.ADAMW, (*vector, self._squares, *moments))
        ]  # fmt: skip
        self.step = self._program(self._step)
        self.clear = self._program([Op(TrainKind.CLEAR, vector)])
        self.add_fisher = take(len(self.fisher_program(0, 0)))
        """The place to which a `fisher_program` is written before it runs."""

    def fisher_program(self, keep: float, weight: float) -> bytes:
        arguments = (self.gradient, self._plan.layout.size, self.fisher, real_bits(keep), real_bits(weight))
        return program_bytes([Op(TrainKind.ADD_FISHER, arguments)], self.state)

    def anchor_place(self, base: int) -> AnchorPlace:
        """Return the place of an anchor and what it needs, from `base` on."""
        arena = Arena(base)
        anchor, sums = arena.take(4 * self._plan.layout.size + 64), arena.take(8 * self._parts)
        step = arena.take(len(self._pulled_step(anchor, sums, 0)))
        return AnchorPlace(anchor, sums, self._parts, step, arena.end)

    def pulled_step(self, place: AnchorPlace, elastic: float) -> bytes:
        """Return the program of a step that pulls towards the anchor first."""
        return self._pulled_step(place.anchor, place.sums, elastic)

    def _pulled_step(self, anchor: int, sums: int, elastic: float) -> bytes:
        vectors = (self.gradient, self._plan.layout.size, self.parameters, self.fisher, anchor, sums)
        return program_bytes([Op(TrainKind.ADD_PULL, (*vectors, real_bits(elastic))), *self._step], self.state)

    # ---- a pack's way ----

    def _forward(self, base: bool = False) -> list[int]:
        plan, places = self._plan, self._places
        places.begin()
        table, _ = self._matrix(plan.embedding.weight, 0, plan.embedding.vocab_size)
        out = self._make(plan.embedding.out)
        found: Lowered = [([Op(OpKind.EMBED, (table, out, real_bits(plan.embedding.scale)))], 0)]
        for block in plan.blocks:
            kept = {block.x} if block.backward and not base else set()
            found += self._lower(block.forward, {block.out, *kept}, base)
        loss = plan.loss
        found += self._lower(plan.head, {loss.h, plan.blocks[-1].out}, base)
        place = (places[loss.h], loss.h.width, self.states, self._sums, self._base_sums, self._running)
        dh = 0 if base else self._make(loss.dh)
        found.append(([Op(TrainKind.LOSS_BEGIN, (self.pack, self.loss_rows, *place, dh))], 0))
        return self._pieces(found)

    def _loss(self, with_base: bool) -> list[int]:
        loss, width = self._plan.loss, self._plan.loss.h.width
        matrix, _ = self._matrix(loss.weight, 0, self._vocab_size)
        head = (self.pack, self.loss_rows, matrix)
        bias = self._bias(loss.bias, 0, self._vocab_size)
        base_states, base_sums = (self.base_states, self._base_sums) if with_base else (0, 0)
        sums, cap, vocabulary = (self._sums, self._running), real_bits(loss.cap), self._vocab_size
        flops = CHUNK * 4.0 * width * self._rows * (2 if with_base else 1)
        found: Lowered = []
        step = max(1, int(PIECE_FLOPS / flops)) * CHUNK
        for first in range(0, vocabulary, step):
            tokens = (first, min(first + step, vocabulary))
            arguments = (*head, bias, cap, *tokens, self.states, *sums, base_states, base_sums)
            found.append(([self._op(TrainKind.LOSS_CHUNKS, *arguments)], flops * step / CHUNK))
        end = (*head, cap, *sums, base_sums, self._places[loss.dh], self.losses)
        found.append(([self._op(TrainKind.LOSS_END, *end)], 0))
        return self._pieces(found)

    def _backward(self) -> list[int]:
        plan = self._plan
        found = self._lower(plan.head_backward, {value for value in [plan.blocks[-1].dout] if value})
        for block in reversed(plan.blocks):
            if block.dout is None:
                break
            found += self._lower([*block.recompute, *block.backward], {value for value in [block.dx] if value})
        return self._pieces(found)

    def _lower(
        self, operations: Sequence[ForwardOp | GradientOp], keep: Collection[Value], base: bool = False
    ) -> Lowered:
        """Return the kernels of operations in order. Values except `keep` are released once nothing reads them any
        more."""
        last_read = {value: at for at, op in enumerate(operations) for value in values_read(op)}
        found: Lowered = []
        for at, op in enumerate(operations):
            ends = {
                value
                for value in (*values_read(op), *values_made(op))
                if last_read.get(value, at) == at and value not in keep
            }
            if isinstance(op, ForwardOp):
                found.append(self._forward_op(op, base))
            else:
                found.append(self._gradient_op(op, ends))
            for value in ends:
                self._places.release(value)
        return found

    def _pieces(self, lowered: Lowered) -> list[int]:
        """Return programs of about PIECE_FLOPS each."""
        found: list[int] = []
        piece: list[Op] = []
        total = 0.0
        for made, flops in lowered:
            if piece and total + flops > PIECE_FLOPS:
                found.append(self._program(piece))
                piece, total = [], 0.0
            piece += made
            total += flops
        return [*found, self._program(piece)] if piece else found

    def _program(self, operations: list[Op]) -> int:
        return self.arena.put(program_bytes(operations, self.state))

    # ---- operations ----

    def _forward_op(self, op: ForwardOp, base: bool) -> tuple[list[Op], float]:
        """`base`: without the pairs."""
        places, layout = self._places, self._plan.layout
        match op:
            case gradients.LoraUp():
                y = places.replace(op.y, op.out)
                if base:
                    return [], 0
                b = self._address(layout.slots[op.weight].b + op.first_row * layout.rank)
                arguments = (places[op.u], b, y, op.out.width, layout.rank, self._wide, real_bits(layout.scale))
                return [self._op(TrainKind.LORA_UP, *arguments)], self._thin(op.out)
            case gradients.LoraDown():
                if base:
                    return [], 0
                a = self._address(layout.slots[op.weight].a)
                x, u = places[op.x], self._make(op.out)
                return [self._op(TrainKind.LORA_DOWN, x, a, u, op.x.width, layout.rank, self._wide)], self._thin(op.x)
            case gradients.PackedAttention(attention=attention):
                out, sums = self._make(op.out), self._make(op.log_sums)
                return [self._op(TrainKind.ATTENTION, *self._attention(attention), out, sums)], 0
        out = self._make(op.out)
        match op:
            case gradients.PackedConv(conv=conv):
                return [Op(TrainKind.PACKED_CONV, (*self._convolution(conv), out))], 0
            case ops.Linear():
                matrix, first = self._matrix(op.weight, op.first_row, op.out.width)
                bias = self._bias(op.bias, op.first_row, op.out.width)
                kernel = self._op(TrainKind.LINEAR, matrix, first, op.out.width, places[op.x], out, bias)
                return [kernel], 2.0 * self._rows * op.x.width * op.out.width
            case ops.RMSNorm():
                size, weight = op.out.width // op.num_heads, self._model.weights.norm(op)
                return [Op(OpKind.NORM, (places[op.x], op.num_heads, size, weight, real_bits(op.eps), out))], 0
            case ops.Rope():
                place = (places[op.x], out, op.num_heads, op.x.width // op.num_heads)
                return [Op(OpKind.ROPE, (*place, *self._model.rotation(op)))], 0
            case ops.GLU():
                pair = (places[op.gate], places[op.up], op.out.width)
                return [Op(OpKind.GLU, (*pair, out, op.out.width, ACTIVATIONS[op.activation], op.up.width))], 0
            case ops.Add():
                return [Op(OpKind.ADD, (places[op.a], places[op.b], out, op.out.width))], 0
            case ops.SoftCap():
                return [Op(OpKind.SOFT_CAP, (places[op.x], out, op.out.width, real_bits(op.cap)))], 0
        raise AssertionError(f"no kernel for {op}")

    def _gradient_op(self, op: GradientOp, ends: Collection[Value]) -> tuple[list[Op], float]:
        """`ends`: values that no later operation reads, so results may overwrite them."""
        places, layout = self._places, self._plan.layout

        def added(out: Value, plus: Value | None) -> tuple[int, int]:
            """Return the place of a result, and of the value to which it is added (0 for none)."""
            if plus is None:
                return self._make(out), 0
            if plus in ends and values_read(op).count(plus) == 1:
                return (place := places.replace(plus, out)), place
            return self._make(out), places[plus]

        match op:
            case gradients.LinearGradient():
                n = op.dy.width
                matrix, first = self._matrix(op.weight, op.first_row, n)
                arguments = (matrix, first, n, places[op.dy], *added(op.out, op.plus))
                return [self._op(TrainKind.LINEAR_GRADIENT, *arguments)], 2.0 * self._rows * n * op.out.width
            case gradients.LoraUpGradient():
                b = 4 * (layout.slots[op.weight].b + op.first_row * layout.rank)
                pair = (places[op.dy], places[op.u], self.parameters + b, self.gradient + b)
                sizes = (op.dy.width, layout.rank, self._wide, real_bits(layout.scale))
                return [Op(TrainKind.LORA_UP_GRADIENT, (*pair, *added(op.out, op.plus), *sizes))], self._thin(op.dy, 2)
            case gradients.LoraDownGradient():
                a = 4 * layout.slots[op.weight].a
                pair = (places[op.du], places[op.x], self.parameters + a, self.gradient + a)
                out = (0, 0) if op.out is None else added(op.out, op.plus)
                widths = (op.x.width, layout.rank, self._wide)
                return [Op(TrainKind.LORA_DOWN_GRADIENT, (*pair, *out, *widths))], self._thin(op.x, 2)
            case gradients.RMSNormGradient():
                read = (places[op.dy], places[op.x], self._model.weights.vector(op.weight), real_bits(op.eps))
                heads = (op.num_heads, op.x.width // op.num_heads)
                return [Op(TrainKind.NORM_GRADIENT, (*read, *added(op.out, op.plus), *heads))], 0
            case gradients.RopeGradient():
                place = (places[op.dy], self._make(op.out), op.num_heads, op.dy.width // op.num_heads)
                return [Op(TrainKind.ROPE_GRADIENT, (*place, *self._model.rotation(op)))], 0
            case gradients.AttentionGradient(forward=forward):
                layer = self._attention(forward.attention)
                sums, dout = places[forward.log_sums], places[op.dout]
                dq, dk, dv = (self._make(value) for value in (op.dq, op.dk, op.dv))
                return [
                    self._op(TrainKind.ATTENTION_GRADIENT_Q, *layer, places[forward.out], sums, dout, dq, self._dots),
                    self._op(TrainKind.ATTENTION_GRADIENT_KV, *layer, sums, dout, self._dots, dk, dv),
                ], 0
            case gradients.ConvGradient(forward=forward):
                return [
                    Op(TrainKind.CONV_GRADIENT, (*self._convolution(forward.conv), places[op.dy], self._make(op.dx)))
                ], 0
            case gradients.GLUGradient():
                made = (self._make(op.dgate), self._make(op.dup), op.dy.width, ACTIVATIONS[op.activation])
                return [Op(TrainKind.GLU_GRADIENT, (places[op.dy], places[op.gate], places[op.up], *made))], 0
            case gradients.SoftCapGradient():
                capped = (places[op.dy], places[op.y], real_bits(op.cap))
                return [Op(TrainKind.SOFT_CAP_GRADIENT, (*capped, *added(op.out, op.plus), op.dy.width))], 0
        raise AssertionError(f"no kernel for {op}")

    def _op(self, kind: TrainKind, *arguments: int) -> Op:
        """Return an operation that uses the scratch memory."""
        return Op(kind, (*arguments, *[0] * (SCRATCH_ARGUMENT - len(arguments)), self._scratch))

    def _thin(self, value: Value, products: int = 1) -> float:
        return 2.0 * self._rows * self._plan.layout.rank * value.width * products

    def _address(self, parameter: int) -> int:
        return self.parameters + 4 * parameter

    def _convolution(self, op: ops.ShortConv) -> tuple[int, ...]:
        return self._places[op.x], self._model.weights.taps(op.weight), op.out.width, op.taps, self.pack

    def _attention(self, op: ops.Attention) -> tuple[int, int, int, int]:
        heads, kv_heads = op.num_attention_heads, op.num_key_value_heads
        sizes = (heads, kv_heads, op.k.width // kv_heads, op.window)
        layer = PackedLayer(*sizes, op.softcap, op.scale, self.pack, self.room).packed()
        if layer not in self._layers:
            self._layers[layer] = self.arena.put(layer)
        return self._layers[layer], self._places[op.q], self._places[op.k], self._places[op.v]

    def _matrix(self, name: str, first_row: int, rows: int) -> tuple[int, int]:
        """Return the matrix that has these rows of a tensor, and the row at which they begin in it."""
        matrix, first = self._model.weights.find(TensorRows(name, first_row, rows))
        if first % GROUP_ROWS:
            raise BackendError(
                "wasm.training-rows",
                "{name} begins in the middle of {rows} rows; the WASM kernels cannot train it.",
                name=name,
                rows=GROUP_ROWS,
            )
        return matrix.address, first

    def _bias(self, name: str | None, first_row: int, rows: int) -> int:
        return self._model.weights.find_bias(TensorRows(name, first_row, rows)) if name else 0

    def _make(self, value: Value) -> int:
        width = self._wide if value.width == self._plan.layout.rank else value.width
        # Kernels read whole vectors beyond the last row.
        return self._places.make(value, 4 * self._rows * width + 16)
