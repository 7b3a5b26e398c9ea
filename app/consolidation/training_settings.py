"""The numbers that the background loop learned for its trainings, kept as policies: one per number and model.

settings = TrainingSettings(memory, base_sha256)
recipe = tuned(RECIPE, settings.factors())
await settings.note(runs, allowed)      # after a run
"""

from __future__ import annotations

from collections.abc import Sequence

from app.records.memory import Memory
from app.records.policies import Policy
from app.records.revisions import Run
from py_core.learning.self_tuning import FACTORS, bounded, learned

PREFIX = "learning.background."
SOURCE = "background"


class TrainingSettings:
    """The settings of one model. A number that the user set is used within its bounds, and stays."""

    def __init__(self, memory: Memory, base_sha256: str) -> None:
        self._memory, self._base = memory, base_sha256

    def factors(self) -> dict[str, float]:
        """Return the factors by name (self_tuning.FACTORS)."""
        found = {name: self._policy(name) for name in FACTORS}
        return {
            name: bounded(name, float(policy.value))
            for name, policy in found.items()
            if policy is not None and isinstance(policy.value, int | float)
        }

    async def note(self, runs: Sequence[Run], allowed: float) -> None:
        """Learn from the last of this model's runs, the oldest first. allowed: Recipe.harm."""
        for name, found in learned(runs, self.factors(), allowed).items():
            policy = self._policy(name)
            if policy is None or policy.source != "user":
                await self._memory.policies.set(
                    policy_name(name, self._base), found.value,
                    confidence=found.confidence, source=SOURCE, observations=found.runs,
                )  # fmt: skip

    def _policy(self, name: str) -> Policy | None:
        return self._memory.policies.look(policy_name(name, self._base))


def policy_name(name: str, base_sha256: str) -> str:
    return f"{PREFIX}{name}/{base_sha256[:16] or 'model'}"
