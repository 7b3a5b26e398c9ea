"""The most promising source makes guesses, only if they pay; a draft that does not pay is retried now and then."""

from __future__ import annotations

from py_core.speculation.guesses import SIZES
from py_core.speculation.lookahead import DRAFT, Drafted, Lookahead, kind_of

STEP = 1.0


def rows(lookahead: Lookahead, match: int, most: int = 8) -> int:
    """Rows of a pass after a match of this length, without a draft; 0 for a plain step."""
    plan = lookahead.plan(match, None, STEP, 1000, most)
    assert plan is None or plan.kind == kind_of(match)
    return plan.rows if plan else 0


def drafts(lookahead: Lookahead, unread: int = 1, left: int = 1000, match: int = 0) -> bool:
    plan = lookahead.plan(match, unread, STEP, left, 8)
    return plan is not None and plan.kind == DRAFT and not plan.is_trial


def passes(lookahead: Lookahead, kind: int, size: int, right: int, seconds: float, times: int = 40) -> None:
    for _ in range(times):
        lookahead.note(kind, size, right, seconds)


def test_nothing_is_guessed_where_it_does_not_pay() -> None:
    lookahead = Lookahead()
    assert rows(lookahead, 10) in SIZES  # it has to be tried
    assert rows(lookahead, 10, SIZES[0] - 1) == 0  # no room
    passes(lookahead, kind_of(10), 8, 0, 1.5)
    assert rows(lookahead, 10) == 0
    lookahead.note_plain(2000)
    assert rows(lookahead, 10) in SIZES  # the text may have changed


def test_a_pass_that_costs_as_much_as_its_tokens_is_not_made() -> None:
    lookahead = Lookahead()
    for size in SIZES:
        passes(lookahead, kind_of(10), size, size - 1, float(size), times=2)
    assert rows(lookahead, 10) == 0


def test_a_first_pass_that_waited_for_its_kernels_switches_nothing_off() -> None:
    lookahead = Lookahead()
    for size in SIZES:
        lookahead.note(kind_of(10), size, size - 1, 100.0)
    assert rows(lookahead, 10) == 8
    lookahead.note(kind_of(10), 8, 7, 1.5)
    passes(lookahead, kind_of(10), 4, 3, 4.0, times=1)
    assert rows(lookahead, 10) == 8


def test_more_is_guessed_where_more_is_right() -> None:
    lookahead = Lookahead()
    for size, seconds in zip(SIZES, (1.1, 1.2, 2.0), strict=True):
        passes(lookahead, kind_of(20), size, size - 1, seconds, times=2)
    for _ in range(40):
        lookahead.note(kind_of(20), 8, 7, 2.0)
        lookahead.note(kind_of(4), 4, 1, 1.2)
    assert rows(lookahead, 20) == 8
    assert rows(lookahead, 20, 7) == 4
    assert rows(lookahead, 4) in (0, 2, 4)


def test_a_draft_is_asked_first_and_no_more_where_it_is_wrong() -> None:
    lookahead = Lookahead()
    assert drafts(lookahead)
    passes(lookahead, DRAFT, 4, 0, 1.3)
    assert not drafts(lookahead)
    lookahead.note_plain(10_000)
    assert not drafts(lookahead), "it was not better meanwhile; a trial tells"


def test_a_draft_that_takes_as_long_as_the_model_is_not_asked() -> None:
    lookahead = Lookahead()
    lookahead.note_drafted(Drafted([1] * 3, seconds=3 * STEP), is_trial=False)
    passes(lookahead, DRAFT, 4, 3, 1.3)
    assert not drafts(lookahead)


def test_a_long_match_is_free_and_goes_before_a_draft_that_is_as_good() -> None:
    lookahead = Lookahead()
    for kind in (DRAFT, kind_of(20)):
        passes(lookahead, kind, 8, 7, 1.5)
    assert drafts(lookahead)
    assert not drafts(lookahead, match=20)
    passes(lookahead, kind_of(20), 8, 0, 1.5)
    assert drafts(lookahead, match=20)


def test_a_long_text_is_read_by_the_draft_only_for_an_answer_that_is_long_enough() -> None:
    lookahead = Lookahead()
    lookahead.note_drafted(Drafted([1] * 3, read=100, read_seconds=20 * STEP, seconds=0.3 * STEP), is_trial=False)
    assert drafts(lookahead, unread=60, left=1000)
    assert not drafts(lookahead, unread=60, left=10)
    assert not drafts(lookahead, unread=2000, left=1000)


def test_a_draft_that_did_not_pay_is_tried_for_a_hundredth_of_the_time() -> None:
    lookahead = Lookahead()
    lookahead.note_drafted(Drafted([1], read=10, read_seconds=10e-3, seconds=2e-3), is_trial=False)
    passes(lookahead, DRAFT, 4, 0, 13e-3)
    step, unread, spent, steps = 10e-3, 10, 0.0, 2000
    for _ in range(steps):
        lookahead.note_plain(1, step)
        plan = lookahead.plan(0, unread, step, 1000, 8)
        if plan:
            assert plan.is_trial
            assert plan.kind == DRAFT
            tried = Drafted([1] * (plan.rows - 1), unread, unread * 1e-3, (plan.rows - 1) * 2e-3)
            spent += tried.read_seconds + tried.seconds
            lookahead.note_drafted(tried, is_trial=True)
    assert 0.5 < spent / (0.01 * steps * step) <= 1


def test_trials_that_are_right_bring_a_draft_back() -> None:
    lookahead = Lookahead()
    passes(lookahead, DRAFT, 4, 0, 1.3)
    lookahead.note_plain(1, 1e9)
    trials = 0
    while not drafts(lookahead):
        plan = lookahead.plan(0, 10, STEP, 1000, 8)
        assert plan is not None
        assert plan.is_trial
        lookahead.note(DRAFT, plan.rows, plan.rows - 1, 1.3)
        trials += 1
    assert trials <= 12
