"""Finds pages of keys and values by the tokens that they hold, so that text that was read once is found again.

This is a radix tree (as in RadixAttention, arXiv 2312.07104) whose edges are the tokens of a page. A page's keys and
values depend on its tokens, on all tokens before them, and on the set of LoRA matrices, which selects the root of the
path. The last page of a text may hold fewer tokens than fit; no page follows a page that is not full.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from py_core.paging.page_table import PAGE

Edge: TypeAlias = tuple[int, ...]
"""The tokens of a page: PAGE of them, or fewer in the last page of a text."""

LEAST_COPIED = 8
"""Tokens of a text's end that a page must hold to be worth a copy. The common beginning of all chats is shorter."""


PROTECTED = 0.5
"""The share of all pages that may be protected: the others come and go."""

KNOWN = 4
"""The number of dropped pages whose names are remembered, as a multiple of the number of pages."""

UNUSED = 4
"""A protected page loses its protection after N evictions without a use, N being UNUSED x the number of pages."""


class _Node:
    """A page that follows those of its parents. `page` is the backend's number, -1 for a root. `name` identifies the
    text up to the page's end; `used`: how many pages had been dropped when it was last used."""

    __slots__ = ("children", "edge", "name", "order", "page", "parent", "used")

    def __init__(self, parent: _Node | None, edge: Edge, page: int, name: int = 0) -> None:
        self.parent, self.edge, self.page, self.used = parent, edge, page, 0
        self.name: int = hash((parent.name, edge)) if parent else name
        self.children: dict[Edge, _Node] = {}
        self.order: list[Edge] = []
        """The children's edges, sorted: edges with the same beginning are neighbours. No edge is a prefix of
        another."""

    def add(self, edge: Edge, page: int) -> _Node:
        child = self.children[edge] = _Node(self, edge, page)
        insort(self.order, edge)
        return child

    def remove(self, edge: Edge) -> None:
        del self.children[edge]
        del self.order[bisect_left(self.order, edge)]

    def nearest(self, edge: Edge) -> tuple[_Node | None, int]:
        """The child with the longest common prefix with the edge, and the length of that prefix."""
        at = bisect_left(self.order, edge)
        found: tuple[_Node | None, int] = None, 0
        for other in self.order[max(at - 1, 0) : at + 1]:
            if (length := _common(edge, other)) > found[1]:
                found = self.children[other], length
        return found


class RadixTree:
    """Bookkeeping only: the caller that removes a page from the tree, or adds one, counts its references.

    If texts are read in turn that do not fit together, dropping the least recently used page always drops the page that
    is needed next. So a page that was dropped and read again is protected (as in 2Q, Johnson and Shasha 1994): pages
    that were read only once are dropped first.
    """

    def __init__(self) -> None:
        self._roots: dict[int, _Node] = {}
        self._recent: dict[_Node, None] = {}
        """All pages, least recently used first. A path is touched from its end, so that a page comes after its
        children."""
        self._protected: dict[_Node, None] = {}
        """The pages that were read again after they were dropped, in the same order."""
        self._gone: dict[int, None] = {}
        """Names of dropped pages, the newest last."""
        self._let_go = 0
        """How many pages were dropped."""
        self._most = 0
        """The largest number of pages so far."""
        self._nodes: dict[int, _Node] = {}
        """The nodes by their pages."""

    def __len__(self) -> int:
        return len(self._recent)

    def match(self, adapter: int, tokens: Sequence[int]) -> tuple[list[int], int]:
        """The pages of the longest known prefix of `tokens`, and its length. They count as used now.

        The last page may hold other tokens after the prefix, or have room: it is copied before anything is written to
        it.
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
        """Insert the pages of a text, PAGE tokens each; the last page may hold fewer. Returns the pages that are new in
        the tree, and the pages that were removed because a new page has all of their tokens and more.

        For tokens that are in the tree already, the tree keeps its own page.
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
        """Remove the least recently used page that has no children and that `is_free` allows. A protected page is
        removed only if there is no other. Returns None if there is none."""
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
        """Remove everything that was made with a set of LoRA matrices. Returns the pages."""
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
        """Change the number of a page, if it is in the tree."""
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
        """Protect a page that was dropped and read again, unless too many pages are protected."""
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
