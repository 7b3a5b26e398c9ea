"""Examples in a pack give the same as alone, and weights are shares of a step."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.training.batches import shuffled
from py_core.training.packing import (
    TrainingExample,
    WeightSums,
    answer_example,
    base_example,
    compared_pack,
    in_groups,
    packed,
)
from py_core.training.schedule import Schedule
from py_core.training.session import check_pack

MOST = 24
HIDDEN = 3

tokens = st.lists(st.integers(0, 2), min_size=2, max_size=MOST)


@st.composite
def examples(draw: st.DrawFn) -> TrainingExample:
    """Few different tokens, so that beginnings are shared."""
    ids = tuple(draw(tokens))
    kinds = draw(st.lists(st.sampled_from("-wkb"), min_size=len(ids) - 1, max_size=len(ids) - 1))
    if set(kinds) == {"-"}:
        kinds[-1] = "w"
    weights = [1 + index if kind in "wb" else 0 for index, kind in enumerate(kinds)]
    kl_weights = [2 + index if kind in "kb" else 0 for index, kind in enumerate(kinds)]
    return TrainingExample(ids, (0, *weights), (0, *kl_weights))


@given(st.lists(examples(), min_size=1, max_size=6), st.sampled_from([0.0, 0.5]))
def test_in_a_pack_each_token_that_counts_follows_its_own_examples_tokens(
    given_examples: list[TrainingExample], divergence: float
) -> None:
    sums = WeightSums.of(given_examples)
    states = {
        one: np.arange(HIDDEN * len(one.compared), dtype=np.float32).reshape(-1, HIDDEN) for one in given_examples
    }
    groups = in_groups(given_examples, MOST)
    assert sorted(map(id, itertools.chain(*groups))) == sorted(map(id, given_examples))
    weight, kl_weight = 0.0, 0.0
    for group in groups:
        pack = packed(group, sums, divergence, states)
        check_pack(pack, 3, MOST, MOST)
        weight += pack.weights.sum()
        kl_weight += pack.kl_weights.sum()
        found = iter(range(len(pack.loss_rows)))
        for example in group:
            for place in example.counted:
                index = next(found)
                row = pack.loss_rows[index]
                seen = [j for j in range(row + 1) if j < pack.prefix or j >= pack.starts[row]]
                assert tuple(pack.tokens[seen]) == example.tokens[:place]
                assert list(pack.positions[seen]) == list(range(place))
                assert pack.targets[index] == example.tokens[place]
                if divergence and place in example.compared:
                    assert pack.base_states is not None
                    np.testing.assert_array_equal(
                        pack.base_states[index], states[example][example.compared.index(place)]
                    )
        assert next(found, None) is None
    assert weight == pytest.approx(1 if sums.weights else 0)
    assert kl_weight == pytest.approx(divergence if sums.kl_weights else 0)


@given(examples())
def test_the_base_is_asked_before_each_compared_token(example: TrainingExample) -> None:
    if example.compared:
        pack = compared_pack(example)
        check_pack(pack, 3, MOST, MOST)
        assert [tuple(pack.tokens[: row + 1]) for row in pack.loss_rows] == [
            example.tokens[:place] for place in example.compared
        ]


def test_answers_behind_one_prompt_run_it_once_and_other_texts_stay_apart() -> None:
    system, text = list(range(40, 60)), list(range(70, 90))
    facts = [answer_example([*system, 1, number], [2, 3, number]) for number in range(4)]
    texts = [base_example(text[:1], text[1 + number :]) for number in range(2)]
    groups = in_groups([facts[0], texts[0], *facts[1:], texts[1]], 100)
    assert groups == [facts, texts], "texts share a pass, too, though nothing else"
    pack = packed(groups[0], WeightSums.of(facts), 0, {})
    # The last token of an answer need not run.
    assert (pack.prefix, pack.rows) == (21, 21 + 4 * 3)
    np.testing.assert_allclose(pack.weights, 1 / 12)


def test_a_token_behind_the_shared_part_has_a_row_of_its_own() -> None:
    facts = [answer_example([7, 8, 9], [number]) for number in range(3)]
    pack = packed(facts, WeightSums.of(facts), 0, {})
    assert (pack.prefix, list(pack.loss_rows), list(pack.targets)) == (2, [2, 3, 4], [0, 1, 2])


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ((1, 0, 0), "first token"),
        ((0, 0, 0), "leave it out"),
        ((0, 1), "as many weights"),
        ((0, -1, 0), "from 0 on"),
        ((0, float("nan"), 0), "from 0 on"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: tuple[float, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TrainingExample((1, 2, 3), weights, (0, 0, 0))


def test_an_example_longer_than_a_pass_is_refused() -> None:
    example = answer_example([1] * 20, [2] * 10)
    assert in_groups([example], 29) == [[example]]
    with pytest.raises(ValueError, match="29 tokens is longer than a pass of training, which has 28"):
        in_groups([example], 28)


def test_every_round_has_each_example_once_in_another_order() -> None:
    ten = [answer_example([1], [number]) for number in range(10)]
    batches = shuffled(ten, 4, seed=3)
    steps = [one for step in range(5) for one in batches(step)]
    assert set(steps[:10]) == set(steps[10:]) == set(ten)
    assert steps[:10] != steps[10:]
    assert batches(2) == steps[8:12], "a step has the same examples whenever it is asked"
    assert [*shuffled(ten, 4, seed=4)(0)] != steps[:4]
    with pytest.raises(ValueError, match="nothing to train with"):
        shuffled([], 4, seed=0)


def test_the_rate_grows_then_falls_along_half_a_cosine() -> None:
    rates = [Schedule(2.0, 25, warm_up=5).at(step) for step in range(25)]
    assert rates[:6] == pytest.approx([2 * part / 6 for part in range(1, 7)])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[15] == pytest.approx(1.0)
    assert 0 < rates[-1] < 0.02
    assert [dataclasses.replace(Schedule(1.0, 2), warm_up=0).at(step) for step in range(2)] == pytest.approx([1, 0.5])
