"""Decoding: steps in flight, their times, and guesses of the next tokens.

A step reads and advances the state where the kernels run, so the host only says "again": batches of steps are queued
ahead and their ids are read late. Waiting for each token before the next would cap a fast device.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence

from py_core.backends.checks import MAX_LOGIT_ROWS, check_together
from py_core.backends.device import Device
from py_core.backends.grammar_states import GrammarStates, Place
from py_core.backends.passes import Passes
from py_core.backends.protocols import KeepGoing
from py_core.backends.recovery import Recovery
from py_core.backends.sampling_state import WAITS, bias_bytes, ring_of, state_bytes
from py_core.backends.step_times import StepTimes, Stopwatch, wants_more
from py_core.backends.submissions import InFlight, Submission
from py_core.paging.pages import Pages
from py_core.sampling import SamplingParams, probability_of
from py_core.speculation.guesses import LEAST_MATCH
from py_core.speculation.lookahead import DRAFT, GuessPlan, Lookahead
from py_core.token_sequence import TokenSequence

_APART = 0.5
"""The share of a batch's time that passes before the next batch is submitted, if that makes a difference."""

_LEAST_PAUSE = 0.001
"""Seconds: shorter pauses are left out."""

_LOOKED_AHEAD = 16
"""States of grammars that are brought to the device while a batch runs."""

_NEWEST_RUN = 0.2
"""The newest run's weight in the average of tokens until a row waits for the host."""


class Decoder:
    """The decode loop of one backend."""

    GUESSES_AHEAD = False
    """True if repeated text is guessed where the kernels run. If not, a pass with guesses is awaited before the next
    one, as the passes of a draft model always are."""

    AWAITS_FIRST = True
    """True if the first step is awaited before many are queued. A GPU would run dry then: the host takes about as long
    to encode steps as the GPU to run them."""

    FORCED_ROWS = 1
    """Rows of a pass over tokens that a grammar forces, with logits: 1 if each row takes as long as the first."""

    LEAST_FORCED = 4
    """Fewer forced tokens are sampled as all others, without a pass of their own."""

    def __init__(self, device: Device, pages: Pages, recovery: Recovery, passes: Passes) -> None:
        self.times = StepTimes()
        self.awaited = StepTimes()
        """Times of steps behind which the host goes on with a grammar."""
        self.lookahead = Lookahead()
        self._device, self._pages, self._recovery, self._passes = device, pages, recovery, passes
        self._context_length = device.config.context_length
        self._grammars = GrammarStates(device, self.LEAST_FORCED)
        self._rebuilds = recovery.rebuilds
        self._typical_run = 4.0
        """Tokens until a row waits for the host to go on with its grammar, on average."""

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams], keep_going: KeepGoing
    ) -> AsyncGenerator[list[list[int]], None]:
        """As `Runs.decode_together`."""
        vocab_size, rows = self._device.config.vocab_size, len(sequences)
        n = check_together(sequences, n, sampling, self._context_length, vocab_size)
        self._recovery.losses = 0
        if any(rules.likeliest is not None for rules in sampling):
            async for found in self._measured(sequences, n, sampling, keep_going):
                yield found
            return
        if any(one.constraint for one in sequences):
            async for found in self._constrained(sequences, n, sampling, keep_going):
                yield found
            return
        in_flight = InFlight()
        done, prepared = 0, False
        while True:
            more = done + in_flight.likely < n and keep_going()
            if not more and not in_flight:
                return
            plan = self._plan(sequences[0], n - done) if more and rows == 1 else None
            if plan and not in_flight:
                guess = await self._guess(sequences[0], plan, sampling[0])
                ids = await self.verify(sequences[0], plan.kind, guess, sampling[0])
                done, prepared = done + len(ids), False
                self._append(sequences[0], ids)
                yield [ids]
                continue
            try:
                if not prepared:
                    forward_first, prepared = await self._prepare(sequences, sampling), True
                    watch = Stopwatch()
                if more and not plan:  # else the steps in flight are awaited first
                    await self._fill(
                        sequences, n - done, sampling, forward_first, in_flight, is_first=not done and self.AWAITS_FIRST
                    )
                    forward_first = True
                batch = in_flight.popleft()
                found = await batch.future
            except self._recovery.errors as error:
                # The steps in flight are lost; those already yielded are not.
                await in_flight.drop()
                self._recovery.note(error)
                prepared = False
                continue
            taken = watch.note(batch.times, batch.rows, batch.steps, batch.submitted)
            # Guesses may have given more tokens than were asked for.
            found = [ids[: n - done] for ids in found]
            done += len(found[0])
            if rows == 1:
                self.lookahead.note_plain(len(found[0]), taken)
            for sequence, ids in zip(sequences, found, strict=True):
                self._append(sequence, ids)
            yield found

    async def _measured(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams], keep_going: KeepGoing
    ) -> AsyncGenerator[list[list[int]], None]:
        """Decode one step at a time, and read its logits before the samplers change them."""
        self._grammars.keep_to([one.constraint.grammar for one in sequences if one.constraint])
        done, rows = 0, len(sequences)
        while done < n and keep_going():
            try:
                forward_first = await self._prepare(sequences, sampling)
                places = [(one.slot, one.length) for one in sequences]
                for one in sequences:
                    await self._pages.reserve(one.slot, one.stored, one.length + 1)
                if forward_first:
                    await self._device.run_step(rows, max(one.length for one in sequences) + 1)
                logits = await self._device.read_logits(rows)
                found = [ids[:1] for ids in await (await self._device.start_steps(places, 1, False, sampling))]
            except self._recovery.errors as error:
                self._recovery.note(error)
                continue
            for one, rules, ids, row in zip(sequences, sampling, found, logits, strict=True):
                if rules.likeliest is not None:
                    one.probabilities[one.length] = probability_of(row, ids[0], rules.likeliest)
                self._append(one, ids)
            done += _constrain(sequences, found)
            yield found

    async def _constrained(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams], keep_going: KeepGoing
    ) -> AsyncGenerator[list[list[int]], None]:
        """Decode sequences of which some follow a grammar. Steps are in flight until a row waits for the host. Tokens
        that are the only way to go on run in one pass."""
        self._grammars.keep_to([one.constraint.grammar for one in sequences if one.constraint])
        done = 0
        while done < n and keep_going():
            if len(sequences) == 1 and (ids := await self._ahead(sequences[0], n - done, sampling[0])):
                found = [ids]
            elif len(sequences) == 1 or not any(found := [self._append_forced(one, n - done) for one in sequences]):
                async for found in self._followed(sequences, n - done, sampling, keep_going):
                    done += _constrain(sequences, found)
                    yield found
                continue
            done += _constrain(sequences, found)
            yield found

    def _append_forced(self, sequence: TokenSequence, most: int) -> list[int]:
        """Append up to `most` tokens that are the only way to go on. The last one is left to the model, which may
        choose one that goes on behind what is forced. They run with the next step."""
        ids = self._forced(sequence)[:-1][:most]
        _extend(sequence, ids)
        return ids

    def _forced(self, sequence: TokenSequence) -> list[int]:
        """Return the tokens that are the only way to go on, none if a pass of their own does not pay."""
        forced = sequence.constraint.forced() if sequence.constraint else []
        return forced if len(forced) >= self.LEAST_FORCED else []

    async def _ahead(self, sequence: TokenSequence, left: int, sampling: SamplingParams) -> list[int]:
        """Run tokens that are the only way to go on, or that are guessed, in one pass. Returns the sampled ids, none if
        there is nothing to run ahead."""
        assert sequence.constraint is not None
        most = min(left, self.FORCED_ROWS)
        forced, kind = self._forced(sequence)[:left], None
        if len(forced) >= most:  # the first ones need no logits
            ids = forced[: len(forced) - most + 1] if most > 1 else forced[:-1]
            _extend(sequence, ids)
            if ids:
                return ids
        guess = forced[: left - 1]  # behind them one is sampled
        if not forced and (plan := self._plan(sequence, left)):
            guess, kind = await self._guess(sequence, plan, sampling), plan.kind
        constraint = sequence.constraint
        states = constraint.grammar.along(constraint.state, guess)
        guess = guess[: len(states) - 1]
        if not guess:
            return []
        ids = await self.verify(sequence, kind, guess, sampling, states, len(forced) - 1 if forced else 0)
        self._append(sequence, ids)
        return ids

    async def _followed(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams], keep_going: KeepGoing
    ) -> AsyncGenerator[list[list[int]], None]:
        """Decode until a row waits for the host to go on with its grammar."""
        in_flight, waiting = InFlight(), set[int]()
        done, prepared = 0, False
        begin, watch = time.perf_counter(), Stopwatch()
        try:
            while True:
                try:
                    if not prepared:
                        forward_first, prepared = await self._prepare(sequences, sampling), True
                    if keep_going() and not waiting:
                        # Steps in flight are lost if a row waits: not many more than have been good so far.
                        run = max(1.0, self._typical_run, done)
                        likely = round(3 * run - 2 if self._grammars.knows_all else run)
                        await self._fill(sequences, min(likely, n - done), sampling, forward_first, in_flight)
                        forward_first = True
                    if not in_flight:
                        return
                    self._grammars.look_ahead(_LOOKED_AHEAD)
                    batch = in_flight.popleft()
                    found = await batch.future
                except self._recovery.errors as error:
                    await in_flight.drop()
                    self._recovery.note(error)
                    if done:
                        return
                    prepared = False
                    continue
                found = [[] if row in waiting else ids for row, ids in enumerate(found)]
                waiting |= {row for row, ids in enumerate(found) if ids[-1:] == [WAITS]}
                found = [(ids[:-1] if row in waiting else ids)[: n - done] for row, ids in enumerate(found)]
                if not waiting:  # a batch may end as soon as all rows wait
                    watch.note(batch.times, batch.rows, batch.steps, batch.submitted)
                for sequence, ids in zip(sequences, found, strict=True):
                    if ids:
                        self._append(sequence, ids)
                done += max(map(len, found))
                if any(found):
                    yield found
        finally:
            if waiting:
                self._typical_run += (done - self._typical_run) * _NEWEST_RUN
            else:
                self._typical_run = max(self._typical_run, done)
            if done and len(sequences) == 1:
                taken = time.perf_counter() - begin
                self.awaited.note(1, taken / done, taken / done)
                self.lookahead.note_plain(done, taken)

    async def _fill(
        self, sequences: Sequence[TokenSequence], left: int, sampling: Sequence[SamplingParams], forward_first: bool,
        in_flight: InFlight, is_first: bool = False,
    ) -> None:  # fmt: skip
        """Submit batches until there are enough, or until the first is over. is_first: nothing was heard yet; then that
        is a single step and one batch behind it, so that the first token comes soon, and sequences that begin at the
        same time do not wait for each other's steps.

        If the ends of submissions that were made together are heard together, there is a pause between them, in which
        states of grammars are brought to the device.
        """
        while in_flight.likely < left and wants_more(len(in_flight), in_flight.seconds):
            steps = 1 if is_first and not in_flight else left - in_flight.likely
            batch = await self._submit(sequences, steps, sampling, forward_first, in_flight)
            if batch is None:
                return
            in_flight.append(batch)
            forward_first = True
            if is_first:
                await asyncio.sleep(0)  # natively the CPU's kernels run before this goes on: the step is over
                if len(in_flight) > 1 or in_flight[0].future.done():
                    return
                continue
            if any(one.constraint for one in sequences):
                self._grammars.look_ahead(_LOOKED_AHEAD)
            pause = _APART * batch.seconds - (time.perf_counter() - batch.submitted)
            if self._device.hears_together and pause > _LEAST_PAUSE:
                over, _ = await asyncio.wait([in_flight[0].future], timeout=pause)
                if over:
                    return

    async def _submit(
        self, sequences: Sequence[TokenSequence], left: int, sampling: Sequence[SamplingParams], forward_first: bool,
        in_flight: InFlight,
    ) -> Submission | None:  # fmt: skip
        """Submit a batch of steps behind those in flight. Returns None if those must be awaited first."""
        rows = len(sequences)
        count = min(self.times.batch(rows, self._device.BATCH_SECONDS), left)
        places = [(one.slot, one.length + in_flight.most) for one in sequences]
        for sequence, (slot, position) in zip(sequences, places, strict=True):
            await self._pages.reserve(slot, sequence.stored, position + count)
        future = await self._device.start_steps(places, count, forward_first, sampling)
        return Submission(future, self.times, rows, count if forward_first else count - 1, count, count)

    def _append(self, sequence: TokenSequence, ids: list[int]) -> None:
        """Append sampled ids: keys and values of all but the last are stored."""
        self._recovery.losses = 0
        _extend(sequence, ids)
        sequence.stored = sequence.length - 1

    def _token_seconds(self, sequence: TokenSequence) -> float | None:
        """Return the seconds of a token without a pass that is waited for, if known."""
        return self.times.seconds.get(1)

    def _plan(self, sequence: TokenSequence, left: int) -> GuessPlan | None:
        """Return a plan for guessing the next tokens, if it pays to run guesses with the last token."""
        guesses, draft = sequence.guesses, sequence.draft
        match = 0 if guesses is None or self.GUESSES_AHEAD or guesses.match < LEAST_MATCH else guesses.match
        step = self.awaited.seconds.get(1) if sequence.constraint else self._token_seconds(sequence)
        if not (match or draft) or step is None:
            return None
        unread = draft.unread(sequence.tokens) if draft else None
        return self.lookahead.plan(match, unread, step, left, min(left, self._device.max_rows, MAX_LOGIT_ROWS))

    async def _guess(self, sequence: TokenSequence, plan: GuessPlan, sampling: SamplingParams) -> list[int]:
        if plan.kind != DRAFT:
            assert sequence.guesses is not None
            return sequence.guesses.propose(plan.rows - 1)
        assert sequence.draft is not None
        drafted = await sequence.draft.propose(sequence.tokens, plan.rows - 1, sampling)
        self.lookahead.note_drafted(drafted, plan.is_trial)
        return drafted.tokens

    async def verify(
        self, sequence: TokenSequence, kind: int | None, guess: Sequence[int], sampling: SamplingParams,
        states: Sequence[int] = (), forced: int = 0,
    ) -> list[int]:  # fmt: skip
        """Run the last token and a guess of the next ones. Returns the sampled ids, up to the first wrong guess.

        kind: of the guess, None if it says nothing of other guesses. states: of the sequence's grammar, before each
        guess and behind the last. forced: the number of guesses that are right whatever is sampled."""
        begin, last, device, pages = time.perf_counter(), sequence.length - 1, self._device, self._pages
        while True:
            try:
                await self._recovery.restore()
                pages.put_to_work([sequence])
                rows = [(token, last + at, sequence.slot) for at, token in enumerate([sequence.tokens[-1], *guess])]
                if sequence.stored < last:
                    await self._passes.run_pending(sequence)
                await pages.reserve(sequence.slot, sequence.stored, last + len(rows))
                pages.logits_of = None
                adapters = sequence.adapter, sequence.head_adapter
                followed = (
                    [(sequence.constraint.grammar, state) for state in states[forced:]] if sequence.constraint else []
                )
                numbers = [0] * forced + self._numbers(followed)
                device.write_state(state_bytes(rows, sampling, len(rows), *adapters, numbers, follows=False))
                if sampling.penalizes:
                    device.write_history(sequence.slot, ring_of([*sequence.tokens, *guess]))
                if sampling.biases:
                    device.write_biases(sequence.slot, bias_bytes(sampling))
                places = [(slot, position + 1) for _, position, slot in rows]
                ids = [one for (one,) in await (await device.start_steps(places, 1, True, [sampling] * len(rows)))]
                break
            except self._recovery.errors as error:
                self._recovery.note(error)
        ids[:forced] = guess[:forced]
        right = next((at for at, (one, other) in enumerate(zip(guess, ids, strict=False)) if one != other), len(guess))
        if guess and kind is not None:
            self.lookahead.note(kind, len(rows), right, time.perf_counter() - begin)
        if guess and kind == DRAFT and sequence.draft:
            sequence.draft.judge(len(guess), right)
        return ids[: right + 1]

    def _numbers(self, places: Sequence[Place | None]) -> list[int]:
        """Return the numbers of grammars' states on the device, where none is in flight; 0 for None."""
        if self._rebuilds != self._recovery.rebuilds:
            self._rebuilds = self._recovery.rebuilds
            self._grammars.forget()
        return self._grammars.numbers(places)

    async def _prepare(self, sequences: Sequence[TokenSequence], sampling: Sequence[SamplingParams]) -> bool:
        """Bring all but the last token of each into the pages, and write the state that decoding starts from.

        Returns True if the first step has to run the last tokens. If not, it samples the logits at hand, those of the
        only sequence.
        """
        await self._recovery.restore()
        self._pages.put_to_work(sequences)
        for one in sequences:
            if len(sequences) > 1 or (one.stored == one.length and self._pages.logits_of is not one):
                self._pages.rewind(one, one.length - 1)
        while lacking := [one for one in sequences if one.stored < one.length - 1]:
            for one in lacking:
                await self._passes.run_pending(one, beside=sequences)
                if len(sequences) > 1:
                    self._pages.rewind(one, one.length - 1)
        rows = [(one.tokens[-1], one.length - 1, one.slot) for one in sequences]
        heads = [one.head_adapter for one in sequences]
        numbers = self._numbers(
            [(one.constraint.grammar, one.constraint.state) if one.constraint else None for one in sequences]
        )
        self._device.write_state(state_bytes(rows, sampling, len(rows), sequences[0].adapter, heads, numbers))
        for one, rules in zip(sequences, sampling, strict=True):
            if rules.penalizes:
                self._device.write_history(one.slot, ring_of(one.tokens))
            if rules.biases:
                self._device.write_biases(one.slot, bias_bytes(rules))
        self._pages.logits_of = None
        return sequences[0].stored < sequences[0].length


def _extend(sequence: TokenSequence, ids: Sequence[int]) -> None:
    """Add ids to a sequence. Its grammar takes them later."""
    sequence.tokens.extend(ids)
    constraint, guesses = sequence.constraint, sequence.guesses
    if guesses is not None:  # only a rehearsal reads what is forced
        guesses.extend(ids, constraint.forced_behind(ids) if constraint and guesses.rehearsal else ())


def _constrain(sequences: Sequence[TokenSequence], found: Sequence[list[int]]) -> int:
    """Note the next tokens of sequences that follow a grammar. Returns the most tokens of a sequence."""
    for sequence, ids in zip(sequences, found, strict=True):
        if sequence.constraint:
            sequence.constraint.extend(ids)
    return max(map(len, found))
