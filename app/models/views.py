"""Facts about adapters for the page, as plain data."""

from __future__ import annotations

from typing import Literal, TypedDict

AdapterKind = Literal["learned", "reader", "chosen"]


class Strength(TypedDict):
    """bytes: of its numbers in float16, as stored. norms: (layer, norm of its change of the layer's weights).
    None or empty if nothing is known."""

    bytes: int | None
    rank: int | None
    norms: list[tuple[int, float]]
    norm: float | None


class AdapterView(Strength):
    """kind: "learned" (of a training; id: of its run), "reader" (comes with Sonata), "chosen" (the user's file; id:
    its name). on: whether answers come with it now. older: a newer training took its place. facts: the
    questions that it was learned from; count: how many texts. tests: (name, before, after), on texts that it was not
    learned from, except for "recall"."""

    kind: AdapterKind
    id: str
    on: bool
    older: bool
    created: float | None
    facts: list[str]
    count: int
    tests: list[tuple[str, float | None, float]]
