"""The interface that `Pages` needs from a backend: the pages of keys and values, stored where its kernels read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from py_core.paging.page_table import PageTable
from py_core.paging.tiers import Tier


class PageStore(Protocol):
    """Layers with the same window share a page table. Methods that need memory raise BackendError when it is out."""

    @property
    def shared_table(self) -> PageTable | None:
        """The table of all layers; None if they have several, or one with a window."""
        ...

    @property
    def limited(self) -> PageTable | None:
        """The table of the layers without a window, if there are any: only their pool can be limited."""
        ...

    @property
    def limited_bytes(self) -> int:
        """The bytes of the pool, including those that were given back and can be used for it again."""
        ...

    def limit(self, nbytes: int | None) -> None:
        """Let the pool grow to `nbytes` bytes, or as far as one conversation needs. None: no limit."""
        ...

    async def reserve(self, slot: int, first: int, length: int) -> None:
        """Make sure that a sequence has pages for positions first .. length - 1; those before `first` are stored."""
        ...

    async def demote(self, pages: Sequence[tuple[int, Tier]], renamed: Callable[[int, int], None]) -> None:
        """Move pages of `shared_table` to a lower tier, for all holders. `renamed` is called with the old and the new
        number of each page."""
        ...

    async def shrink(self, capacity: int) -> dict[int, int]:
        """Shrink the pool of `limited` to `capacity` pages (at least those in use). Returns the new number of each page
        that moved."""
        ...

    def release(self, slot: int, length: int) -> None:
        """Give back the pages that only positions from `length` on use."""
        ...

    def sees(self, slot: int, position: int) -> bool:
        """True if the pages hold everything that this position sees: pages before a window may have been given back."""
        ...

    async def read_page(self, page: int) -> bytes:
        """The bytes of a page of `shared_table`. Their number tells the tier."""
        ...

    async def write_page(self, page: int, data: bytes) -> None:
        """Write the bytes of `read_page` to a page, for all holders. The page has the tier of these bytes
        afterwards."""
        ...
