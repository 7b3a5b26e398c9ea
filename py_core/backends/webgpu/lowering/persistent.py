"""Persistent kernels: neighbouring matvecs of one row as the phases of one dispatch.

On most machines the dispatches of a decode step take longer than their work. The workgroups of a persistent kernel
stay: each does its share of a phase, and waits for the values of the others before the next one (persistent.wgsl).
A dispatch cannot bind the pages of all layers, and the newest keys and values are stored there. So a block is one
dispatch: its attention, the linears behind it, and those before the next block's attention. Attention of long
sequences, over several workgroups a head, remains apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Host, covering
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.shaders import Phase, binding_access, compose_persistent

_SPINS = 400_000
"""Reads in vain of an invocation until it gives up: some tenths of a second."""
_BOUND = {
    "matvec": ("state", "quants", "scales", "x", "vectors", "y"),
    "attention_split": ("state", "q_out", "page_table", "kv_read", "y"),
    "qkv": ("state", "quants", "scales", "x", "vectors", "angles", "page_table", "q_out", "kv"),
}
"""The bindings of the kernels that can be phases, by their names in the shaders."""
_ACCESS = {
    "state": "r", "quants": "r", "scales": "r", "x": "r", "y": "w", "angles": "r", "kv_read": "r", "page_table": "r",
    "q_out": "w", "kv": "w", "handed": "w",
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
    runs: list[tuple[bool, _Run | Kernel]] = []
    for is_short in (True, False):
        there = [kernel for kernel in kernels if kernel.splits(SHORT if is_short else 2 * SHORT)]
        runs += [(is_short, _run(group) if group[0].phase else group[0]) for group in _grouped(there)]
    # Each pipeline has places of its own, all of which each of its dispatches writes.
    starts: dict[object, int] = {}
    turns, end = -(-shape.groups // _LINE) * _LINE, _LINE
    for _, run in runs:
        if isinstance(run, _Run) and run.key not in starts:
            starts[run.key] = end
            end += turns + run.words
    handed = Binding(host.create_buffer(4 * end, "handed between phases"), 0, 4 * end)
    pipelines: dict[object, int] = {}
    for _, run in runs:
        if isinstance(run, _Run) and run.key not in pipelines:
            start = starts[run.key]
            wgsl = compose_persistent(
                run.phases, [(role, _ACCESS[role]) for role in run.roles], shape.workgroup,
                SPINS=_SPINS, TURNS=start, PLACES=start + turns,
            )  # fmt: skip
            pipelines[run.key] = host.pipeline(wgsl, binding_access(wgsl), "persistent")
    made = []
    for is_short, run in runs:
        kernel = run if isinstance(run, Kernel) else run.kernel(pipelines[run.key], handed, shape.groups)
        made.append(replace(kernel, splits=partial(_splits, kernel.splits, is_short)))
    return made, handed


def _grouped(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Return each kernel without a phase alone, and neighbouring phases together. Attention begins another group: what
    it reads of the pages was stored by another dispatch."""
    groups: list[list[Kernel]] = []
    for kernel in kernels:
        joins = groups and groups[-1][0].phase and kernel.phase and kernel.phase.shader != "attention_split"
        if joins:
            groups[-1].append(kernel)
        else:
            groups.append([kernel])
    return groups


def _splits(splits: Callable[[int], int], is_short: bool, length_class: int) -> int:
    """Return the splits of a kernel that only short sequences have, or only longer ones."""
    return splits(length_class) if is_short == (length_class == SHORT) else 0


def _run(kernels: Sequence[Kernel]) -> _Run:
    bound = [_bindings_of(kernel) for kernel in kernels]
    epilogues = [_constant(kernel, "EPILOGUE") for kernel in kernels]
    weights = _weights(kernels)
    latest: dict[Binding, int] = {}  # the place of a value that was handed on
    phases, used, words = [], [], 0
    for at, (kernel, one, epilogue) in enumerate(zip(kernels, bound, epilogues, strict=True)):
        assert kernel.phase
        roles = one.keys() & {"state", "angles", "kv_read", "page_table", "q_out", "kv"}
        x_place, constants = None, dict(kernel.phase.constants)
        if "x" in one:
            x_place = latest.get(one["x"])
            if x_place is None:
                roles.add("x")
            constants |= {
                "QUANTS_AT": (one["quants"].offset - weights.offset) // 16,
                "SCALES_AT": (one["scales"].offset - weights.offset) // 4,
                "VECTORS_AT": (one["vectors"].offset - weights.offset) // 16 if _has_vectors(kernel) else 0,
            }
        if y := one.get("y"):
            later = list(zip(bound[at + 1 :], epilogues[at + 1 :], strict=True))
            is_handed = any(y == other.get("x") or (y == other.get("y") and then == _ADD) for other, then in later)
            is_replaced = any(y == other.get("y") for other, _ in later)
            # The output of attention or of a gate is read by the next linear only, a sum by later kernels, too.
            is_attention = "kv_read" in one
            is_kept = not is_handed if is_attention or epilogue == _GATE else not is_replaced
            if is_attention and is_kept:
                raise Unsuited("no linear is behind attention")
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
        if "quants" in one:
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
