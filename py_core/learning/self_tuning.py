"""The background loop's learning about itself: how the next training is to differ from the last ones.

    tuned(recipe, {"rate": 0.6})                  # a recipe with 0.6 of the rates
    learned(runs, {"rate": 1.0})                  # after a run: the numbers for the next one, and how sure each is

Each number is a factor on one of the recipe's. A run tells for each factor whether it ended well with it. If it did
not, the factor moves; if there is room, it returns towards 1, the recipe's measured value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.records.revisions import Run
from py_core.learning.consolidation_job import Recipe

ENOUGH = 0.9
"""The least share of the lessons that a training should give, word by word."""
ALL_OF_THEM = 0.98
KEPT = 0.95
"""The least share of the previously known lessons."""
SAME = 0.01
"""Factors that differ by less are the same."""


@dataclass(frozen=True)
class Factor:
    """least to most: its bounds, one of which is 1. after: its next value after a run, or None if the run tells nothing
    about it. is_good: True if the run ended well as far as this factor goes."""

    least: float
    most: float
    after: Callable[[float, Run, float], float | None]
    is_good: Callable[[Run, float], bool]


@dataclass(frozen=True)
class Learned:
    """confidence: (g + 1) / (n + 2), the rule of succession, with g good ones among n runs with this value: how likely
    the next run is good. runs: the number of runs that told something about it."""

    value: float
    confidence: float
    runs: int


def harm(run: Run) -> float:
    """The growth of the probe's perplexity over the plain model's, at the scale that was tried last; infinite if the
    training could not be finished."""
    after, base = run.probe.get("after"), run.probe.get("base", 0.0)
    return after / base - 1 if after is not None and base > 0 else float("inf")


def was_trained(run: Run) -> bool:
    """True if a step of it ran; otherwise it tells nothing."""
    return bool(run.steps.get("tokens"))


def _caused_harm(run: Run, allowed: float) -> bool:
    return harm(run) > allowed or run.verdict == "scaled"


def _rate_after(now: float, run: Run, allowed: float) -> float:
    if harm(run) > allowed:
        return now * 0.6
    if run.verdict == "scaled":
        return now * run.scale  # train less, instead of scaling the result down
    return now * 1.25 if harm(run) <= allowed / 2 else now


def _divergence_after(now: float, run: Run, allowed: float) -> float:
    if _caused_harm(run, allowed):
        return now * 1.5
    return now * 0.8 if harm(run) <= allowed / 2 else now


def _rounds_after(now: float, run: Run, allowed: float) -> float | None:
    recall = run.recall.get("after")
    if recall is None or harm(run) > allowed:
        return None
    if not _gave_enough(run, allowed):
        return now * 1.25
    return now * 0.9 if recall >= ALL_OF_THEM else now


def _keeping_after(step: float) -> Callable[[float, Run, float], float | None]:
    def after(now: float, run: Run, allowed: float) -> float | None:
        kept = run.recall.get("old")
        if kept is None or harm(run) > allowed:
            return None
        if kept < KEPT:
            return now * step
        return now / step if kept >= ALL_OF_THEM else now

    return after


def _gave_enough(run: Run, allowed: float) -> bool:
    before, after = run.recall.get("before", 0.0), run.recall.get("after", 0.0)
    return after >= ENOUGH and (after > before or before == 1)


def _kept_enough(run: Run, allowed: float) -> bool:
    return run.recall.get("old", 0.0) >= KEPT


FACTORS: Mapping[str, Factor] = {
    "rate": Factor(0.2, 1.0, _rate_after, lambda run, allowed: not _caused_harm(run, allowed)),
    "divergence": Factor(1.0, 4.0, _divergence_after, lambda run, allowed: not _caused_harm(run, allowed)),
    "rounds": Factor(1.0, 2.0, _rounds_after, _gave_enough),
    "rehearsal": Factor(1.0, 2.0, _keeping_after(4 / 3), _kept_enough),
    "elastic": Factor(1.0, 10.0, _keeping_after(3.0), _kept_enough),
}
"""rate: on the learning rates. divergence: on the weights that keep other texts and answers unchanged. rounds: on how
often each lesson comes. rehearsal: on the number of old lessons in a step. elastic: on elastic weight consolidation,
i.e. the weight of the old lessons' Fisher information."""


def bounded(name: str, value: float) -> float:
    factor = FACTORS[name]
    return min(max(value, factor.least), factor.most)


def tuned(recipe: Recipe, factors: Mapping[str, float]) -> Recipe:
    """The recipe with these factors, each clipped to its bounds; missing ones are 1."""
    of = {name: bounded(name, factors.get(name, 1.0)) for name in FACTORS}
    portions = recipe.portions
    return replace(
        recipe,
        rate=recipe.rate * of["rate"],
        rate_again=recipe.rate_again * of["rate"],
        elastic=recipe.elastic * of["elastic"],
        portions=replace(
            portions,
            text_weight=portions.text_weight * of["divergence"],
            answer_weight=portions.answer_weight * of["divergence"],
            rounds=portions.rounds * of["rounds"],
            rounds_again=portions.rounds_again * of["rounds"],
            rehearsed=min(round(portions.rehearsed * of["rehearsal"]), portions.a_step - 1),
        ),
    )


def learned(runs: Sequence[Run], factors: Mapping[str, float], allowed: float) -> dict[str, Learned]:
    """The factors that change after the last run of a model. runs: the oldest first. factors: those of the last run.
    allowed: the harm that a recipe may do. Factors about which the last run tells nothing are left out."""
    found = dict[str, Learned]()
    if not runs or not was_trained(runs[-1]):
        return found
    for name, factor in FACTORS.items():
        after = factor.after(factors.get(name, 1.0), runs[-1], allowed)
        if after is None:
            continue
        value = bounded(name, after)
        telling = [run for run in runs if was_trained(run) and factor.after(1.0, run, allowed) is not None]
        with_it = [run for run in telling if abs(of_run(run, name) / value - 1) < SAME]
        good = sum(factor.is_good(run, allowed) for run in with_it)
        found[name] = Learned(value, (good + 1) / (len(with_it) + 2), len(telling))
    return found


def of_run(run: Run, name: str) -> float:
    """The factor that a run was made with."""
    factors = run.recipe.get("factors")
    value = factors.get(name, 1.0) if isinstance(factors, Mapping) else 1.0
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0
