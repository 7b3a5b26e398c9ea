"""A conversation as a file: Markdown for reading, JSON with everything. chat_files.py reads both."""

from __future__ import annotations

import json
import re
import time

from app.records.branches import Branches
from app.records.sessions import Session

FORMAT, VERSION = "sonata-conversation", 1
SPEAKERS = {"user": "You", "assistant": "Sonata"}
UNTITLED = "Untitled"
SPEAKER_LINE = re.compile(rf"^(\*\*(?:{'|'.join(SPEAKERS.values())})\*\*) *$", re.MULTILINE)
"""Such a line in a message gets a space at its end, so that it begins no message. Markdown does not show the space."""


def as_markdown(session: Session, branches: Branches) -> str:
    """Return what is shown of it: title, time, and each message below the name of its speaker. Answers are Markdown
    already."""
    parts = list(heading(session))
    for turn in branches.path():
        content = SPEAKER_LINE.sub(lambda line: f"{line[0]} ", turn.content.strip())
        parts += [f"**{SPEAKERS.get(turn.role, turn.role)}**", content]
    return "\n\n".join(parts) + "\n"


def heading(session: Session) -> tuple[str, str]:
    """Return its title and its time, as the Markdown begins."""
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.created))
    return f"# {one_line(session.title) or UNTITLED}", f"*{begun}*"


def as_json(session: Session, branches: Branches) -> str:
    """Return all its turns, also those of branches that are not shown. Each has its number and that of the turn it
    follows.

    Times are seconds since 1970. leaf: the number of the last turn that is shown.
    """
    names = ("id", "title", "created", "updated", "said", "pinned", "archived", "leaf")
    turns = [
        {name: getattr(turn, name) for name in ("number", "after", "role", "content", "created", "details")}
        for turn in branches.turns
    ]
    told = {"format": FORMAT, "version": VERSION, **{name: getattr(session, name) for name in names}, "turns": turns}
    return json.dumps(told, ensure_ascii=False, indent=1) + "\n"


def one_line(text: str) -> str:
    return " ".join(text.split())
