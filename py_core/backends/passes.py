"""Forward passes over tokens of a sequence, as many rows each as the device takes. A lost pass runs again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import numpy as np

from py_core.backends.device import Device
from py_core.backends.grammar_states import MASK_STATE, mask_state
from py_core.backends.pass_blocks import block_begin, pass_end, seen_ahead
from py_core.backends.protocols import AfterPass
from py_core.backends.recovery import Recovery
from py_core.backends.sampling_state import GREEDY, state_bytes
from py_core.models.diffusion import Diffusion
from py_core.paging.pages import Pages
from py_core.sampling import SamplingParams, Unmasked
from py_core.token_sequence import TokenSequence

T = TypeVar("T")


class Passes:
    """The forward passes of one backend."""

    def __init__(self, device: Device, pages: Pages, recovery: Recovery) -> None:
        self._device, self._pages, self._recovery = device, pages, recovery
        self._block = device.config.block

    async def run_pending(
        self, sequence: TokenSequence, logit_rows: int = 1, after_pass: AfterPass | None = None,
        beside: Sequence[TokenSequence] = (),
    ) -> None:  # fmt: skip
        """Run the tokens whose keys and values are not stored yet. The logits are then those of the last tokens.

        `beside`: sequences that must keep what they hold.
        """
        pages, recovery, block = self._pages, self._recovery, self._block
        while sequence.stored < sequence.length:
            try:
                await recovery.restore()
                pages.put_to_work([*beside, sequence], logit_rows)
                if block != 1:  # what is new behind a token of its block changes the block
                    pages.rewind(sequence, block_begin(sequence.stored, block))
                stop = pass_end(sequence.stored, sequence.length, self._device.max_rows, logit_rows, block)
                needed = logit_rows if stop == sequence.length else 0
                m = await self._write_rows(sequence, sequence.stored, sequence.tokens[sequence.stored : stop], needed)
                # Waits for each pass, so that the queue stays short and a request to stop is heard.
                await self._device.run_rows(m, stop, needed)
            except recovery.errors as error:
                recovery.note(error)
                continue
            sequence.stored = stop
            if after_pass:
                await after_pass(stop)
        # Decoding continues from the logits of a single row.
        pages.logits_of = sequence if logit_rows == 1 else None

    async def unmask(
        self, sequence: TokenSequence, canvas: Sequence[int], diffusion: Diffusion, sampling: SamplingParams,
        allowed: np.ndarray | None,
    ) -> Unmasked:  # fmt: skip
        """As `Runs.denoise`."""
        pages, recovery = self._pages, self._recovery
        shift, stop = int(diffusion.shifted), sequence.length + len(canvas)
        begin = block_begin(sequence.length - shift, self._block)
        places = len(canvas) + shift
        states = [0] * places
        if allowed is not None:
            states[canvas.index(diffusion.mask)] = MASK_STATE
        recovery.losses = 0
        while True:
            try:
                await recovery.restore()
                pages.put_to_work([sequence])
                # A block that was finished last runs in the same pass.
                pages.rewind(sequence, block_begin(min(sequence.stored, begin), self._block))
                if stop - sequence.stored > self._device.max_rows:
                    await self.run_pending(sequence)
                    continue
                tokens = [*sequence.tokens[sequence.stored :], *canvas]
                if allowed is not None:
                    self._device.write_grammar_state(0, mask_state(allowed))
                m = await self._write_rows(sequence, sequence.stored, tokens, places, sampling, states)
                ids, scores = await self._device.run_unmasked(m, stop, sequence.length, sampling, states)
            except recovery.errors as error:
                recovery.note(error)
                continue
            sequence.stored = begin
            return Unmasked(ids[: len(canvas)], scores[: len(canvas)])

    async def read(
        self, sequence: TokenSequence, start: int, end: int, read: Callable[[int, int], Awaitable[T]],
        after_pass: AfterPass | None,
    ) -> list[T]:  # fmt: skip
        """Run the tokens from `start` to `end` again, each pass by `read(rows, length)`. Returns each pass's result.

        Stored tokens stay stored if this is cancelled halfway: they need not be read again.
        """
        pages, recovery, passes = self._pages, self._recovery, list[T]()
        done = start
        recovery.losses = 0
        pages.put_to_work([sequence])
        begins_again = pages.table is not None and pages.table.sight
        if begins_again or not pages.store.sees(sequence.slot, min(sequence.stored, start)):
            # What a window has given back, or rows of convolutions that later ones replaced: all tokens run again.
            pages.rewind(sequence, start)
        while done < end:
            try:
                await recovery.restore()
                pages.put_to_work([sequence])
                # Tokens before `start`, or already read before a loss, only go into the pages.
                first = min(sequence.stored, done)
                unread = first == done
                stop = min(first + self._device.max_rows, end if unread else done)
                m = await self._write_rows(sequence, first, sequence.tokens[first:stop], logit_rows=0)
                if unread:
                    passes.append(await read(m, stop))
                    done = stop
                else:
                    await self._device.run_rows(m, stop, 0)
            except recovery.errors as error:
                recovery.note(error)
                continue
            sequence.stored = max(sequence.stored, stop)
            if after_pass:
                await after_pass(stop)
        return passes

    async def _write_rows(
        self, sequence: TokenSequence, first: int, tokens: Sequence[int], logit_rows: int,
        sampling: SamplingParams = GREEDY, grammar_states: Sequence[int] = (),
    ) -> int:  # fmt: skip
        """Write the state of a pass over these tokens from position `first` on. grammar_states: of the last rows.
        Returns the number of its rows."""
        pages, stop = self._pages, first + len(tokens)
        rows = [(token, at, sequence.slot) for at, token in enumerate(tokens, first)]
        ahead = seen_ahead(first, stop, self._block)
        # Stored tokens run again in their pages, which other sequences may hold, too: the bytes written are the same.
        begin = first if pages.table is None else max(first, sequence.stored)
        await pages.reserve(sequence.slot, begin, max(begin, stop))
        pages.logits_of = None
        adapters = sequence.adapter, sequence.head_adapter
        states = [*[0] * (len(rows) - len(grammar_states)), *grammar_states] if grammar_states else ()
        self._device.write_state(state_bytes(rows, sampling, logit_rows, *adapters, states, ahead=ahead))
        return len(rows)
