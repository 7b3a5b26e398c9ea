"""The tree finds the longest beginning of whole pages that is in it, and gives each page back once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from py_core.backends.page_table import PAGE
from py_core.backends.radix_tree import RadixTree

TEXTS = st.lists(st.integers(0, 1), max_size=5).map(lambda pages: [token for token in pages for _ in range(PAGE)])
STEPS = st.tuples(
    st.sampled_from(["insert", "insert", "match", "evict", "forget"]), st.integers(0, 1), TEXTS, st.integers(0, 70)
)


@given(steps=st.lists(STEPS, max_size=40))
def test_what_was_put_in_is_found_until_it_is_taken_out(steps: list[tuple[str, int, list[int], int]]) -> None:
    tree, numbers = RadixTree(), iter(range(10_000))
    known: dict[tuple[int, ...], int] = {}
    """Page by the adapter and all tokens up to the page's end."""
    for what, adapter, text, more in steps:
        tokens = text + [7] * (more % PAGE)  # what does not fill a page is in no page
        ends = [(adapter, *tokens[:end]) for end in range(PAGE, len(text) + 1, PAGE)]
        if what == "insert":
            pages = [known.get(end, next(numbers)) for end in ends]
            new = tree.insert(adapter, tokens, pages)
            assert new == [page for end, page in zip(ends, pages, strict=True) if end not in known]
            known |= dict(zip(ends, pages, strict=True))
        elif what == "match":
            found = [known[end] for end in ends if end in known]
            assert tree.match(adapter, tokens) == found
        elif what == "evict":
            page = tree.evict(lambda page: page % 3 > 0)
            leaves = [end for end in known if not any(len(o) > len(end) and o[: len(end)] == end for o in known)]
            free = [end for end in leaves if known[end] % 3 > 0]
            assert (page is None) == (not free)
            if page is not None:
                (end,) = (end for end in free if known[end] == page)
                del known[end]
        else:
            assert sorted(tree.forget(adapter)) == sorted(page for end, page in known.items() if end[0] == adapter)
            known = {end: page for end, page in known.items() if end[0] != adapter}
        assert len(tree) == len(known)


def test_what_was_not_used_for_the_longest_time_goes_first_and_the_end_of_a_text_before_its_beginning() -> None:
    tree = RadixTree()
    first, second = [1] * (2 * PAGE), [2] * PAGE
    tree.insert(0, first, [10, 11])
    tree.insert(0, second, [20])
    assert tree.match(0, first) == [10, 11]
    assert [tree.evict(lambda page: True) for _ in range(4)] == [20, 11, 10, None]


def test_a_page_that_somebody_uses_is_not_taken_out() -> None:
    tree = RadixTree()
    tree.insert(0, [1] * (2 * PAGE), [10, 11])
    assert tree.evict(lambda page: page != 11) is None
    assert tree.match(0, [1] * (2 * PAGE)) == [10, 11]
