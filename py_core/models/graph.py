"""A forward pass as a list of operations on named values: what a model file writes, and a backend runs or lowers.

A value is a matrix (M, width) of float32, one row a token. The graph tracks widths, so that a weight of the wrong
shape is found when a file is opened, not when a kernel reads past its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from py_core.formats.gguf import GGUFError, TensorInfo


@dataclass(frozen=True)
class Value:
    """Names an (M, width) matrix."""

    index: int
    width: int


@dataclass(frozen=True)
class Embedding:
    """out[m] = weight[token[m]]"""

    out: Value
    weight: str
    vocab_size: int


@dataclass(frozen=True)
class RMSNorm:
    """out = x / sqrt(mean(x^2) + eps) * weight"""

    out: Value
    x: Value
    weight: str
    eps: float


@dataclass(frozen=True)
class Linear:
    """out = x @ weight.T; weight is (out.width, x.width)"""

    out: Value
    x: Value
    weight: str


@dataclass(frozen=True)
class Rope:
    """Rotates the pairs of each head by an angle that grows with the token's position (RoFormer, arXiv 2104.09864).

    `interleaved` pairs neighbours (2i, 2i+1), as GGUF's llama weights are laid out; otherwise (i, i + head_dim/2).
    """

    out: Value
    x: Value
    num_heads: int
    interleaved: bool


@dataclass(frozen=True)
class Attention:
    """Appends k and v to the layer's cache, then out = softmax(q k^T / sqrt(head_dim)) v over
    the tokens up to each row's.

    Query head h reads key/value head h * num_key_value_heads // num_attention_heads (grouped-query attention).
    """

    out: Value
    layer: int
    q: Value
    k: Value
    v: Value
    num_attention_heads: int
    num_key_value_heads: int


@dataclass(frozen=True)
class SwiGLU:
    """out = silu(gate) * up"""

    out: Value
    gate: Value
    up: Value


@dataclass(frozen=True)
class Add:
    """out = a + b"""

    out: Value
    a: Value
    b: Value


Op = Embedding | RMSNorm | Linear | Rope | Attention | SwiGLU | Add


@dataclass
class Graph:
    """The operations in order, the weights they need with their shapes, and the values that may be read by name.

    The last operation makes the logits. The backend that runs the graph decides for which rows of a pass.
    """

    ops: list[Op] = field(default_factory=list)
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    taps: dict[str, Value] = field(default_factory=dict)
    _values: int = 0

    def embedding(self, weight: str, vocab_size: int, width: int) -> Value:
        self._need(weight, (vocab_size, width))
        return self._append(Embedding(self._value(width), weight, vocab_size))

    def rms_norm(self, x: Value, weight: str, eps: float) -> Value:
        self._need(weight, (x.width,))
        return self._append(RMSNorm(self._value(x.width), x, weight, eps))

    def linear(self, x: Value, weight: str, out_features: int) -> Value:
        self._need(weight, (out_features, x.width))
        return self._append(Linear(self._value(out_features), x, weight))

    def rope(self, x: Value, num_heads: int, interleaved: bool) -> Value:
        return self._append(Rope(self._value(x.width), x, num_heads, interleaved))

    def attention(self, layer: int, q: Value, k: Value, v: Value, heads: int, kv_heads: int) -> Value:
        return self._append(Attention(self._value(q.width), layer, q, k, v, heads, kv_heads))

    def swiglu(self, gate: Value, up: Value) -> Value:
        return self._append(SwiGLU(self._value(gate.width), gate, up))

    def add(self, a: Value, b: Value) -> Value:
        return self._append(Add(self._value(a.width), a, b))

    def tap(self, name: str, x: Value) -> None:
        """Let `x` be read by `name` after a pass (`Backend.hidden`). A pass that does not read it costs no more."""
        if self.taps.setdefault(name, x) != x:
            raise ValueError(f"two values are named {name!r}")

    @property
    def output(self) -> Value:
        """The logits."""
        return self.ops[-1].out

    @property
    def head(self) -> list[Op]:
        """The operations that only make the logits, each from the one before: the final norm and the output matrix.

        They see one row at a time, so they run over the rows that need logits only.
        """
        return self.ops[self._head_start() :]

    @property
    def body(self) -> list[Op]:
        """The operations before the head: they run over every row of a pass."""
        return self.ops[: self._head_start()]

    def _head_start(self) -> int:
        start, needs = len(self.ops), self.output
        while start and (op := self.ops[start - 1]).out == needs and isinstance(op, RMSNorm | Linear):
            start, needs = start - 1, op.x
        return start

    def check_weights(self, tensors: Mapping[str, TensorInfo]) -> None:
        """Raises GGUFError where the file lacks a tensor of this graph, has it in another shape, or has others besides.

        A tensor that nothing reads (a bias, factors that stretch the context) would be missing in the answers.
        """
        for name, shape in self.weights.items():
            if name not in tensors:
                raise GGUFError(
                    f"The model file has no tensor {name!r}: it is not a complete model of this architecture."
                )
            if tensors[name].shape != shape:
                raise GGUFError(
                    f"Tensor {name!r} has the shape {tensors[name].shape}, but the model's settings ask for {shape}: "
                    "the file is damaged or was converted wrongly. Download it again."
                )
        if unread := [name for name in tensors if name not in self.weights]:
            names = ", ".join(unread[:3]) + (f" and {len(unread) - 3} more" if len(unread) > 3 else "")
            raise GGUFError(
                f"The model file has tensors that Sonata does not know how to use: {names}. "
                "Its answers would be wrong without them, so it is not opened. Choose another model."
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
