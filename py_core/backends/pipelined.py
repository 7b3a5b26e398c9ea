"""A backend whose kernels advance a state block. It consists of a device, pages, passes and a decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing

import numpy as np

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backends.adapters import Adapters
from py_core.backends.checks import (
    check_canvas,
    check_hidden,
    check_last_rows,
    check_prefill,
    check_scored,
    check_scored_states,
)
from py_core.backends.decoder import Decoder
from py_core.backends.device import Device
from py_core.backends.memory_use import MemoryUse
from py_core.backends.passes import Passes
from py_core.backends.protocols import AfterPass, Capabilities, KeepGoing
from py_core.backends.recovery import Recovery
from py_core.backends.sampling_state import GREEDY, state_bytes
from py_core.paging.pages import Pages
from py_core.sampling import SamplingParams, Unmasked
from py_core.token_sequence import TokenSequence
from py_core.training.session import Training


class PipelinedBackend(ABC):
    """See `Backend` and `HasPages` for the contract of each public method."""

    def __init__(self, device: Device, decoder: type[Decoder] = Decoder) -> None:
        self.graph, self.context_length = device.graph, device.config.context_length
        self.device, self._vocab_size = device, device.config.vocab_size
        self.pages = Pages(device.pages, lambda: self.memory().total, device.tiers)
        self.adapters = Adapters(device.graph, self.pages.sequences, self.pages.rewind)
        self.recovery = Recovery(device, self.pages, self._rebuild)
        self.passes = Passes(device, self.pages, self.recovery)
        self.decoder = decoder(device, self.pages, self.recovery, self.passes)

    @abstractmethod
    async def _rebuild(self) -> None:
        """Bring back what was lost, including adapters. If the pages were lost, `Pages.forget` is part of it."""

    @abstractmethod
    async def open_training(self, layout: ParameterLayout) -> Training: ...

    @property
    def capabilities(self) -> Capabilities:
        return self.device.capabilities

    @property
    def max_rows(self) -> int:
        """Rows of its largest forward pass."""
        return self.device.max_rows

    def close(self) -> None:
        self.device.close()

    def memory(self) -> MemoryUse:
        return self.device.memory(self.pages.budget.limit)

    async def limit_memory(self, nbytes: int | None) -> None:
        self.pages.budget.limit = nbytes
        await self.recovery.placed(self.pages.fit)

    def new_sequence(self) -> TokenSequence:
        return self.pages.new_sequence()

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        self.pages.truncate(sequence, length)

    def free(self, sequence: TokenSequence) -> None:
        self.pages.free(sequence)

    def append(self, sequence: TokenSequence, tokens: Sequence[int]) -> None:
        check_prefill(sequence, tokens, self._vocab_size, self.context_length)
        sequence.tokens.extend(tokens)

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        self.append(sequence, tokens)
        self.recovery.losses = 0
        await self.passes.run_pending(sequence, after_pass=after_pass)
        self.pages.keep_prefix(sequence, ends=False)

    async def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, keep_going: KeepGoing = lambda: True
    ) -> AsyncIterator[list[int]]:
        async with aclosing(self.decode_together([sequence], n, [sampling], keep_going)) as batches:
            async for (ids,) in batches:
                yield ids

    def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        return self.decoder.decode_together(sequences, n, sampling, keep_going)

    def rows_that_pay(self, count: int) -> int:
        return self.decoder.times.rows_that_pay(count)

    async def logits(self, sequence: TokenSequence) -> np.ndarray:
        return (await self.last_logits(sequence, 1))[0]

    async def last_logits(self, sequence: TokenSequence, rows: int) -> np.ndarray:
        check_last_rows(sequence, rows)
        pages, recovery = self.pages, self.recovery
        recovery.losses = 0
        while True:
            pages.put_to_work([sequence], rows)
            if rows > 1 or pages.logits_of is not sequence:
                pages.rewind(sequence, sequence.length - rows)
            await self.passes.run_pending(sequence, rows)
            try:
                return await self.device.read_logits(rows)
            except recovery.errors as error:
                recovery.note(error)

    async def denoise(
        self, sequence: TokenSequence, canvas: Sequence[int], sampling: SamplingParams,
        allowed: np.ndarray | None = None,
    ) -> Unmasked:  # fmt: skip
        diffusion = check_canvas(sequence, canvas, self.device.config)
        return await self.passes.unmask(sequence, canvas, diffusion, sampling, allowed)

    async def hidden(
        self, sequence: TokenSequence, names: Sequence[str], start: int = 0, after_pass: AfterPass | None = None,
        end: int | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        check_hidden(sequence, names, start, end, self.graph.taps)

        def tap(m: int, stop: int) -> Awaitable[list[np.ndarray]]:
            return self.device.run_tapped(m, stop, names)

        passes = await self.passes.read(sequence, start, end or sequence.length, tap, after_pass)
        return {name: np.concatenate(values) for name, values in zip(names, zip(*passes, strict=True), strict=True)}

    async def token_logprobs(
        self, sequence: TokenSequence, start: int, after_pass: AfterPass | None = None
    ) -> np.ndarray:
        check_scored(sequence, start)

        def score(m: int, stop: int) -> Awaitable[np.ndarray]:
            return self.device.run_scored(m, stop, sequence.tokens[stop - m + 1 : stop + 1])

        return np.concatenate(await self.passes.read(sequence, start - 1, sequence.length - 1, score, after_pass))

    async def score_states(self, sequence: TokenSequence, states: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        check_scored_states(states, tokens, self.graph.head_residual.width, self._vocab_size)
        states, scores = np.ascontiguousarray(states, np.float32), list[np.ndarray]()
        pages, recovery = self.pages, self.recovery
        recovery.losses = done = 0
        while done < len(tokens):
            part = slice(done, done + self.max_rows)
            try:
                await recovery.restore()
                pages.put_to_work([sequence])
                # The place of these rows in the sequence makes no difference to the head.
                rows = [(token, 0, sequence.slot) for token in tokens[part]]
                pages.logits_of = None
                self.device.write_state(state_bytes(rows, GREEDY, 0, sequence.adapter, sequence.head_adapter))
                scores.append(await self.device.run_head_scored(states[part], tokens[part]))
            except recovery.errors as error:
                recovery.note(error)
                continue
            done += len(rows)
        return np.concatenate(scores)

    async def add_adapter(self, adapter: LoraAdapter) -> int:
        number = self.adapters.add(adapter)
        await self.recovery.placed(
            lambda: self.device.place_adapter(number, adapter), lambda: self.remove_adapter(number)
        )
        return number

    def remove_adapter(self, number: int) -> None:
        self.adapters.remove(number)
        if self.pages.prefixes:
            self.pages.prefixes.forget(number)

    def use_adapter(self, sequence: TokenSequence, number: int) -> None:
        if sequence.adapter != number:
            self.pages.keep_prefix(sequence)
        self.adapters.use(sequence, number)

    async def put_head_adapter(self, adapter: NeighbourAdapter) -> int:
        number = self.adapters.put_head(adapter)
        await self.recovery.placed(
            lambda: self.device.place_head_adapter(number, adapter), lambda: self.remove_head_adapter(number)
        )
        return number

    def remove_head_adapter(self, number: int) -> None:
        self.adapters.remove_head(number)

    def use_head_adapter(self, sequence: TokenSequence, number: int) -> None:
        self.adapters.use_head(sequence, number)

    def begin_with(self, sequence: TokenSequence, tokens: Sequence[int]) -> int:
        return self.pages.begin_with(sequence, tokens)

    @property
    def page_format(self) -> str:
        return self.device.page_format if self.pages.table and not self.pages.table.states else ""

    def offer_pages(self, sequence: TokenSequence) -> None:
        self.pages.keep_prefix(sequence, ends=False)

    async def export_page(self, adapter: int, tokens: Sequence[int]) -> bytes | None:
        return await self.recovery.attempt(lambda: self.pages.export_page(adapter, tokens))

    async def import_pages(self, sequence: TokenSequence, tokens: Sequence[int], pages: Sequence[bytes]) -> bool:
        # If this fails, the call that reads the tokens raises the error.
        return bool(await self.recovery.attempt(lambda: self.pages.import_pages(sequence, tokens, pages)))
