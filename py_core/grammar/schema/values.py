"""Sets of numbers or strings that list their values."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class Listed(Protocol[T]):
    @property
    def values(self) -> tuple[T, ...] | None: ...

    def has(self, value: T, /) -> bool: ...


def common_values(one: Listed[T], other: Listed[T]) -> tuple[T, ...] | None:
    """The values that both sets have; None if neither lists its values."""
    if one.values is None:
        one, other = other, one
    if one.values is None:
        return None
    if other.values is None:
        return tuple(filter(other.has, one.values))
    known = frozenset(other.values)
    return tuple(value for value in one.values if value in known)
