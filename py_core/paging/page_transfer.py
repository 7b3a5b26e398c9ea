"""Pages of keys and values as bytes: they leave the backend, and come back without being computed again.

A page's bytes mean something only to a backend with the same `page_format`, behind the same tokens, with the same
weights and the same set of LoRA matrices: who keeps them sees to that (engine/page_keeping.py).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from py_core.backends.base import BackendError, TokenSequence
from py_core.paging.memory_budget import MemoryBudget
from py_core.paging.page_table import PAGE


class PageTransfer(MemoryBudget):
    """What `PipelinedBackend` shares. See `Backend` for the contract of each public method."""

    RESTARTS: tuple[type[Exception], ...]
    _losses: int

    @property
    @abstractmethod
    def _layout_name(self) -> str:
        """What the bytes of a page are, so that those of another kind are told apart."""

    @abstractmethod
    async def _read_page(self, page: int) -> bytes: ...

    @abstractmethod
    async def _write_page(self, page: int, data: bytes) -> None: ...

    @abstractmethod
    async def _reserve(self, slot: int, first: int, length: int) -> None: ...

    @abstractmethod
    async def _restore(self) -> None: ...

    @abstractmethod
    def _lose(self, error: Exception) -> None: ...

    @property
    def page_format(self) -> str:
        return self._layout_name if self._shared_table is not None else ""

    def offer_pages(self, sequence: TokenSequence) -> None:
        self._keep_prefix(sequence, ends=False)

    async def export_page(self, adapter: int, tokens: Sequence[int]) -> bytes | None:
        self._losses = 0
        try:
            await self._restore()
            pages, found = self._prefixes.match(adapter, tokens)
            if not tokens or len(tokens) % PAGE or found < len(tokens):
                return None
            return await self._read_page(pages[-1])
        except self.RESTARTS as error:
            self._lose(error)
        except BackendError:
            pass  # there is no memory to do it with
        return None

    async def import_pages(self, sequence: TokenSequence, tokens: Sequence[int], pages: Sequence[bytes]) -> bool:
        first = len(tokens) - PAGE * len(pages)
        if self._shared_table is None or not sequence.shares or not pages or len(tokens) % PAGE:
            return False
        if sequence.tokens[: len(tokens)] != list(tokens[: sequence.length]):
            return False
        self._losses = 0
        try:
            await self._restore()
            self._put_to_work([sequence])
            if sequence.stored < first:
                return False
            self._rewind(sequence, first)
            self._release(sequence.slot, first)
            await self._reserve(sequence.slot, first, len(tokens))
            places = self._shared_table.held(sequence.slot)[first // PAGE :]  # another table than before a loss
            for page, data in zip(places, pages, strict=True):
                await self._write_page(page, data)
        except self.RESTARTS as error:
            self._lose(error)
            return False
        except BackendError:
            return False  # whoever reads the tokens says it
        # Who gave his pages up holds tokens behind these, which are run.
        sequence.tokens[: len(tokens)], sequence.stored = tokens, len(tokens)
        self._keep_prefix(sequence, ends=False)
        return True
