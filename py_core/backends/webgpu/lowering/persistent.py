"""Persistent kernels: neighbouring kernels of one row as the phases of one dispatch.

On most machines the dispatches of a decode step take longer than their work. The workgroups of a persistent kernel
stay: each does its share of a phase, and waits for the values of the others before the next one (persistent.wgsl).
Blocks of short sequences follow one another in one dispatch: what is handed on includes the newest key and value, which
attention stores. Attention of long sequences, over several workgroups a head, remains apart, and so the dispatch ends
with the linears of q, k and v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Host, covering
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.plan import Kernel
from py_core.backends.webgpu.shaders import Phase, PhaseInput, binding_access, compose_persistent

_SPINS = 400_000
"""Reads in vain of an invocation until it gives up: some tenths of a second."""
_BOUND = {
    "matvec": ("state", "quants", "scales", "x", "vectors", "y"),
    "attention_split": ("state", "q", "page_table", "pages", "y"),
    "qkv": ("state", "quants", "scales", "x", "vectors", "angles", "page_table", "q_out", "kv"),
}
"""The bindings of the kernels that can be phases, by their names in the shaders."""
_ACCESS = {
    "state": "r", "schedule": "r", "quants": "r", "scales": "r", "x": "r", "y": "w", "angles": "r", "page_table": "r",
    "q": "r", "q_out": "w", "kv": "w", "pages": "w", "handed": "w",
}  # fmt: skip
"""The bindings of a persistent kernel in order, and their access."""
_HANDED = {
    "qkv": {"qkv_binding": "qkv_handed"},
    "attention_split": {"q_binding": "q_handed"},
}
"""The snippets of queries, keys and values that are handed on, by the shader that hands or takes them."""
_ADD, _GATE = 1, 2
"""EPILOGUE of matvec.wgsl."""
_LINE = 32
"""Words: the places of what is handed on begin at multiples of it."""
_STEP_WORDS = 8
_ALIGNMENT = 256


class Unsuited(Exception):
    """Kernels cannot be the phases of one."""


@dataclass(frozen=True)
class _Step:
    """A phase of one layer, and where its values are handed on: `Step` of persistent.wgsl."""

    kernel: Kernel
    kind: Phase
    roles: frozenset[str]
    """The bindings that it uses, besides its weights and what is handed on."""
    read_at: int
    added_at: int
    store_at: int

    @property
    def key(self) -> object:
        kind = self.kind
        constants, snippets = tuple(kind.constants.items()), tuple(kind.snippets.items())
        return kind.shader, constants, snippets, kind.groups, kind.x


@dataclass(frozen=True)
class _Run:
    """The kernels of a persistent one, before it is compiled."""

    steps: tuple[_Step, ...]
    words: int
    """Words of the values that its phases hand on."""
    most: int
    """The most bytes that a kernel can bind."""

    @property
    def kinds(self) -> dict[object, Phase]:
        return {step.key: step.kind for step in self.steps}

    @property
    def key(self) -> object:
        """Runs of equal keys are one pipeline."""
        return tuple((step.key, step.read_at, step.added_at, step.store_at) for step in self.steps)

    @property
    def roles(self) -> list[str]:
        """The bindings of the kernel in order."""
        used = {"schedule", "quants", "scales", "handed"}.union(*(step.roles for step in self.steps))
        return [role for role in _ACCESS if role in used]

    @property
    def pages(self) -> list[Binding]:
        """The pages of each layer whose attention is a phase, in the order of the layers."""
        return [_bindings_of(step.kernel)["pages"] for step in self.steps if "pages" in step.roles]

    def schedule(self) -> bytes:
        """Raises Unsuited if weights lie in several buffers."""
        numbers, weights = {key: number for number, key in enumerate(self.kinds)}, self.weights()
        words, layer = [], 0
        for step in self.steps:
            bound, places = _bindings_of(step.kernel), (0, 0, 0)
            if "quants" in bound:
                vectors = bound["vectors"].offset - weights.offset if _has_vectors(step.kernel) else 0
                quants, scales = bound["quants"].offset - weights.offset, bound["scales"].offset - weights.offset
                places = (quants // 16, scales // 4, vectors // 16)
            words += [numbers[step.key], *places, layer, step.read_at, step.added_at, step.store_at]
            layer += "pages" in step.roles
        return np.array(words, np.uint32).tobytes()

    def weights(self) -> Binding:
        """Return the range that holds the weights and vectors of all phases. Raises Unsuited."""
        found = covering([place for step in self.steps for place in _weights_of(step.kernel)])
        if not found:
            raise Unsuited("their weights are in several buffers")
        return found

    def bindings(self, schedule: Binding, handed: Binding) -> tuple[Binding, ...]:
        """Raises Unsuited if phases have several of a role, or their pages are too large now."""
        weights = self.weights()
        found = {"schedule": schedule, "quants": weights, "scales": weights, "handed": handed}
        if pages := self.pages:
            # A layer's pages are found by its number.
            together, starts = covering(pages), [one.offset for one in pages]
            if not together or starts != [pages[0].offset + n * pages[0].size for n in range(len(pages))]:
                raise Unsuited("their pages do not follow one another")
            if together.size > self.most:
                raise Unsuited("their pages take more than a kernel can bind")
            found["pages"] = together
        for step in self.steps:
            bound = _bindings_of(step.kernel)
            if step.kind.x == "in y":
                bound.setdefault("y", bound["x"])
            for role in step.roles - {"pages"}:
                if found.setdefault(role, bound[role]) != bound[role]:
                    raise Unsuited(f"they have several {role}")
        return tuple(found[role] for role in self.roles)

    def made(self, pipeline: int, schedule: Binding, handed: Binding, groups: int) -> Kernel:
        kernels = [step.kernel for step in self.steps]
        costs = [kernel.cost for kernel in kernels]
        cost = Cost(
            fixed_bytes=sum(one.fixed_bytes for one in costs),
            row_bytes=sum(one.row_bytes for one in costs),
            token_bytes=sum(one.token_bytes for one in costs),
            row_flops=sum(one.row_flops for one in costs),
            token_flops=sum(one.token_flops for one in costs),
        )
        name = " > ".join(dict.fromkeys(kernel.name for kernel in kernels))
        return Kernel(name, pipeline, partial(self.bindings, schedule, handed), lambda m: (groups, 1, 1), cost)


def persistent(
    host: Host, kernels: Sequence[Kernel], shape: PersistentShape
) -> tuple[list[Kernel], tuple[Binding, Binding]]:
    """Return the kernels, those with phases joined, and their own buffers: the first word of the first one is not 0
    once a workgroup has given up. Raises Unsuited."""
    most = host.adapter.max_binding_size
    runs: list[tuple[bool, _Run | Kernel]] = []
    for is_short in (True, False):
        there = [kernel for kernel in kernels if kernel.splits(SHORT if is_short else 2 * SHORT)]
        runs += [(is_short, _run(group, most) if group[0].phase else group[0]) for group in _grouped(there, most)]
    # Each pipeline has places of its own, all of which each of its dispatches writes.
    starts: dict[object, int] = {}
    schedules: list[bytes] = []
    turns, end = -(-shape.groups // _LINE) * _LINE, _LINE
    for _, run in runs:
        if isinstance(run, _Run):
            schedule = run.schedule()
            schedules.append(schedule.ljust(-(-len(schedule) // _ALIGNMENT) * _ALIGNMENT, b"\0"))
            if run.key not in starts:
                starts[run.key] = end
                end += turns + run.words
    handed = Binding(host.create_buffer(4 * end, "handed between phases"), 0, 4 * end)
    data = b"".join(schedules)
    of_steps = Binding(host.create_buffer(len(data), "schedules of phases"), 0, len(data))
    host.write(of_steps.buffer, 0, data)
    pipelines: dict[object, int] = {}
    made, offset = [], 0
    for is_short, run in runs:
        kernel = run
        if isinstance(run, _Run):
            if run.key not in pipelines:
                start = starts[run.key]
                wgsl = compose_persistent(
                    list(run.kinds.values()), len(run.steps), len(run.pages),
                    [(role, _ACCESS[role]) for role in run.roles], shape.workgroup,
                    SPINS=_SPINS, TURNS=start, PLACES=start + turns,
                )  # fmt: skip
                pipelines[run.key] = host.pipeline(wgsl, binding_access(wgsl), "persistent")
            nbytes = 4 * _STEP_WORDS * len(run.steps)
            kernel = run.made(pipelines[run.key], Binding(of_steps.buffer, offset, nbytes), handed, shape.groups)
            offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        assert isinstance(kernel, Kernel)
        made.append(replace(kernel, splits=partial(_splits, kernel.splits, is_short)))
    return made, (handed, of_steps)


def _grouped(kernels: Sequence[Kernel], most: int) -> list[list[Kernel]]:
    """Return each kernel without a phase alone, and neighbouring phases together. A block begins another group if its
    weights are in another buffer than those before, or all of them take more than `most` bytes."""
    groups: list[list[Kernel]] = []
    for kernel in kernels:
        group = groups[-1] if groups else []
        joins = bool(kernel.phase and group and group[-1].phase)
        if joins and kernel.phase and kernel.phase.shader == "qkv":
            together = covering([place for one in (*group, kernel) for place in _weights_of(one)])
            joins = together is not None and together.size <= most
        if joins:
            group.append(kernel)
        else:
            groups.append([kernel])
    return groups


def _splits(splits: Callable[[int], int], is_short: bool, length_class: int) -> int:
    """Return the splits of a kernel that only short sequences have, or only longer ones."""
    return splits(length_class) if is_short == (length_class == SHORT) else 0


def _run(kernels: Sequence[Kernel], most: int) -> _Run:
    bound = [_bindings_of(kernel) for kernel in kernels]
    epilogues = [_constant(kernel, "EPILOGUE") for kernel in kernels]
    written = {one["y"] for one in bound if "y" in one}
    attentions = {one["pages"] for one in bound if "pages" in one}
    latest: dict[Binding, int] = {}  # the place of a value that was handed on
    heads: dict[Binding, int] = {}  # the place of a layer's queries, keys and values, by its pages
    steps: list[_Step] = []
    words = 0

    def room(count: int) -> int:
        nonlocal words
        place, words = words, words + -(-count // _LINE) * _LINE
        return place

    for at, (kernel, one, epilogue) in enumerate(zip(kernels, bound, epilogues, strict=True)):
        assert kernel.phase
        kind, read_at, added_at, store_at = kernel.phase, 0, 0, 0
        roles = one.keys() & {"state", "angles", "page_table", "pages", "q", "q_out", "kv"}
        constants, snippets = dict(kind.constants), dict(kind.snippets)
        if "x" in one:
            x: PhaseInput = "handed" if one["x"] in latest else "in y" if one["x"] in written else "bound"
            kind, read_at = replace(kind, x=x), latest.get(one["x"], 0)
            if x != "handed":
                roles.add("y" if x == "in y" else "x")
        if "kv" in one and one["kv"] in attentions:
            if one["kv"] not in heads:
                q_heads, kv_heads, size = (_constant(kernel, name) for name in ("HEADS", "KV_HEADS", "HEAD_DIM"))
                heads[one["kv"]] = room((q_heads + 2 * kv_heads) * size)
            store_at = heads[one["kv"]]
            snippets |= _HANDED["qkv"]
            roles -= {"q_out", "kv", "page_table"}
        if "pages" in one and one["pages"] in heads:
            read_at = heads[one["pages"]]
            snippets |= _HANDED["attention_split"]
            roles -= {"q"}
        if y := one.get("y"):
            later = list(zip(bound[at + 1 :], epilogues[at + 1 :], strict=True))
            is_handed = any(y == other.get("x") or (y == other.get("y") and then == _ADD) for other, then in later)
            is_replaced = any(y == other.get("y") for other, _ in later)
            # The output of attention or of a gate is read by the next linear only, a sum by later kernels, too.
            is_attention = "pages" in one
            is_kept = not is_handed if is_attention or epilogue == _GATE else not is_replaced
            if is_attention and is_kept:
                raise Unsuited("no linear is behind attention")
            is_taken = epilogue == _ADD and y in latest
            added_at = latest.get(y, 0) if is_taken else 0
            constants |= {"Y_TAKEN": is_taken, "Y_HANDED": is_handed, "Y_KEPT": is_kept}
            if is_kept or (epilogue == _ADD and not is_taken):
                roles.add("y")
            if is_handed:
                store_at = latest[y] = room(y.size // (4 * _constant(kernel, "MAX_ROWS")))
        kind = replace(kind, constants=constants, snippets=snippets)
        steps.append(_Step(kernel, kind, frozenset(roles), read_at, added_at, store_at))
    run = _Run(tuple(steps), words, most)
    run.bindings(run.weights(), run.weights())  # raises Unsuited
    return run


def _bindings_of(kernel: Kernel) -> dict[str, Binding]:
    assert kernel.phase
    return dict(zip(_BOUND[kernel.phase.shader], kernel.bindings(), strict=True))


def _weights_of(kernel: Kernel) -> list[Binding]:
    """Return the places of a phase's weights and vectors."""
    one = _bindings_of(kernel)
    if "quants" not in one:
        return []
    return [one["quants"], one["scales"], *([one["vectors"]] if _has_vectors(kernel) else [])]


def _has_vectors(kernel: Kernel) -> bool:
    return bool(_constant(kernel, "NORM") or _constant(kernel, "ADD_BIAS"))


def _constant(kernel: Kernel, name: str) -> int:
    assert kernel.phase
    return int(kernel.phase.constants.get(name, 0))
