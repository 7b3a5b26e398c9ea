"""Persistent kernels: neighbouring matvecs of one row as the phases of one dispatch.

On most machines the dispatches of a decode step take longer than their work. The workgroups of a persistent kernel
stay: each does its share of a phase, and waits for the values of the others before the next one (persistent.wgsl).
Attention remains a kernel of its own, since one dispatch cannot bind the pages of all layers. So a block is two
dispatches: its attention; then the linears behind it and those before the next block's attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Host, covering
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.shaders import Constant, Phase, binding_access, compose_persistent

_SPINS = 400_000
"""Reads in vain of an invocation until it gives up: some tenths of a second."""
_BOUND = {
    "matvec": ("state", "quants", "scales", "x", "vectors", "y"),
    "qkv": ("state", "quants", "scales", "x", "vectors", "angles", "page_table", "q_out", "kv"),
}
"""The bindings of the kernels that can be phases, by their names in the shaders."""
_ACCESS = {
    "state": "r", "quants": "r", "scales": "r", "x": "r", "y": "w", "angles": "r", "page_table": "r", "q_out": "w",
    "kv": "w", "handed": "w",
}  # fmt: skip
"""The bindings of a persistent kernel in order, and their access."""
_ADD, _GATE = 1, 2
"""EPILOGUE of matvec.wgsl."""
_LINE = 32
"""Words: the places of what is handed on begin at multiples of it."""


class Unsuited(Exception):
    """Kernels cannot be the phases of one."""


@dataclass(frozen=True)
class _Run:
    """The kernels of a persistent one, before it is compiled."""

    kernels: tuple[Kernel, ...]
    phases: tuple[Phase, ...]
    used: tuple[frozenset[str], ...]
    """The bindings that each phase uses, besides its weights and what is handed on."""
    words: int
    """Words of the values that its phases hand on."""

    @property
    def key(self) -> object:
        """Runs of equal keys are one pipeline."""
        return tuple(
            (one.shader, tuple(one.constants.items()), tuple(one.snippets.items()), one.groups, one.x_place)
            for one in self.phases
        )

    @property
    def roles(self) -> list[str]:
        """The bindings of the kernel in order."""
        used = {"quants", "scales", "handed"}.union(*self.used)
        return [role for role in _ACCESS if role in used]

    def bindings(self, handed: Binding) -> tuple[Binding, ...]:
        """Raises Unsuited if phases have several of a role."""
        bound = [_bindings_of(kernel) for kernel in self.kernels]
        weights = _weights(self.kernels)
        found = {"quants": weights, "scales": weights, "handed": handed}
        for one, roles in zip(bound, self.used, strict=True):
            for role in roles:
                if found.setdefault(role, one[role]) != one[role]:
                    raise Unsuited(f"they have several {role}")
        return tuple(found[role] for role in self.roles)

    def kernel(self, pipeline: int, handed: Binding, groups: int) -> Kernel:
        costs = [kernel.cost for kernel in self.kernels]
        cost = Cost(
            fixed_bytes=sum(one.fixed_bytes for one in costs),
            row_bytes=sum(one.row_bytes for one in costs),
            row_flops=sum(one.row_flops for one in costs),
        )
        name = " > ".join(kernel.name for kernel in self.kernels)
        return Kernel(name, pipeline, partial(self.bindings, handed), lambda m: (groups, 1, 1), cost)


def persistent(host: Host, kernels: Sequence[Kernel], shape: PersistentShape) -> tuple[list[Kernel], Binding]:
    """Return the kernels, those with phases joined, and the buffer whose first word is not 0 once a workgroup has given
    up. Raises Unsuited."""
    runs: list[_Run | Kernel] = []
    for is_run, group in groupby(kernels, lambda kernel: kernel.phase is not None):
        members = list(group)
        runs += [_run(members)] if is_run else members
    # Each pipeline has places of its own, all of which each of its dispatches writes.
    starts: dict[object, int] = {}
    turns, end = -(-shape.groups // _LINE) * _LINE, _LINE
    for run in runs:
        if isinstance(run, _Run) and run.key not in starts:
            starts[run.key] = end
            end += turns + run.words
    handed = Binding(host.create_buffer(4 * end, "handed between phases"), 0, 4 * end)
    pipelines: dict[object, int] = {}
    for run in runs:
        if isinstance(run, _Run) and run.key not in pipelines:
            start = starts[run.key]
            wgsl = compose_persistent(
                run.phases, [(role, _ACCESS[role]) for role in run.roles], shape.workgroup,
                SPINS=_SPINS, TURNS=start, PLACES=start + turns,
            )  # fmt: skip
            pipelines[run.key] = host.pipeline(wgsl, binding_access(wgsl), "persistent")
    made = [run if isinstance(run, Kernel) else run.kernel(pipelines[run.key], handed, shape.groups) for run in runs]
    return made, handed


def _run(kernels: Sequence[Kernel]) -> _Run:
    bound = [_bindings_of(kernel) for kernel in kernels]
    epilogues = [_constant(kernel, "EPILOGUE") for kernel in kernels]
    weights = _weights(kernels)
    latest: dict[Binding, int] = {}  # the place of a value that was handed on
    phases, used, words = [], [], 0
    for at, (kernel, one, epilogue) in enumerate(zip(kernels, bound, epilogues, strict=True)):
        assert kernel.phase
        roles = one.keys() & {"state", "angles", "page_table", "q_out", "kv"}
        x_place = latest.get(one["x"])
        if x_place is None:
            roles.add("x")
        constants: dict[str, Constant] = {
            **kernel.phase.constants,
            "QUANTS_AT": (one["quants"].offset - weights.offset) // 16,
            "SCALES_AT": (one["scales"].offset - weights.offset) // 4,
            "VECTORS_AT": (one["vectors"].offset - weights.offset) // 16 if _has_vectors(kernel) else 0,
        }
        if y := one.get("y"):
            later = list(zip(bound[at + 1 :], epilogues[at + 1 :], strict=True))
            is_handed = any(y == other["x"] or (y == other.get("y") and then == _ADD) for other, then in later)
            is_replaced = any(y == other.get("y") for other, _ in later)
            # A gate's output is read by the next linear only, a sum by later kernels, too.
            is_kept = not is_handed if epilogue == _GATE else not is_replaced
            is_taken = epilogue == _ADD and y in latest
            constants |= {
                "Y_TAKEN": is_taken, "Y_FROM": latest.get(y, 0),
                "Y_HANDED": is_handed, "Y_PLACE": words, "Y_KEPT": is_kept,
            }  # fmt: skip
            if is_kept or (epilogue == _ADD and not is_taken):
                roles.add("y")
            if is_handed:
                latest[y] = words
                words += -(-y.size // (4 * _constant(kernel, "MAX_ROWS") * _LINE)) * _LINE
        phases.append(replace(kernel.phase, constants=constants, x_place=x_place))
        used.append(frozenset(roles))
    run = _Run(tuple(kernels), tuple(phases), tuple(used), words)
    run.bindings(weights)  # raises Unsuited
    return run


def _bindings_of(kernel: Kernel) -> dict[str, Binding]:
    assert kernel.phase
    return dict(zip(_BOUND[kernel.phase.shader], kernel.bindings(), strict=True))


def _weights(kernels: Sequence[Kernel]) -> Binding:
    """Return the range that holds the weights and vectors of all phases."""
    places = []
    for kernel in kernels:
        one = _bindings_of(kernel)
        places += [one["quants"], one["scales"], *([one["vectors"]] if _has_vectors(kernel) else [])]
    found = covering(places)
    if not found:
        raise Unsuited("their weights are in several buffers")
    return found


def _has_vectors(kernel: Kernel) -> bool:
    return bool(_constant(kernel, "NORM") or _constant(kernel, "ADD_BIAS"))


def _constant(kernel: Kernel, name: str) -> int:
    assert kernel.phase
    return int(kernel.phase.constants.get(name, 0))
