"""The blocks of positions that see each other, in passes: a pass ends with a block. `block` is that of ModelConfig."""

from __future__ import annotations

from collections.abc import Sequence

from py_core.models.config import ModelConfig


def pass_end(stored: int, length: int, most: int, last_rows: int, block: int = 1) -> int:
    """Return the end of a pass of at most `most` rows from `stored` on. The last pass has `last_rows` rows or more.
    Only the last block may end before its end. Its rows are at most `most`."""
    stop = min(stored + most, length)
    return stop if stop == length else block_begin(min(stop, length - last_rows), block)


def least_rows(config: ModelConfig) -> int:
    """Return the rows that a pass must have room for: two blocks, or the whole text if that is one block."""
    return 2 * config.block if config.block else config.context_length


def block_begin(position: int, block: int) -> int:
    """Return the first position of a position's block."""
    return position // block * block if block else 0


def seen_ahead(first: int, stop: int, block: int) -> Sequence[int]:
    """Return how many positions behind its own each row of a pass from `first` to `stop` sees: those of its block that
    are there."""
    if block == 1:
        return ()
    return [(min(at - at % block + block, stop) if block else stop) - 1 - at for at in range(first, stop)]
