"""What can go wrong with the memory, as sentences."""

from __future__ import annotations

from typing import Literal, cast, get_args

Reason = Literal[
    "unavailable",
    "quota",
    "blocked",
    "closed",
    "replaced",
    "newer",
    "damaged",
    "busy",
    "changed",
    "conflict",
    "locked",
    "passphrase",
    "file",
    "record",
]

SENTENCES: dict[Reason, str] = {
    "unavailable": "Nothing can be kept here: the browser or the system does not allow storage (a private window?).",
    "quota": "There is no space left for Sonata's memory. Free some space, then load again.",
    "blocked": "Sonata is open in another tab in an older version. Close that tab, then load again.",
    "closed": "The memory was closed or deleted from outside. Load again to open it.",
    "replaced": "Sonata was updated in another tab. Load this one again.",
    "newer": "The memory was written by a newer version of Sonata. Update Sonata to open it; nothing was changed.",
    "damaged": "The memory is damaged, or is not Sonata's. Move it away, or import an export; nothing was changed.",
    "busy": "Another program holds the memory. Close it, or try again in a moment.",
    "changed": "The passphrase or the version of the memory was changed elsewhere. Load again to go on.",
    "conflict": "A record was changed elsewhere at the same time. Try again.",
    "locked": "The memory is protected by a passphrase. Type it to open it.",
    "passphrase": "This is not the passphrase of the memory. Nothing was changed; try again.",
    "file": "This is not an export of Sonata's memory. Choose another file; nothing was changed.",
    "record": "This cannot be kept as a record.",
}

GOES_ON_IN_MEMORY: frozenset[Reason] = frozenset({"unavailable", "quota", "blocked", "closed", "replaced"})
"""The disk is out of reach, and what happens now can be kept in memory only."""


class StoreError(Exception):
    """The memory cannot do what was asked. The message says what to do; nothing that was stored is lost.

    `reason` tells programs what happened.
    """

    def __init__(self, reason: Reason, sentence: str | None = None) -> None:
        super().__init__(sentence or SENTENCES[reason])
        self.reason: Reason = reason


def as_reason(name: str, otherwise: Reason = "unavailable") -> Reason:
    """`name` if it is a Reason: what the page's JavaScript calls its errors."""
    return cast(Reason, name) if name in get_args(Reason) else otherwise
