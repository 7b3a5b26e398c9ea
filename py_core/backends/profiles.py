"""The results of measuring a backend's kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

OnRound = Callable[[], None]
"""Called after each round of a measurement."""


@dataclass(frozen=True)
class AdapterLimits:
    """The measured limits of an adapter: reading memory, and multiplying and adding float32."""

    bytes_per_second: float
    flops_per_second: float


@dataclass(frozen=True)
class KernelCost:
    """All dispatches of one name in a pass: the time they took, and the least they must move and compute."""

    name: str
    count: int
    seconds: float
    bytes: int
    flops: int

    def bound(self, limits: AdapterLimits) -> tuple[str, float]:
        """Return the limit that applies, "memory" or "compute", and the share of it that was reached (1 is all of
        it)."""
        memory, compute = self.bytes / limits.bytes_per_second, self.flops / limits.flops_per_second
        name = "memory" if memory >= compute else "compute"
        return name, max(memory, compute) / self.seconds


@dataclass(frozen=True)
class Profile:
    """One pass over `rows` rows, the first at `position`: a decode step (1 row) or a pass of a prefill.

    `gpu_seconds` is the GPU's time for the pass in its order, `wall_seconds` the time as the engine runs it.
    """

    position: int
    rows: int
    kernels: list[KernelCost]
    gpu_seconds: float
    wall_seconds: float

    @property
    def kernel_seconds(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def between_seconds(self) -> float:
        """The GPU's time between kernels. 0 if the kernels measured alone took longer than the whole step."""
        return max(0.0, self.gpu_seconds - self.kernel_seconds)

    @property
    def wait_seconds(self) -> float:
        """The time in which the GPU waits for commands, or the host for the GPU. 0 if the clocks differ by more."""
        return max(0.0, self.wall_seconds - max(self.gpu_seconds, self.kernel_seconds))

    @property
    def seconds(self) -> float:
        return self.kernel_seconds + self.between_seconds + self.wait_seconds
