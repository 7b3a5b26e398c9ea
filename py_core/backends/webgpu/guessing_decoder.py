"""Decoding with guesses made on the GPU (device_guesses.py): how many, and in which passes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.backends.decoder import Decoder
from py_core.backends.passes import Passes
from py_core.backends.recovery import Recovery
from py_core.backends.submissions import InFlight, Submission
from py_core.backends.webgpu.device import WebGPUDevice
from py_core.paging.pages import Pages
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence

_TRIAL = 0.5
"""The share of a batch's usual time for passes with guesses before anything is known of an answer."""


class GuessingDecoder(Decoder):
    """All steps of a text are passes with guesses, of one row or more."""

    GUESSES_AHEAD = True
    AWAITS_FIRST = False
    FORCED_ROWS = MAX_LOGIT_ROWS
    LEAST_FORCED = 16

    def __init__(self, device: WebGPUDevice, pages: Pages, recovery: Recovery, passes: Passes) -> None:
        super().__init__(device, pages, recovery, passes)
        self._gpu, self._guesses = device, device.guesses

    def _token_seconds(self, sequence: TokenSequence) -> float | None:
        step, lookup = self.times.typical(1), sequence.guesses
        return step / self._guesses.gain(lookup.rehearsal, step) if step and lookup and lookup.rehearsal else step

    async def _submit(
        self, sequences: Sequence[TokenSequence], left: int, sampling: Sequence[SamplingParams], forward_first: bool,
        in_flight: InFlight,
    ) -> Submission | None:  # fmt: skip
        sequence = sequences[0]
        lookup = sequence.guesses
        if lookup is None or len(sequences) > 1:
            return await super()._submit(sequences, left, sampling, forward_first, in_flight)
        guesses, step = self._guesses, self.times.typical(1)
        rehearsal = guesses.rehearsal(lookup)
        guesses.judge(lookup, step)
        room = self._context_length - sequence.length - in_flight.most
        rows = guesses.rows_that_pay(rehearsal, step, min(room, guesses.rows))
        is_new = guesses.text_of is not sequence
        if is_new and rows > 1:
            rows, left = 1, 1  # the first guesses are made behind the next token
        times = guesses.times if rows > 1 else self.times
        likely = rehearsal.gains[rows] if rows > 1 else 1.0
        # The number of right guesses is known only after the report: not too many passes are queued before.
        wanted = self._device.BATCH_SECONDS * (1 if rows == 1 or rehearsal.seen else _TRIAL)
        count = min(times.batch(rows, wanted), math.ceil(left / likely), room // rows)
        if count < 1:
            return None
        most = sequence.length + in_flight.most + count * rows
        await self._pages.reserve(sequence.slot, sequence.stored, most)
        if is_new:
            guesses.write_text(lookup.tokens, sequence.length - 1)
            guesses.text_of = sequence
        future = await self._gpu.start_guesses(rows, count, most, forward_first, sampling)
        run = count if forward_first else count - 1
        return Submission(future, times, rows, run, max(1, int(count * likely)), count * rows)
