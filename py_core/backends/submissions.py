"""Steps that were submitted and have not been heard of yet, in batches."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from py_core.backends.step_times import StepTimes


@dataclass
class Submission:
    """Steps of one submission. The future gives each row's ids, or those of the only sequence."""

    future: asyncio.Future[list[list[int]]]
    times: StepTimes
    """Knows how long such a step takes."""
    rows: int
    steps: int
    """The steps that run the model: the first may sample logits that are already there."""
    likely: int
    """The probable number of tokens of each sequence."""
    most: int
    """The most steps of a batch."""
    submitted: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        # Steps past the end wrote keys that nothing points at: their errors do not matter.
        self.future.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def seconds(self) -> float:
        """Return the time the batch will probably take."""
        return self.times.expected(self.rows, self.steps)


class InFlight(deque[Submission]):
    """Submissions, the oldest first."""

    @property
    def likely(self) -> int:
        return sum(batch.likely for batch in self)

    @property
    def most(self) -> int:
        return sum(batch.most for batch in self)

    @property
    def seconds(self) -> float:
        return sum(batch.seconds for batch in self)

    async def drop(self) -> None:
        """Wait until all submissions are over, and ignore their results."""
        await asyncio.gather(*(batch.future for batch in self), return_exceptions=True)
        self.clear()
