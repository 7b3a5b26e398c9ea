"""The interface to a backend's kernels. They read and advance a state block of rows (token, position, slot)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.backends.memory_use import MemoryUse
from py_core.backends.protocols import Capabilities
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.page_store import PageStore
from py_core.paging.tiers import TierPolicy
from py_core.sampling import SamplingParams, Unmasked


class Device(Protocol):
    """A host with a model's weights and the kernels that run it."""

    RESTARTS: tuple[type[Exception], ...]
    """Raised when the device was lost or restarted: submitted work is lost."""

    BATCH_SECONDS: float
    """Work in one submission: little, so that Stop and the first token are prompt."""

    config: ModelConfig
    graph: Graph
    tiers: TierPolicy | None
    hears_together: bool
    """True if ends of submissions that were made together are all heard at the end of the last."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def max_rows(self) -> int:
        """Rows of its largest forward pass."""
        ...

    @property
    def restarts(self) -> int:
        """How often the device restarted by itself. Callers that awaited none of the failed calls learn of it here."""
        ...

    @property
    def pages(self) -> PageStore: ...

    @property
    def page_format(self) -> str:
        """The format of a page's bytes, which tells pages of other kinds apart."""
        ...

    def memory(self, limit: int | None) -> MemoryUse:
        """Return the memory held now, and the limit."""
        ...

    def write_state(self, data: bytes) -> None: ...

    def write_history(self, slot: int, ring: np.ndarray) -> None: ...

    def write_biases(self, slot: int, data: bytes) -> None:
        """Write the biases of a slot's sequence (`bias_bytes`)."""
        ...

    def write_grammar_state(self, offset: int, data: bytes) -> None:
        """Write a part of the states of grammars that rows name (grammar_states.py)."""
        ...

    async def run_rows(self, m: int, length: int, logit_rows: int) -> None:
        """Run the state's m rows, which bring a sequence to `length` tokens, and make the logits of the last rows.

        `logit_rows` is the number of these rows that the state names: 0 to MAX_LOGIT_ROWS.
        """
        ...

    async def run_step(self, m: int, length: int) -> None:
        """Run a step of the state's m rows as `start_steps` does, without sampling."""
        ...

    async def run_tapped(self, m: int, length: int, names: Sequence[str]) -> list[np.ndarray]:
        """Run the state's m rows as `run_rows` does, without logits. Returns the named values, float32 (m, width)
        each."""
        ...

    async def run_scored(self, m: int, length: int, targets: Sequence[int]) -> np.ndarray:
        """Run the state's m rows as `run_rows` does. Returns log p of the token that follows each, float32 (m,)."""
        ...

    async def run_head_scored(self, states: np.ndarray, targets: Sequence[int]) -> np.ndarray:
        """Score the targets as `run_scored` does, behind states (m, width) of the residual stream after the body."""
        ...

    async def run_unmasked(
        self, m: int, length: int, first: int, sampling: SamplingParams, grammar_states: Sequence[int]
    ) -> Unmasked:
        """Run the state's m rows as `run_rows` does, of a model of diffusion. The last rows, as many as there are
        grammar_states, make the logits of the places from position `first` on: `sampling.unmasked` draws from them. A
        row whose state is not 0 gets a token of the state's mask."""
        ...

    async def start_steps(
        self, places: Sequence[tuple[int, int]], count: int, forward_first: bool, sampling: Sequence[SamplingParams]
    ) -> asyncio.Future[list[list[int]]]:
        """Queue `count` steps of the state's rows. The steps of a row sample the tokens of its slot from its position
        on: `places` has (slot, position) of each row, `sampling` its rules. The future gives each row's ids, and then
        WAITS (sampling_state.py) if it has begun to wait for the host to go on with its grammar.

        The first step samples the present logits. With `forward_first` it runs the rows before that.
        """
        ...

    async def read_logits(self, rows: int) -> np.ndarray:
        """Return the logits of the last pass: float32 (rows, vocab_size)."""
        ...

    async def place_adapter(self, number: int, adapter: LoraAdapter) -> None:
        """Bring a set of LoRA matrices to the place from which kernels read the set of this number."""
        ...

    async def place_head_adapter(self, number: int, adapter: NeighbourAdapter) -> None:
        """Bring an adapter at the head's input to the slot of this number."""
        ...

    def close(self) -> None: ...
