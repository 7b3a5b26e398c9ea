"""`sonata`, which sends itself SIGKILL at a point of a consolidation, as by kill -9.

    python killed_sonata.py step:12 consolidate --home DIR ...

It prints "step N" after each step, from 1 on. step:N: in the middle of step N, with its gradient computed and the
parameters unchanged. store: while the result is written, with all rows of the transaction written and the commit not
begun.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from app.cli import main as cli
from app.records.revisions import KIND
from py_core.backends.wasm.training import WasmTraining
from py_core.store.rows import Batch
from py_core.store.sqlite import SQLiteRows
from py_core.training.session import AdamW, StepResult


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def end_at_step(number: int) -> None:
    step = WasmTraining.step

    async def killed(self: WasmTraining, rule: AdamW) -> StepResult:
        if self._steps + 1 == number:
            end()
        result = await step(self, rule)
        os.write(2, f"step {self._steps}\n".encode())
        return result

    WasmTraining.step = killed  # type: ignore[method-assign]


def end_while_storing() -> None:
    apply = SQLiteRows._apply

    def killed(self: SQLiteRows, batch: Batch) -> int:
        if any(row.kind == KIND for row in batch.puts):
            connection: sqlite3.Connection = self._open()
            connection.set_trace_callback(lambda statement: end() if statement == "COMMIT" else None)
        return apply(self, batch)

    SQLiteRows._apply = killed  # type: ignore[method-assign]


if __name__ == "__main__":
    point = sys.argv.pop(1)
    end_at_step(0 if point == "store" else int(point.removeprefix("step:")))
    if point == "store":
        end_while_storing()
    cli.main()
