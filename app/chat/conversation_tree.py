"""The turns of the current conversation, as a tree, and their copy in the memory, if there is one.

A turn that could not be stored is stored together with the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.chat.turn_details import title_of
from app.records.branches import Branches, Turn
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.sessions import Session
from app.routing.agent_choice import CHOICE
from py_core.passages.words import telling_words
from py_core.store.errors import StoreError

UNREAD = "unread"
"""A key of a session's state: the numbers of turns that the model does not read, because what they say was
forgotten."""


class ConversationTree:
    """Knows what this tab knows: others may have changed the stored conversation since."""

    def __init__(self) -> None:
        self.branches = Branches()
        self.session: Session | None = None
        """The stored session, as it was when this tab read or wrote it last."""
        self._chosen: str | None = None  # as long as nothing is stored
        self._waiting: set[int] = set()  # numbers of turns that are not stored yet

    @property
    def chosen(self) -> object:
        """Return the agent that the user chose for the conversation (app/routing/agent_choice.py)."""
        return self.session.state.get(CHOICE) if self.session else self._chosen

    def choose(self, chosen: str | None) -> None:
        """Choose an agent before the conversation is stored; the choice is stored with it."""
        self._chosen = chosen

    def add(self, turns: Sequence[Turn], after: int | None) -> None:
        """Show turns after the turn with the number `after`; `keep` stores them."""
        known = self.branches.turns
        first = known[-1].number + 1 if known else 0
        said = [replace(turn, number=first + n, after=first + n - 1 if n else after) for n, turn in enumerate(turns)]
        self.branches = Branches([*known, *said], said[-1].number)
        self._waiting.update(range(first, first + len(turns)))

    async def keep(self, memory: Memory, changes: dict[str, Any]) -> Session:
        """Store what is shown and not yet stored. changes: to the session, as in Sessions.edit. Raises StoreError."""
        if self.session is None:
            title = title_of(self.branches.path()[0].content)
            if self._chosen is not None:
                changes = {**changes, "state": {**changes.get("state", {}), CHOICE: self._chosen}}
            self.session = await memory.sessions.start(title, self.branches, **changes)
            self._waiting.clear()
            return self.session
        if not self.session.turns and not self.session.titled:  # it began with a file, and has its name until now
            changes = {**changes, "title": title_of(self.branches.path()[0].content)}
        known, kept, numbers = self.session, self.session, dict[int, int]()
        for chain in self._chains():
            after = chain[0].after
            after = after if after is None else numbers.get(after, after)
            kept = await memory.sessions.add_turns(known.id, *chain, after=after, **changes)
            assert kept.leaf is not None
            first = kept.leaf + 1 - len(chain)
            numbers |= {turn.number: first + n for n, turn in enumerate(chain)}
        self._waiting.clear()
        self.branches = Branches([_renumbered(turn, numbers) for turn in self.branches.turns], kept.leaf)
        # Turns of another tab came in between: as long as this is what was known before, `follow` finds them.
        if kept.turns == known.turns + len(numbers):
            self.session = kept
        return kept

    async def replace(self, memory: Memory | None, turn: Turn, known: str) -> None:
        """Replace the turn that has this turn's number and said what is `known`. If another tab has written something
        else there, this turn becomes a variant. Raises StoreError."""
        others = [one for one in self.branches.turns if one.number != turn.number]
        self.branches = Branches([*others, turn], self.branches.leaf)
        if memory is not None and self.session is not None and turn.number not in self._waiting:
            session = await memory.sessions.replace_turn(self.session.id, turn, known)
            await self.take(session, memory)

    async def follow(self, memory: Memory) -> Session | None:
        """Return the stored conversation if others have changed what is shown of it: `take` shows that. Raises
        StoreError("record") if it was deleted."""
        known = self.session
        if known is None:
            return None
        session = await memory.sessions.get(known.id)
        if session is None:
            raise StoreError("record")
        if self._waiting or (session.turns, session.updated) == (known.turns, known.updated):
            return None  # waiting turns are stored after the turn that they follow
        branches = await memory.sessions.branches(session.id)
        if _texts(branches) != _texts(self.branches):
            return session
        self.session, self.branches = session, branches
        return None

    async def take(self, session: Session, memory: Memory) -> None:
        """Show a stored conversation as it is now."""
        self.branches = await memory.sessions.branches(session.id)
        self.session = session
        self._waiting.clear()
        await self.leave_out_forgotten(memory)

    async def leave_out(self, memory: Memory | None, lessons: Sequence[Lesson]) -> None:
        """Take turns out of the model's context: turns that these lessons gave, turns in which they were taught, and
        turns that say the same. Raises StoreError."""
        numbers = {number for one in lessons for number in _saying(self.branches.turns, one)}
        self._mark(numbers)
        if memory is not None and self.session is not None and numbers:
            unread = sorted(numbers.union(self.session.state.get(UNREAD, ())))
            self.session = await memory.sessions.edit(self.session.id, state={UNREAD: unread})

    async def leave_out_forgotten(self, memory: Memory) -> None:
        """Do the same for lessons that are no longer in the memory."""
        named = {id for turn in self.branches.turns for id in _lessons_of(turn)}
        gone = {id for id in named if await memory.lessons.get(id) is None}
        unread = set(self.session.state.get(UNREAD, ())) if self.session else set()
        self._mark(unread | {turn.number for turn in self.branches.turns if gone & _lessons_of(turn)})

    def _mark(self, numbers: Iterable[int]) -> None:
        unread = set(numbers)
        turns = [
            replace(turn, details={**turn.details, UNREAD: True}) if turn.number in unread else turn
            for turn in self.branches.turns
        ]
        self.branches = Branches(turns, self.branches.leaf)

    def forget(self) -> None:
        self.branches, self.session, self._chosen = Branches(), None, None
        self._waiting.clear()

    def _chains(self) -> list[list[Turn]]:
        """Return the turns that are not stored yet, in pieces whose turns follow each other."""
        chains = list[list[Turn]]()
        for turn in self.branches.turns:
            if turn.number in self._waiting:
                if chains and turn.after == chains[-1][-1].number:
                    chains[-1].append(turn)
                else:
                    chains.append([turn])
        return chains


def _lessons_of(turn: Turn) -> set[str]:
    """Return the ids of the lessons that gave a turn, or were taught in it."""
    lesson, taught = turn.details.get("lesson") or {}, turn.details.get("taught") or []
    given = [lesson, *lesson.get("read", ()), *(taught if isinstance(taught, list) else [taught])]
    return {one["id"] for one in given if "id" in one}


def _saying(turns: Sequence[Turn], lesson: Lesson) -> list[int]:
    """Return the numbers of answers that a lesson gave, or that say its answer together with the message before
    them."""
    asked, contents = telling_words(lesson.question), {turn.number: turn.content for turn in turns}
    value = telling_words(lesson.answer) - asked
    found = []
    for turn in turns:
        if turn.role == "assistant":
            words = telling_words(f"{contents.get(turn.after, '') if turn.after is not None else ''} {turn.content}")
            if lesson.id in _lessons_of(turn) or (value and value <= words and asked & words):
                found.append(turn.number)
    return found


def _renumbered(turn: Turn, numbers: Mapping[int, int]) -> Turn:
    after = None if turn.after is None else numbers.get(turn.after, turn.after)
    return replace(turn, number=numbers.get(turn.number, turn.number), after=after)


def _texts(branches: Branches) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in branches.path()]
