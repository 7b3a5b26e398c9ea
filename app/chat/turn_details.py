"""The details of a turn that are stored with its text, so that a stored conversation looks as it did when it was
new."""

from __future__ import annotations

from app.records.branches import Turn
from py_core.display import is_blank, whole_end

TITLE_LENGTH = 80


def title_of(text: str) -> str:
    """Return the title of a conversation that begins with this message: its first words, at most TITLE_LENGTH
    characters."""
    words = "" if is_blank(text) else " ".join(text.split())
    if len(words) <= TITLE_LENGTH:
        return words
    cut = words[: whole_end(words, TITLE_LENGTH - 1)]
    if words[TITLE_LENGTH - 1] != " ":
        # A single word of that length, or a script without spaces, is cut anywhere.
        cut = cut.rpartition(" ")[0] or cut
    return f"{cut.rstrip(' ,;:.-')}…"


def is_unread(answer: Turn) -> bool:
    """True if the model does not read the turn: the memory answered, or its content was forgotten."""
    return "taught" in answer.details or bool(answer.details.get("unread"))
