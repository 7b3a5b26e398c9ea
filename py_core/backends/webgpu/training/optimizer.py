"""The optimizer's kernels over whole vectors: the gradient's norm, a step of AdamW, the Fisher information."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from py_core.backends.webgpu.host import Binding, Dispatch, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.training.session import AdamW

STEP_BYTES = 16
_RULE_BYTES = 32
_WORKGROUP = 256
_GROUPS = 256
"""Workgroups, and so partial sums, of the gradient's norm."""
_MOST_GROUPS = 32768


@dataclass(frozen=True)
class OptimizerVectors:
    """The vectors of a session, float32 each: those of `TrainingState`, and the gradient."""

    parameters: Binding
    first_moment: Binding
    second_moment: Binding
    fisher: Binding
    gradient: Binding

    @property
    def kept(self) -> tuple[Binding, ...]:
        """The vectors of a TrainingState, in its order."""
        return self.parameters, self.first_moment, self.second_moment, self.fisher


class Optimizer:
    """`make(nbytes, label)` makes a buffer."""

    def __init__(
        self, host: Host, builder: KernelBuilder, vectors: OptimizerVectors, make: Callable[[int, str], Binding]
    ) -> None:
        self._host = host
        self._rule, self._shares = make(_RULE_BYTES, "rule of a step"), make(16, "shares of fisher and pull")
        self.step = make(STEP_BYTES, "step")
        partial = make(4 * _GROUPS, "squares of the gradient")
        quads = vectors.gradient.size // 16
        groups = -(-quads // _WORKGROUP)
        fold = -(-groups // _MOST_GROUPS)
        grid = (-(-groups // fold), fold, 1)
        sums = {"LANES": _WORKGROUP, "WORKGROUP": _WORKGROUP, "GROUPS": _GROUPS}

        def dispatch(
            name: str, bindings: tuple[Binding, ...], grid: tuple[int, int, int], **constants: int
        ) -> Dispatch:
            return Dispatch(builder.pipeline(name, {}, **constants), bindings, grid)

        v = vectors
        moved = (self._rule, self.step, v.parameters, v.first_moment, v.second_moment, v.gradient)
        self._dispatches: dict[str, list[Dispatch]] = {
            "step": [
                dispatch("gradient_squares", (v.gradient, partial), (_GROUPS, 1, 1), QUADS=quads, **sums),
                dispatch("gradient_norm", (self._rule, partial, self.step), (1, 1, 1), **sums),
                dispatch("adamw", moved, grid, QUADS=quads, WORKGROUP=_WORKGROUP),
            ],
            "fisher": [
                dispatch("fisher", (self._shares, v.fisher, v.gradient), grid, QUADS=quads, WORKGROUP=_WORKGROUP)
            ],
        }
        self._recorded: dict[str, int] = {}
        self._make, self._dispatch, self._vectors = make, dispatch, vectors
        self._pulling = {"QUADS": quads, **sums}
        self.anchor: Binding | None = None
        self.pulled: Binding | None = None
        """Parts of the sum of fisher * (p - anchor)^2, float32 (_GROUPS,)."""

    def take_anchor(self) -> Binding:
        """Return the place of an anchor to write. Its memory and its kernel are made the first time."""
        if self.anchor is None:
            v = self._vectors
            self.anchor = self._make(v.gradient.size, "training's anchor")
            self.pulled = self._make(4 * _GROUPS, "sums of the penalty")
            bindings = (self._shares, v.fisher, v.parameters, self.anchor, v.gradient, self.pulled)
            pull = self._dispatch("pull", bindings, (_GROUPS, 1, 1), **self._pulling)
            self._dispatches["pulled step"] = [pull, *self._dispatches["step"]]
        return self.anchor

    def submit_step(self, rule: AdamW, steps: int, pulled: bool) -> None:
        """Queue step number `steps`. `step` then holds its result: the norm, and whether the step counts.

        `pulled`: towards the anchor.
        """
        numbers = (rule.rate, rule.beta1, rule.beta2, rule.eps, rule.decay, rule.clip)
        corrections = (1 - rule.beta1**steps, 1 - rule.beta2**steps)
        self._host.write(self._rule.buffer, 0, np.array([*numbers, *corrections], np.float32).tobytes())
        if pulled:
            self._host.write(self._shares.buffer, 0, np.array([rule.elastic, 0, 0, 0], np.float32).tobytes())
        self._submit("pulled step" if pulled else "step")

    def submit_fisher(self, keep: float, weight: float) -> None:
        self._host.write(self._shares.buffer, 0, np.array([keep, weight, 0, 0], np.float32).tobytes())
        self._submit("fisher")

    def forget(self) -> None:
        """Drop recorded lists."""
        for recorded in self._recorded.values():
            self._host.forget(recorded)

    def _submit(self, name: str) -> None:
        if name not in self._recorded:
            self._recorded[name] = self._host.record(self._dispatches[name])
        self._host.submit([self._recorded[name]])
