"""The operations of training besides a graph's own: LoRA in the linears, attention in a pack, and gradients.

Each computes new values and modifies none, except the parameters' gradients, to which it adds. If it has a `plus`, its
result is added to that value; a kernel may do so in place if no later operation reads that value. Values are matrices
(M, width), one row per token of a pack (`training/session.py`). a and b are a tensor's pair (`adapters/lora.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from py_core.models.graph import GLU, Activation, Add, Attention, Linear, RMSNorm, Rope, ShortConv, SoftCap, Value
from py_core.models.rotation import Rotation


@dataclass(frozen=True)
class LoraDown:
    """out = x @ a.T, (M, rank), for the pair of the tensor `weight`"""

    out: Value
    x: Value
    weight: str


@dataclass(frozen=True)
class LoraUp:
    """out = y + scale * u @ b[first_row : first_row + out.width].T; nothing else reads y"""

    out: Value
    y: Value
    u: Value
    weight: str
    first_row: int = 0


@dataclass(frozen=True)
class PackedAttention:
    """Like `Attention`, within a pack: no cache, and a row sees the shared prefix and the rows of its own sequence.

    Row i sees row j if j <= i and j belongs to the prefix or to i's sequence; with a `window` w > 0 only if
    position[i] - position[j] < w. `log_sums` (M, heads) are the logarithms of the sums of the scores' exponentials.
    """

    out: Value
    log_sums: Value
    attention: Attention


@dataclass(frozen=True)
class PackedConv:
    """Like `ShortConv`, within a pack: no cache. The position before a row is that of the row before it in its own
    sequence, or of the prefix's last row before the sequence's first."""

    out: Value
    conv: ShortConv


@dataclass(frozen=True)
class LinearGradient:
    """out = plus + dy @ weight[first_row : first_row + dy.width]"""

    out: Value
    dy: Value
    weight: str
    first_row: int
    plus: Value | None


@dataclass(frozen=True)
class LoraUpGradient:
    """out = plus + scale * dy @ b[rows], (M, rank); the gradient of b[rows] grows by scale * dy.T @ u.

    rows = first_row .. first_row + dy.width
    """

    out: Value
    dy: Value
    u: Value
    weight: str
    first_row: int
    plus: Value | None


@dataclass(frozen=True)
class LoraDownGradient:
    """out = plus + du @ a; the gradient of a grows by du.T @ x. If `out` is None, only the latter is computed."""

    out: Value | None
    du: Value
    x: Value
    weight: str
    plus: Value | None


@dataclass(frozen=True)
class RMSNormGradient:
    """out = plus + the gradient of x. With r = 1 / sqrt(mean(x^2) + eps) and g = dy * weight it is
    r g - r^3 x mean(g x), over each of `num_heads` parts of a row."""

    out: Value
    dy: Value
    x: Value
    weight: str
    eps: float
    num_heads: int
    plus: Value | None


@dataclass(frozen=True)
class RopeGradient:
    """out = dy, rotated by the negated angles"""

    out: Value
    dy: Value
    num_heads: int
    interleaved: bool
    rotation: Rotation


@dataclass(frozen=True)
class AttentionGradient:
    """dq, dk, dv, given the gradient `dout` of the output of `forward`. The scores are recomputed (arXiv 2205.14135).

    With p the attention weights: dv = p^T dout, ds = p * (dout v^T - sum(dout * out)), times 1 - (s / softcap)^2 with a
    soft-cap, for capped scores s; dq = scale ds k, dk = scale ds^T q.
    """

    dq: Value
    dk: Value
    dv: Value
    dout: Value
    forward: PackedAttention


@dataclass(frozen=True)
class ConvGradient:
    """dx = db, dc and du side by side, given the gradient dy of the output of `forward`.

    dc = dy * conv(z), db = dz * u, du = dz * b. dz of a row is the sum of weight[:, j] * dy * c over the rows that
    read it.
    """

    dx: Value
    dy: Value
    forward: PackedConv


@dataclass(frozen=True)
class GLUGradient:
    """dgate = dy * up * activation'(gate), dup = dy * activation(gate)"""

    dgate: Value
    dup: Value
    dy: Value
    gate: Value
    up: Value
    activation: Activation


@dataclass(frozen=True)
class SoftCapGradient:
    """out = plus + dy * (1 - (y / cap)^2)"""

    out: Value
    dy: Value
    y: Value
    cap: float
    plus: Value | None


ForwardOp = Linear | LoraDown | LoraUp | RMSNorm | Rope | PackedAttention | PackedConv | GLU | Add | SoftCap
GradientOp = (
    LinearGradient | LoraUpGradient | LoraDownGradient | RMSNormGradient | RopeGradient | AttentionGradient
    | ConvGradient | GLUGradient | SoftCapGradient | Add
)  # fmt: skip


@dataclass(frozen=True)
class HeadLoss:
    """The loss of the rows that have one, and the gradient of h, which is 0 in the other rows.

    Logits of a row: l = cap(h weight^T + bias). The loss is the sum over rows of w (logsumexp(l) - l[target]) + kl_w
    KL(p_base || p), with p_base the probabilities from the base's own logits, of its state `base_states`. The gradient
    of l is w (p - onehot(target)) + kl_w (p - p_base). Neither is ever materialized for the whole vocabulary.
    """

    dh: Value
    h: Value
    weight: str
    bias: str | None
    cap: float


def values_read(op: ForwardOp | GradientOp) -> list[Value]:
    """The values that an operation reads."""
    match op:
        case PackedAttention():
            return [op.attention.q, op.attention.k, op.attention.v]
        case AttentionGradient():
            return [op.dout, op.forward.out, op.forward.log_sums, *values_read(op.forward)]
        case PackedConv():
            return [op.conv.x]
        case ConvGradient():
            return [op.dy, op.forward.conv.x]
    made = set(values_made(op))
    found = (getattr(op, field.name) for field in fields(op))
    return [value for value in found if isinstance(value, Value) and value not in made]


def values_made(op: ForwardOp | GradientOp) -> list[Value]:
    """The values that an operation computes."""
    match op:
        case PackedAttention():
            return [op.out, op.log_sums]
        case AttentionGradient():
            return [op.dq, op.dk, op.dv]
        case GLUGradient():
            return [op.dgate, op.dup]
        case ConvGradient():
            return [op.dx]
    return [op.out] if op.out is not None else []
