"""The seam between the engine and whatever runs the model.

A backend owns the weights, the key/value pages and the kernels. The engine above it only sees token ids
and sequences, so the same engine drives numpy, WebGPU and WASM, natively and in the page.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from py_core.adapters.head import AnyHeadAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backends.memory_use import MemoryUse
from py_core.formats.gguf import TensorInfo
from py_core.messages import Message, UserError
from py_core.sampling import SamplingParams
from py_core.speculation.guesses import PromptLookup
from py_core.speculation.lookahead import Drafter

if TYPE_CHECKING:
    from py_core.training.session import Training

Progress = Callable[[int, int], None]
"""Called as progress(bytes_done, bytes_total) while weights load."""

KeepGoing = Callable[[], bool]
"""Asked before more decode steps are queued: with False only those in flight are yielded still."""

AfterPass = Callable[[int], Awaitable[None]]
"""Called after each forward pass of a long call with the number of the sequence's tokens that are stored by then."""


class BackendError(UserError, RuntimeError):
    """A backend cannot go on; the message is a sentence for the user that says what to do."""


class DeviceLostError(BackendError):
    """The GPU went away (driver reset, sleep, another program). Everything on it is gone."""


class ContextFullError(BackendError):
    """The tokens do not fit into the model's context."""


@dataclass(frozen=True)
class Capabilities:
    """What runs the model, in the words shown to the user."""

    backend: str
    adapter: str
    software: bool = False
    features: tuple[str, ...] = ()


NO_SLOT = -1
"""Of a sequence that has no row in the page table."""


@dataclass
class TokenSequence:
    """One sequence of tokens and the KV pages that hold it.

    `tokens` are the ids so far, in order; the keys and values of the first `stored` of them are in pages. A token
    that was just sampled is still pending; the backend runs it when its logits are needed.
    """

    number: int
    """Its own: no other sequence of the backend has or had it."""
    slot: int = NO_SLOT
    """Its row in the page table, as long as it has one (sequence_slots.py)."""
    tokens: list[int] = field(default_factory=list)
    stored: int = 0
    adapter: int = 0
    """The number of the set of LoRA matrices that it runs with (`Backend.use_adapter`), 0 for none."""
    head_adapter: int = 0
    """The number of the adapter at the head's input (`Backend.use_head_adapter`), 0 for none."""
    shares: bool = True
    """Whether it begins with what others have read, and they with what it has (`Backend.begin_with`)."""
    guesses: PromptLookup | None = None
    """What may come next, where decoding is to run guesses with its steps. It gets what is decoded meanwhile."""
    draft: Drafter | None = None
    """Who else may guess that."""

    @property
    def length(self) -> int:
        return len(self.tokens)


def check_formats(
    tensors: Mapping[str, TensorInfo], weights: Iterable[str], readable: Collection[str], kernels: str
) -> None:
    """Raises BackendError for the first of the weights in a format that these kernels do not read."""
    for name in weights:
        form = tensors[name].format.name
        if form not in readable:
            raise BackendError(
                "model.unreadable-format",
                "{name} is in {format}; the {kernels} kernels read {readable} only. Use a file "
                "in one of these, or the numpy backend, which is slow.",
                name=name,
                format=form,
                kernels=kernels,
                readable=", ".join(readable),
            )


def check_prefill(sequence: TokenSequence, tokens: Sequence[int], vocab_size: int, context_length: int) -> None:
    """What every backend's prefill checks before it touches anything."""
    if not tokens:
        raise ValueError("prefill needs at least one token")
    if not all(0 <= token < vocab_size for token in tokens):
        raise ValueError(f"a token id is outside of 0..{vocab_size - 1}")
    total = sequence.length + len(tokens)
    if total > context_length:
        raise ContextFullError(too_long(total, context_length))


def check_not_empty(sequence: TokenSequence) -> None:
    """There is nothing to predict from before a prefill."""
    if not sequence.tokens:
        raise ValueError("the sequence holds no tokens: prefill comes first")


MAX_LOGIT_ROWS = 8
"""Rows of a pass that may need logits: the last ones, of several sequences or of a draft."""

MAX_TAPS = 8
"""Values that one call of `Backend.hidden` reads: kernels keep a buffer for each."""


MAX_ADAPTERS = 4
"""Sets of LoRA matrices that are there at a time. One of rank 16 on every linear is a tenth of a small model."""

HEAD_SLOTS = 64
"""Adapters at the head's input that are there at a time. A slot takes 256 bytes for each value of the hidden size."""


def check_last_rows(sequence: TokenSequence, rows: int) -> None:
    """What every backend's `last_logits` checks."""
    check_not_empty(sequence)
    if not 1 <= rows <= min(MAX_LOGIT_ROWS, sequence.length):
        raise ValueError(
            f"Logits after the last {rows} tokens are asked for; the sequence has {sequence.length}, and at most "
            f"{MAX_LOGIT_ROWS} rows at a time can have them."
        )


def check_hidden(
    sequence: TokenSequence, names: Sequence[str], start: int, end: int | None, taps: Collection[str]
) -> None:
    """What every backend's `hidden` checks; `taps` are the names that its graph has."""
    check_not_empty(sequence)
    if not 0 <= start < sequence.length:
        raise ValueError(f"start is {start}, but must be one of the sequence's {sequence.length} tokens, from 0 on.")
    if end is not None and not start < end <= sequence.length:
        raise ValueError(f"end is {end}, but must be from {start + 1} to {sequence.length}.")
    if not 1 <= len(set(names)) == len(names) <= MAX_TAPS:
        raise ValueError(f"{list(names)} are asked for; hidden reads 1 to {MAX_TAPS} values, each once.")
    for name in names:
        if name not in taps:
            raise ValueError(f"This model has no value {name!r} to read; it has {', '.join(taps) or 'none'}.")


def check_scored(sequence: TokenSequence, start: int) -> None:
    """What every backend's `token_logprobs` checks."""
    if not 1 <= start < sequence.length:
        raise ValueError(
            f"start is {start}, but must be from 1 to {sequence.length - 1}: one of the sequence's {sequence.length} "
            "tokens, and not the first, which nothing comes before."
        )


def check_scored_states(states: np.ndarray, tokens: Sequence[int], width: int, vocab_size: int) -> None:
    """What every backend's `score_states` checks; `width` is the hidden size."""
    if not tokens or states.shape != (len(tokens), width):
        raise ValueError(f"{len(tokens)} tokens need states of shape {(len(tokens), width)}, not {states.shape}.")
    if not all(0 <= token < vocab_size for token in tokens):
        raise ValueError(f"a token id is outside of 0..{vocab_size - 1}")


def check_together(
    sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams], context_length: int
) -> int:
    """What every backend's `decode_together` checks; how many of up to `n` tokens each has room for."""
    for sequence in sequences:
        check_not_empty(sequence)
    numbers, adapters = {sequence.number for sequence in sequences}, {sequence.adapter for sequence in sequences}
    if not 1 <= len(numbers) == len(sequences) == len(sampling) <= MAX_LOGIT_ROWS or len(adapters) > 1:
        raise ValueError(
            f"{len(sequences)} sequences with {len(adapters)} sets of LoRA matrices are to be decoded together; it can "
            f"be 1 to {MAX_LOGIT_ROWS}, each once, with the same set and sampling rules each."
        )
    return min(n, context_length - max(sequence.length for sequence in sequences))


def pass_end(stored: int, length: int, most: int, last_rows: int) -> int:
    """Up to where a pass of at most `most` rows takes the tokens from `stored` on; the last has `last_rows` or more."""
    stop = min(stored + most, length)
    return stop if stop == length else min(stop, length - last_rows)


def too_long(tokens: int, context_length: int) -> Message:
    return Message(
        "engine.too-long",
        "The text is {length} tokens long, but the model reads at most {most}. Shorten it.",
        length=tokens,
        most=context_length,
    )


class Backend(Protocol):
    """Runs one model. Everything that waits for the device is async.

    Its callers take turns (engine/scheduler.py): while a call that waits for the device runs no other begins, but for
    the time in which it waits for `after_pass`. The other methods may be called at any time.
    """

    capabilities: Capabilities
    context_length: int

    def new_sequence(self) -> TokenSequence:
        """Start an empty sequence. There may be any number of them."""
        ...

    def append(self, sequence: TokenSequence, tokens: Sequence[int]) -> None:
        """Add `tokens`, which run with the first call that needs them. Raises what `prefill` raises."""
        ...

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        """Run `tokens` after those the sequence holds; afterwards its logits are those of the last one.

        A long text takes several forward passes; the next one waits for `after_pass`.
        Raises ContextFullError when they do not fit, ValueError when `tokens` is empty or an id is out of range.
        """
        ...

    def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, keep_going: KeepGoing = ...
    ) -> AsyncIterator[list[int]]:
        """Sample up to `n` tokens after a prefill and yield their ids in order, a few at a time as they become known.

        The ids yielded are appended to `sequence.tokens`. Closing the iterator early drops what is in flight.
        Ends early when the context is full, or once `keep_going` said no and what was in flight has been yielded.
        """
        ...

    def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = ...,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        """As `decode`, for several sequences, a row each of the same steps: yields for each of them its next ids.

        Each gets the tokens that it would get alone. `sampling` has the rules of each. Ends early once the context is
        full for one of them. Raises ValueError for more than MAX_LOGIT_ROWS, for one that is there twice, and where
        they have different sets of LoRA matrices.
        """
        ...

    def rows_that_pay(self, count: int) -> int:
        """How many of `count` sequences had best be decoded together: up to MAX_LOGIT_ROWS, or fewer where that is
        faster for all."""
        ...

    async def logits(self, sequence: TokenSequence) -> np.ndarray:
        """Logits after the sequence's last token: float32 (vocab_size,). Raises ValueError when it has none."""
        ...

    async def last_logits(self, sequence: TokenSequence, rows: int) -> np.ndarray:
        """Logits after each of the sequence's last `rows` tokens: float32 (rows, vocab_size). These tokens run again.

        Raises ValueError for more rows than MAX_LOGIT_ROWS, or than the sequence has tokens.
        """
        ...

    async def hidden(
        self, sequence: TokenSequence, names: Sequence[str], start: int = 0, after_pass: AfterPass | None = None,
        end: int | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Hidden states of the tokens from `start` to before `end` (None: all), by name: float32 (tokens, hidden_size).

        "residual.N" is the residual stream after N blocks (N = 1 .. num_hidden_layers); `ModelConfig.residual_at(0.25)`
        is the name of that after a quarter of them. "final_norm" is what the output matrix reads. These tokens run
        again, after the keys and values that the pages hold; the sequence is the same afterwards. The next pass over a
        long text waits for `after_pass`.

        Raises ValueError for a name that the model does not have, for more than MAX_TAPS names, and where `start` is
        none of the sequence's tokens or `end` not behind it.
        """
        ...

    async def token_logprobs(
        self, sequence: TokenSequence, start: int, after_pass: AfterPass | None = None
    ) -> np.ndarray:
        """log p of each token from `start` on, given those before it: float32 (length - start,).

        With the sequence's adapters, and without its logits coming to the host. The tokens from `start` - 1 on run
        again, as for `hidden`. Raises ValueError where `start` is none of the sequence's tokens, or the first.
        """
        ...

    async def score_states(self, sequence: TokenSequence, states: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """log p of each of `tokens`, one behind each of the states: float32 (tokens,), as `token_logprobs` has it.

        states: float32 (tokens, hidden_size), the residual stream after the last block as `hidden` reads it. Only the
        head runs, with the adapter at its input that the sequence has: the blocks do not run again.
        Raises ValueError where there is no token, an id is out of range, or the states have another shape.
        """
        ...

    async def add_adapter(self, adapter: LoraAdapter) -> int:
        """Bring a set of LoRA matrices to where the model runs; its number, from 1 on.

        Raises AdapterError where it does not fit the model, BackendError where MAX_ADAPTERS are there already.
        """
        ...

    def remove_adapter(self, number: int) -> None:
        """Forget a set. Sequences that use it run without one from then on; all their tokens run again."""
        ...

    def use_adapter(self, sequence: TokenSequence, number: int) -> None:
        """Run the sequence with a set from now on, or without one (0). Where that is a change all its tokens run again.

        Raises ValueError where there is no such set.
        """
        ...

    async def put_head_adapter(self, adapter: AnyHeadAdapter) -> int:
        """Bring an adapter to a slot at the head's input; the slot's number, from 1 on.

        Raises AdapterError where it does not fit the model, BackendError where all HEAD_SLOTS are taken.
        """
        ...

    def remove_head_adapter(self, number: int) -> None:
        """Give a slot back. Sequences that use it go on without. Raises ValueError where there is no such adapter."""
        ...

    def use_head_adapter(self, sequence: TokenSequence, number: int) -> None:
        """Run the sequence with an adapter at the head's input from its next call on, or without one (0).

        Where that is a change its last logits are made again; its keys and values stay. Raises ValueError where there
        is no such adapter.
        """
        ...

    async def open_training(self, layout: ParameterLayout) -> Training:
        """A session that trains pairs of this layout, which begin as zeros: `Training.restore` brings what they are.

        Raises ValueError for a graph that has no gradient (training/backward.py), BackendError where there is no
        memory.
        """
        ...

    def begin_with(self, sequence: TokenSequence, tokens: Sequence[int]) -> int:
        """Let a sequence that holds a beginning of `tokens` hold what other sequences have read of it, where that is
        more than it has read itself.

        How many tokens it holds then: not the last one, which has to run to give logits. Where nobody read more, or
        the backend shares nothing, the sequence stays as it is.
        """
        ...

    @property
    def page_format(self) -> str:
        """What the bytes of a page are here; "" where pages cannot leave the backend."""
        ...

    def offer_pages(self, sequence: TokenSequence) -> None:
        """Keep the whole pages of what a sequence has read and said, for `export_page` and for whoever begins alike."""
        ...

    async def export_page(self, adapter: int, tokens: Sequence[int]) -> bytes | None:
        """The bytes of the page that holds the last PAGE of these tokens, as read with a set of LoRA matrices.

        None where it is not there (any more), or the device was lost.
        """
        ...

    async def import_pages(self, sequence: TokenSequence, tokens: Sequence[int], pages: Sequence[bytes]) -> bool:
        """Let a sequence hold `tokens`, whose last pages have these bytes (`export_page`), one after the other.

        It holds a beginning of the tokens already, up to the first of these pages at least, or the tokens and more that
        have to run again, behind which they stay. Where False, it holds what it held, of which more may have to run
        again.
        """
        ...

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        """Forget every token from `length` on.

        Where a model has windows and `length` lies far back, all tokens run again with the next call: what the
        window before them held was given back.
        """
        ...

    def free(self, sequence: TokenSequence) -> None:
        """Give the sequence's pages back."""
        ...

    async def limit_memory(self, nbytes: int | None) -> None:
        """Let weights, adapters, scratch, and keys and values of all sequences take no more than so many bytes; None:
        as much as there is. Pages of keys and values give way to all else: those that nobody uses first, then those of
        sequences that wait. One sequence has room for the whole context all the same; numpy has no limit."""
        ...

    def memory(self) -> MemoryUse:
        """What is held now. Raises BackendError after `close`."""
        ...

    def close(self) -> None:
        """Release the weights and the device."""
        ...
