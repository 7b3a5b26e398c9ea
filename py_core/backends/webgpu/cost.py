"""The least that a kernel must move and compute, to which its time is compared."""

from __future__ import annotations

from dataclasses import dataclass

from py_core.backends.webgpu.weights.arena import WeightMatrix


@dataclass(frozen=True)
class Cost:
    """The cost of a dispatch over m rows of one sequence; the first row is at `position` and sees position + 1 tokens.

    Each byte is counted once, read or written: weights, activations, keys and values.
    """

    fixed_bytes: int = 0
    row_bytes: int = 0
    token_bytes: int = 0
    """Bytes for each token that attention sees."""
    row_flops: int = 0
    token_flops: int = 0
    """FLOPs for each token that a row sees."""
    window: int = 0
    """The most tokens that a row sees; 0 for all."""

    def bytes(self, m: int, position: int) -> int:
        seen = position + m
        if self.window:
            seen = min(seen, self.window + m - 1)
        return self.fixed_bytes + m * self.row_bytes + seen * self.token_bytes

    def flops(self, m: int, position: int) -> int:
        # Rows whose window still begins with the first token see position + 1, position + 2 ... tokens.
        growing = min(m, max(0, self.window - position)) if self.window else m
        seen = growing * position + growing * (growing + 1) // 2 + (m - growing) * self.window
        return m * self.row_flops + seen * self.token_flops


def linear_cost(matrix: WeightMatrix, part_rows: int, inputs: int, outputs: int, bias: bool = False) -> Cost:
    """Return the cost of `part_rows` rows of a matrix. Each row of x reads `inputs` float32 beside x, and writes
    `outputs`."""
    form, columns = matrix.format, matrix.columns
    return Cost(
        fixed_bytes=part_rows * columns // form.block_size * form.block_bytes + (4 * part_rows if bias else 0),
        row_bytes=4 * (columns + inputs + outputs),
        row_flops=2 * part_rows * columns,
    )
