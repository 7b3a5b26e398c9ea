"""A forward pass as a list of operations on named values: an architecture writes it, a backend runs or lowers it.

A value is a matrix (M, width) of float32, one row per token. The graph tracks widths, so that a weight of the wrong
shape is found when a file is opened, not when a kernel reads past its end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from py_core.display import shown
from py_core.formats.gguf import GGUFError, TensorInfo
from py_core.models.rotation import Rotation

Activation = Literal["silu", "gelu", "sigmoid"]
"""silu(x) = x sigmoid(x) = x / (1 + exp(-x)); gelu is its approximation by tanh, as Gemma uses it."""


@dataclass(frozen=True)
class Value:
    """The name of an (M, width) matrix."""

    index: int
    width: int


@dataclass(frozen=True)
class Embedding:
    """out[m] = scale * weight[token[m]]"""

    out: Value
    weight: str
    vocab_size: int
    scale: float = 1.0


@dataclass(frozen=True)
class RMSNorm:
    """out = x / sqrt(mean(x^2) + eps) * weight, over each row, or over each of `num_heads` parts of a row.

    Without a weight nothing is multiplied.
    """

    out: Value
    x: Value
    weight: str | None
    eps: float
    num_heads: int = 1


@dataclass(frozen=True)
class Linear:
    """out = x @ weight[first_row : first_row + out.width].T + bias[first_row : first_row + out.width]

    A tensor that holds several stacked matrices is read by one Linear each.
    """

    out: Value
    x: Value
    weight: str
    bias: str | None = None
    first_row: int = 0


@dataclass(frozen=True)
class Rope:
    """Rotates the pairs of each head by an angle that grows with the token's position (RoFormer, arXiv 2104.09864).

    `interleaved` pairs neighbours (2i, 2i+1), the layout of GGUF's llama weights; otherwise the pairs are (i, i + n/2).
    Only the first n values of a head rotate, with the n/2 frequencies of `rotation`. The other values stay as they are.
    """

    out: Value
    x: Value
    num_heads: int
    interleaved: bool
    rotation: Rotation


@dataclass(frozen=True)
class Attention:
    """Appends k and v to the layer's cache; then out = softmax(cap(scale q k^T)) v over the tokens up to the row's.

    If it does not append, it reads the cache of `layer`, to which another attention appended the same k and v.

    cap(s) is `softcap` tanh(s / `softcap`), or s if softcap is 0. With a `window` of w > 0 a row attends only to the
    last w tokens, its own included. Query head h reads key/value head h * num_key_value_heads // num_attention_heads
    (grouped-query attention).
    """

    out: Value
    layer: int
    q: Value
    k: Value
    v: Value
    num_attention_heads: int
    num_key_value_heads: int
    scale: float
    softcap: float = 0.0
    window: int = 0
    appends: bool = True

    @property
    def head_dim(self) -> int:
        """The values of a head."""
        return self.q.width // self.num_attention_heads


@dataclass(frozen=True)
class ShortConv:
    """A convolution of each channel over the last `taps` positions:

        s[t, i] = sum over j < taps of weight[i, j] * z[t - taps + 1 + j, i].

    If it is `gated`, a row of x is b, c and u, side by side, z = b * u and out = c * s. If not, z = x and
    out = silu(s). z is 0 before the sequence. The layer's cache keeps the last rows of z (`paging/page_table.py`).
    """

    out: Value
    layer: int
    x: Value
    weight: str
    taps: int
    gated: bool


@dataclass(frozen=True)
class DeltaRule:
    """The gated delta rule (arXiv 2412.06464): each head has a matrix S, 0 before the sequence, and for each row

        S = exp(g) S;  u = sigmoid(beta) * (v - k S);  S = S + k^T u;  out = q S

    with g = rate * softplus(alpha + bias).

    A row of x is q and k of `key_heads` heads and v of all heads, side by side; alpha and beta have a number for each
    head. q and k are divided by their lengths, q also by sqrt(size). Head h reads head h % key_heads of q and k. The
    layer's cache keeps the rows of k, u and g, and S now and then (docs/decisions/0110-states-of-pages.md).
    """

    out: Value
    layer: int
    x: Value
    alpha: Value
    beta: Value
    rate: str
    bias: str
    key_heads: int

    @property
    def heads(self) -> int:
        """The heads of v, each with a matrix S (size, size)."""
        return self.alpha.width

    @property
    def size(self) -> int:
        """The values of a head of q, k or v."""
        return self.out.width // self.heads


@dataclass(frozen=True)
class Half:
    """out[m, h] = x[m, 2 h], or x[m, 2 h + 1] if `second`, for heads of `size` values: every second head of a row."""

    out: Value
    x: Value
    size: int
    second: bool


@dataclass(frozen=True)
class Route:
    """The experts of each row. A row of x has a logit for each expert, a row of out (M, 2 used) the numbers of the
    `used` likeliest, as floats, and then their shares: softmax(x), divided by the sum of these shares if `normalized`.
    """

    out: Value
    x: Value
    used: int
    normalized: bool


@dataclass(frozen=True)
class ExpertLinear:
    """out[m, s] = x[m, s] @ weight[e].T for the experts e = route[m, s] of a row, side by side: (M, used * n).

    weight is (experts, n, k). x is (M, used * k), or (M, k) if all experts of a row read the same.
    """

    out: Value
    x: Value
    route: Value
    weight: str
    used: int
    k: int

    @property
    def n(self) -> int:
        """The rows of an expert's matrix."""
        return self.out.width // self.used


@dataclass(frozen=True)
class Mix:
    """out[m] = sum over s of share[m, s] * x[m, s], with the shares of `route` and x (M, used * n)."""

    out: Value
    x: Value
    route: Value
    used: int


@dataclass(frozen=True)
class GLU:
    """out = activation(gate) * up[:, first : first + out.width] (gated linear unit, arXiv 2002.05202)"""

    out: Value
    gate: Value
    up: Value
    activation: Activation = "silu"
    first: int = 0


@dataclass(frozen=True)
class Add:
    """out = a + b"""

    out: Value
    a: Value
    b: Value


@dataclass(frozen=True)
class SoftCap:
    """out = cap * tanh(x / cap)"""

    out: Value
    x: Value
    cap: float


@dataclass(frozen=True)
class Scale:
    """out = x * weight[0]"""

    out: Value
    x: Value
    weight: str


Op = (
    Embedding | RMSNorm | Linear | Rope | Attention | ShortConv | DeltaRule | Half | Route | ExpertLinear | Mix | GLU
    | Add | SoftCap | Scale
)  # fmt: skip


@dataclass
class Graph:
    """The operations in order, the shapes of the weights they need, and the values that can be read by name.

    `tensors` are the names in the file: a bias or a fused matrix is used if it is there. The last operation makes the
    logits. The backend that runs the graph decides for which rows of a pass.
    """

    tensors: Collection[str] = ()
    ops: list[Op] = field(default_factory=list)
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    read_elsewhere: set[str] = field(default_factory=set)
    """Tensors that no operation reads: factors of the rotation, which are used before the model runs, and what files
    have although the model does not use it."""
    required: set[str] = field(default_factory=set)
    """Biases that the file must have."""
    factors: dict[str, float] = field(default_factory=dict)
    """Factors of norms: a backend multiplies the weights of this name by it once it has loaded them."""
    taps: dict[str, Value] = field(default_factory=dict)
    _values: int = 0

    def embedding(self, weight: str, vocab_size: int, width: int, scale: float = 1.0) -> Value:
        self._need(weight, (vocab_size, width))
        return self._append(Embedding(self._value(width), weight, vocab_size, scale))

    def rms_norm(self, x: Value, weight: str | None, eps: float, num_heads: int = 1, factor: float = 1.0) -> Value:
        """With a `factor`, the weights are the file's times it."""
        if weight is not None:
            if factor != 1:
                self.factors[weight] = factor
            self._need(weight, (x.width // num_heads,))
        return self._append(RMSNorm(self._value(x.width), x, weight, eps, num_heads))

    def linear(self, x: Value, name: str, out_features: int) -> Value:
        """Use the tensor `name`.weight, and `name`.bias if the file has it."""
        return self.linears(x, name, [out_features])[0]

    def linears(self, x: Value, name: str, out_features: Sequence[int]) -> list[Value]:
        """Several linears of one value whose matrices are stacked in one tensor."""
        weight, bias, rows = f"{name}.weight", f"{name}.bias", sum(out_features)
        self._need(weight, (rows, x.width))
        has_bias = bias in self.tensors
        if has_bias:
            self._need(bias, (rows,))
        found, first = [], 0
        for width in out_features:
            found.append(self._append(Linear(self._value(width), x, weight, bias if has_bias else None, first)))
            first += width
        return found

    def require(self, name: str) -> None:
        """Require this tensor, which is optional in other models: `check_weights` asks for it."""
        self.required.add(name)

    def rope(self, x: Value, num_heads: int, interleaved: bool, rotation: Rotation) -> Value:
        return self._append(Rope(self._value(x.width), x, num_heads, interleaved, rotation))

    def attention(
        self, layer: int, q: Value, k: Value, v: Value, heads: int, kv_heads: int, scale: float, softcap: float = 0.0,
        window: int = 0, appends: bool = True,
    ) -> Value:  # fmt: skip
        out = self._value(q.width)
        return self._append(Attention(out, layer, q, k, v, heads, kv_heads, scale, softcap, window, appends))

    def short_conv(self, layer: int, x: Value, weight: str, taps: int, gated: bool = True) -> Value:
        width = x.width // 3 if gated else x.width
        self._need(weight, (width, taps))
        return self._append(ShortConv(self._value(width), layer, x, weight, taps, gated))

    def delta_rule(
        self, layer: int, x: Value, alpha: Value, beta: Value, rate: str, bias: str, key_heads: int
    ) -> Value:  # fmt: skip
        heads = alpha.width
        size = x.width // (2 * key_heads + heads)
        self._need(rate, (heads,))
        self._need(bias, (heads,))
        return self._append(DeltaRule(self._value(heads * size), layer, x, alpha, beta, rate, bias, key_heads))

    def half(self, x: Value, size: int, second: bool) -> Value:
        return self._append(Half(self._value(x.width // 2), x, size, second))

    def route(self, x: Value, used: int, normalized: bool) -> Value:
        return self._append(Route(self._value(2 * used), x, used, normalized))

    def expert_linear(self, x: Value, route: Value, name: str, experts: int, n: int, k: int) -> Value:
        """Use the tensor `name`.weight (experts, n, k)."""
        used = route.width // 2
        self._need(f"{name}.weight", (experts, n, k))
        return self._append(ExpertLinear(self._value(used * n), x, route, f"{name}.weight", used, k))

    def mix(self, x: Value, route: Value) -> Value:
        used = route.width // 2
        return self._append(Mix(self._value(x.width // used), x, route, used))

    def glu(self, gate: Value, up: Value, activation: Activation = "silu", first: int = 0) -> Value:
        """`up` may be wider than `gate`: its values from `first` on are read."""
        return self._append(GLU(self._value(gate.width), gate, up, activation, first))

    def scale(self, x: Value, weight: str) -> Value:
        """Use the only number of the tensor `weight`."""
        self._need(weight, (1,))
        return self._append(Scale(self._value(x.width), x, weight))

    def add(self, a: Value, b: Value) -> Value:
        return self._append(Add(self._value(a.width), a, b))

    def soft_cap(self, x: Value, cap: float) -> Value:
        return self._append(SoftCap(self._value(x.width), x, cap))

    def tap(self, name: str, x: Value) -> None:
        """Let `x` be read by `name` after a pass (`Runs.hidden`). A pass that does not read it costs nothing
        extra."""
        if self.taps.setdefault(name, x) != x:
            raise ValueError(f"two values are named {name!r}")

    @property
    def linear_weights(self) -> set[str]:
        """The tensors of the blocks' linears, which adapters may change; the head's and routers' are not among them."""
        routed = {op.x for op in self.body if isinstance(op, Route)}
        return {op.weight for op in self.body if isinstance(op, Linear) and op.out not in routed}

    @property
    def caches(self) -> dict[int, Attention]:
        """The layers that have keys and values of their own, with the attention that appends to them."""
        return {op.layer: op for op in self.ops if isinstance(op, Attention) and op.appends}

    @property
    def convolutions(self) -> dict[int, ShortConv]:
        """The convolutions by their layers."""
        return {op.layer: op for op in self.ops if isinstance(op, ShortConv)}

    @property
    def delta_rules(self) -> dict[int, DeltaRule]:
        """The delta rules by their layers."""
        return {op.layer: op for op in self.ops if isinstance(op, DeltaRule)}

    @property
    def heads_differ(self) -> bool:
        """True if not all layers have as many heads of keys and values, of the same size."""
        return len({(op.num_key_value_heads, op.head_dim) for op in self.caches.values()}) > 1

    @property
    def stays_hot(self) -> bool:
        """True if pages keep the hot tier: they have rows of convolutions, or layers differ in their heads."""
        return bool(self.convolutions) or self.heads_differ

    @property
    def parameters(self) -> int:
        """The number of parameters in the model's tensors."""
        return sum(math.prod(shape) for shape in self.weights.values())

    @property
    def output(self) -> Value:
        """The logits."""
        return self.ops[-1].out

    @property
    def head_input(self) -> Value:
        """The input of the output matrix, at which head adapters work."""
        return next(op.x for op in reversed(self.head) if isinstance(op, Linear))

    @property
    def head_residual(self) -> Value:
        """The head's first input: the residual stream after the last block."""
        first = self.head[0]
        assert isinstance(first, RMSNorm | Linear)
        return first.x

    @property
    def head(self) -> list[Op]:
        """The operations that only make the logits, each from the one before: final norm, output matrix, soft-cap.

        Each row is independent, so they run only over the rows that need logits.
        """
        return self.ops[self._head_start() :]

    @property
    def body(self) -> list[Op]:
        """The operations before the head: they run over every row of a pass."""
        return self.ops[: self._head_start()]

    def _head_start(self) -> int:
        start, needs = len(self.ops), self.output
        while start and (op := self.ops[start - 1]).out == needs and isinstance(op, RMSNorm | Linear | SoftCap):
            start, needs = start - 1, op.x
        return start

    def check_weights(self, tensors: Mapping[str, TensorInfo]) -> None:
        """Raises GGUFError if the file lacks a tensor of this graph, has it in another shape, or has any others.

        Ignoring an additional tensor (a bias, factors that stretch the context) would give wrong answers.
        """
        for name in sorted(self.required - tensors.keys()):
            raise GGUFError(
                "model.no-tensor-of-architecture",
                "The model file has no tensor {name}: it is not a complete model of this architecture.",
                name=repr(name),
            )
        for name, shape in self.weights.items():
            if name not in tensors:
                raise GGUFError(
                    "model.no-tensor-of-architecture",
                    "The model file has no tensor {name}: it is not a complete model of this architecture.",
                    name=repr(name),
                )
            if tensors[name].shape != shape:
                raise GGUFError(
                    "model.other-shape",
                    "Tensor {name} has the shape {shape}, but the model's settings ask for "
                    "{wanted}: the file is damaged or was converted wrongly. Download it again.",
                    name=repr(name),
                    shape=tensors[name].shape,
                    wanted=shape,
                )
        if unread := [name for name in tensors if name not in self.weights and name not in self.read_elsewhere]:
            names = ", ".join(map(shown, unread[:3])) + (f" and {len(unread) - 3} more" if len(unread) > 3 else "")
            raise GGUFError(
                "model.unknown-tensors",
                "The model file has tensors that Sonata does not know how to use: {names}. Its "
                "answers would be wrong without them, so it is not opened. Choose another "
                "model.",
                names=names,
            )

    def _value(self, width: int) -> Value:
        self._values += 1
        return Value(self._values - 1, width)

    def _append(self, op: Op) -> Value:
        self.ops.append(op)
        return op.out

    def _need(self, weight: str, shape: tuple[int, ...]) -> None:
        if self.weights.setdefault(weight, shape) != shape:
            raise ValueError(f"{weight} is used with the shapes {self.weights[weight]} and {shape}")
