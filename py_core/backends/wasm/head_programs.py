"""The programs with adapters at the head's input, and those that score tokens: made when the first is needed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from py_core.backends.wasm.host import KernelHost
from py_core.backends.wasm.lowering import ProgramLowering


class HeadPrograms:
    """They take memory between the pages of keys and values, so a model that needs none of them pays nothing."""

    def __init__(self, lowering: ProgramLowering) -> None:
        self._lowering = lowering
        self._programs: dict[bool, Mapping[str, int]] = {}

    async def make(self, host: KernelHost) -> None:
        """Write them to the kernels' memory. Raises BackendError when memory is out, WorkersRestartedError."""
        if not self._programs:
            self._programs = {adapted: await self._written(host, adapted) for adapted in (False, True)}

    def of(self, adapted: bool) -> Mapping[str, int]:
        """Return addresses by name (`ProgramLowering.headed`), with the state's set of LoRA matrices or without."""
        return self._programs[adapted]

    async def _written(self, host: KernelHost, adapted: bool) -> Mapping[str, int]:
        programs = self._lowering.headed(adapted)
        code = b"".join(programs.values())
        address = await self._lowering.pages.take(len(code))
        try:
            host.write(address, code)
            await host.read(address, 4)  # an answer: the write is done
        except BaseException:
            self._lowering.pages.give_back(address, len(code))
            raise
        return dict(zip(programs, accumulate(map(len, programs.values()), initial=address), strict=False))
