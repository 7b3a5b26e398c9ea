"""Demoted pages on the GPU: a buffer a layer beside the buffer of its hot pages, and the kernel that writes it.

A place in a buffer holds a cold page; a warm page takes two places. wgsl_shaders/snippets/attention/tiers.wgsl has the
layout of a place. Buffers grow when a tier has no free page; their contents are copied on the GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from py_core.backend_errors import BackendError
from py_core.backends.webgpu.host import PAGES, Binding, Dispatch, Host
from py_core.backends.webgpu.settings import DeviceSettings
from py_core.backends.webgpu.shaders import Constant
from py_core.models.config import ModelConfig
from py_core.paging.page_table import PAGE, TIER_SHIFT
from py_core.paging.tiers import Tier

_PLACES = {Tier.WARM: 2, Tier.COLD: 1}
_WORKGROUP = 256


class DemotedPages:
    """The demoted pages of layers that share a page table. `pipeline` is `KernelBuilder.pipeline`."""

    def __init__(
        self, host: Host, config: ModelConfig, layers: int, pipeline: Callable[..., int], settings: DeviceSettings
    ) -> None:
        heads, size = config.num_key_value_heads, config.head_dim
        self._host, self._heads = host, heads
        self.place_bytes = 4 * heads * (PAGE * size // 4 + size + PAGE)
        self._layers, self._settings = layers, settings
        self._buffers: list[int] = []
        """A buffer for each layer, once a page was demoted."""
        self._places: dict[Tier, list[int]] = {tier: [] for tier in _PLACES}
        """For each tier, the places of its pages, by page number."""
        self.constants: dict[str, Constant] = {"TIER_SHIFT": TIER_SHIFT}
        """The constants of a kernel that reads these pages, besides those of heads and pages."""
        self._pipeline = pipeline(
            "demote", {}, KV_HEADS=heads, HEAD_DIM=size, PAGE=PAGE, WORKGROUP=_WORKGROUP, **self.constants
        )
        jobs = 8 * (1 + settings.demoted_at_once)
        self._jobs = Binding(host.create_buffer(jobs, "pages to demote"), 0, jobs)
        self._recorded, self._bound = 0, list[Binding]()

    @property
    def bindings(self) -> list[Binding]:
        """The demoted pages of each layer; none before there are any."""
        return [Binding(buffer, 0, self._count * self.place_bytes) for buffer in self._buffers]

    def page_bytes(self, tier: Tier) -> int:
        """Return the bytes of a page in a layer."""
        return _PLACES[tier] * self.place_bytes

    def there(self, tier: Tier) -> int:
        """Return the bytes of all pages of this tier in all layers, in use or not."""
        return len(self._places[tier]) * self.page_bytes(tier) * self._layers

    def entries(self, pages: np.ndarray) -> np.ndarray:
        """Return the entries of pages in the GPU's page table: the tier with the place in its buffer."""
        entries, tiers, numbers = pages.copy(), pages >> TIER_SHIFT, pages % (1 << TIER_SHIFT)
        for tier, places in self._places.items():
            there = tiers == tier
            if there.any():
                entries[there] = np.array(places, np.uint32)[numbers[there]] + (tier << TIER_SHIFT)
        return entries

    def grow(self, tier: Tier) -> int:
        """Grow a tier to about twice as many pages. Returns their number. Bindings have changed then.

        Raises BackendError if the GPU cannot bind a larger buffer.
        """
        old, places = self._count, self._places[tier]
        new = max(len(places), self._settings.first_demoted)
        nbytes = (old + new * _PLACES[tier]) * self.place_bytes
        if nbytes > self._host.adapter.max_binding_size:
            raise BackendError(
                "gpu.no-memory-left", "The conversations need more memory than is free on this GPU. Start a new chat."
            )
        for layer in range(self._layers):
            buffer = self._host.create_buffer(nbytes, PAGES)
            if old:
                self._host.copy(self._buffers[layer], 0, buffer, 0, old * self.place_bytes)
                self._host.destroy_buffer(self._buffers[layer])
                self._buffers[layer] = buffer
            else:
                self._buffers.append(buffer)
        places.extend(old + _PLACES[tier] * number for number in range(new))
        return len(places)

    def demote(self, pages: np.ndarray, new: np.ndarray, hot: Sequence[Binding]) -> None:
        """Write pages again as pages of a lower tier, in each layer. No page is among both `pages` and `new`.

        hot: the layers' hot pages. Later submissions find the new pages written.
        """
        jobs = np.stack([self.entries(pages), self.entries(new)], axis=1)
        recorded = self._record(hot)
        most = self._settings.demoted_at_once
        for first in range(0, len(jobs), most):
            part = jobs[first : first + most]
            self._host.write(self._jobs.buffer, 0, np.array([[len(part), 0], *part], np.uint32).tobytes())
            self._host.submit([recorded])

    async def read(self, page: int, tier: Tier) -> list[bytes]:
        """Return the bytes of a page in each layer."""
        offset, nbytes = self._offset(page), self.page_bytes(tier)
        return await asyncio.gather(*(self._host.read(buffer, offset, nbytes) for buffer in self._buffers))

    def write(self, page: int, layers: Sequence[memoryview]) -> None:
        """Write the bytes of `read` to a page."""
        for buffer, data in zip(self._buffers, layers, strict=True):
            self._host.write(buffer, self._offset(page), data)

    @property
    def _count(self) -> int:
        """Places of a buffer."""
        return sum(_PLACES[tier] * len(places) for tier, places in self._places.items())

    def _offset(self, page: int) -> int:
        (entry,) = self.entries(np.array([page], np.uint32)).tolist()
        return entry % (1 << TIER_SHIFT) * self.place_bytes

    def _record(self, hot: Sequence[Binding]) -> int:
        """Return the list that demotes pages in each layer. It is recorded again when buffers have changed."""
        bound = [*hot, *self.bindings]
        if self._bound != bound:
            if self._bound:
                self._host.forget(self._recorded)
            groups = (self._heads, 2, self._settings.demoted_at_once)
            self._recorded = self._host.record([
                Dispatch(self._pipeline, (self._jobs, *each), groups)
                for each in zip(hot, self.bindings, strict=True)
            ])  # fmt: skip
            self._bound = bound
        return self._recorded
