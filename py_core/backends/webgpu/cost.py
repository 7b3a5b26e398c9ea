"""The least that a kernel must move and compute: its time is compared with that."""

from __future__ import annotations

from dataclasses import dataclass

from py_core.backends.webgpu.weights import WeightMatrix


@dataclass(frozen=True)
class Cost:
    """The cost of a dispatch over m rows of one sequence; the first row is at `position` and sees position + 1 tokens.

    Each byte is counted once, read or written: weights, activations, keys and values.
    """

    fixed_bytes: int = 0
    row_bytes: int = 0
    token_bytes: int = 0
    """For each token that attention sees."""
    row_flops: int = 0
    token_flops: int = 0
    """For each token that a row sees."""

    def bytes(self, m: int, position: int) -> int:
        return self.fixed_bytes + m * self.row_bytes + (position + m) * self.token_bytes

    def flops(self, m: int, position: int) -> int:
        seen = m * position + m * (m + 1) // 2
        return m * self.row_flops + seen * self.token_flops


def linear_cost(matrix: WeightMatrix, part_rows: int, inputs: int, outputs: int) -> Cost:
    """The cost of `part_rows` rows of a matrix. Each row of x reads `inputs` float32 beside x, and writes `outputs`."""
    form, columns = matrix.format, matrix.columns
    return Cost(
        fixed_bytes=part_rows * columns // form.block_size * form.block_bytes,
        row_bytes=4 * (columns + inputs + outputs),
        row_flops=2 * part_rows * columns,
    )
