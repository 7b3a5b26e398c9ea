"""Memory that a backend holds, by owner; keys and values also by tier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from py_core.paging.page_table import PageTable
from py_core.paging.tiers import Tier

HOT = Tier.HOT.name.lower()
"""The tier of pages as they are first written."""


@dataclass(frozen=True)
class PageBytes:
    """Bytes of pages: held by open conversations, kept for sequences with the same beginning, and unused."""

    conversations: int
    kept: int
    free: int


@dataclass(frozen=True)
class MemoryUse:
    """Bytes by owner. `scratch`: activations, logits, tables and buffers of training. `pages`: bytes of each tier.
    `draft`: all that a draft model holds. `limit`: the most bytes for everything but the draft
    (`HasPages.limit_memory`), None if there is no limit."""

    weights: int
    adapters: int
    scratch: int
    pages: Mapping[str, PageBytes]
    draft: int = 0
    limit: int | None = None

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """Yield (owner, tier, bytes); the tier is "" for owners without tiers."""
        yield "weights", "", self.weights
        yield "adapters", "", self.adapters
        yield "scratch", "", self.scratch
        for owner in ("conversations", "kept", "free"):
            for tier, of_tier in self.pages.items():
                yield owner, tier, getattr(of_tier, owner)
        if self.draft:
            yield "draft", "", self.draft

    def facts(self) -> dict[str, Any]:
        """Return the use as JSON values: {weights, adapters, scratch, pages: {tier: {conversations, kept, free}},
        draft, limit, total}."""
        return asdict(self) | {"total": self.total}

    @property
    def total(self) -> int:
        return sum(nbytes for _, _, nbytes in self.rows())


def page_bytes(tables: Iterable[tuple[PageTable, int]], there: int, tier: Tier = Tier.HOT) -> PageBytes:
    """Count the bytes of a tier by owner. Each table comes with the bytes of a page of the tier in all its layers;
    `there` are all bytes of the tier."""
    conversations = kept = 0
    for table, nbytes in tables:
        of_conversations, of_others = table.holders(tier)
        conversations += of_conversations * nbytes
        kept += of_others * nbytes
    return PageBytes(conversations, kept, there - conversations - kept)
