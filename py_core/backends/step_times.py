"""The times of decode steps by their rows, one row a sequence: they say how many to queue, and how many rows pay."""

from __future__ import annotations

import time

from py_core.backends.checks import MAX_LOGIT_ROWS

QUEUED_SECONDS = 0.02
"""Seconds of work queued on the device: more than it takes to hear that a batch is done and to order the next.
Sequences that join or leave, and steps of another kind, wait for this work."""

MAX_BATCH = 32
"""The most steps in a submission: if a step takes microseconds, larger batches would gain nothing."""

MOST_BATCHES = 8
"""Submissions in flight, on a device so fast that `QUEUED_SECONDS` would ask for more."""

_UNKNOWN_STEP = 1.0
"""The assumed seconds of a step before the first: the first batch is a single step, as on the slowest device."""

_NEWEST_SHARE = 0.25
"""The newest batch's weight in the average of a step's seconds. Several batches are reported late and together, so a
single time says little."""

_LEAST_GAIN = 1.3
"""Fewer rows must promise this many times as many tokens a second: each change costs a while without work."""

_SKIPPED_BATCHES = 2
"""The first batches say nothing of a pace: they may wait for kernels to compile, and for earlier work."""

_MEASURED_BATCHES = 4
"""Batches over which a pace is measured."""

_FORGETTING = 0.02
"""Each pace of fewer rows takes this share off a step's seconds: a number of rows that was slow is tried again."""


class StepTimes:
    """The step times of one backend."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        """The seconds of a step, by its number of rows."""
        self._paces: dict[int, float] = {}
        """Seconds of a step by rows, measured over several batches."""
        self._doubted: dict[int, float] = {}
        """The same seconds, less the doubted share."""

    def batch(self, rows: int, seconds: float) -> int:
        """Return the number of steps in one submission that is to take `seconds`."""
        return max(1, min(MAX_BATCH, int(seconds / self.seconds.get(rows, _UNKNOWN_STEP))))

    def expected(self, rows: int, steps: int) -> float:
        """Return the expected seconds of `steps` steps of `rows` rows."""
        return steps * self.seconds.get(rows, _UNKNOWN_STEP)

    def typical(self, rows: int) -> float | None:
        """Return the seconds of a step of `rows` rows while such steps follow one another, if there were any."""
        return self._paces.get(rows, self.seconds.get(rows))

    def note(self, rows: int, seconds: float, average: float) -> None:
        """Note that a step of `rows` rows took `seconds`, and `average` on average in this call.

        The ends of several batches are often heard at once, so that the time between two says little: the first
        estimate is the average. Otherwise a slow device whose first steps seem to take no time would get a minute of
        work.
        """
        if rows in self.seconds:
            self.seconds[rows] += (seconds - self.seconds[rows]) * _NEWEST_SHARE
        else:
            self.seconds[rows] = average

    def note_pace(self, rows: int, seconds: float) -> None:
        """Note that steps of `rows` rows took `seconds` each, over all batches of a `Pace`."""
        for other in self._doubted:
            if other > rows:  # steps of fewer rows are measured whenever there are fewer sequences
                self._doubted[other] *= 1 - _FORGETTING
        known = self._paces.get(rows, seconds)
        self._paces[rows] = self._doubted[rows] = known + (seconds - known) * _NEWEST_SHARE

    def rows_that_pay(self, count: int) -> int:
        """Return how many of `count` sequences best share a step: all that fit, or fewer if that gave more tokens.

        Kernels may take longer for two rows than for one row twice. A number of rows without a pace is tried.
        """
        count = min(count, MAX_LOGIT_ROWS)
        if count not in self._doubted:
            return count
        rates = {rows: rows / seconds for rows, seconds in self._doubted.items() if rows <= count}
        best = max(rates, key=rates.__getitem__)
        return best if rates[best] > _LEAST_GAIN * rates[count] else count


def wants_more(batches: int, seconds: float) -> bool:
    """True if the queue is short: it always holds a batch besides the running one.

    seconds: the time that the batches in it take.
    """
    return batches < 2 or (batches < MOST_BATCHES and seconds < QUEUED_SECONDS)


class Stopwatch:
    """Notes how long the batches of one call take. It starts when it is made."""

    def __init__(self) -> None:
        self._began = self._arrived = time.perf_counter()
        self._steps = 0
        self._pace: Pace | None = None

    def note(self, times: StepTimes, rows: int, steps: int, submitted: float) -> float:
        """Note that a batch of `steps` steps has ended. submitted: when it was. Returns the seconds that it took."""
        now = time.perf_counter()
        if self._pace is None or not self._pace.is_of(times, rows):
            self._pace = Pace(times, rows)
        self._steps += steps
        taken, self._arrived = now - max(self._arrived, submitted), now
        # A batch that only sampled present logits took almost no time, which says nothing about a step.
        if steps:
            times.note(rows, taken / steps, (now - self._began) / self._steps)
        self._pace.note(now, steps)
        return taken


class Pace:
    """Measures how long steps take while batches of them follow one another."""

    def __init__(self, times: StepTimes, rows: int) -> None:
        self._times, self._rows = times, rows
        self._began = 0.0
        self._batches, self._steps = -_SKIPPED_BATCHES, 0

    def is_of(self, times: StepTimes, rows: int) -> bool:
        """True if it measures such steps."""
        return (times, rows) == (self._times, self._rows)

    def note(self, now: float, steps: int) -> None:
        """Note that a batch of `steps` steps was done at `now`, in seconds."""
        self._batches += 1
        if self._batches <= 0:
            self._began = now
            return
        self._steps += steps
        if self._batches == _MEASURED_BATCHES and self._steps:
            self._times.note_pace(self._rows, (now - self._began) / self._steps)
            self._began, self._batches, self._steps = now, 0, 0
