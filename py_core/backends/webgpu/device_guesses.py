"""Guesses made on the GPU: after each pass a kernel takes the sampled tokens and guesses the next ones.

So passes with guesses are queued ahead like plain steps. A fast device needs this, because the report of a pass takes
longer than the pass. All steps of a text are such passes, of one row or more. Each submission chooses the number of
rows by what guesses would have been worth for the last known tokens (`Rehearsal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.backends.sampling_state import RING, WAITS
from py_core.backends.step_times import MAX_BATCH, StepTimes
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.plan import Kernel
from py_core.models.config import ModelConfig
from py_core.sampling import mask_words
from py_core.speculation.guesses import MOST_MATCH, MOST_TOKENS, SIZES, PromptLookup, Rehearsal
from py_core.token_sequence import TokenSequence

_HEADER = 12
"""Words before the text: `Text` of guess.wgsl."""

_RECORD = 2 + MAX_BATCH
"""Words of a record: for a batch of plain steps, or for a pass with guesses."""

_LEAST_GAIN = 1.15
"""Guesses must promise this many times as many tokens a second."""

_PER_ROW = 0.1
"""The cost of an additional row, in steps, until a pass of that many rows was timed."""

_LEAST_TEXT = 96
"""Tokens: in an answer to a shorter text, guesses begin only once part of the answer repeats earlier text."""

_FIRST_BELIEF = 0.66
"""The probability that a guess is right at the beginning of an answer to a longer text: answers often repeat the
question."""

_BEGINNING = 24
"""Tokens of an answer that tell whether guesses at the beginning would have paid."""

_LEAST_BELIEF, _NEWEST_SHARE = 0.25, 0.3
"""The share of recent answers that must begin with guessable text, and the weight of the newest answer in it."""


class DeviceGuesses:
    """The text on the GPU, and what is known of guesses, for one backend. The text is one sequence's at a time."""

    def __init__(self) -> None:
        self.times = StepTimes()
        """The times of passes with guesses, by their rows."""
        self.text_of: TokenSequence | None = None
        """The sequence whose text is on the device: the one that is decoded alone."""
        self._belief = 1.0
        """How often guesses at an answer's beginning paid recently."""

    def place(
        self, host: Host, builder: KernelBuilder, state: Binding, history: Binding, grammars: Binding,
        config: ModelConfig,
    ) -> Kernel:  # fmt: skip
        """Make the buffers on a device. Returns the kernel."""
        self._host = host
        words = _HEADER + MOST_TOKENS + config.context_length
        self._text = Binding(host.create_buffer(4 * words, "text"), 0, 4 * words)
        size = 4 * MAX_BATCH * _RECORD
        self._records = Binding(host.create_buffer(size, "records"), 0, size)
        self.rows = min(SIZES[-1], MAX_LOGIT_ROWS, builder.shapes.max_rows)
        workgroup = min(64 if host.adapter.software else 256, builder.max_workgroup)
        pipeline = builder.pipeline(
            "guess", {}, RING=RING, ROWS=self.rows, RECORD=_RECORD, MOST_MATCH=MOST_MATCH,
            WORDS=mask_words(config.vocab_size), WORKGROUP=workgroup,
        )  # fmt: skip
        bindings = (state, history, self._text, self._records, grammars)
        cost = Cost(fixed_bytes=4 * MOST_TOKENS)
        return Kernel("guess", pipeline, lambda: bindings, lambda m: (1, 1, 1), cost)

    def write_text(self, tokens: Sequence[int], position: int) -> None:
        """Write the end of a text whose last token has this position in its sequence."""
        tokens = tokens[-MOST_TOKENS:]
        words = np.zeros(_HEADER + len(tokens), np.uint32)
        words[:3] = 0, len(tokens), position
        words[_HEADER:] = tokens
        self._host.write(self._text.buffer, 0, words.tobytes())

    def begin_records(self) -> None:
        """Let the next submission write its records from the first one on."""
        self._host.write(self._text.buffer, 0, bytes(4))

    async def read(self, passes: int) -> list[list[int]]:
        """Return the tokens of the first `passes` records of the last submission, and then WAITS if the text waits."""
        data = await self._host.read(self._records.buffer, 0, 4 * _RECORD * passes)
        records = np.frombuffer(data, np.uint32).reshape(passes, _RECORD)
        tokens = [token for record in records for token in record[1 : 1 + record[0]].tolist()]
        waits = int(records[-1, 1 + records[-1, 0]]) == WAITS
        return [[*tokens, WAITS] if waits else tokens]

    def rehearsal(self, lookup: PromptLookup) -> Rehearsal:
        """Return what is known of an answer's guesses. It begins now if nothing is known."""
        if lookup.rehearsal is None:
            begins = len(lookup.tokens) >= _LEAST_TEXT and self._belief >= _LEAST_BELIEF
            belief = _FIRST_BELIEF if begins else 0.0
            return lookup.rehearse({size: (1 - belief**size) / (1 - belief) for size in SIZES})
        return lookup.rehearsal

    def rows_that_pay(self, rehearsal: Rehearsal, step: float | None, most: int) -> int:
        """Return the rows of the next passes: one of SIZES, at most `most`, or 1 for plain steps. step: seconds of one
        plain step."""
        best, gain = 1, _LEAST_GAIN
        for size, worth in self._worth(rehearsal.gains, step).items():
            if size <= most and worth > gain:
                best, gain = size, worth
        return best

    def gain(self, rehearsal: Rehearsal, step: float) -> float:
        """Return how many times as many tokens a second as plain steps the best passes give. Plain steps count as
        passes."""
        return max(1.0, *self._worth(rehearsal.gains, step).values())

    def judge(self, lookup: PromptLookup, step: float | None) -> None:
        """Learn from an answer's beginning if other answers should begin with guesses."""
        rehearsal = lookup.rehearsal
        if rehearsal is None or rehearsal.is_judged or rehearsal.seen < _BEGINNING:
            return
        rehearsal.is_judged = True
        if len(lookup.tokens) - rehearsal.seen >= _LEAST_TEXT and step:
            paid = max(self._worth(rehearsal.gains, step).values()) > _LEAST_GAIN
            self._belief += (paid - self._belief) * _NEWEST_SHARE

    def _worth(self, gains: Mapping[int, float], step: float | None) -> dict[int, float]:
        """Return how many times as many tokens a second as plain steps the passes of each size give."""
        if step is None:
            return {}
        seconds = {size: self.times.typical(size) or step * (1 + _PER_ROW * (size - 1)) for size in gains}
        return {size: gain * step / seconds[size] for size, gain in gains.items()}
