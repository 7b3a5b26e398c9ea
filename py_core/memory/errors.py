"""The errors of the memory, as sentences."""

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
    "unreadable",
    "compacting",
    "room",
]

SENTENCES: dict[Reason, str] = {
    "unavailable": "Sonata cannot store anything here: the browser or the system refuses storage (a private window?).",
    "quota": "There is no space left to store anything. Free some disk space, then reload.",
    "blocked": "Another tab runs an older version of Sonata. Close that tab, then reload.",
    "closed": "The memory was closed or deleted from outside. Reload to open it again.",
    "replaced": "Another tab updated Sonata. Reload this tab.",
    "newer": "A newer version of Sonata wrote this memory. Update Sonata to open it. Nothing was changed.",
    "damaged": "The memory is damaged, or Sonata did not write it. Move it away, or import an export.",
    "busy": "Another program is using the memory. Close it, or try again in a moment.",
    "changed": "Another tab or program changed the passphrase or the version of the memory. Reload to continue.",
    "conflict": "Another tab or program changed the same item at the same time. Try again.",
    "locked": "A passphrase protects the memory. Type the passphrase to open it.",
    "passphrase": "Wrong passphrase. Try again.",
    "file": (
        "This is no export of Sonata, ChatGPT or Open WebUI, or a damaged one. Choose another file. "
        "Nothing was changed."
    ),
    "record": "The memory cannot store this item.",
    "compacting": "The memory's files may still hold what was there before. Sonata tries again at the next start.",
    "room": "There is not enough space for this. Free some space, then try again. Nothing was changed.",
    "unreadable": "Some items in the memory cannot be read, and are left out. See Settings, Storage.",
}

GOES_ON_IN_MEMORY: frozenset[Reason] = frozenset({"unavailable", "quota", "blocked", "closed", "replaced"})
"""Nothing can be stored any more; from now on records are kept in plain memory."""


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
