"""An index of vectors whose graph is kept in the store, so that opening it costs a read instead of a build.

The stored graph contains no vectors (py_core/hnsw/index_file.py). It can be older than the records, since it is written
now and then, in the background: missing records are linked again, and surplus ones are removed. If it cannot be used,
or is lost, the graph is built again from the records, also in the background; until then each vector is compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np

from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.vector_index import SCANNED, VectorIndex
from py_core.store.background import Background
from py_core.store.errors import StoreError
from py_core.store.rows import Change
from py_core.store.store import Store

STEP_SECONDS = 0.004
UNSAVED = 100
"""Up to UNSAVED changes, or UNSAVED_SHARE of all vectors, stay unsaved: the next opening links them again."""
UNSAVED_SHARE = 0.02


class StoredIndex:
    """Made by `open`. `index` may be changed freely."""

    def __init__(self, store: Store, name: str, background: Background, index: VectorIndex) -> None:
        self.index = index
        self._store, self._name, self._background = store, name, background
        self._unsaved = index.behind + index.taken_out
        self._must_save = index.taken_out > 0  # deleted vectors shall not stay in the stored graph
        self._tending = False
        self._forgotten = False
        index.changed = self._note
        background.last_work[self] = self._save_or_lose
        self._unlisten = store.on_change(self._heed)
        self._tend_soon()

    @classmethod
    async def open(
        cls,
        store: Store,
        name: str,
        vectors: Mapping[str, np.ndarray],
        dimensions: int,
        background: Background,
        kernel: HnswKernel | None = None,
        scanned: int = SCANNED,
    ) -> StoredIndex:
        """Open an index. vectors: float32 (dimensions,) by name. kernel: None is numpy's. Raises StoreError."""
        file = await store.get_blob(name) if len(vectors) > scanned else None
        index = VectorIndex.of(vectors, dimensions, kernel, file, scanned)
        return cls(store, name, background, index)

    def forget(self) -> None:
        """Stop storing this index: another one replaces it."""
        if self._forgotten:
            return
        self.index.changed = lambda deleted: None
        self._forgotten = True
        self._background.last_work.pop(self, None)
        self._unlisten()

    async def save(self) -> None:
        """Write the graph if it has changed and is complete. Raises StoreError."""
        if self._forgotten or not self._unsaved or not self.index.has_graph or self.index.behind:
            return
        data = self.index.dump()
        self._unsaved, self._must_save = 0, False
        await self._store.put_blob(self._name, data)

    def _heed(self, change: Change) -> None:
        """Forget a cleared index. It must not be written again; its owner opens another one."""
        if change.everything or change.cleared is not None:
            self.forget()

    def _note(self, deleted: bool) -> None:
        self._unsaved += 1
        self._must_save |= deleted
        self._tend_soon()

    @property
    def _worth_saving(self) -> bool:
        return self._must_save or self._unsaved >= max(UNSAVED, UNSAVED_SHARE * len(self.index))

    def _tend_soon(self) -> None:
        wanted = self.index.behind or (self.index.has_graph and self._worth_saving)
        if wanted and not self._tending:
            self._tending = True
            self._background.start(self._tend)

    async def _tend(self) -> None:
        try:
            while self.index.behind and not self._forgotten:
                async with self._background.step():
                    self.index.link(STEP_SECONDS)
            async with self._background.step():
                if self._worth_saving:
                    await self._save_or_lose()
        finally:
            self._tending = False

    async def _save_or_lose(self) -> None:
        """Save the index. A failure only costs time: a later change tries again, or the next opening builds the
        index."""
        with contextlib.suppress(StoreError):
            await self.save()
