"""Checks that every page, slot and part of memory has an owner: nothing is lost, and nothing is held twice."""

from __future__ import annotations

from collections import Counter

from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.backend import WasmBackend
from py_core.paging.sequence_slots import SLOTS


def assert_each_page_has_its_owners(backend: PipelinedBackend, slots: int = SLOTS) -> None:
    """May be called at any time between two calls. The backend has `slots` slots, its model no windows, and its
    pages no tiers."""
    table, tree = backend.pages.table, backend.pages.prefixes.tree
    assert table is not None
    owners = Counter(page for held in table._held for page in held) + Counter(list(tree._nodes))
    assert owners == {page: table.references(page) for page in owners}
    assert sorted([*table._free, *owners]) == list(range(table.capacity)), "pages are free or held"
    assert set(owners) == set(table._references)
    assert len(tree._nodes) == len(tree)
    states = [state.number for state in table._states.values()]
    assert sorted([*table._free_states, *states]) == list(range(table.states)), "states are free, or a page's"
    assert set(table._states) <= set(owners)
    in_slots = [one.slot for one in backend.pages.slots.taken.values()]
    assert sorted([*backend.pages.slots.free, *in_slots]) == list(range(slots)), "slots are free or taken"
    for slot, held in enumerate(table._held):
        assert not held or slot in in_slots, "who has no slot has no pages"
    if isinstance(backend, WasmBackend) and not backend.adapters.sets:
        assert not backend.pages.store.bytes_of_others, "what was taken for a page on its way was given back"


def assert_nothing_is_left(backend: PipelinedBackend, slots: int = SLOTS) -> None:
    """Once all sequences were freed, only pages for sequences with the same beginning are held; afterwards none are."""
    table = backend.pages.table
    assert table is not None
    assert_each_page_has_its_owners(backend, slots)
    assert not backend.pages.sequences
    assert not backend.pages.slots.taken
    assert table.capacity - table.free == len(backend.pages.prefixes.tree)
    while backend.pages.let_go():
        pass
    assert table.free == table.capacity
