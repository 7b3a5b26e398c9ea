"""The base of backends whose kernels advance a state block: sequences, passes of a prefill, decode in flight.

A decode step reads and advances the state where the kernels run, so the host only says "again": batches of steps are
queued ahead and their ids are read late. Waiting for each token before the next would cap a fast device.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

import numpy as np

from py_core.adapters.head import AnyHeadAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backends.base import (
    MAX_LOGIT_ROWS,
    NO_SLOT,
    AfterPass,
    Capabilities,
    KeepGoing,
    TokenSequence,
    check_hidden,
    check_last_rows,
    check_prefill,
    check_scored,
    check_scored_states,
    check_together,
    pass_end,
)
from py_core.backends.in_flight import Batch, InFlight
from py_core.backends.sampling_state import GREEDY, ring_of, state_bytes
from py_core.backends.step_times import Pace, StepTimes, wants_more
from py_core.models.graph import Graph
from py_core.paging.page_transfer import PageTransfer
from py_core.sampling import SamplingParams
from py_core.speculation.guesses import LEAST_MATCH
from py_core.speculation.lookahead import DRAFT, Lookahead, Plan
from py_core.training.session import Training

_MOST_LOSSES = 3
"""Devices lost in a row, without a token between them, that are made up for."""

_APART = 0.5
"""Of what a batch takes, so much passes before the next one is submitted, where that makes a difference."""

_LEAST_PAUSE = 0.001
"""Seconds: a shorter pause is not made."""


T = TypeVar("T")


class PipelinedBackend(PageTransfer):
    """See `Backend` for the contract of each public method."""

    BATCH_SECONDS = 0.025
    """Work in one submission: little, so that Stop and the first token are prompt."""

    GUESSES_AHEAD = False
    """Whether what was there before is guessed where the kernels run. Else a pass with guesses is waited for before the
    next one, as a draft model's are everywhere."""

    RESTARTS: tuple[type[Exception], ...] = ()
    """Raised where the device was lost or made anew: what was submitted is lost, `_rebuild` brings the rest back."""

    def __init__(
        self, capabilities: Capabilities, context_length: int, vocab_size: int, max_rows: int, graph: Graph
    ) -> None:
        super().__init__(graph)
        self.capabilities = capabilities
        self.context_length = context_length
        self._vocab_size, self.max_rows, self._taps = vocab_size, max_rows, graph.taps
        self._width = graph.head_residual.width
        self._lost = False
        self._losses = 0
        self._logits_of: TokenSequence | None = None
        self._times = StepTimes()
        self._lookahead = Lookahead()
        self._hears_together = False
        """Whether ends of submissions that were made together are all heard at the end of the last."""

    @abstractmethod
    async def _reserve(self, slot: int, first: int, length: int) -> None:
        """Make sure that a sequence has pages for positions first .. length - 1; those before `first` are stored."""

    @abstractmethod
    def _sees(self, slot: int, position: int) -> bool:
        """Whether the pages hold all that this position sees: what lies before a window may be given back."""

    @abstractmethod
    def _write_state(self, data: bytes) -> None: ...

    @abstractmethod
    def _write_history(self, slot: int, ring: np.ndarray) -> None: ...

    @abstractmethod
    async def _run_rows(self, m: int, length: int, logit_rows: int) -> None:
        """Run the state's m rows, which bring a sequence to `length` tokens, and make the logits of the last of them.

        `logit_rows` is the state's own number of these: 0 to MAX_LOGIT_ROWS.
        """

    @abstractmethod
    async def _run_tapped(self, m: int, length: int, names: Sequence[str]) -> list[np.ndarray]:
        """Run the state's m rows as `_run_rows` does, without logits; the named values, float32 (m, width) of each."""

    @abstractmethod
    async def _run_scored(self, m: int, length: int, targets: Sequence[int]) -> np.ndarray:
        """Run the state's m rows as `_run_rows` does; log p of the token that follows each, float32 (m,)."""

    @abstractmethod
    async def _run_head_scored(self, states: np.ndarray, targets: Sequence[int]) -> np.ndarray:
        """Score the targets as `_run_scored` does, behind states (m, width) of the residual stream after the body."""

    @abstractmethod
    async def _start_steps(
        self, places: Sequence[tuple[int, int]], count: int, forward_first: bool, sampling: Sequence[SamplingParams]
    ) -> asyncio.Future[list[list[int]]]:
        """Queue `count` steps of the state's rows. Those of a row sample the tokens of its slot from its position on:
        `places` are these, `sampling` the rules of each. The future gives each row's ids.

        The first step of a single row samples the present logits; with `forward_first` it runs the row before that, as
        steps of several rows always do.
        """

    @abstractmethod
    async def _read_logits(self, rows: int) -> np.ndarray:
        """The logits of the last pass: float32 (rows, vocab_size)."""

    @abstractmethod
    async def _rebuild(self) -> None:
        """Bring back what was lost: adapters too. Where the pages were, `stored` is 0 in every sequence afterwards."""

    @abstractmethod
    async def _place_adapter(self, number: int, adapter: LoraAdapter) -> None:
        """Bring a set of LoRA matrices to where kernels read the set of this number."""

    @abstractmethod
    async def _place_head_adapter(self, number: int, adapter: AnyHeadAdapter) -> None:
        """Bring an adapter at the head's input to the slot of this number."""

    @abstractmethod
    def close(self) -> None: ...

    def append(self, sequence: TokenSequence, tokens: Sequence[int]) -> None:
        check_prefill(sequence, tokens, self._vocab_size, self.context_length)
        sequence.tokens.extend(tokens)

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        self.append(sequence, tokens)
        self._losses = 0
        await self._run_pending(sequence, after_pass=after_pass)
        self._keep_prefix(sequence, ends=False)

    async def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, keep_going: KeepGoing = lambda: True
    ) -> AsyncIterator[list[int]]:
        async with aclosing(self.decode_together([sequence], n, [sampling], keep_going)) as batches:
            async for (ids,) in batches:
                yield ids

    def rows_that_pay(self, count: int) -> int:
        return self._times.rows_that_pay(count)

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        n, rows = check_together(sequences, n, sampling, self.context_length), len(sequences)
        self._losses = 0
        in_flight = InFlight()
        done, prepared = 0, False
        while True:
            more = done + in_flight.likely < n and keep_going()
            if not more and not in_flight:
                return
            plan = self._plan(sequences[0], n - done) if more and rows == 1 else None
            if plan and not in_flight:
                guess = await self._guess(sequences[0], plan, sampling[0])
                ids = await self._verify(sequences[0], plan.kind, guess, sampling[0])
                done, prepared = done + len(ids), False
                self._append(sequences[0], ids)
                yield [ids]
                continue
            try:
                if not prepared:
                    forward_first = await self._prepare(sequences, sampling)
                    began = arrived = time.perf_counter()
                    steps_run, prepared, pace = 0, True, Pace(self._times, rows)
                if more and not plan:  # else what is in flight is waited for first
                    await self._fill(sequences, n - done, sampling, forward_first, in_flight)
                    forward_first = True
                batch = in_flight.popleft()
                found = await batch.future
            except self.RESTARTS as error:
                # What was in flight is lost; what was yielded is not.
                await in_flight.drop()
                self._lose(error)
                prepared = False
                continue
            now = time.perf_counter()
            if not pace.is_of(batch.times, batch.rows):
                pace = Pace(batch.times, batch.rows)
            steps_run += batch.steps
            taken, arrived = now - max(arrived, batch.submitted), now
            # A batch that only sampled present logits took next to nothing, which says nothing about a step.
            if batch.steps:
                batch.times.note(batch.rows, taken / batch.steps, (now - began) / steps_run)
            pace.note(now, batch.steps)
            # Guesses may have given more than was asked for.
            found = [ids[: n - done] for ids in found]
            done += len(found[0])
            if rows == 1:
                self._lookahead.note_plain(len(found[0]), taken)
            for sequence, ids in zip(sequences, found, strict=True):
                self._append(sequence, ids)
            yield found

    async def _fill(
        self, sequences: Sequence[TokenSequence], left: int, sampling: Sequence[SamplingParams], forward_first: bool,
        in_flight: InFlight,
    ) -> None:  # fmt: skip
        """Submit batches until there are enough, or until the first is over.

        Where ends of submissions that were made together are heard together, there is a pause between them.
        """
        while in_flight.likely < left and wants_more(len(in_flight), in_flight.seconds):
            batch = await self._submit(sequences, left - in_flight.likely, sampling, forward_first, in_flight)
            if batch is None:
                return
            in_flight.append(batch)
            forward_first = True
            pause = _APART * batch.seconds
            if self._hears_together and pause > _LEAST_PAUSE:
                over, _ = await asyncio.wait([in_flight[0].future], timeout=pause)
                if over:
                    return

    async def _submit(
        self, sequences: Sequence[TokenSequence], left: int, sampling: Sequence[SamplingParams], forward_first: bool,
        in_flight: InFlight,
    ) -> Batch | None:  # fmt: skip
        """A batch of steps behind those in flight, or None where these are to be waited for."""
        rows = len(sequences)
        count = min(self._times.batch(rows, self.BATCH_SECONDS), left)
        places = [(one.slot, one.length + in_flight.most) for one in sequences]
        for sequence, (slot, position) in zip(sequences, places, strict=True):
            await self._reserve(slot, sequence.stored, position + count)
        future = await self._start_steps(places, count, forward_first, sampling)
        return Batch(future, self._times, rows, count if forward_first else count - 1, count, count)

    def _append(self, sequence: TokenSequence, ids: list[int]) -> None:
        """These were sampled: keys and values of all but the last are there."""
        self._losses = 0
        sequence.tokens.extend(ids)
        sequence.stored = sequence.length - 1
        if sequence.guesses is not None:
            sequence.guesses.extend(ids)

    def _token_seconds(self, sequence: TokenSequence) -> float | None:
        """What a token takes without a pass that is waited for, where that is known."""
        return self._times.seconds.get(1)

    def _plan(self, sequence: TokenSequence, left: int) -> Plan | None:
        """Who guesses what may come next, where it pays to run that with the last token."""
        guesses, draft = sequence.guesses, sequence.draft
        match = 0 if guesses is None or self.GUESSES_AHEAD or guesses.match < LEAST_MATCH else guesses.match
        if not (match or draft) or (step := self._token_seconds(sequence)) is None:
            return None
        unread = draft.unread(sequence.tokens) if draft else None
        return self._lookahead.plan(match, unread, step, left, min(left, self.max_rows, MAX_LOGIT_ROWS))

    async def _guess(self, sequence: TokenSequence, plan: Plan, sampling: SamplingParams) -> list[int]:
        if plan.kind != DRAFT:
            assert sequence.guesses is not None
            return sequence.guesses.propose(plan.rows - 1)
        assert sequence.draft is not None
        drafted = await sequence.draft.propose(sequence.tokens, plan.rows - 1, sampling)
        self._lookahead.note_drafted(drafted, plan.is_trial)
        return drafted.tokens

    async def _verify(
        self, sequence: TokenSequence, kind: int, guess: Sequence[int], sampling: SamplingParams
    ) -> list[int]:
        """Run the last token and a guess of the next ones; what is sampled, up to the first that was guessed wrong."""
        begin, last = time.perf_counter(), sequence.length - 1
        while True:
            try:
                await self._restore()
                self._put_to_work([sequence])
                rows = [(token, last + at, sequence.slot) for at, token in enumerate([sequence.tokens[-1], *guess])]
                if sequence.stored < last:
                    await self._run_pending(sequence)
                await self._reserve(sequence.slot, sequence.stored, last + len(rows))
                self._logits_of = None
                self._write_state(state_bytes(rows, sampling, len(rows), sequence.adapter, sequence.head_adapter))
                if sampling.penalizes:
                    self._write_history(sequence.slot, ring_of([*sequence.tokens, *guess]))
                places = [(slot, position + 1) for _, position, slot in rows]
                ids = [one for (one,) in await (await self._start_steps(places, 1, True, [sampling] * len(rows)))]
                break
            except self.RESTARTS as error:
                self._lose(error)
        right = next((at for at, (one, other) in enumerate(zip(guess, ids, strict=False)) if one != other), len(guess))
        if guess:
            self._lookahead.note(kind, len(rows), right, time.perf_counter() - begin)
        if guess and kind == DRAFT and sequence.draft:
            sequence.draft.judge(len(guess), right)
        return ids[: right + 1]

    async def logits(self, sequence: TokenSequence) -> np.ndarray:
        return (await self.last_logits(sequence, 1))[0]

    async def last_logits(self, sequence: TokenSequence, rows: int) -> np.ndarray:
        check_last_rows(sequence, rows)
        self._losses = 0
        while True:
            self._put_to_work([sequence], rows)
            if rows > 1 or self._logits_of is not sequence:
                self._rewind(sequence, sequence.length - rows)
            await self._run_pending(sequence, rows)
            try:
                return await self._read_logits(rows)
            except self.RESTARTS as error:
                self._lose(error)

    async def hidden(
        self, sequence: TokenSequence, names: Sequence[str], start: int = 0, after_pass: AfterPass | None = None,
        end: int | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        check_hidden(sequence, names, start, end, self._taps)
        passes = await self._read(
            sequence, start, end or sequence.length, lambda m, stop: self._run_tapped(m, stop, names), after_pass
        )
        return {name: np.concatenate(values) for name, values in zip(names, zip(*passes, strict=True), strict=True)}

    async def token_logprobs(
        self, sequence: TokenSequence, start: int, after_pass: AfterPass | None = None
    ) -> np.ndarray:
        check_scored(sequence, start)

        def score(m: int, stop: int) -> Awaitable[np.ndarray]:
            return self._run_scored(m, stop, sequence.tokens[stop - m + 1 : stop + 1])

        return np.concatenate(await self._read(sequence, start - 1, sequence.length - 1, score, after_pass))

    async def score_states(self, sequence: TokenSequence, states: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        check_scored_states(states, tokens, self._width, self._vocab_size)
        states, scores = np.ascontiguousarray(states, np.float32), list[np.ndarray]()
        self._losses = done = 0
        while done < len(tokens):
            part = slice(done, done + self.max_rows)
            try:
                await self._restore()
                self._put_to_work([sequence])
                # Where these rows are in the sequence makes no difference to the head.
                rows = [(token, 0, sequence.slot) for token in tokens[part]]
                self._logits_of = None
                self._write_state(state_bytes(rows, GREEDY, 0, sequence.adapter, sequence.head_adapter))
                scores.append(await self._run_head_scored(states[part], tokens[part]))
            except self.RESTARTS as error:
                self._lose(error)
                continue
            done += len(rows)
        return np.concatenate(scores)

    async def _read(
        self, sequence: TokenSequence, start: int, end: int, read: Callable[[int, int], Awaitable[T]],
        after_pass: AfterPass | None,
    ) -> list[T]:  # fmt: skip
        """Run the tokens from `start` to `end` again, each pass by `read(rows, length)`; what each gave.

        What was stored stays so, also where this is ended in the middle: nobody has to read it again then.
        """
        passes: list[T] = []
        done = start
        self._losses = 0
        self._put_to_work([sequence])
        if not self._sees(sequence.slot, min(sequence.stored, start)):
            self._rewind(sequence, start)  # what a window has given back: all tokens run again
        while done < end:
            try:
                await self._restore()
                self._put_to_work([sequence])
                # Tokens before `start`, or read already before a loss, only go into the pages.
                first = min(sequence.stored, done)
                unread = first == done
                stop = min(first + self.max_rows, end if unread else done)
                m = await self._write_rows(sequence, first, stop, logit_rows=0)
                if unread:
                    passes.append(await read(m, stop))
                    done = stop
                else:
                    await self._run_rows(m, stop, 0)
            except self.RESTARTS as error:
                self._lose(error)
                continue
            sequence.stored = max(sequence.stored, stop)
            if after_pass:
                await after_pass(stop)
        return passes

    async def add_adapter(self, adapter: LoraAdapter) -> int:
        number = self._numbers.add(adapter)
        self._adapters[number] = adapter
        await self._placed(lambda: self._place_adapter(number, adapter), lambda: self.remove_adapter(number))
        return number

    async def put_head_adapter(self, adapter: AnyHeadAdapter) -> int:
        number = self._head_slots.put(adapter)
        await self._placed(lambda: self._place_head_adapter(number, adapter), lambda: self.remove_head_adapter(number))
        return number

    async def _placed(self, place: Callable[[], Awaitable[None]], remove: Callable[[], None]) -> None:
        """Bring something to the device, again where that is lost meanwhile; forget it where it cannot be there."""
        self._losses = 0
        while True:
            try:
                await self._restore()
                await place()
                return await self._fit()
            except self.RESTARTS as error:
                self._lose(error)
            except BaseException:
                remove()
                raise

    @abstractmethod
    async def open_training(self, layout: ParameterLayout) -> Training: ...

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        if length < sequence.length:
            self._keep_prefix(sequence)
        del sequence.tokens[length:]
        # The last token runs again: its logits are gone.
        self._rewind(sequence, max(length - 1, 0))
        if sequence.slot != NO_SLOT:
            self._release(sequence.slot, sequence.stored)

    def _rewind(self, sequence: TokenSequence, stored: int) -> None:
        if self._logits_of is sequence:
            self._logits_of = None
        sequence.stored = min(sequence.stored, stored)
        if sequence.slot == NO_SLOT:
            return
        if not self._sees(sequence.slot, sequence.stored):
            sequence.stored = 0
        elif table := self._shared_table:
            sequence.stored = table.whole(sequence.slot, sequence.stored)
        if not sequence.stored:  # else its pages would be held by one who needs them no more
            self._release(sequence.slot, 0)

    def _lose(self, error: Exception) -> None:
        """Note a loss; `_restore` makes up for it. Raises the error itself where they follow one another too often."""
        self._lost = True
        self._logits_of = None
        self._losses += 1
        if self._losses > _MOST_LOSSES:
            raise error

    async def _restore(self) -> None:
        """Rebuild the device's state if a call lost it, this one or an earlier one."""
        if self._lost:
            await self._rebuild()
            self._lost = False

    async def _prepare(self, sequences: Sequence[TokenSequence], sampling: Sequence[SamplingParams]) -> bool:
        """Bring all but the last token of each into the pages, and write the state that decoding starts from.

        Whether the first step has to run the last tokens; else it samples the logits at hand, those of the only one.
        """
        await self._restore()
        self._put_to_work(sequences)
        for one in sequences:
            if len(sequences) > 1 or (one.stored == one.length and self._logits_of is not one):
                self._rewind(one, one.length - 1)
        while lacking := [one for one in sequences if one.stored < one.length - 1]:
            for one in lacking:
                await self._run_pending(one, beside=sequences)
                if len(sequences) > 1:
                    self._rewind(one, one.length - 1)
        rows = [(one.tokens[-1], one.length - 1, one.slot) for one in sequences]
        heads = [one.head_adapter for one in sequences]
        self._write_state(state_bytes(rows, sampling, len(rows), sequences[0].adapter, heads))
        for one, rules in zip(sequences, sampling, strict=True):
            if rules.penalizes:
                self._write_history(one.slot, ring_of(one.tokens))
        self._logits_of = None
        return sequences[0].stored < sequences[0].length

    async def _run_pending(
        self, sequence: TokenSequence, logit_rows: int = 1, after_pass: AfterPass | None = None,
        beside: Sequence[TokenSequence] = (),
    ) -> None:  # fmt: skip
        """Run the tokens whose keys and values are not stored yet; the logits are then those of the last ones.

        `beside`: sequences that are to hold what they hold.
        """
        while sequence.stored < sequence.length:
            try:
                await self._restore()
                self._put_to_work([*beside, sequence], logit_rows)
                stop = pass_end(sequence.stored, sequence.length, self.max_rows, logit_rows)
                needed = logit_rows if stop == sequence.length else 0
                m = await self._write_rows(sequence, sequence.stored, stop, needed)
                # Waits for each pass, so that the queue stays short and whoever wants to stop is heard.
                await self._run_rows(m, stop, needed)
            except self.RESTARTS as error:
                self._lose(error)
                continue
            sequence.stored = stop
            if after_pass:
                await after_pass(stop)
        # Decoding goes on from the logits of a single row.
        self._logits_of = sequence if logit_rows == 1 else None

    async def _write_rows(self, sequence: TokenSequence, first: int, stop: int, logit_rows: int) -> int:
        """Write the state of a pass over the tokens from `first` to `stop`; the number of its rows."""
        rows = [(sequence.tokens[at], at, sequence.slot) for at in range(first, stop)]
        # Tokens that are stored run again in their pages, which others may hold, too: what is written is the same.
        begin = first if self._shared_table is None else max(first, sequence.stored)
        await self._reserve(sequence.slot, begin, max(begin, stop))
        self._logits_of = None
        self._write_state(state_bytes(rows, GREEDY, logit_rows, sequence.adapter, sequence.head_adapter))
        return len(rows)
