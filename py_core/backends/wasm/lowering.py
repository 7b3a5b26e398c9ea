"""Turns a model's graph into programs of the WASM kernels: operations with the addresses they work on.

A program is the same for one row or many: the state block has the number of rows. The patterns of `fusion.py` run as
few operations. Each operation of a graph also has an operation of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from py_core.backend_errors import BackendError
from py_core.backends.checks import MAX_LOGIT_ROWS, MAX_TAPS
from py_core.backends.fusion import Fused, FusedHead, GatedLinear, QKVAttention, ResidualLinear, fuse, linears_of
from py_core.backends.grammar_states import grammar_bytes
from py_core.backends.sampling_state import BIAS_BYTES, RING, ROW_BYTES, STATE_HEADER
from py_core.backends.wasm.head import HeadMemory
from py_core.backends.wasm.host import KernelHost
from py_core.backends.wasm.kv_pages import KVPages
from py_core.backends.wasm.layout import (
    ACTIVATIONS,
    BAND_ROWS,
    GATES,
    MOST_GROUP,
    MOST_HEAD_DIM,
    OP_BYTES,
    PART,
    Arena,
    AttentionLayer,
    Barrier,
    Epilogue,
    Mode,
    Op,
    OpKind,
    RowsLayer,
    StateLayer,
    activation_bytes,
    program_bytes,
    real_bits,
)  # fmt: skip
from py_core.backends.wasm.lora import SITE_BYTES, LoraSite
from py_core.backends.wasm.lora import rows_bytes as lora_rows_bytes
from py_core.backends.wasm.values import Values
from py_core.backends.wasm.weights import PackedWeights, TensorRows, rows_of
from py_core.formats.gguf import TensorInfo
from py_core.models import graph as ops
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, Linear, RMSNorm, Rope, Value
from py_core.models.rotation import Rotation
from py_core.paging.page_table import head_room, kept_rows, pages_of
from py_core.training.gradient_ops import RopeGradient


class ProgramLowering:
    """One model in the kernels' memory. Programs and constants are in `arena.writes`, weights in `weights.jobs`."""

    def __init__(
        self, host: KernelHost, config: ModelConfig, graph: Graph, tensors: Mapping[str, TensorInfo], mode: Mode,
        max_rows: int, slots: int,
    ) -> None:  # fmt: skip
        heads = [op for op in graph.ops if isinstance(op, ops.Attention)]
        group = max(op.num_attention_heads // op.num_key_value_heads for op in heads)
        head_dim = max(op.head_dim for op in heads)
        if head_dim > MOST_HEAD_DIM or group > MOST_GROUP:
            raise BackendError(
                "wasm.heads",
                "This model has {group} attention heads of {size} values for each head of keys and values; the "
                "WASM kernels support up to {most}, of up to {longest} values. Choose another backend or model.",
                group=group,
                size=head_dim,
                most=MOST_GROUP,
                longest=MOST_HEAD_DIM,
            )
        if any(rule.size % 16 or rule.size > MOST_HEAD_DIM for rule in graph.delta_rules.values()):
            raise BackendError(
                "wasm.delta-heads",
                "This model has delta rules of {size} values a head; the WASM kernels run multiples of 16, up to "
                "{most}. Choose another backend or model.",
                size=config.state_size,
                most=MOST_HEAD_DIM,
            )
        self._config, self._mode, self._graph, self._max_rows = config, mode, graph, max_rows
        self._query_width = max(op.num_attention_heads * head_room(op.head_dim) for op in heads)
        self._body, self._head = fuse(graph)
        self._body_values = {op.out for op in graph.body}
        self.arena = Arena()
        # The inputs of a row's experts lie side by side: they take no more room than one row of that width.
        take, widest = self.arena.take, max(op.x.width for op in graph.ops if isinstance(op, Linear | ops.ExpertLinear))
        self.weights = PackedWeights(tensors, self.arena)
        self._values = Values([*self._body, *self._head], take)
        self.state = take(STATE_HEADER + ROW_BYTES * max_rows)
        self.history = take(slots * RING * 4)
        self.biases = take(slots * BIAS_BYTES)
        # When tokens are scored, it has as many columns of each row of a pass as fit.
        self._columns = max(1, MAX_LOGIT_ROWS * config.vocab_size // max_rows // BAND_ROWS) * BAND_ROWS
        self.logits = take(max(MAX_LOGIT_ROWS * config.vocab_size, self._columns * max_rows) * 4 + 16)
        self._weights_of_tokens = take(config.vocab_size * 4 + 16)
        self.grammar_states = take(grammar_bytes(config.vocab_size))
        self._angles: dict[Rotation, int] = {}
        self.pages = KVPages(host, config, graph, mode, slots, self.arena, self.state)
        self._one_bytes = activation_bytes(widest, 1) + 64
        self._one = take(self._one_bytes * host.most_workers)
        self._many = take(activation_bytes(widest, max_rows))
        self._activations = (self._one, self._one_bytes, self._many, max_rows)
        self._rows = take(-(-widest // 32) * 128 * host.most_workers)
        parts = -(-config.context_length // PART)
        self._parts = take(parts * (self._query_width + 2 * config.num_attention_heads) * 4)
        self._layers: dict[Value, tuple[int, ops.Attention | ops.ShortConv | ops.DeltaRule]] = {}
        self._sites: list[LoraSite] | None = None
        """The changes that adapters may make to the operations lowered now; None if they may change nothing."""
        self.head = HeadMemory(graph.head_input.width, max_rows, self.arena)
        self._plain_body()
        self._changed_head = self._head_with_adapters()
        self._plain_body()
        self.residual = self._values[graph.head_residual]
        """The place of the residual stream after the last block, one row after the other, when the head begins."""
        self._scores = self._head_over_columns(self.head.sum_columns, self.head.score())
        self._unmasking: list[Op] = []
        if diffusion := config.diffusion:
            self._plain_body()
            drawn = partial(self.head.draw_columns, diffusion, self.grammar_states)
            self._unmasking = [Op(OpKind.LOGIT_ROWS), *self._head_over_columns(drawn, self.head.unmask())]
        body = self._plain_body()
        head = [Op(OpKind.LOGIT_ROWS), *self._lower(self._head)]
        tap_bytes = max_rows * 4 * max((value.width for value in graph.taps.values()), default=0)
        self._taps = [take(tap_bytes) for _ in range(MAX_TAPS)]
        tapped_program = take(len(program_bytes(body, 0)) + MAX_TAPS * OP_BYTES)
        self._samplers = {
            "argmax": [self._sampler(OpKind.ARGMAX)],
            "sample": [self._sampler(OpKind.SAMPLE)],
            "penalties argmax": [self._sampler(OpKind.PENALTIES), self._sampler(OpKind.ARGMAX)],
            "penalties sample": [self._sampler(OpKind.PENALTIES), self._sampler(OpKind.SAMPLE)],
            # Each row takes part in one of the last two: argmax takes rows without a temperature, sample the others.
            "penalties mixed": [self._sampler(one) for one in (OpKind.PENALTIES, OpKind.ARGMAX, OpKind.SAMPLE)],
        }
        programs = self._passes(body, head) | self._samplers
        self.programs = {name: self.arena.put(program_bytes(program, self.state)) for name, program in programs.items()}
        self.programs["tapped"] = tapped_program  # the place to which a program of `tapped` is written before it runs
        self.lora_table = take(lora_rows_bytes(max_rows))
        # Pages come last in memory, so that their pools can grow: all other sizes are known by now.
        self.arena.writes += [(address, self._layer(op)) for address, op in self._layers.values()]

    def tapped(self, names: Sequence[str], adapted: bool = False) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the body as a program that also keeps the named values, and the address and width of each."""
        values = [self._graph.taps[name] for name in names]
        taps = dict(zip(values, self._taps, strict=False))
        program = self._adapted_body(taps)[0] if adapted else self._plain_body(taps)
        program += [self._tap(op, taps[op.out]) for op in self._head if op.out in taps]
        return program_bytes(program, self.state), [(taps[value], value.width) for value in values]

    def adapted(self) -> tuple[dict[str, bytes], list[LoraSite]]:
        """Return programs that apply the state's set of LoRA matrices, and the linears that a set may change.

        They have the names of the programs without; "tapped" has room for any program of `tapped`.
        """
        body, sites = self._adapted_body()
        head = [Op(OpKind.LOGIT_ROWS), *self._lower(self._head)]
        programs = {name: program_bytes(program, self.state) for name, program in self._passes(body, head).items()}
        programs["tapped"] = bytes(len(programs["body"]) + MAX_TAPS * OP_BYTES)
        return programs, sites

    def headed(self, adapted: bool) -> dict[str, bytes]:
        """Return programs with adapters at the head's input, and "scored": log p of each row's target (`HeadMemory`).
        "head scored" is the same without the body: the caller writes the body's result to `residual` first.

        The others have the names of the programs without. `adapted`: they also apply the state's set of LoRA matrices.
        """
        body = self._adapted_body()[0] if adapted else self._plain_body()
        scores = {"scored": [*body, *self._scores], "head scored": self._scores}
        if self._unmasking:
            scores["unmasked"] = [*body, *self._unmasking]
        programs = self._passes(body, self._changed_head) | scores
        return {name: program_bytes(program, self.state) for name, program in programs.items() if name != "body"}

    def _passes(self, body: list[Op], head: list[Op]) -> dict[str, list[Op]]:
        steps = {
            f"step {name}": [Op(OpKind.UNLESS_WAITING), *body, *head, *sampler]
            for name, sampler in self._samplers.items()
        }
        return {"body": body, "body head": [*body, *head], **steps}

    def _plain_body(self, taps: Mapping[Value, int] | None = None) -> list[Op]:
        self._values.begin()
        return self._lower(self._body, taps)

    def _adapted_body(self, taps: Mapping[Value, int] | None = None) -> tuple[list[Op], list[LoraSite]]:
        sites: list[LoraSite] = []
        self._sites = sites
        try:
            return self._plain_body(taps), sites
        finally:
            self._sites = None

    def _head_with_adapters(self) -> list[Op]:
        """Return the head, with each row's adapter at its input, over the rows that need logits."""
        out = [Op(OpKind.LOGIT_ROWS)]
        for op in self._head:
            if self._makes_logits(op):
                out += self._changed_input()
            out += self._operation(op)
        return out + self.head.mix(self.logits, self._config.vocab_size)

    def _head_over_columns(self, keep: Callable[[int, int, int, int], list[Op]], end: Op) -> list[Op]:
        """Return the same head over any number of rows, a few columns of the logits at a time. keep: makes the
        operations that keep something of columns, from their address, number, floats from row to row, and the
        vocabulary's first of them. end: the operation behind them."""
        out: list[Op] = []
        for op in self._head:
            if self._makes_logits(op):
                break
            out += self._operation(op)
        linear = next(op for op in self._graph.head if isinstance(op, Linear) and op.x == self._graph.head_input)
        cap = next((op.cap for op in self._graph.head if isinstance(op, ops.SoftCap)), 0.0)
        epilogue = Epilogue.SOFT_CAP if cap else Epilogue.NONE
        rows, bias = TensorRows(linear.weight, linear.first_row, linear.out.width), self.weights.biases([linear])
        mode = Mode.FLOAT if self.weights.matrix([rows]).is_float else self._mode
        out += self._changed_input()
        out.append(self._prepare(self.head.h, linear.x.width, None, self._activations, mode, Barrier.MANY_ROWS))
        for first in range(0, rows.count, self._columns):
            count = min(self._columns, rows.count - first)
            matrix = self.weights.band(rows, first, count)
            place = (matrix.address, self.logits, self._columns, 0, epilogue)
            biases = bias + 4 * first if bias else 0
            out.append(Op(OpKind.LINEAR, (*place, *self._activations, mode, biases, real_bits(cap))))
            out += keep(self.logits, count, self._columns, first)
        return [*out, end]

    def _makes_logits(self, op: Fused) -> bool:
        return any(linear.x == self._graph.head_input for linear in linears_of(op))

    def _changed_input(self) -> list[Op]:
        """Return the operations that put the head's input, changed by each row's adapter, to where the next linear
        reads it."""
        value, h = self._graph.head_input, self.head.h
        x, norm = self._values.source(value)
        place, every_row = (h, 0, h, self._max_rows), x in self._body_values
        made = self._prepare(self._values[x], x.width, norm, place, Mode.FLOAT, Barrier.ALWAYS, every_row)
        self._values.store(value, h)
        return [made, self.head.adapt()]

    def _lower(self, operations: Sequence[Fused], taps: Mapping[Value, int] | None = None) -> list[Op]:
        """Return operations of the kernels, in order. Values among the `taps` are copied there as soon as they are
        made."""
        out: list[Op] = []
        for op in operations:
            out += self._operation(op)
            if taps and op.out in taps:
                out.append(self._tap(op, taps[op.out]))
            self._values.end(op)
        return out

    def _operation(self, op: Fused) -> list[Op]:
        values = self._values
        match op:
            case QKVAttention():
                return self._fused_attention(op)
            case GatedLinear():
                return self._gated(op)
            case ResidualLinear():
                return self._residual(op)
            case FusedHead():
                cap = op.soft_cap.cap if op.soft_cap else 0.0
                epilogue = Epilogue.SOFT_CAP if op.soft_cap else Epilogue.NONE
                return self._linears([op.linear], self._make(op.out), op.out.width, epilogue, cap)
            case Linear():
                return self._linears([op], self._make(op.out), op.out.width)
            case RMSNorm() if values.is_deferred(op.out):
                return []
        out = self._make(op.out)
        match op:
            case ops.Embedding():
                table = self.weights.matrix([TensorRows(op.weight, 0, op.vocab_size)])
                return [Op(OpKind.EMBED, (table.address, out, real_bits(op.scale)))]
            case RMSNorm():
                return [self._norm(op, values[op.x], out)]
            case Rope():
                place = (values[op.x], out, op.num_heads, op.x.width // op.num_heads)
                return [Op(OpKind.ROPE, (*place, *self.rotation(op)))]
            case ops.GLU():
                pair = (values[op.gate], values[op.up] + 4 * op.first, op.out.width)
                return [Op(OpKind.GLU, (*pair, out, op.out.width, GATES[op.activation], op.up.width))]
            case ops.Scale():
                return [Op(OpKind.SCALE, (values[op.x], out, op.out.width, self.weights.vector(op.weight)))]
            case ops.ShortConv():
                taps = (self.weights.taps(op.weight), op.taps, self._described(op, RowsLayer.BYTES))
                return [Op(OpKind.SHORT_CONV, (values[op.x], out, op.out.width, *taps, int(op.gated)))]
            case ops.DeltaRule():
                rows = (values[op.x], values[op.alpha], values[op.beta], out)
                sizes = (op.key_heads, op.heads, op.size, self.weights.vector(op.rate), self.weights.vector(op.bias))
                return [Op(OpKind.DELTA_RULE, (*rows, *sizes, self._described(op, StateLayer.BYTES)))]
            case ops.Half():
                return [Op(OpKind.HALF, (values[op.x], out, op.out.width, op.size, int(op.second)))]
            case ops.Route():
                return [Op(OpKind.ROUTE, (values[op.x], out, op.x.width, op.used, int(op.normalized)))]
            case ops.ExpertLinear():
                return self._experts(op, out)
            case ops.Mix():
                return [Op(OpKind.MIX, (values[op.x], values[op.route], out, op.used, op.out.width))]
            case ops.Add():
                return [Op(OpKind.ADD, (values[op.a], values[op.b], out, op.out.width))]
            case ops.SoftCap():
                every_row = int(op.x in self._body_values)
                return [Op(OpKind.SOFT_CAP, (values[op.x], out, op.out.width, real_bits(op.cap), every_row))]
            case ops.Attention():
                q = self._scratch(self._query_width)
                kv = (values[op.k], values[op.v]) if op.appends else (0, 0)
                places = (values[op.q], *kv, op.q.width, op.k.width)
                found = self._attention(op, places, q, out)
                values.give_back(q)
                return found
        raise AssertionError(f"no kernel for {op}")

    def _tap(self, op: Fused, to: int) -> Op:
        """Copy every row of a value to a place of its own, before another value takes its place. A norm is made
        there."""
        x, norm = self._values.source(op.out)
        return self._prepare(self._values[x], x.width, norm, (to, 0, to, self._max_rows), Mode.FLOAT, Barrier.ALWAYS)

    def _fused_attention(self, op: QKVAttention) -> list[Op]:
        width = op.q.out.width + op.k.out.width + op.v.out.width
        qkv, q = self._scratch(width), self._scratch(self._query_width)
        k = qkv + 4 * op.q.out.width
        places = (qkv, k, k + 4 * op.k.out.width, width, width)
        found = [
            *self._linears([op.q, op.k, op.v], qkv, width),
            *self._attention(op.attention, places, q, self._make(op.out), op.rope, op.q_norm, op.k_norm, op.v_norm),
        ]
        self._values.give_back(qkv)
        self._values.give_back(q)
        return found

    def _attention(
        self, op: ops.Attention, places: tuple[int, ...], q: int, out: int, rope: Rope | None = None,
        q_norm: RMSNorm | None = None, k_norm: RMSNorm | None = None, v_norm: RMSNorm | None = None,
    ) -> list[Op]:  # fmt: skip
        """`places` are q, k and v and the lengths of their rows; `q` is the place of finished queries."""
        address = self._described(op, AttentionLayer.BYTES)
        norms, eps = (0, 0), 0.0
        if q_norm and k_norm:
            assert q_norm.eps == k_norm.eps, "the kernel has one eps for both norms"
            norms, eps = (self.weights.norm(q_norm), self.weights.norm(k_norm)), q_norm.eps
        turn = (*(self.rotation(rope) if rope else (0, 0, 0)), *norms, real_bits(eps))
        return [
            Op(OpKind.ROPE_APPEND, (*places, q, *turn, address, self.weights.norm(v_norm) if v_norm else 0)),
            Op(OpKind.ATTENTION, (q, out, self._parts, address)),
        ]

    def _described(self, op: ops.Attention | ops.ShortConv | ops.DeltaRule, nbytes: int) -> int:
        """Return the address of the description of a layer's pages, which is written once their place is known."""
        if op.out not in self._layers:
            self._layers[op.out] = self.arena.take(nbytes), op
        return self._layers[op.out][0]

    def _layer(self, op: ops.Attention | ops.ShortConv | ops.DeltaRule) -> bytes:
        """Pack the description of a layer's attention, of its convolution or its delta rule, for the kernels."""
        pages, per_slot = self.pages, pages_of(self._config.context_length)
        if isinstance(op, ops.DeltaRule):
            return StateLayer(pages.in_state("rule", op.layer) or 0, pages.state_table, per_slot).packed()
        if isinstance(op, ops.ShortConv):
            in_state = pages.in_state("rows", op.layer)
            if in_state is not None:
                return RowsLayer(in_state, kept_rows(self._graph), 1, pages.state_table, per_slot, pages=1).packed()
            place = (pages.rows(op.layer), kept_rows(self._graph), pages.part_bytes)
            return RowsLayer(*place, pages.table(op.layer), per_slot).packed()
        return AttentionLayer(
            op.num_attention_heads, op.num_key_value_heads, op.head_dim, int(self._mode),
            pages.base(op.layer), pages.part_bytes, pages.table(op.layer), per_slot,
            op.scale, op.softcap, op.window,
        ).packed()  # fmt: skip

    def rotation(self, op: Rope | RopeGradient) -> tuple[int, int, int]:
        """Return a table of angles, the number of pairs that rotate, and whether the pairs are neighbours."""
        if op.rotation not in self._angles:
            self._angles[op.rotation] = self.arena.put(op.rotation.table(self._config.context_length).tobytes())
        return self._angles[op.rotation], op.rotation.dimensions // 2, int(op.interleaved)

    def _gated(self, op: GatedLinear) -> list[Op]:
        n, activation = op.out.width, ACTIVATIONS[op.activation]
        out, linears = self._make(op.out), [op.gate, op.up]
        if n % BAND_ROWS == 0 and self.weights.can_join(rows_of(linears)):
            return self._linears(linears, out, n, activation)
        pair = self._scratch(2 * n)
        found = self._linears(linears, pair, 2 * n)
        self._values.give_back(pair)
        return [*found, Op(OpKind.GLU, (pair, pair + 4 * n, 2 * n, out, n, activation, 2 * n))]

    def _residual(self, op: ResidualLinear) -> list[Op]:
        n = op.out.width
        if op.norm is None:
            # With one row, workers quantize without waiting for each other: none may write what another still reads.
            shared = self._values.source(op.linear.x)[0] == op.residual
            barrier = Barrier.ALWAYS if shared else Barrier.MANY_ROWS
            found = self._linears([op.linear], self._values[op.residual], n, Epilogue.RESIDUAL, barrier=barrier)
            self._values.overwrite(op.residual, op.out)
            return found
        made = self._scratch(n)
        found = self._linears([op.linear], made, n)
        found.append(self._norm(op.norm, made, self._values.overwrite(op.residual, op.out), adds=True))
        self._values.give_back(made)
        return found

    def _norm(self, op: RMSNorm, x: int, out: int, adds: bool = False) -> Op:
        weight, size = self.weights.norm(op), op.out.width // op.num_heads
        every_row = op.x in self._body_values
        arguments = (x, op.num_heads, size, weight, real_bits(op.eps), out, int(adds), int(every_row))
        return Op(OpKind.NORM, arguments)

    def _linears(
        self, linears: Sequence[Linear], out: int, stride: int, epilogue: Epilogue = Epilogue.NONE, cap: float = 0.0,
        barrier: Barrier = Barrier.MANY_ROWS,
    ) -> list[Op]:  # fmt: skip
        """Make linears of one value side by side in the output's rows, as one matrix if their layouts agree."""
        x, norm = self._values.source(linears[0].x)
        every_row = x in self._body_values and not self._values.is_stored(x)
        rows, bias = rows_of(linears), self.weights.biases(linears)
        found: list[Op] = []
        prepared, offset = None, 0
        activations = self._activations
        kind = OpKind.LINEAR
        lora: tuple[int, ...] = ()
        if self._sites is not None:
            kind, lora = OpKind.LORA_LINEAR, (self.lora_table, len(self._sites) * SITE_BYTES)
            self._sites.append(LoraSite(x.width, tuple(rows)))
        for part in [rows] if self.weights.can_join(rows) else [[one] for one in rows]:
            matrix = self.weights.matrix(part)
            mode = Mode.FLOAT if matrix.is_float else self._mode
            if mode != prepared:
                found.append(self._prepare(self._values[x], x.width, norm, activations, mode, barrier, every_row))
                if lora and prepared is None:
                    # Each worker reads the rows that it prepared itself: they wait for each other after that.
                    found[-1] = replace(found[-1], barrier=Barrier.NEVER)
                    arguments = (x.width, *activations, mode, self._rows, *lora)
                    found.append(Op(OpKind.LORA_DOWN, arguments, barrier))
                prepared = mode
            biases = bias + 4 * offset if bias else 0
            arguments = (matrix.address, out, stride, offset, epilogue, *activations, mode, biases, real_bits(cap))
            found.append(Op(kind, (*arguments, *lora)))
            offset += matrix.rows
        return found

    def _experts(self, op: ops.ExpertLinear, out: int) -> list[Op]:
        if op.n % BAND_ROWS:
            raise BackendError(
                "wasm.expert-rows",
                "{name} has experts of {rows} rows; the WASM kernels read multiples of {band} only.",
                name=op.weight,
                rows=op.n,
                band=BAND_ROWS,
            )
        matrix = self.weights.matrix([TensorRows(op.weight, 0, self._graph.weights[op.weight][0] * op.n)])
        mode = Mode.FLOAT if matrix.is_float else self._mode
        slots = op.x.width // op.k
        activations = (self._one, self._one_bytes, self._many, self._max_rows * slots)
        barrier = Barrier.MANY_ROWS if slots == 1 else Barrier.ALWAYS
        prepared = self._prepare(self._values[op.x], op.k, None, activations, mode, barrier, slots=slots)
        arguments = (matrix.address, out, self._values[op.route], op.used, op.n, slots, *activations, mode)
        return [prepared, Op(OpKind.EXPERT_LINEAR, arguments)]

    def _prepare(
        self, x: int, width: int, norm: RMSNorm | None, activations: tuple[int, int, int, int], mode: Mode,
        barrier: Barrier, every_row: bool = False, slots: int = 1,
    ) -> Op:  # fmt: skip
        """Normalize rows of x, if there is a norm, and quantize them for a linear.

        `every_row`: x has all of the state's rows, even if only the rows that need logits are wanted. A row of the
        state has `slots` rows of x.
        """
        weight, eps = (self.weights.norm(norm), norm.eps) if norm else (0, 0.0)
        arguments = (x, width, weight, real_bits(eps), *activations, mode, self._rows, int(every_row), slots)
        return Op(OpKind.QUANTIZE, arguments, barrier)

    def _sampler(self, kind: OpKind) -> Op:
        arguments = (
            self.logits,
            self.history,
            self._config.vocab_size,
            RING,
            self._weights_of_tokens,
            self.grammar_states,
            self.biases,
        )
        return Op(kind, arguments, Barrier.NEVER)

    def _make(self, value: Value) -> int:
        """Return room for a value: a row for each row of the state, or in the head for each row that needs logits."""
        if value == self._graph.output:
            self._values.put(value, self.logits)
            return self.logits
        return self._values.make(value, self._bytes(value.width, value in self._body_values))

    def _scratch(self, width: int) -> int:
        return self._values.scratch(self._bytes(width, every_row=True))

    def _bytes(self, width: int, every_row: bool) -> int:
        return (self._max_rows if every_row else MAX_LOGIT_ROWS) * width * 4
