"""The seam between the engine and whatever runs the model.

A backend owns the weights, the key/value pages and the kernels. The engine above it only sees token ids
and sequences, so the same engine drives numpy, WebGPU (natively and in the page) and later WASM.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from py_core.formats.gguf import TensorInfo
from py_core.sampling import SamplingParams

Progress = Callable[[int, int], None]
"""Called as progress(bytes_done, bytes_total) while weights load."""

AfterPass = Callable[[int], Awaitable[None]]
"""Called after each forward pass of a prefill with the number of the session's tokens that are stored by then."""


class BackendError(RuntimeError):
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


@dataclass
class TokenSequence:
    """One sequence of tokens and the KV pages that hold it.

    `tokens` are the ids so far, in order; the keys and values of the first `stored` of them are in pages. A token
    that was just sampled is still pending; the backend runs it when its logits are needed.
    """

    slot: int
    tokens: list[int] = field(default_factory=list)
    stored: int = 0

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
                f"{name} is in {form}; the {kernels} kernels read {', '.join(readable)} only. "
                "Use a file in one of these, or the numpy backend, which is slow."
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


def too_long(tokens: int, context_length: int) -> str:
    return (
        f"The text is {tokens} tokens long, but the model reads at most {context_length}. "
        "Shorten the message or start a new chat."
    )


class Backend(Protocol):
    """Runs one model. Everything that waits for the device is async."""

    capabilities: Capabilities
    context_length: int

    def new_sequence(self) -> TokenSequence:
        """Start an empty sequence. Raises BackendError when every slot is taken."""
        ...

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        """Run `tokens` after those the sequence holds; afterwards its logits are those of the last one.

        A long text takes several forward passes; the next one waits for `after_pass`.
        Raises ContextFullError when they do not fit, ValueError when `tokens` is empty or an id is out of range.
        """
        ...

    def decode(self, sequence: TokenSequence, n: int, sampling: SamplingParams) -> AsyncIterator[list[int]]:
        """Sample up to `n` tokens after a prefill and yield their ids in order, a few at a time as they become known.

        The ids yielded are appended to `sequence.tokens`. Closing the iterator early drops what is in flight.
        Ends early when the context is full.
        """
        ...

    async def logits(self, sequence: TokenSequence) -> np.ndarray:
        """Logits after the sequence's last token: float32 (vocab_size,). Raises ValueError when it has none."""
        ...

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        """Forget every token from `length` on."""
        ...

    def free(self, sequence: TokenSequence) -> None:
        """Give the sequence's pages back."""
        ...

    def close(self) -> None:
        """Release the weights and the device."""
        ...
