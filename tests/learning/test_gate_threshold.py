"""The gate's threshold follows the feedback on its answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from py_core.learning.gate.threshold import HIGHER, LOWER, Evidence, fitted_threshold

SHIPPED = -0.5


def test_without_evidence_it_stays() -> None:
    assert fitted_threshold(SHIPPED, []) == (SHIPPED, 0.0)


def test_wrong_answers_shut_the_gate_above_their_scores_and_right_ones_hold_it_open() -> None:
    wrong = [Evidence(0.2, opens=False)] * 6
    threshold, confidence = fitted_threshold(SHIPPED, wrong)
    assert threshold > 0.2
    assert 0.5 < confidence < 1
    held, _ = fitted_threshold(SHIPPED, [*wrong, *[Evidence(0.3, opens=True)] * 12])
    assert held < threshold
    assert fitted_threshold(SHIPPED, wrong[:1])[0] < 0.2  # one opinion alone does not shut it


def test_messages_that_should_have_been_answered_open_it() -> None:
    assert fitted_threshold(SHIPPED, [Evidence(-1.0, opens=True)] * 6)[0] < -0.8


@given(st.lists(st.builds(Evidence, st.floats(-30, 30), st.booleans(), st.floats(0.1, 3)), max_size=20))
def test_it_stays_near_the_shipped_one(evidence: list[Evidence]) -> None:
    threshold, confidence = fitted_threshold(SHIPPED, evidence)
    assert SHIPPED - LOWER - 1e-6 <= threshold <= SHIPPED + HIGHER + 1e-6
    assert 0 <= confidence < 1
