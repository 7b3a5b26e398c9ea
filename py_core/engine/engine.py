"""Generates tokens: reuses what a conversation's pages already hold, samples, and stops when the model ends its
text."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager, aclosing, closing
from dataclasses import dataclass, field, replace

import numpy as np

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backend_errors import BackendError, ContextFullError, too_long
from py_core.backends.memory_use import MemoryUse
from py_core.backends.profiles import AdapterLimits, OnRound, Profile
from py_core.backends.protocols import Backend, Capabilities, HasPages, Tunes, profiler_of
from py_core.engine.diffusion import USUAL, Writer
from py_core.engine.draft import Draft
from py_core.engine.page_keeping import PageKeeping, PageShelf
from py_core.engine.repetition import LoopDetector
from py_core.engine.scheduler import Priority, Scheduler
from py_core.engine.training_turns import TrainingInTurns
from py_core.grammar.constraint import Constraint
from py_core.grammar.expressions import Grammar, GrammarError
from py_core.models.diffusion import Diffusion
from py_core.sampling import SamplingParams
from py_core.speculation.guesses import PromptLookup
from py_core.token_sequence import TokenSequence
from py_core.training.session import Training

SCORED_AT_ONCE = 64
"""States scored in one turn: a more urgent request waits no longer for them than for a pass over as many tokens."""

ReadProgress = Callable[[int, int], None]
"""Called as progress(tokens_read, prompt_tokens) while a prompt is read; reused tokens count as read."""


@dataclass
class Timings:
    """Filled while an answer is generated. Rates are tokens a second; 0 before a rate is known.

    `reason` tells why the answer ended: end (by the model), length, context (it is full), loop (it only repeated
    itself) or stopped (the sequence was truncated or freed meanwhile). `repeated_tokens`: the number of the ids yielded
    last that repeat a loop, and which the sequence does not keep. The caller that showed their text removes it.
    `passes`: over the masks of a model of diffusion.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_seconds: float = 0.0
    new_tokens: int = 0
    decode_seconds: float = 0.0
    reason: str = ""
    repeated_tokens: int = 0
    passes: int = 0
    first_token_seconds: float = field(default=0.0, repr=False)

    @property
    def prefill_tok_s(self) -> float:
        """The rate of the prompt's tokens that had to be run; reused ones do not count."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tok_s(self) -> float:
        """The rate of new tokens since the end of the prefill; the end-of-text token counts as one."""
        return self.new_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Engine:
    """One model on one backend. All that the application asks of a backend goes through here.

    Several sequences can run at a time: they take turns (scheduler.py), and each gets the tokens that it would get
    alone. There is only one call at a time for a sequence.
    """

    def __init__(self, backend: Backend, end_tokens: Collection[int], diffusion: Diffusion | None = None) -> None:
        """diffusion: as ModelConfig.diffusion."""
        self.backend, self.diffusion = backend, diffusion
        self.unmasking = USUAL
        """How masks become tokens, in a model of diffusion."""
        self._end_tokens = frozenset(end_tokens)
        self._scheduler = Scheduler(backend)
        self._sequences: dict[int, TokenSequence] = {}
        """The sequences by their numbers."""
        self._paged = backend if isinstance(backend, HasPages) else None
        self.pages = PageKeeping(self._paged, self._scheduler)
        """The pages that are kept outside of the backend."""
        self.speculates = True
        """True if tokens are guessed and run together (py_core/speculation). The tokens are the same with and without
        guesses."""
        self.draft: Draft | None = None
        """A smaller model with the same vocabulary that also guesses (loading.py provides it); closed with the
        engine."""
        self.constraint_of: Callable[[Grammar], Awaitable[Constraint]] | None = None
        """Makes the constraint of an answer by `SamplingParams.grammar`; the application provides it."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend that runs the model, in the words shown to the user."""
        return self.backend.capabilities

    @property
    def context_length(self) -> int:
        """The most tokens that a sequence can hold."""
        return self.backend.context_length

    def new_sequence(self, shares: bool = True) -> TokenSequence:
        """Start an empty sequence of tokens. There may be any number: waiting sequences give up pages to running
        sequences.

        shares: False if each token has to be read and sampled by itself, as in a measurement. The sequence then reuses
        nothing that others have read, and no tokens are guessed.
        """
        sequence = self.backend.new_sequence()
        sequence.shares = shares
        self._sequences[sequence.number] = sequence
        return sequence

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        """Forget the sequence's tokens from `length` on, and give back the pages that only these tokens use.

        Work under way for the sequence ends: a prefill with a BackendError, reading tokens as if there were no more.
        """
        self._scheduler.end(sequence)
        self.backend.truncate(sequence, length)

    def hold(self, sequence: TokenSequence, tokens: Sequence[int]) -> int:
        """Make the sequence hold exactly `tokens`; new tokens run with the first call that needs them.

        Returns how many of the first tokens it held before. Raises ContextFullError if they do not fit; the sequence
        then still holds the tokens that it held.
        """
        if len(tokens) > self.context_length:
            raise ContextFullError(too_long(len(tokens), self.context_length))
        shared = shared_length(sequence.tokens, tokens)
        self.truncate(sequence, shared)
        if shared < len(tokens):
            self.backend.append(sequence, tokens[shared:])
        return shared

    def free(self, sequence: TokenSequence) -> None:
        """Give the sequence and its pages back, and end work under way for it. It cannot be used again."""
        self._scheduler.end(sequence)
        self._sequences.pop(sequence.number, None)
        self.backend.free(sequence)
        if self.draft:
            self.draft.free(sequence)

    async def add_adapter(self, adapter: LoraAdapter, priority: Priority = Priority.INTERACTIVE) -> int:
        """Add a set of LoRA matrices to the backend. Returns its number for `use_adapter`.

        Raises AdapterError if it does not fit the model, BackendError if there are MAX_ADAPTERS already.
        """
        number = await self._scheduler.alone(lambda: self.backend.add_adapter(adapter), priority)
        self.pages.add_set(number, adapter)
        return number

    @property
    def adapters_in_use(self) -> set[int]:
        """The numbers of the adapter sets that sequences run with."""
        return {sequence.adapter for sequence in self._sequences.values()} - {0}

    async def remove_adapter(self, number: int) -> None:
        """Forget a set of LoRA matrices. Work under way for the sequences that use it ends; they continue without it.

        Raises ValueError if there is no such set.
        """

        async def remove() -> None:
            for sequence in self._sequences.values():
                if sequence.adapter == number:
                    self._scheduler.end(sequence)
            self.backend.remove_adapter(number)

        # Removal has a turn of its own: before it, a pass under way may still read the matrices.
        await self._scheduler.alone(remove, Priority.INTERACTIVE)

    def use_adapter(self, sequence: TokenSequence, number: int) -> None:
        """Run the sequence with a set from now on, or without one (0). It keeps its tokens, which run again.

        If this changes the set, work under way for the sequence ends, as in `truncate`. Raises ValueError if there is
        no such set.
        """
        if sequence.adapter != number:
            self._scheduler.end(sequence)
        self.backend.use_adapter(sequence, number)

    async def open_training(self, layout: ParameterLayout, priority: Priority = Priority.IDLE) -> Training:
        """Open a session that trains pairs of this layout, as `Trains.open_training`. Its calls take turns with all
        others.

        An answer that is requested meanwhile begins after the current piece of work.
        """
        training = await self._scheduler.alone(lambda: self.backend.open_training(layout), priority)
        return TrainingInTurns(training, self._scheduler, priority)

    async def tune(self, priority: Priority = Priority.IDLE) -> None:
        """Measure in which shapes the kernels are the fastest on this device, as `Tunes.tune`: in some seconds, once.
        Anybody who wants an answer meanwhile waits for one measurement, or until some kernels are compiled: about a
        second. Raises DeviceLostError."""
        for backend in [self.backend, *([self.draft.backend] if self.draft else [])]:
            if isinstance(backend, Tunes):
                await self._scheduler.until_wanted(backend.tune, priority)

    def idle_held(self) -> AbstractContextManager[None]:
        """While this is open, calls of Priority.IDLE pause once their current piece of work is done."""
        return self._scheduler.idle_held()

    def close(self) -> None:
        """Release the weights and the device, and those of the draft."""
        self.backend.close()
        if self.draft:
            self.draft.close()

    async def logits(self, sequence: TokenSequence, priority: Priority = Priority.INTERACTIVE) -> np.ndarray:
        """Logits after the sequence's last token: float32 (vocab_size,). Raises ValueError if it has no tokens."""
        return await self._scheduler.call(sequence, lambda _: self.backend.logits(sequence), priority)

    async def last_logits(
        self, sequence: TokenSequence, rows: int, priority: Priority = Priority.INTERACTIVE
    ) -> np.ndarray:
        """Logits after each of the last `rows` tokens, as `Runs.last_logits`: float32 (rows, vocab_size)."""
        return await self._scheduler.call(sequence, lambda _: self.backend.last_logits(sequence, rows), priority)

    async def hidden(
        self, sequence: TokenSequence, names: Sequence[str], start: int = 0, priority: Priority = Priority.BACKGROUND,
        end: int | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Hidden states of the tokens from `start` to before `end` (None: all), by name, as `Runs.hidden`: float32
        (tokens, hidden_size)."""
        self._refuse_diffusion()
        return await self._scheduler.call(
            sequence, lambda after_pass: self.backend.hidden(sequence, names, start, after_pass, end), priority
        )

    async def token_logprobs(
        self, sequence: TokenSequence, tokens: Sequence[int], start: int = 1, on_progress: ReadProgress | None = None,
        priority: Priority = Priority.BACKGROUND,
    ) -> np.ndarray:  # fmt: skip
        """Make the sequence hold exactly `tokens`; returns log p of each from `start` on: float32 (len(tokens) -
        start,).

        See `Runs.token_logprobs`. `on_progress` is called after each forward pass. Raises ContextFullError if the
        tokens do not fit; the sequence then still holds the tokens that it held.
        """
        self._refuse_diffusion()
        self.hold(sequence, tokens)

        def on_pass(stored: int) -> None:
            if on_progress:
                on_progress(stored, len(tokens))

        return await self._scheduler.call(
            sequence, lambda after_pass: self.backend.token_logprobs(sequence, start, after_pass), priority, on_pass
        )

    async def score_states(
        self, sequence: TokenSequence, states: np.ndarray, tokens: Sequence[int],
        priority: Priority = Priority.BACKGROUND,
    ) -> np.ndarray:  # fmt: skip
        """log p of tokens after states that `hidden` read before, as `Runs.score_states`: float32 (tokens,)."""

        def score(part: slice) -> Awaitable[np.ndarray]:
            return self.backend.score_states(sequence, states[part], tokens[part])

        scores = list[np.ndarray]()
        for first in range(0, len(tokens), SCORED_AT_ONCE):  # each in a turn of its own
            part = slice(first, first + SCORED_AT_ONCE)
            scores.append(await self._scheduler.call(sequence, lambda _, part=part: score(part), priority))  # type: ignore[misc]
        return np.concatenate(scores)

    async def put_head_adapter(self, adapter: NeighbourAdapter, priority: Priority = Priority.INTERACTIVE) -> int:
        """Put an adapter into a slot at the head's input, as `HasAdapters.put_head_adapter`. Returns its number."""
        return await self._scheduler.alone(lambda: self.backend.put_head_adapter(adapter), priority)

    def remove_head_adapter(self, number: int) -> None:
        """Give a slot back, as `HasAdapters.remove_head_adapter`. An answer under way continues without the adapter."""
        self.backend.remove_head_adapter(number)

    def use_head_adapter(self, sequence: TokenSequence, number: int) -> None:
        """Run a sequence with an adapter at the head's input, or without one (0), from its next turn on."""
        self.backend.use_head_adapter(sequence, number)

    @property
    def most_profiled_rows(self) -> int:
        """Rows of the largest pass that `profile` measures. Raises BackendError if kernels cannot be measured."""
        return profiler_of(self.backend).max_rows

    def memory(self) -> MemoryUse:
        """The current contents of the backend's memory by owner, with the draft's as one. Raises BackendError after
        `close`."""
        return replace(self.backend.memory(), draft=self.draft.backend.memory().total if self.draft else 0)

    async def limit_memory(self, nbytes: int | None) -> None:
        """See `HasPages.limit_memory`. The limit can be changed at any time, and takes effect after the current
        pass."""
        if paged := self._paged:
            await self._scheduler.alone(lambda: paged.limit_memory(nbytes), Priority.INTERACTIVE)

    async def limits(self, on_round: OnRound = lambda: None) -> AdapterLimits:
        """The GPU's measured limits. Raises BackendError if its kernels cannot be measured."""
        profiler = profiler_of(self.backend)
        return await self._scheduler.alone(lambda: profiler.limits(on_round), Priority.INTERACTIVE)

    async def profile(self, position: int, rows: int = 1, on_round: OnRound = lambda: None) -> Profile:
        """Measure the kernels of a decode step at `position`, or of a prefill's pass over `rows` rows from there on.

        Raises ValueError if there is no room for it, BackendError if the kernels cannot be measured.
        """
        profiler = profiler_of(self.backend)
        return await self._scheduler.alone(lambda: profiler.profile(position, rows, on_round), Priority.INTERACTIVE)

    async def prefill(
        self, sequence: TokenSequence, prompt: Sequence[int], timings: Timings, on_progress: ReadProgress | None = None,
        priority: Priority = Priority.INTERACTIVE, shelf: PageShelf | None = None,
    ) -> None:  # fmt: skip
        """Make the sequence hold exactly `prompt`. The prefix that it already holds is not run again, nor are whole
        pages of the prompt that another sequence has read or that the shelf has.

        `on_progress` is called before the first forward pass and after each. Raises ContextFullError if the prompt does
        not fit; the sequence then still holds the tokens that it held.
        """
        if len(prompt) > self.context_length:
            raise ContextFullError(too_long(len(prompt), self.context_length))
        if self.diffusion is not None and not self.diffusion.block:  # each pass of its answer runs the whole text
            self.hold(sequence, prompt)
            timings.prompt_tokens = len(prompt)
            if on_progress:
                on_progress(len(prompt), len(prompt))
            return
        begin = time.perf_counter()
        # At least the last token runs, to give logits.
        shared = min(shared_length(sequence.tokens, prompt), max(len(prompt) - 1, 0))
        self.truncate(sequence, shared)
        shared = self._paged.begin_with(sequence, prompt) if self._paged else sequence.length
        if shelf is not None:
            await self.pages.bring(sequence, prompt, shelf, priority)
            shared = sequence.length
        # If the shared part lies far back, a model with windows may have to read it again.
        reused = shared if sequence.stored >= shared - 1 else sequence.stored
        timings.prompt_tokens, timings.reused_tokens = len(prompt), reused

        def on_pass(stored: int) -> None:
            if on_progress:
                on_progress(stored, len(prompt))

        on_pass(reused)
        reading = time.perf_counter()
        try:
            await self._scheduler.call(
                sequence,
                lambda after_pass: self.backend.prefill(sequence, prompt[shared:], after_pass),
                priority,
                on_pass,
            )
            self.pages.note_read(len(prompt) - reused, time.perf_counter() - reading)
        finally:
            timings.prefill_seconds = time.perf_counter() - begin

    async def bring(self, sequence: TokenSequence, prompt: Sequence[int], shelf: PageShelf, most: int) -> None:
        """Prepare for a prompt before it is requested: make the sequence hold the part that others and the shelf have.
        If at most `most` tokens remain to run, it holds the whole prompt. Requests that wait for the device go first.

        Raises BackendError if the sequence is changed meanwhile.
        """
        self.truncate(sequence, shared_length(sequence.tokens, prompt))
        if self._paged:
            self._paged.begin_with(sequence, prompt)
        await self.pages.bring(sequence, prompt, shelf, Priority.BACKGROUND)
        if 0 < len(prompt) - sequence.length <= most:
            await self.prefill(sequence, prompt, Timings(), priority=Priority.BACKGROUND)

    def _refuse_diffusion(self) -> None:
        """Raises BackendError for a model of diffusion: a row of it is not the state before a token."""
        if self.diffusion is not None:
            raise BackendError(
                "engine.diffusion",
                "This model writes by diffusion: its tokens have no probabilities one by one, and it cannot be taught. "
                "Choose another model for that.",
            )

    async def _constraint(self, grammar: Grammar | None) -> Constraint | None:
        if grammar is None:
            return None
        if self.constraint_of is None:
            raise GrammarError("This program has no kernel for grammars: leave the grammar out.")
        return await self.constraint_of(grammar)

    def _writer(self) -> Writer | None:
        """Return what writes an answer of a model of diffusion, None for other models."""
        if self.diffusion is None:
            return None
        return Writer(self._scheduler, self.backend, self.diffusion, self._end_tokens)

    async def is_shaped(self, text: str, grammar: Grammar) -> bool:
        """Return True if a text that nobody has to sample is one of the grammar's. Raises GrammarError."""
        constraint = await self._constraint(grammar)
        assert constraint is not None
        with closing(constraint):
            return constraint.grammar.is_whole(text)

    async def generate(
        self, sequence: TokenSequence, max_tokens: int, sampling: SamplingParams, timings: Timings, *,
        ignore_end: bool = False, end_at_loops: bool = False, priority: Priority = Priority.INTERACTIVE,
        begun: Sequence[int] = (),
    ) -> AsyncIterator[list[int]]:  # fmt: skip
        """Yield the ids that follow, without the end token; `timings` tells why the answer ended. A batch of a model of
        diffusion may be empty: `sequence.canvas` has changed.

        begun: the tokens of the answer with which the sequence ends. A text of the grammar begins with them, if there
        is one. Raises ValueError if it does not.
        With `end_at_loops`, an answer that goes in circles (repetition.py) is ended, and its repeats are dropped. The
        sequence keeps the tokens that were yielded, and the end token. No yielded token is lost if the iterator is
        closed early.
        """
        begin = time.perf_counter()
        start = kept = sequence.length
        wanted = max_tokens
        constraint = sequence.constraint = await self._constraint(sampling.grammar)
        sequence.probabilities.clear()
        if sampling.likeliest is not None:
            self._refuse_diffusion()
        guesses = self.speculates and sequence.shares and sampling.likeliest is None and self.diffusion is None
        sequence.guesses = PromptLookup(sequence.tokens) if guesses else None
        sequence.draft = self.draft.follow(sequence) if guesses and self.draft else None
        timings.reason = "length"
        if start + wanted > self.context_length:
            wanted, timings.reason = self.context_length - start, "context"
        repetition = LoopDetector() if end_at_loops else None
        writer = self._writer()
        decoded = (
            writer.tokens(sequence, wanted, sampling, priority, self.unmasking)
            if writer
            else self._scheduler.decode(sequence, wanted, sampling, priority)
        )
        try:
            if constraint:
                constraint.extend(begun)
            async with aclosing(decoded) as batches:  # type: ignore[type-var]
                async for ids in batches:
                    yielded = timings.new_tokens
                    if not yielded and ids:
                        timings.first_token_seconds = time.perf_counter() - begin
                    for index, token in enumerate(ids):
                        timings.new_tokens += 1
                        if token in self._end_tokens and not ignore_end:
                            timings.reason, kept = "end", start + timings.new_tokens
                            ids = ids[:index]
                            break
                        if repetition and (kept_tokens := repetition.push(token)) is not None:
                            timings.reason, kept = "loop", start + kept_tokens
                            timings.repeated_tokens = yielded - kept_tokens
                            ids = []
                            break
                    timings.decode_seconds = time.perf_counter() - begin
                    timings.passes = writer.passes if writer else 0
                    if ids or sequence.canvas:
                        yield ids
                    if timings.reason in ("end", "loop"):
                        break
            if constraint and timings.reason in ("length", "context") and timings.new_tokens >= wanted:
                if constraint.is_over:
                    timings.reason, kept = "end", sequence.length
                elif sampling.closes and (ids := constraint.closing()):
                    if held := ids[: self.context_length - sequence.length]:
                        self.backend.append(sequence, held)
                    yield ids
        finally:
            if constraint:
                sequence.constraint = None
                constraint.close()
        if timings.reason in ("end", "loop"):
            # Drop the tokens that steps in flight sampled past the end.
            self.backend.truncate(sequence, kept)
        elif timings.new_tokens < wanted:
            timings.reason = "stopped"


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the common prefix of both."""
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
