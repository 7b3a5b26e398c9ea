"""Numbers of the backend that depend on no model and no adapter. The app runs with the defaults; tests choose
others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from py_core.backends.webgpu.host import Host
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.profiling import measure_lists


class Measure(Protocol):
    """Seconds of each recorded list. See `profiling.measure_lists`."""

    def __call__(
        self, host: Host, recorded: Sequence[int], prepare: Callable[[], None], /
    ) -> Awaitable[Sequence[float]]: ...


@dataclass(frozen=True)
class DeviceSettings:
    pause: float = 1.0
    """Seconds before the device is requested again after a second loss: a driver may need time."""

    first_demoted: int = 8
    """The initial number of pages of a tier in a buffer of demoted pages."""

    demoted_at_once: int = 8
    """Pages that one submission demotes."""

    logit_bytes: int = 32 << 20
    """Bytes of logits in memory at a time while tokens are scored."""

    measure: Measure = measure_lists
    """Times kernels in each of their possible shapes, if there is a store for the fastest."""

    persistent: tuple[PersistentShape, ...] = tuple(PersistentShape(groups, 256) for groups in (16, 32, 64, 128, 256))
    """The shapes in which persistent kernels are tried."""


DEFAULTS = DeviceSettings()
