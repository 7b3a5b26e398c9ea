"""Pages of keys and values by the tokens that they hold: what was read once is found again.

A radix tree (as in RadixAttention, arXiv 2312.07104) whose edges are the tokens of a page: a page's keys and values
depend on its tokens, on all before them, and on the set of LoRA matrices, which is the root that a path begins at. The
last page of a text may hold fewer tokens than fit; nothing comes behind such a one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from py_core.paging.page_table import PAGE

Edge: TypeAlias = tuple[int, ...]
"""The tokens of a page: PAGE, or fewer of a text's last one."""

LEAST_COPIED = 8
"""Tokens that a page must hold of a text's end, so that it is worth a copy. All chats begin with fewer."""


PROTECTED = 0.5
"""Of all pages, as many as this may be protected: the others come and go."""

KNOWN = 4
"""Of pages that were let go, so many times as many are known as there are others."""

UNUSED = 4
"""A protected page that nobody used while so many times as many were let go as there are is protected no more."""


class _Node:
    """A page behind those of its parents. `page` is that of the backend, -1 for a root. `name` tells the text up to its
    end from others; `used`: how many pages had been let go when it was used last."""

    __slots__ = ("children", "edge", "name", "order", "page", "parent", "used")

    def __init__(self, parent: _Node | None, edge: Edge, page: int, name: int = 0) -> None:
        self.parent, self.edge, self.page, self.used = parent, edge, page, 0
        self.name: int = hash((parent.name, edge)) if parent else name
        self.children: dict[Edge, _Node] = {}
        self.order: list[Edge] = []
        """The children's edges, sorted: those that begin alike are neighbours. None is the beginning of another."""

    def add(self, edge: Edge, page: int) -> _Node:
        child = self.children[edge] = _Node(self, edge, page)
        insort(self.order, edge)
        return child

    def remove(self, edge: Edge) -> None:
        del self.children[edge]
        del self.order[bisect_left(self.order, edge)]

    def nearest(self, edge: Edge) -> tuple[_Node | None, int]:
        """The child that has most of the edge's tokens in common with it from the first on, and how many."""
        at = bisect_left(self.order, edge)
        found: tuple[_Node | None, int] = None, 0
        for other in self.order[max(at - 1, 0) : at + 1]:
            if (length := _common(edge, other)) > found[1]:
                found = self.children[other], length
        return found


class RadixTree:
    """Bookkeeping only: who takes a page out of the tree, or puts one in, counts its references.

    Where more is asked for in turn than there is room for, letting go of what was not used for the longest time lets go
    of what is asked for next, always. So a page that was let go and was read again is protected (as in 2Q, Johnson and
    Shasha 1994): what was read once goes before it.
    """

    def __init__(self) -> None:
        self._roots: dict[int, _Node] = {}
        self._recent: dict[_Node, None] = {}
        """All pages, those that were not used for long first. A path is touched from its end, so that a page comes
        after the ones behind it."""
        self._protected: dict[_Node, None] = {}
        """Those that came back, in the same order."""
        self._gone: dict[int, None] = {}
        """Names of pages that were let go, the newest last."""
        self._let_go = 0
        """How many were let go."""
        self._most = 0
        """The most pages that there were."""
        self._nodes: dict[int, _Node] = {}
        """By their pages."""

    def __len__(self) -> int:
        return len(self._recent)

    def match(self, adapter: int, tokens: Sequence[int]) -> tuple[list[int], int]:
        """The pages of the longest beginning of `tokens` that is there, and its length. They count as used now.

        The last one may hold other tokens behind it, or have room: it is copied before anybody writes there.
        """
        node, path, length = self._roots.get(adapter), list[_Node](), 0
        for edge in _edges(tokens) if node else ():
            assert node is not None
            child, common = node.nearest(edge)
            if child is None or (common < PAGE and common < LEAST_COPIED):
                break
            path.append(child)
            length += common
            if common < PAGE:
                break
            node = child
        self._touch(path)
        return [node.page for node in path], length

    def insert(self, adapter: int, tokens: Sequence[int], pages: Sequence[int]) -> tuple[list[int], list[int]]:
        """Put the pages of a text in, PAGE tokens each, of the last one maybe fewer: those of them that are new in the
        tree, and those that are there no more, since a new one has what they have and more.

        For tokens that are there already the tree keeps its own page.
        """
        node = self._roots.setdefault(adapter, _Node(None, (), -1, adapter))
        path, new, old = list[_Node](), list[int](), list[int]()
        for edge, page in zip(_edges(tokens), pages, strict=True):
            child, common = node.nearest(edge)
            if child is None or common < len(edge):
                if child is not None and common == len(child.edge):
                    self._remove(child)
                    old.append(child.page)
                child = self._nodes[page] = node.add(edge, page)
                self._protect(child)
                new.append(page)
            path.append(child)
            node = child
        self._touch(path)
        return new, old

    def evict(self, is_free: Callable[[int], bool]) -> int | None:
        """Take out the page that was not used for the longest time, of those with none behind them that `is_free`
        allows, a protected one only where there is no other; None where there is none."""
        found = None
        for node in self._recent:
            if not node.children and is_free(node.page):
                if not self._is_protected(node):
                    found = node
                    break
                found = found or node
        if found is None:
            return None
        self._remove(found)
        self._note_gone(found)
        return found.page

    def forget(self, adapter: int) -> list[int]:
        """Take out all that was made with a set of LoRA matrices; the pages."""
        root = self._roots.pop(adapter, None)
        pages, left = list[int](), list(root.children.values()) if root else []
        while left:
            node = left.pop()
            left.extend(node.children.values())
            del self._recent[node]
            self._protected.pop(node, None)
            self._nodes.pop(node.page, None)
            pages.append(node.page)
        return pages

    def rename(self, page: int, new: int) -> None:
        """A page has another number now, if it is in the tree."""
        if node := self._nodes.pop(page, None):
            node.page = new
            self._nodes[new] = node

    def _remove(self, node: _Node) -> None:
        assert node.parent is not None
        node.parent.remove(node.edge)
        del self._recent[node]
        self._protected.pop(node, None)
        self._nodes.pop(node.page, None)

    def _touch(self, path: list[_Node]) -> None:
        self._most = max(self._most, len(self))
        for node in reversed(path):
            self._recent.pop(node, None)
            self._recent[node] = None
            node.used = self._let_go
            if node in self._protected:
                del self._protected[node]
                self._protected[node] = None

    def _note_gone(self, node: _Node) -> None:
        self._let_go += 1
        self._gone.pop(node.name, None)
        self._gone[node.name] = None
        while len(self._gone) > KNOWN * self._most:
            del self._gone[next(iter(self._gone))]

    def _protect(self, node: _Node) -> None:
        """Protect a page that came back, where not too many are."""
        if node.name not in self._gone:
            return
        del self._gone[node.name]
        for other in list(self._protected):
            if self._is_protected(other):
                break
            del self._protected[other]
        if len(self._protected) < PROTECTED * self._most:
            self._protected[node] = None

    def _is_protected(self, node: _Node) -> bool:
        return node in self._protected and self._let_go - node.used <= UNUSED * self._most


def _edges(tokens: Sequence[int]) -> Iterator[Edge]:
    return (tuple(tokens[at : at + PAGE]) for at in range(0, len(tokens), PAGE))


def _common(a: Edge, b: Edge) -> int:
    for at, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return at
    return min(len(a), len(b))
