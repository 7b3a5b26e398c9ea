"""Data in a sequence's pages stay as long as a position can see them, and pages are returned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.models.graph import Graph
from py_core.paging import page_table
from py_core.paging.page_table import PAGE, REWIND, PageTable, layer_groups, most_pages

SLOTS, CONTEXT, SLACK = 3, 40 * PAGE, 5 * PAGE

STEPS = st.tuples(
    st.integers(0, SLOTS - 1),
    st.sampled_from(["read", "read", "read", "rewind", "free"]),
    st.integers(1, SLACK) | st.sampled_from([1, PAGE, PAGE + 1]),
)


@pytest.fixture(autouse=True, scope="module")
def little_slack():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_table, "SLACK", SLACK)
        patch.setattr(page_table, "FIRST_PAGES", 2)
        yield


@given(window=st.sampled_from([0, 1, PAGE, 3 * PAGE + 7]), steps=st.lists(STEPS, max_size=60))
def test_pages_hold_what_is_seen_and_none_is_lost(window: int, steps: list[tuple[int, str, int]]) -> None:
    table = PageTable(SLOTS, CONTEXT, window)
    stored, read = [0] * SLOTS, [0] * SLOTS
    written: dict[tuple[int, int], tuple[int, int]] = {}
    """The last writer of each place of the pool, and its position: by page and place in it."""
    for slot, what, count in steps:
        if what == "read":
            first, length = stored[slot], min(stored[slot] + count, CONTEXT)
            while table.lacks(slot, first, length):
                table.add_capacity(table.grown())
            table.take(slot, first, length)
            for position in range(first, length):
                written[int(table.rows[slot, position // PAGE]), position % PAGE] = (slot, position)
            # Each row of the pass finds all that it sees, including earlier tokens.
            for position in range(max(0, first + 1 - window) if window else 0, length):
                page = int(table.rows[slot, position // PAGE])
                assert page < table.capacity
                assert written[page, position % PAGE] == (slot, position)
            stored[slot], read[slot] = length, max(read[slot], length)
        else:
            stored[slot] = max(0, stored[slot] - count) if what == "rewind" else 0
            if not table.sees(slot, stored[slot]):
                assert stored[slot] < read[slot] - SLACK
                stored[slot] = 0
            table.release(slot, stored[slot])
            read[slot] = read[slot] if stored[slot] else 0
        assert len(table._free) == len(set(table._free))
        for held in table._held:
            assert not set(held) & set(table._free)
            assert len(held) <= most_pages(window, CONTEXT)
        assert sum(map(len, table._held)) + len(table._free) == table.capacity
    for slot in range(SLOTS):
        table.release(slot, 0)
    assert sorted(table._free) == list(range(table.capacity))


@pytest.mark.parametrize(
    ("window", "capacities"), [(0, [2, 4, 8, 16, 32, 40, 80, 120]), (100, [2, 4, 8, 16]), (64, [2, 4, 7, 14])]
)
def test_a_pool_doubles_but_not_beyond_what_its_first_sequence_holds(window: int, capacities: list[int]) -> None:
    table = PageTable(SLOTS, CONTEXT, window)
    found = [table.capacity]
    while len(found) < len(capacities):
        table.add_capacity(table.grown())
        found.append(table.capacity)
    assert found == capacities


def test_layers_share_a_table_by_what_they_keep() -> None:
    graph = Graph()
    x = graph.embedding("e", 4, 8)
    for layer, window in enumerate([50, 0, 50, 2000, 1000]):
        x = graph.attention(layer, x, x, x, 1, 1, 1.0, window=window)
    assert layer_groups(graph, CONTEXT) == {50: [0, 2], 0: [1], 2000: [3], 1000: [4]}
    # A window that is, with its slack, as long as the context returns no pages.
    assert layer_groups(graph, 1320) == {50: [0, 2], 0: [1, 3, 4]}


SIGHT = 2
ROWS = SIGHT + REWIND


def test_near_the_last_position_that_was_written_a_sequence_continues_there() -> None:
    assert REWIND >= MAX_LOGIT_ROWS
    table = PageTable(SLOTS, CONTEXT, sight=SIGHT)
    table.take(0, 0, 100)
    least = 100 - REWIND
    assert [table.whole(0, position) for position in (100, least, least - 1)] == [100, least, PAGE]
    table.add_capacity(8)
    table.adopt(1, table.held(0))
    table.replace(1, 1, table.new_page())  # as a copy
    table.take(1, 95, 96)
    assert [table.whole(1, position) for position in (96, least, least - 1)] == [96, least, PAGE]
    least = PAGE - REWIND
    assert [table.whole(0, position) for position in (PAGE, least, least - 1)] == [PAGE, least, 0]
    table.take(0, PAGE, PAGE + 1)  # from its beginning on, the page is another one
    assert table.whole(0, PAGE + 1) == PAGE + 1


STATE_STEPS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["reads", "reads", "runs ahead", "goes back", "branches"]),
    st.integers(1, ROWS) | st.integers(1, ROWS) | st.integers(1, 3 * PAGE) | st.sampled_from([PAGE, 2 * PAGE]),
)


@given(st.lists(STATE_STEPS, min_size=20, max_size=40))
def test_each_row_of_a_convolution_finds_those_before_it(steps: list[tuple[int, str, int]]) -> None:
    table = PageTable(SLOTS, CONTEXT, sight=SIGHT)
    kept: dict[tuple[int, int], int] = {}
    """Which run of a position wrote each row: by page and place in it."""
    runs: list[list[int]] = [[] for _ in range(SLOTS)]
    """The run that each stored position of a sequence should be."""
    number = 0

    def row(slot: int, position: int) -> tuple[int, int]:
        return int(table.rows[slot, position // PAGE]), position % PAGE % ROWS

    def room(slot: int, first: int, length: int) -> None:
        while table.lacks(slot, first, length):
            table.add_capacity(table.grown())
        if (shared := table.others_page(slot, first)) is not None:
            own = table.new_page()
            kept.update({(own, at): kept[shared, at] for at in range(ROWS) if (shared, at) in kept})
            table.replace(slot, first // PAGE, own)
        table.take(slot, first, length)

    for slot, what, count in steps:
        mine, other = runs[slot], runs[1 - slot]
        if what in ("reads", "runs ahead"):
            first, length = len(mine), min(len(mine) + count, CONTEXT)
            room(slot, first, length)
            for position in range(first, length):
                for before in range(max(0, position - SIGHT), position):
                    assert kept[row(slot, before)] == mine[before]
                number += 1
                kept[row(slot, position)] = number
                mine.append(number)
            if what == "runs ahead":
                del mine[first:]
        elif what == "goes back":
            del mine[max(0, len(mine) - count) :]
        else:
            length = max(0, len(other) - count)
            pages = table.held(1 - slot)[: -(-length // PAGE)]
            length = table.reach(pages, length)
            table.release(slot, 0)
            table.adopt(slot, pages[: -(-length // PAGE)])
            mine[:] = other[:length]
        del mine[table.whole(slot, len(mine)) :]


Content = dict[int, int]
"""The runs of a state's rows by their positions; -1 for the sum of all runs before the page."""


@given(st.lists(STATE_STEPS, min_size=20, max_size=40), st.integers(1, 4))
def test_each_page_that_is_continued_has_a_state_with_all_before_it(
    steps: list[tuple[int, str, int]], states: int
) -> None:
    table = PageTable(SLOTS, CONTEXT, sight=SIGHT, states=states)
    kept: dict[int, Content] = {}
    """The content of each state."""
    runs: list[list[int]] = [[] for _ in range(SLOTS)]
    number = 0

    def state(slot: int, place: int) -> int:
        return int(table.state_rows[slot, place])

    def room(slot: int, first: int, length: int) -> None:
        while table.lacks(slot, first, length):
            table.add_capacity(table.grown())
        while table.lacks_states(slot, first, length):
            table.add_states(table.states + 1)
        if (shared := table.others_page(slot, first)) is not None:
            own, old = table.new_page(), table.state_of(shared)
            assert old is not None
            kept[table.copy_state(slot, shared, own)] = dict(kept[old])
            table.replace(slot, first // PAGE, own)
        table.take(slot, first, length)

    for slot, what, count in steps:
        mine, other = runs[slot], runs[1 - slot]
        table.at_work = {slot} if count % 2 else {0, 1}
        for each in table.at_work:
            del runs[each][table.whole(each, len(runs[each])) :]
        if what in ("reads", "runs ahead"):
            first, length = len(mine), min(len(mine) + count, CONTEXT)
            room(slot, first, length)
            for position in range(first, length):
                place, begin = position // PAGE, position // PAGE * PAGE
                if position == begin:
                    kept[state(slot, place)] = {-1: sum(kept[state(slot, place - 1)].values()) if place else 0}
                here = kept[state(slot, place)]
                assert [here[at] for at in (-1, *range(position - begin))] == [sum(mine[:begin]), *mine[begin:]]
                number += 1
                here[position - begin] = number
                mine.append(number)
            if what == "runs ahead":
                del mine[first:]
            for each in table.at_work - {slot}:  # what runs beside it can still continue
                assert table.whole(each, len(runs[each])) == len(runs[each])
        elif what == "goes back":
            del mine[max(0, len(mine) - count) :]
        else:
            pages = table.held(1 - slot)
            length = table.reach(pages, max(0, len(other) - count))
            table.release(slot, 0)
            table.adopt(slot, pages[: -(-length // PAGE)])
            mine[:] = other[:length]
        held = {one.number for one in table._states.values()}
        assert sorted([*table._free_states, *held]) == list(range(table.states))
        assert table.states <= 16, "the pool grows only for texts that run"
