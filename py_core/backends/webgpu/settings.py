"""Numbers of the backend that no model and no adapter decides. The app runs with the defaults; tests choose others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from py_core.backends.webgpu.host import Host
from py_core.backends.webgpu.profiling import measure_lists


class Measure(Protocol):
    """Seconds of each recorded list. See `profiling.measure_lists`."""

    def __call__(
        self, host: Host, recorded: Sequence[int], prepare: Callable[[], None], /
    ) -> Awaitable[Sequence[float]]: ...


@dataclass(frozen=True)
class DeviceSettings:
    pause: float = 1.0
    """Seconds before the device is requested again after a second loss: a driver may need a while."""

    first_demoted: int = 8
    """Pages of a tier that a buffer of demoted pages has at first."""

    demoted_at_once: int = 8
    """Pages that one submission demotes."""

    logit_bytes: int = 32 << 20
    """Logits that are in memory at a time while tokens are scored."""

    measure: Measure = measure_lists
    """Times kernels in each shape that they may have, if there is a store for the fastest."""


DEFAULTS = DeviceSettings()
