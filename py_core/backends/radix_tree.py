"""Pages of keys and values by the tokens that they hold: what was read once is found again.

A radix tree (as in RadixAttention, arXiv 2312.07104) whose edges are whole pages: a page's keys and values depend on
its tokens, on all before them, and on the set of LoRA matrices, which is the root that a path begins at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from py_core.backends.page_table import PAGE

Edge: TypeAlias = tuple[int, ...]
"""The tokens of a page."""


class _Node:
    """A page behind those of its parents. `page` is that of the backend, -1 for a root."""

    __slots__ = ("children", "edge", "page", "parent")

    def __init__(self, parent: _Node | None, edge: Edge, page: int) -> None:
        self.parent, self.edge, self.page = parent, edge, page
        self.children: dict[Edge, _Node] = {}


class RadixTree:
    """Bookkeeping only: who takes a page out of the tree, or puts one in, counts its references."""

    def __init__(self) -> None:
        self._roots: dict[int, _Node] = {}
        self._recent: dict[_Node, None] = {}
        """All pages, those that were not used for long first. A path is touched from its end, so that a page comes
        after the ones behind it."""

    def __len__(self) -> int:
        return len(self._recent)

    def match(self, adapter: int, tokens: Sequence[int]) -> list[int]:
        """The pages of the longest beginning of `tokens` that is there, in whole pages. They count as used now."""
        path = self._path(adapter, tokens)
        self._touch(path)
        return [node.page for node in path]

    def insert(self, adapter: int, tokens: Sequence[int], pages: Sequence[int]) -> list[int]:
        """Put the pages of a text's beginning in, PAGE tokens each; those of them that are new in the tree.

        For tokens that are there already the tree keeps its own page.
        """
        node = self._roots.setdefault(adapter, _Node(None, (), -1))
        path, new = list[_Node](), list[int]()
        for edge, page in zip(_edges(tokens), pages, strict=False):
            if edge not in node.children:
                node.children[edge] = _Node(node, edge, page)
                new.append(page)
            node = node.children[edge]
            path.append(node)
        self._touch(path)
        return new

    def evict(self, is_free: Callable[[int], bool]) -> int | None:
        """Take out the page that was not used for the longest time, of those with none behind them that `is_free`
        allows; None where there is none."""
        for node in self._recent:
            if not node.children and is_free(node.page):
                assert node.parent is not None
                del node.parent.children[node.edge]
                del self._recent[node]
                return node.page
        return None

    def forget(self, adapter: int) -> list[int]:
        """Take out all that was made with a set of LoRA matrices; the pages."""
        root = self._roots.pop(adapter, None)
        pages, left = list[int](), [root] if root else []
        while left:
            node = left.pop()
            left.extend(node.children.values())
            if node in self._recent:
                del self._recent[node]
                pages.append(node.page)
        return pages

    def _path(self, adapter: int, tokens: Sequence[int]) -> list[_Node]:
        path = list[_Node]()
        node = self._roots.get(adapter)
        for edge in _edges(tokens) if node else ():
            node = node.children.get(edge) if node else None
            if node is None:
                break
            path.append(node)
        return path

    def _touch(self, path: list[_Node]) -> None:
        for node in reversed(path):
            self._recent.pop(node, None)
            self._recent[node] = None


def _edges(tokens: Sequence[int]) -> list[Edge]:
    return [tuple(tokens[at : at + PAGE]) for at in range(0, len(tokens) - PAGE + 1, PAGE)]
