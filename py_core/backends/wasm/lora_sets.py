"""The place of each set of LoRA matrices, and the programs that use them.

The programs are made when the first set comes. They and the sets take memory between the pages of keys and values, so a
model without adapters pays nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import accumulate

from py_core.adapters.lora import LoraAdapter
from py_core.backends.wasm.host import KernelHost
from py_core.backends.wasm.lora import LoraSite, packed_set
from py_core.backends.wasm.lowering import ProgramLowering


class LoraSets:
    def __init__(self, lowering: ProgramLowering) -> None:
        self._lowering = lowering
        self._sites: list[LoraSite] = []
        self._code = b""
        self._rooms: dict[int, tuple[int, int]] = {}
        """The address of each number's room, and its bytes."""
        self.programs: Mapping[str, int] = {}
        """Addresses, once a set was placed: under the names of `ProgramLowering.programs`."""

    async def place(self, host: KernelHost, number: int, adapter: LoraAdapter) -> None:
        """Bring a set, and the programs, to the kernels. It may be repeated: writes get lost with a worker.

        A set that takes a number again uses the room of the earlier set, if that is large enough. Raises BackendError
        when memory is out, WorkersRestartedError.
        """
        if not self.programs:
            programs, self._sites = self._lowering.adapted()
            self._code = b"".join(programs.values())
            address = await self._lowering.pages.take(len(self._code))
            places = accumulate(map(len, programs.values()), initial=address)
            self.programs = dict(zip(programs, places, strict=False))
        data = packed_set(self._sites, adapter)
        address, room = self._rooms.get(number, (0, 0))
        if len(data) > room:
            # Powers of two: the earlier, smaller rooms of a number together take less than its last one.
            room = 1 << (len(data) - 1).bit_length()
            address = await self._lowering.pages.take(room)
            self._rooms[number] = address, room
        host.write(self.programs["body"], self._code)
        host.write(address, data)
        host.write(self._lowering.lora_table + 4 * number, struct.pack("<I", address))
        await host.read(self._lowering.lora_table, 4)  # an answer: the writes before it are done
