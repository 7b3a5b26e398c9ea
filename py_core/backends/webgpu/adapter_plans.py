"""The kernels of each set of LoRA matrices, and the buffers that they bind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from py_core.adapters.lora import LoraAdapter
from py_core.backends.webgpu.lora import rank_class
from py_core.backends.webgpu.lowering.model import PlanLowering
from py_core.backends.webgpu.plan import Plan


class AdapterPlans:
    """The sets of one device. `number` is the number of the running set, 0 for none."""

    def __init__(self, lowering: PlanLowering) -> None:
        self.number = 0
        self._lowering = lowering
        self._ranks = {0: 0}
        self._plans: dict[int, dict[str, Plan]] = {}

    @property
    def rank(self) -> int:
        """The rank class of the running set."""
        return self._ranks[self.number]

    def __contains__(self, number: int) -> bool:
        return number in self._ranks

    async def add(self, number: int, adapter: LoraAdapter, rows: Iterable[str]) -> None:
        """Make the kernels for passes over `rows` ("one", "few" ...), and bring the set to the GPU."""
        rank = rank_class(adapter.rank)
        sets = self._lowering.loras(rank)
        if rank not in self._plans:
            self._plans[rank] = {name: self._lowering.plan(name, rank) for name in rows}
        self._ranks[number] = rank
        await sets.add(number, adapter)

    def remove(self, number: int) -> None:
        self.number = 0
        if rank := self._ranks.pop(number, 0):
            self._lowering.loras(rank).remove(number)

    def plans(self, without: Mapping[str, Plan]) -> Mapping[str, Plan]:
        """Return the plans of the running set, `without` if no set runs."""
        return self._plans.get(self.rank, without)

    def bind(self) -> None:
        """Bind the running set in lists recorded from now on."""
        if self.number:
            self._lowering.loras(self.rank).choose(self.number)
