"""The errors of the memory, as sentences."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from py_core.messages import Message, UserError

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

SENTENCES: dict[Reason, Message] = {
    "unavailable": Message(
        "memory.unavailable",
        "Sonata cannot store anything here: the browser or the system does not allow it (a private window?).",
    ),
    "quota": Message("memory.quota", "There is no space left to store anything. Free some disk space, then reload."),
    "blocked": Message("memory.blocked", "Another tab runs an older version of Sonata. Close that tab, then reload."),
    "closed": Message("memory.closed", "The memory was closed or deleted from outside. Reload to open it again."),
    "replaced": Message("memory.replaced", "Another tab updated Sonata. Reload this tab."),
    "newer": Message(
        "memory.newer", "A newer version of Sonata wrote this memory. Update Sonata to open it. Nothing was changed."
    ),
    "damaged": Message(
        "memory.damaged", "The memory is damaged, or Sonata did not write it. Move it away, or import an export."
    ),
    "busy": Message("memory.busy", "Another program is using the memory. Close it, or try again in a moment."),
    "changed": Message(
        "memory.changed",
        "Another tab or program changed the passphrase or the version of the memory. Reload to continue.",
    ),
    "conflict": Message("memory.conflict", "Another tab or program changed the same item at the same time. Try again."),
    "locked": Message("memory.locked", "A passphrase protects the memory. Type the passphrase to open it."),
    "passphrase": Message("memory.passphrase", "Wrong passphrase. Try again."),
    "file": Message(
        "memory.file",
        "This is not an export of Sonata, ChatGPT or Open WebUI, or it is damaged. Choose another file. Nothing was "
        "changed.",
    ),
    "record": Message("memory.record", "The memory cannot store this item."),
    "compacting": Message(
        "memory.compacting",
        "The memory's files may still hold what was there before. Sonata tries again at the next start.",
    ),
    "room": Message(
        "memory.room", "There is not enough space for this. Free some space, then try again. Nothing was changed."
    ),
    "unreadable": Message(
        "memory.unreadable", "Some items in the memory cannot be read, and are left out. See Settings, Storage."
    ),
}

GOES_ON_IN_MEMORY: frozenset[Reason] = frozenset({"unavailable", "quota", "blocked", "closed", "replaced"})
"""Reasons after which nothing can be stored any more; from then on records are kept in plain memory."""


class StoreError(UserError):
    """The memory cannot do what was requested. The message says what to do; no stored data is lost.

    `reason` tells programs what happened.
    """

    def __init__(self, reason: Reason, message: Message | str | None = None, text: str = "", /, **values: Any) -> None:
        """message: a message, or its code, text and values; without it, the reason's message is used."""
        super().__init__(message or SENTENCES[reason], text, **values)
        self.reason: Reason = reason


def as_reason(name: str, otherwise: Reason = "unavailable") -> Reason:
    """`name` if it is a Reason, otherwise `otherwise`. The page's JavaScript names its errors after Reasons."""
    return cast(Reason, name) if name in get_args(Reason) else otherwise
