"""Facts about files for the page, as plain data."""

from __future__ import annotations

from typing import TypedDict


class Attached(TypedDict):
    """A file by its id, and the conversation's."""

    chat: str
    id: str


class AttachedFile(TypedDict):
    """size: bytes. indexed: the number of its passages that can be found by meaning. comes: true if the others are
    being indexed in the background."""

    id: str
    name: str
    type: str
    size: int
    passages: int
    indexed: int
    comes: bool
