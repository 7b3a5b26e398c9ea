"""A training tunes the next one: rate, weights and rounds move within bounds, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.learning.consolidation_job import Recipe
from py_core.learning.self_tuning import FACTORS, bounded, learned, tuned
from py_core.memory.revisions import Run

ALLOWED = Recipe().harm
GOOD = Run(
    "0" * 64, "accepted", "", scale=1.0, probe={"base": 100.0, "after": 101.0}, recall={"before": 0.0, "after": 0.95},
    steps={"tokens": [300.0]},
)  # fmt: skip
HARMFUL = replace(GOOD, verdict="refused", probe={"base": 100.0, "after": 110.0}, recall={"before": 0.0, "after": 0.0})


def values(run: Run, **factors: float) -> dict[str, float]:
    """The consequences of a run: only the changed factors."""
    found = learned([run], factors, ALLOWED)
    return {name: one.value for name, one in found.items() if one.value != factors.get(name, 1.0)}


def test_what_harmed_is_trained_with_smaller_rates_and_more_weight_on_other_texts() -> None:
    assert values(HARMFUL) == {"rate": 0.6, "divergence": 1.5}
    assert values(replace(GOOD, verdict="scaled", scale=0.7)) == {"rate": 0.7, "divergence": 1.5}
    not_finite = replace(HARMFUL, probe={"base": 100.0}, recall={"before": 0.0})
    assert values(not_finite) == {"rate": 0.6, "divergence": 1.5}


def test_a_good_training_lets_them_go_back_to_what_was_measured() -> None:
    assert values(GOOD) == {}
    assert values(GOOD, rate=0.36, divergence=2.25, rounds=1.25) == pytest.approx({"rate": 0.45, "divergence": 1.8})
    assert values(replace(GOOD, recall={"before": 0.0, "after": 1.0}), rounds=1.25) == {"rounds": 1.125}
    just = replace(GOOD, probe={"base": 100.0, "after": 102.9})
    assert values(just, rate=0.36, divergence=2.25) == {}


def test_too_few_answers_make_the_next_training_longer_and_lost_ones_make_it_rehearse_more() -> None:
    assert values(replace(GOOD, recall={"before": 0.0, "after": 0.8})) == {"rounds": 1.25}
    no_better = replace(GOOD, verdict="refused", recall={"before": 0.95, "after": 0.95})
    assert values(no_better) == {"rounds": 1.25}
    lost = replace(GOOD, recall={"before": 0.5, "after": 0.95, "old": 0.9})
    assert values(lost) == {"rehearsal": pytest.approx(4 / 3), "elastic": 3.0}
    kept = replace(GOOD, recall={"before": 0.5, "after": 0.95, "old": 1.0})
    assert values(kept, rehearsal=2.0, elastic=9.0) == {"rehearsal": 1.5, "elastic": 3.0}


def test_what_was_not_trained_or_ended_otherwise_tells_nothing() -> None:
    assert learned([replace(HARMFUL, steps={})], {}, ALLOWED) == {}
    taken_away = replace(GOOD, verdict="refused", why="A lesson was forgotten in the meantime.")
    assert values(taken_away) == {}


def test_confidence_is_that_of_the_runs_with_this_value() -> None:
    gentle = replace(GOOD, probe={"base": 100.0, "after": 102.9}, recipe={"factors": {"rate": 0.6}})
    runs = [HARMFUL, gentle, gentle, gentle]
    rate = learned(runs, {"rate": 0.6}, ALLOWED)["rate"]
    assert (rate.value, rate.confidence, rate.runs) == (0.6, 4 / 5, 4)
    moved = learned(runs[:1], {}, ALLOWED)["rate"]
    assert (moved.value, moved.confidence, moved.runs) == (0.6, 1 / 2, 1)
    at_the_bound = [replace(HARMFUL, recipe={"factors": {"rate": 0.2}})] * 3
    assert learned(at_the_bound, {"rate": 0.2}, ALLOWED)["rate"].confidence == 1 / 5


def test_each_factor_changes_the_recipe() -> None:
    recipe = Recipe()
    for name, factor in FACTORS.items():
        limit = factor.least if factor.least < 1 else factor.most
        changed = tuned(recipe, {name: limit})
        assert changed != recipe, name
        assert tuned(recipe, {name: 1.0}) == recipe
        assert tuned(recipe, {name: 1000.0}) == tuned(recipe, {name: factor.most})
    assert tuned(recipe, {"rehearsal": 2.0}).portions.rehearsed == 6
    small = replace(recipe, portions=replace(recipe.portions, a_step=4))
    assert tuned(small, {"rehearsal": 2.0}).portions.rehearsed == 3  # a step has new lessons, too


@given(
    st.sampled_from(["accepted", "scaled", "refused"]), st.floats(0.5, 2), st.floats(0, 1), st.floats(0, 1),
    st.none() | st.floats(0, 1), st.dictionaries(st.sampled_from(sorted(FACTORS)), st.floats(0.01, 20)),
)  # fmt: skip
def test_no_run_moves_a_factor_out_of_its_bounds(verdict, after, before, recall, old, factors) -> None:
    run = replace(
        GOOD, verdict=verdict, scale=0.55, probe={"base": 1.0, "after": after},
        recall={"before": before, "after": recall} | ({} if old is None else {"old": old}),
    )  # fmt: skip
    for name, one in learned([run], factors, ALLOWED).items():
        assert one.value == bounded(name, one.value)
        assert 0 < one.confidence < 1
