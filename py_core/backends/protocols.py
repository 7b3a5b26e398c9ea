"""The interface between the engine and a backend, as small protocols: a backend has those that it can implement.

A backend owns the weights, the key/value pages and the kernels. The engine above it only sees token ids and sequences,
so the same engine drives numpy, WebGPU and WASM, natively and in the page. All backends run, take adapters and train
(`Backend`). Backends with a page table have pages that sequences share, and a GPU's kernels can be measured one by one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backend_errors import BackendError
from py_core.backends.memory_use import MemoryUse
from py_core.backends.profiles import AdapterLimits, OnRound, Profile
from py_core.sampling import SamplingParams, Unmasked
from py_core.token_sequence import TokenSequence
from py_core.training.session import Training

Progress = Callable[[int, int], None]
"""Called as progress(bytes_done, bytes_total) while weights load."""

KeepGoing = Callable[[], bool]
"""Asked before more decode steps are queued. If it returns False, only the steps in flight are still yielded."""

AfterPass = Callable[[int], Awaitable[None]]
"""Called after each forward pass of a long call with the number of the sequence's tokens that are stored by then."""


@dataclass(frozen=True)
class Capabilities:
    """Describe what runs the model, in the words shown to the user."""

    backend: str
    adapter: str
    software: bool = False
    features: tuple[str, ...] = ()


class Runs(Protocol):
    """Runs one model. Everything that waits for the device is async.

    Callers take turns (engine/scheduler.py): while a call waits for the device, no other call begins, except while it
    waits for `after_pass`. The other methods may be called at any time.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def context_length(self) -> int: ...

    def new_sequence(self) -> TokenSequence:
        """Start an empty sequence. There may be any number of them."""
        ...

    def append(self, sequence: TokenSequence, tokens: Sequence[int]) -> None:
        """Add `tokens`, which run with the first call that needs them. Raises what `prefill` raises."""
        ...

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        """Run `tokens` after the sequence's own. The sequence's logits are then those of the last token.

        A long text takes several forward passes; the next pass waits for `after_pass`. Raises ContextFullError when
        they do not fit, ValueError when `tokens` is empty or an id is out of range.
        """
        ...

    def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, keep_going: KeepGoing = ...
    ) -> AsyncIterator[list[int]]:
        """Sample up to `n` tokens after a prefill and yield their ids in order, a few at a time as they become known.

        The ids yielded are appended to `sequence.tokens`. Closing the iterator early drops the steps in flight. Ends
        early when the context is full, or once `keep_going` returned False and the steps in flight are yielded.
        """
        ...

    def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = ...,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        """As `decode`, for several sequences, each a row of the same steps. Yields the next ids of each sequence.

        Each gets the tokens that it would get alone. `sampling` has the rules of each. Ends early once the context of
        one sequence is full. Raises ValueError for more than MAX_LOGIT_ROWS sequences, for a sequence that is given
        twice, and if they have different sets of LoRA matrices.
        """
        ...

    def rows_that_pay(self, count: int) -> int:
        """Return how many of `count` sequences are best decoded together: up to MAX_LOGIT_ROWS, or fewer if that is
        faster for all."""
        ...

    async def logits(self, sequence: TokenSequence) -> np.ndarray:
        """Return the logits after the sequence's last token: float32 (vocab_size,). Raises ValueError if it is
        empty."""
        ...

    async def last_logits(self, sequence: TokenSequence, rows: int) -> np.ndarray:
        """Return the logits after each of the last `rows` tokens: float32 (rows, vocab_size). These tokens run again.

        Raises ValueError for more rows than MAX_LOGIT_ROWS, or than the sequence has tokens.
        """
        ...

    async def hidden(
        self, sequence: TokenSequence, names: Sequence[str], start: int = 0, after_pass: AfterPass | None = None,
        end: int | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Return hidden states of the tokens from `start` to before `end` (None: all), by name: float32 (tokens,
        hidden_size).

        "residual.N" is the residual stream after N blocks (N = 1 .. num_hidden_layers); `ModelConfig.residual_at(0.25)`
        is its name after a quarter of them. "final_norm" is the input of the output matrix. These tokens run again,
        after the keys and values that the pages hold; the sequence is the same afterwards. The next pass over a long
        text waits for `after_pass`.

        Raises ValueError for a name that the model does not have, for more than MAX_TAPS names, and if `start` is not
        one of the sequence's tokens or `end` is not behind it.
        """
        ...

    async def token_logprobs(
        self, sequence: TokenSequence, start: int, after_pass: AfterPass | None = None
    ) -> np.ndarray:
        """Return log p of each token from `start` on, given those before it: float32 (length - start,).

        The sequence's adapters apply, and its logits do not come to the host. The tokens from `start` - 1 on run again,
        as for `hidden`. Raises ValueError if `start` is not one of the sequence's tokens, or is the first.
        """
        ...

    async def score_states(self, sequence: TokenSequence, states: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """Return log p of each of `tokens`, one behind each of the states: float32 (tokens,), as `token_logprobs`.

        states: float32 (tokens, hidden_size), the residual stream after the last block as `hidden` reads it. Only the
        head runs, with the sequence's adapter at its input: the blocks do not run again. Raises ValueError if there is
        no token, an id is out of range, or the states have another shape.
        """
        ...

    async def denoise(
        self, sequence: TokenSequence, canvas: Sequence[int], sampling: SamplingParams,
        allowed: np.ndarray | None = None,
    ) -> Unmasked:  # fmt: skip
        """Guess the tokens behind a sequence of a model of diffusion, from a canvas of tokens and masks.

        Returns a token for each place of the canvas, drawn by temperature and seed as `sampling.unmasked`. allowed: the
        tokens that the first mask may become, as `TokenGrammar.mask`. The canvas
        ends with its block at most. It is not part of the sequence, and none of its keys and values are kept. Raises
        ContextFullError if it does not fit, ValueError for another model and an empty canvas or sequence.
        """
        ...

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        """Forget every token from `length` on.

        If a model has windows and `length` lies far back, all tokens run again with the next call: the keys and values
        in the window before `length` were given back.
        """
        ...

    def free(self, sequence: TokenSequence) -> None:
        """Give the sequence's pages back."""
        ...

    def memory(self) -> MemoryUse:
        """Return the memory held now. Raises BackendError after `close`."""
        ...

    def close(self) -> None:
        """Release the weights and the device."""
        ...


class HasAdapters(Protocol):
    """Holds adapters, each by a number, and runs each sequence with those that it names."""

    async def add_adapter(self, adapter: LoraAdapter) -> int:
        """Bring a set of LoRA matrices to where the model runs. Returns its number, from 1 on.

        Raises AdapterError if it does not fit the model, BackendError if there are MAX_ADAPTERS already.
        """
        ...

    def remove_adapter(self, number: int) -> None:
        """Forget a set. Sequences that use it run without a set from then on; all their tokens run again."""
        ...

    def use_adapter(self, sequence: TokenSequence, number: int) -> None:
        """Run the sequence with a set from now on, or without one (0). If the set changes, all its tokens run again.

        Raises ValueError if there is no such set.
        """
        ...

    async def put_head_adapter(self, adapter: NeighbourAdapter) -> int:
        """Bring an adapter to a slot at the head's input. Returns the slot's number, from 1 on.

        Raises AdapterError if it does not fit the model, BackendError if all HEAD_SLOTS are taken.
        """
        ...

    def remove_head_adapter(self, number: int) -> None:
        """Give a slot back. Its sequences continue without it. Raises ValueError if there is no such adapter."""
        ...

    def use_head_adapter(self, sequence: TokenSequence, number: int) -> None:
        """Run the sequence with an adapter at the head's input from its next call on, or without one (0).

        If the adapter changes, the last logits are made again; keys and values stay. Raises ValueError if there is no
        such adapter.
        """
        ...


class Trains(Protocol):
    """Computes gradients."""

    async def open_training(self, layout: ParameterLayout) -> Training:
        """Open a session that trains pairs of this layout. They begin as zeros: `Training.restore` brings their values.

        Raises ValueError for a graph that has no gradient (training/backward.py), BackendError if there is no memory.
        """
        ...


class Backend(Runs, HasAdapters, Trains, Protocol):
    """The operations that every backend has."""


@runtime_checkable
class HasPages(Protocol):
    """Keeps keys and values in pages, which sequences share and which can leave the backend and come back."""

    def begin_with(self, sequence: TokenSequence, tokens: Sequence[int]) -> int:
        """Let a sequence that holds a beginning of `tokens` hold what other sequences have read of it, if that is more
        than it has read itself.

        Returns how many tokens it holds then: not the last one, which has to run to give logits. If no other sequence
        read more, or the backend shares nothing, the sequence stays as it is.
        """
        ...

    @property
    def page_format(self) -> str:
        """The format of a page's bytes; "" if pages cannot leave the backend."""
        ...

    def offer_pages(self, sequence: TokenSequence) -> None:
        """Keep the whole pages of a sequence's tokens, for `export_page` and for sequences with the same beginning."""
        ...

    async def export_page(self, adapter: int, tokens: Sequence[int]) -> bytes | None:
        """Return the bytes of the page that holds the last PAGE of these tokens, as read with a set of LoRA matrices.

        Returns None if the page is gone, or the device was lost.
        """
        ...

    async def import_pages(self, sequence: TokenSequence, tokens: Sequence[int], pages: Sequence[bytes]) -> bool:
        """Let a sequence hold `tokens`. The last pages of `tokens` have these bytes (`export_page`), in order.

        The sequence already holds a beginning of the tokens, at least up to the first of these pages; or it holds the
        tokens and more tokens that have to run again, which stay behind them. If this returns False, the sequence holds
        what it held, of which more may have to run again.
        """
        ...

    async def limit_memory(self, nbytes: int | None) -> None:
        """Limit weights, adapters, scratch, and keys and values of all sequences to `nbytes` bytes together. None: no
        limit. Pages of keys and values give way to everything else: first unused pages, then the pages of waiting
        sequences. One sequence always has room for the whole context; numpy has no limit."""
        ...


@runtime_checkable
class Profiles(Protocol):
    """Its kernels can be measured one by one."""

    @property
    def max_rows(self) -> int:
        """Rows of its largest forward pass."""
        ...

    async def limits(self, on_round: OnRound = ...) -> AdapterLimits:
        """Measure the peak rates of the adapter. Raises BackendError if the GPU has no timestamps."""
        ...

    async def profile(self, position: int, rows: int = 1, on_round: OnRound = ..., logit_rows: int = 1) -> Profile:
        """Measure a decode step at `position`, or with more rows a pass of a prefill that begins there, of which the
        last `logit_rows` get logits.

        Raises ValueError if the context or a pass has no room for it, BackendError if the GPU has no timestamps.
        """
        ...


@runtime_checkable
class Tunes(Protocol):
    """Runs faster once its kernels were measured on this device."""

    async def tune(self, is_wanted: Callable[[], bool]) -> bool:
        """Measure in which shapes the kernels are the fastest, keep them for later loads, and run these from then on.
        What was measured before is not measured again; a device without a clock stays as it is.

        Returns False if it ended early, because `is_wanted` said that something else should have the device. Raises
        DeviceLostError.
        """
        ...


def profiler_of(backend: Runs) -> Profiles:
    """Return the backend as one whose kernels can be measured. Raises BackendError if they cannot."""
    if isinstance(backend, Profiles):
        return backend
    name = backend.capabilities.backend
    raise BackendError(
        "engine.no-profile",
        "Only the webgpu backend can measure its kernels one by one; this model runs on {name}.",
        name=name,
    )
