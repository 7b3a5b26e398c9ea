"""What the page gets of files, as plain data."""

from __future__ import annotations

from typing import TypedDict


class Attached(TypedDict):
    """A file by its id, and the conversation's."""

    chat: str
    id: str


class AttachedFile(TypedDict):
    """size: bytes. indexed: how many of its passages are found by their meaning. comes: whether the others will be,
    in the background."""

    id: str
    name: str
    type: str
    size: int
    passages: int
    indexed: int
    comes: bool
