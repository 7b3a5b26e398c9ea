"""Persistent kernels: neighbouring matvecs of one row as the phases of one dispatch.

On most machines a decode step's dispatches take longer than their work. The workgroups of a persistent kernel stay: each
does its share of a phase, and waits for the values of the others before the next one (persistent.wgsl). Attention
remains a kernel of its own, since a dispatch cannot bind the pages of all layers. So a block is two dispatches: its
attention; then the linears behind it, and those before the next block's attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Host, covering
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.shaders import PhaseText, binding_access, compose_persistent

_SPINS = 100_000
_ROLES = {
    "matvec": ("state", "quants", "scales", "x", "vectors", "y"),
    "qkv": ("state", "quants", "scales", "x", "vectors", "angles", "page_table", "q_out", "kv"),
}
_ORDER = {
    "state": "r", "quants": "r", "scales": "r", "x": "r", "y": "w", "angles": "r", "page_table": "r", "q_out": "w",
    "kv": "w", "handed": "w",
}  # fmt: skip
"""The bindings of a persistent kernel in order, and their access."""
_ADD, _GATE = 1, 2
_LINE = 32
"""Words at whose multiples places begin."""


class Unsuited(Exception):
    """Kernels are no phases of a persistent kernel."""


@dataclass(frozen=True)
class _Run:
    """A persistent kernel before it is compiled: two runs with equal `phases` and `words` are one pipeline."""

    kernels: tuple[Kernel, ...]
    phases: tuple[PhaseText, ...]
    used: tuple[frozenset[str], ...]
    """The bindings that each phase uses, besides its weights and what is handed on."""
    words: int
    """Words of the values that its phases hand on."""

    @property
    def roles(self) -> list[str]:
        """The bindings of the kernel in order."""
        return [role for role in _ORDER if role in {"quants", "scales", "handed"}.union(*self.used)]

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(
            (one.shader, tuple(one.constants.items()), tuple(one.snippets.items()), one.groups, one.x_place)
            for one in self.phases
        )

    def bindings(self, handed: Binding) -> tuple[Binding, ...]:
        """Raises Unsuited."""
        bound = _bound(self.kernels)
        weights = _weights(self.kernels, bound)
        found = {"quants": weights, "scales": weights, "handed": handed}
        for one, roles in zip(bound, self.used, strict=True):
            for role in roles:
                if found.setdefault(role, one[role]) != one[role]:
                    raise Unsuited(f"they read or write several {role}")
        return tuple(found[role] for role in self.roles)


def persistent(host: Host, kernels: Sequence[Kernel], shape: PersistentShape) -> tuple[list[Kernel], Binding]:
    """Return the kernels, with each run of phases as one kernel, and the buffer whose first word is not 0 once a
    workgroup has given up. Raises Unsuited."""
    runs: list[_Run | Kernel] = []
    waiting: list[Kernel] = []
    for kernel in kernels:
        if kernel.phase:
            waiting.append(kernel)
            continue
        if waiting:
            runs.append(_run(waiting))
        waiting = []
        runs.append(kernel)
    if waiting:
        runs.append(_run(waiting))
    # Each pipeline has places of its own: all of them are written by each of its dispatches.
    starts: dict[tuple[object, ...], int] = {}
    end = _LINE
    for run in runs:
        if isinstance(run, _Run) and run.key not in starts:
            starts[run.key] = end
            end += -(-shape.groups // _LINE) * _LINE + run.words
    handed = Binding(host.create_buffer(4 * end, "handed between phases"), 0, 4 * end)
    pipelines: dict[tuple[object, ...], int] = {}
    found = []
    for run in runs:
        if isinstance(run, Kernel):
            found.append(run)
            continue
        if run.key not in pipelines:
            start = starts[run.key]
            wgsl = compose_persistent(
                run.phases, [(role, _ORDER[role]) for role in run.roles], shape.workgroup, SPINS=_SPINS, TURNS=start,
                PLACES=start + -(-shape.groups // _LINE) * _LINE,
            )  # fmt: skip
            pipelines[run.key] = host.pipeline(wgsl, binding_access(wgsl), "persistent")
        name = " > ".join(kernel.name for kernel in run.kernels)
        costs = [kernel.cost for kernel in run.kernels]
        cost = Cost(
            fixed_bytes=sum(one.fixed_bytes for one in costs), row_bytes=sum(one.row_bytes for one in costs),
            row_flops=sum(one.row_flops for one in costs),
        )  # fmt: skip
        bindings = partial(run.bindings, handed)
        found.append(Kernel(name, pipelines[run.key], bindings, lambda m: (shape.groups, 1, 1), cost))
    return found, handed


def _bound(kernels: Sequence[Kernel]) -> list[dict[str, Binding]]:
    """Return the bindings of phases by their names in the shaders."""
    found = []
    for kernel in kernels:
        assert kernel.phase
        found.append(dict(zip(_ROLES[kernel.phase.shader], kernel.bindings(), strict=True)))
    return found


def _run(kernels: Sequence[Kernel]) -> _Run:
    bound = _bound(kernels)
    sums = [_epilogue(kernel) == _ADD for kernel in kernels]
    reads = [{one["x"], one["y"]} if is_sum else {one["x"]} for one, is_sum in zip(bound, sums, strict=True)]
    weights = _weights(kernels, bound)
    latest: dict[Binding, int] = {}
    phases, used, words = [], [], 0
    for at, (kernel, one) in enumerate(zip(kernels, bound, strict=True)):
        assert kernel.phase
        roles = {"state", "angles", "page_table", "q_out", "kv"} & one.keys()
        constants = dict(kernel.phase.constants)
        x_place = latest.get(one["x"])
        if x_place is None:
            roles.add("x")
        if y := one.get("y"):
            is_handed = any(y in read for read in reads[at + 1 :])
            is_kept = not (is_handed if _epilogue(kernel) == _GATE else any(y == other.get("y") for other in bound[at + 1 :]))
            is_taken = sums[at] and y in latest
            constants |= {
                "Y_TAKEN": is_taken, "Y_FROM": latest.get(y, 0), "Y_HANDED": is_handed, "Y_PLACE": words, "Y_KEPT": is_kept,
            }  # fmt: skip
            if is_kept or (sums[at] and not is_taken):
                roles.add("y")
            if is_handed:
                latest[y] = words
                words += -(-y.size // (4 * int(constants["MAX_ROWS"]) * _LINE)) * _LINE
        constants |= {
            "QUANTS_AT": (one["quants"].offset - weights.offset) // 16,
            "SCALES_AT": (one["scales"].offset - weights.offset) // 4,
            "VECTORS_AT": (one["vectors"].offset - weights.offset) // 16 if _has_vectors(kernel) else 0,
        }
        phases.append(PhaseText(kernel.phase.shader, constants, kernel.phase.snippets, kernel.phase.groups, x_place))
        used.append(frozenset(roles))
    run = _Run(tuple(kernels), tuple(phases), tuple(used), words)
    run.bindings(weights)  # are there several of a role?
    return run


def _weights(kernels: Sequence[Kernel], bound: Sequence[dict[str, Binding]]) -> Binding:
    """Return the range that holds the weights and vectors of all phases."""
    places = [one[role] for one in bound for role in ("quants", "scales")]
    places += [one["vectors"] for kernel, one in zip(kernels, bound, strict=True) if _has_vectors(kernel)]
    found = covering(places)
    if not found:
        raise Unsuited("their weights are in several buffers")
    return found


def _has_vectors(kernel: Kernel) -> bool:
    assert kernel.phase
    return bool(kernel.phase.constants["NORM"] or kernel.phase.constants["ADD_BIAS"])


def _epilogue(kernel: Kernel) -> int:
    assert kernel.phase
    return int(kernel.phase.constants.get("EPILOGUE", 0))
