"""The tree finds the longest beginning of a text that is in it, and returns each page once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from py_core.paging.page_table import PAGE, pages_of
from py_core.paging.radix_tree import LEAST_COPIED, RadixTree

PAGES = st.lists(st.integers(0, 1), max_size=4).map(lambda pages: [token for token in pages for _ in range(PAGE)])
ENDS = st.tuples(st.integers(0, 1), st.integers(0, PAGE // 2), st.integers(0, PAGE // 2 - 1)).map(
    lambda end: [end[0]] * end[1] + [7] * end[2]
)
STEPS = st.tuples(
    st.sampled_from(["insert", "insert", "insert", "match", "evict", "forget"]), st.integers(0, 1),
    st.tuples(PAGES, ENDS).map(lambda parts: parts[0] + parts[1]),
)  # fmt: skip
Text = tuple[int, ...]


class Model:
    """The same without a tree: each page by the adapter's number and all tokens up to its last one."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Text], int] = {}

    def behind(self, adapter: int, before: Text) -> list[Text]:
        """The tokens of each page behind these."""
        at = len(before)
        return [
            text[at:] for number, text in self.known
            if number == adapter and text[:at] == before and 0 < len(text) - at <= PAGE
        ]  # fmt: skip

    def match(self, adapter: int, tokens: Text) -> int:
        found = 0
        while found < len(tokens):
            wanted = tokens[found : found + PAGE]
            common = max([_common(wanted, edge) for edge in self.behind(adapter, tokens[:found])], default=0)
            if common < PAGE:
                return found + common if common >= LEAST_COPIED else found
            found += PAGE
        return found

    def insert(self, adapter: int, tokens: Text, pages: list[int]) -> tuple[list[int], list[int]]:
        new, old = list[int](), list[int]()
        for at, page in enumerate(pages):
            before, edge = tokens[: at * PAGE], tokens[at * PAGE : (at + 1) * PAGE]
            edges = self.behind(adapter, before)
            if any(other[: len(edge)] == edge for other in edges):
                continue
            old += [self.known.pop((adapter, before + other)) for other in edges if edge[: len(other)] == other]
            self.known[adapter, before + edge] = page
            new.append(page)
        return new, old

    def ends(self) -> list[tuple[int, Text]]:
        return [(number, text) for number, text in self.known if not self.behind(number, text)]


def _common(a: Text, b: Text) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(steps=st.lists(STEPS, max_size=40))
def test_what_was_put_in_is_found_until_it_is_taken_out(steps: list[tuple[str, int, list[int]]]) -> None:
    tree, model, numbers = RadixTree(), Model(), iter(range(10_000))
    for what, adapter, text in steps:
        tokens = tuple(text)
        if what == "insert":
            pages = [next(numbers) for _ in range(pages_of(len(tokens)))]
            assert tree.insert(adapter, tokens, pages) == model.insert(adapter, tokens, pages)
        elif what == "match":
            pages, length = tree.match(adapter, tokens)
            assert length == model.match(adapter, tokens)
            assert len(pages) == pages_of(length)
            for at, page in enumerate(pages):
                held = next(text for (number, text), one in model.known.items() if one == page and number == adapter)
                assert pages_of(len(held)) == at + 1
                assert held[: min(length, (at + 1) * PAGE)] == tokens[: min(length, (at + 1) * PAGE)]
        elif what == "evict":
            page = tree.evict(lambda page: page % 3 > 0)
            free = [end for end in model.ends() if model.known[end] % 3 > 0]
            assert (page is None) == (not free)
            if page is not None:
                (end,) = (end for end in free if model.known[end] == page)
                del model.known[end]
        else:
            gone = [key for key in model.known if key[0] == adapter]
            assert sorted(tree.forget(adapter)) == sorted(model.known.pop(key) for key in gone)
        assert len(tree) == len(model.known)


def test_what_was_not_used_for_the_longest_time_goes_first_and_the_end_of_a_text_before_its_beginning() -> None:
    tree = RadixTree()
    first, second = [1] * (2 * PAGE), [2] * PAGE
    tree.insert(0, first, [10, 11])
    tree.insert(0, second, [20])
    assert tree.match(0, first) == ([10, 11], 2 * PAGE)
    assert [tree.evict(lambda page: True) for _ in range(4)] == [20, 11, 10, None]


def test_a_page_that_somebody_uses_is_not_taken_out() -> None:
    tree = RadixTree()
    tree.insert(0, [1] * (2 * PAGE), [10, 11])
    assert tree.evict(lambda page: page != 11) is None
    assert tree.match(0, [1] * (2 * PAGE)) == ([10, 11], 2 * PAGE)


def test_a_page_with_room_gives_way_to_one_that_has_more_of_the_text() -> None:
    tree = RadixTree()
    assert tree.insert(0, [1] * 20, [10]) == ([10], [])
    assert tree.insert(0, [1] * 10, [11]) == ([], [])
    assert tree.match(0, [1] * 15 + [2]) == ([10], 15)
    assert tree.insert(0, [1] * 20 + [2] * PAGE, [12, 13]) == ([12, 13], [10])
    assert tree.match(0, [1] * 30) == ([12], 20)
    assert tree.match(0, [1] * (LEAST_COPIED - 1) + [3]) == ([], 0)
