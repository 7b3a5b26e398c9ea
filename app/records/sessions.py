"""Conversations: their turns, and what is needed to continue them."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from app.records.branches import Branches, Turn
from app.records.files import ids_of_session
from py_core.learning.trajectories import KIND as TRAJECTORY
from py_core.store import field_checks as checks
from py_core.store.errors import StoreError
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind
from py_core.store.records import LONGEST_NAME, Record
from py_core.store.rows import Key
from py_core.store.store import ATTEMPTS, Store
from py_core.store.transaction import Transaction
from py_core.store.write_batch import BatchedWriter

__all__ = ["KIND", "TURN", "Branches", "MergedConversations", "Place", "Session", "Sessions", "Turn"]

KIND, TURN = "session", "turn"
LONGEST_TITLE = 1_000
MOST_TURNS = 999_999  # of a conversation

Place = int | Literal["leaf"] | None
"""The turn after which others go: a number, "leaf" for the last turn of the path that is shown, or None to begin the
conversation again."""

Writes = tuple["Session", Sequence[Record]]

Titled = Literal["", "model", "user"]
"""The source of a conversation's title: its first words (""), the model or the user."""


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation without its turns. state: JSON to continue it from.

    turns: the number of turns of all branches. leaf: the number of the last turn of the path that is shown. said: when
    the last turn came, seconds since 1970; updated: when anything changed, such as the title or the path.
    """

    id: str
    title: str = ""
    turns: int = 0
    adapter: str | None = None
    state: dict[str, Any] = field(default_factory=dict)
    leaf: int | None = None
    pinned: bool = False
    archived: bool = False
    titled: Titled = ""
    said: float = 0.0
    created: float = 0.0
    updated: float = 0.0


@dataclass(frozen=True, slots=True)
class MergedConversations:
    """conversations: the number with new turns, or that are new. turns: the number of new turns. unfit: conversations
    that cannot be stored."""

    conversations: int
    turns: int
    unfit: int


class Sessions:
    """The conversations of a store. A turn is its own record, so adding one to a long conversation costs no more."""

    def __init__(self, store: Store, writer: BatchedWriter | None = None) -> None:
        self._store, self._writer = store, writer

    async def start(
        self, title: str = "", branches: Branches | None = None, *, adapter: str | None = None, **changes: Any
    ) -> Session:
        """Start a conversation with the turns from before it was stored: they keep their numbers. changes: as of
        `edit`."""
        now = self._store.clock()
        session = Session(uuid.uuid4().hex, title, adapter=adapter, said=now, created=now, updated=now, **changes)
        turns = branches.turns if branches else []
        if branches and branches.leaf is not None:
            session = replace(session, turns=turns[-1].number + 1, leaf=branches.leaf)
        await self._store.put_many([_record(session), *(_turn_record(session.id, turn) for turn in turns)])
        return session

    async def get(self, id: str) -> Session | None:
        record = await self._store.get(KIND, id)
        return _session(record) if record else None

    async def all(self) -> list[Session]:
        """All conversations, the most recently continued first."""
        sessions = [_session(record) for record in await self._store.query(KIND)]
        return sorted(sessions, key=lambda session: session.said, reverse=True)

    async def add_turns(self, id: str, *turns: Turn, after: Place = "leaf", **changes: Any) -> Session:
        """Append turns one after the other, the first one after `after`, and change the session as `edit` does, in one
        transaction. The last turn becomes the leaf.

        If two tabs append at once, both succeed: their turns are variants if they follow the same turn. Raises
        StoreError("record") if there is no such session or turn.
        """

        return await self._change(id, lambda session, first: self._added(session, first, turns, after, changes))

    async def edit(self, id: str, **changes: Any) -> Session:
        """Change title (and `titled`), pinned, archived, adapter, or entries of the state; its other entries stay.
        Raises as add_turns does."""
        return await self.add_turns(id, **changes)

    async def entitle(self, id: str, title: str) -> Session:
        """Replace the first words with the model's title, but keep any other title. Raises as add_turns does."""

        async def put(session: Session, first: int) -> Writes:
            return (session if session.titled else replace(session, title=title, titled="model")), []

        return await self._change(id, put)

    async def replace_turn(self, id: str, turn: Turn, known: str) -> Session:
        """Replace the turn with the same number if its text is still `known`; otherwise add this turn as a variant. The
        turn, or the newest below it, becomes the leaf. Raises as add_turns does."""

        async def put(session: Session, first: int) -> Writes:
            record = await self._store.get(TURN, _turn_id(id, turn.number))
            if record is None or record.body["content"] != known:
                return await self._added(session, first, [turn], turn.after, {})
            made = replace(_turn_record(id, turn), created=record.created, version=record.version)
            leaf = (await self.branches(id)).newest_below(turn.number)
            return replace(session, leaf=leaf), [made]

        return await self._change(id, put)

    async def branches(self, id: str) -> Branches:
        """All turns of the session; none if there is no such conversation."""
        session = await self.get(id)
        turns = [_turn(record) for record in await self._store.starting_with(TURN, f"{id}/")]
        return Branches(turns, session.leaf if session else None)

    async def path(self, id: str) -> list[Turn]:
        """The turns of the session that are shown and that the model reads, in the order in which they were said."""
        return (await self.branches(id)).path()

    async def choose(self, id: str, number: int) -> Session:
        """Show the branch of a turn, to its newest turn. Raises StoreError("record") if there is no such turn."""
        branches = await self.branches(id)
        if number not in branches:
            raise StoreError("record", "chat.message-gone", "This message is no longer in this conversation.")
        return await self.edit(id, leaf=branches.newest_below(number))

    async def delete(self, *ids: str) -> list[Record]:
        """Delete conversations, all their turns and files, and the trajectories of their answers, in one transaction.

        Returns the deleted records that could be read: `restore` puts them back.
        """
        if self._writer is not None:
            await self._writer.flush()  # a waiting trajectory must not be written after this
        keys = list[Key]()
        for id in ids:
            parts = [(TURN, f"{id}/"), *ids_of_session(id)]
            keys.append((KIND, id))
            keys += [key for kind, prefix in parts for key in await self._store.keys_starting_with(kind, prefix)]
            keys += [answer.key for answer in await self._store.query(TRAJECTORY, {"session": id})]
        gone = await self._store.get_many(keys)
        async with self._store.transaction() as transaction:
            for key in keys:
                transaction.delete(*key)
        return gone

    async def restore(self, gone: Sequence[Record]) -> None:
        """Put back the records that `delete` returned, in one transaction. Raises StoreError("conflict") if some of
        them exist again, as after an import."""
        async with self._store.transaction() as transaction:
            for record in gone:
                transaction.expect(*record.key, 0)
                transaction.put(record)

    async def merge(self, given: Iterable[tuple[Session, Sequence[Turn]]]) -> MergedConversations:
        """Merge conversations from elsewhere, each with its turns, earlier ones first, in one transaction.

        A conversation that exists keeps its turns and gets the missing ones. A turn is not missing if a turn with the
        same text follows the same turn. Raises StoreError.
        """
        given = list(given)
        here = {record.id: record for record in await self._store.get_many([(KIND, one.id) for one, _ in given])}
        known = dict[str, tuple[Session, list[Turn]]]()
        transaction, grown, new, unfit = Transaction(), set[str](), 0, 0
        for one, said in given:
            session, turns = known.get(one.id) or (one, [])
            if one.id in here and one.id not in known:
                session, turns = _session(here[one.id]), (await self.branches(one.id)).turns
            lacking, places = _lacking(session, turns, said)
            if not lacking:
                continue
            leaf = session.leaf
            if not turns:
                leaf = lacking[-1].number if one.leaf is None else places.get(one.leaf, lacking[-1].number)
            session = replace(
                session, turns=lacking[-1].number + 1, leaf=leaf, said=max(session.said, one.said),
                updated=self._store.clock(),
            )  # fmt: skip
            records = [_record(session), *(_turn_record(one.id, turn) for turn in lacking)]
            if any(self._store.kinds.problem_of(record) for record in records):
                unfit += 1
                continue
            for record in records:
                version = here[record.id].version if record.kind == KIND and record.id in here else 0
                transaction.expect(*record.key, version)
                transaction.put(record)
            known[one.id] = session, [*turns, *lacking]
            grown.add(one.id)
            new += len(lacking)
        await self._store.commit(transaction)
        return MergedConversations(len(grown), new, unfit)

    async def _added(
        self, session: Session, first: int, turns: Sequence[Turn], after: Place, changes: Mapping[str, Any]
    ) -> Writes:
        changed = replace(session, **{**changes, "state": {**session.state, **changes.get("state", {})}})
        if not turns:
            return changed, []
        place = session.leaf if after == "leaf" else after
        if place is not None and not 0 <= place < first:
            raise StoreError(
                "record", "chat.parent-gone", "The message before this one is no longer in this conversation."
            )
        said = [replace(turn, number=first + n, after=first + n - 1 if n else place) for n, turn in enumerate(turns)]
        changed = replace(changed, turns=first + len(said), leaf=said[-1].number)
        return changed, [_turn_record(session.id, turn) for turn in said]

    async def _change(self, id: str, change: Callable[[Session, int], Awaitable[Writes]]) -> Session:
        """Write what `change` makes of a session and the number of its next turn. `change` is called again if others
        write meanwhile. Each record replaces one of its version (0: there is none)."""
        first = 0
        for _ in range(ATTEMPTS):
            record = await self._store.get(KIND, id)
            if record is None:
                raise StoreError("record", "chat.deleted-start-new", "This conversation was deleted. Start a new one.")
            session = _session(record)
            changed, turns = await change(session, max(first, session.turns))
            now = self._store.clock()
            changed = replace(changed, updated=now, said=now if turns else changed.said)
            transaction = Transaction()
            for one in (replace(_record(changed), version=record.version), *turns):
                transaction.expect(*one.key, one.version)
                transaction.put(one)
            try:
                await self._store.commit(transaction)
                return changed
            except StoreError as error:
                if error.reason != "conflict":
                    raise
            # An import may have brought more turns than the conversation counts: no number is used twice.
            keys = await self._store.keys_starting_with(TURN, f"{id}/")
            first = max((_number(key[1]) + 1 for key in keys), default=0)
        raise StoreError("conflict")


def _lacking(
    session: Session, turns: Sequence[Turn], said: Sequence[Turn]
) -> tuple[list[Turn], dict[int | None, int | None]]:
    """The turns of `said` that are not among `turns`, with numbers of the session; and the number of each turn of
    `said` there."""
    alike = dict[tuple[int | None, str, str], list[int]]()
    for turn in turns:
        alike.setdefault((turn.after, turn.role, turn.content.strip()), []).append(turn.number)
    first = max([session.turns if turns else 0, *(turn.number + 1 for turn in turns)])
    places, lacking = dict[int | None, int | None]({None: None}), list[Turn]()
    for turn in said:
        after = places[turn.after]
        if same := alike.get((after, turn.role, turn.content.strip())):
            places[turn.number] = same.pop(0)
        else:
            places[turn.number] = first + len(lacking)
            lacking.append(replace(turn, number=first + len(lacking), after=after))
    return lacking, places


def _turn_id(session: str, number: int) -> str:
    return f"{session}/{number:06d}"


def _number(turn_id: str) -> int:
    digits = turn_id.rpartition("/")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


_FIELDS = ("title", "turns", "adapter", "state", "leaf", "pinned", "archived", "titled", "said")


def _record(session: Session) -> Record:
    body = {name: getattr(session, name) for name in _FIELDS}
    return Record(KIND, session.id, body, None, session.created, session.updated)


def _session(record: Record) -> Session:
    assert record.created is not None
    assert record.updated is not None
    return Session(id=record.id, created=record.created, updated=record.updated, **record.body)


def _turn_record(session: str, turn: Turn) -> Record:
    body = {name: getattr(turn, name) for name in ("role", "content", "details", "after")}
    return Record(TURN, _turn_id(session, turn.number), {**body, "session": session}, created=turn.created or None)


def _turn(record: Record) -> Turn:
    assert record.created is not None
    values = {name: value for name, value in record.body.items() if name != "session"}
    return Turn(created=record.created, number=_number(record.id), **values)


def _turn_is_of_its_session(record: Record) -> str | None:
    """Check a turn: a conversation finds its turns by their ids, and a turn follows an earlier one."""
    session, _, number = record.id.rpartition("/")
    if session != record.body["session"] or not (len(number) == 6 and number.isascii() and number.isdigit()):
        return "The id of a message is that of its conversation and the message's number."
    after = record.body["after"]
    return None if after is None or after < int(number) else "A message follows an earlier one."


def _session_with_branches(record: Record, partner: Record | None) -> Record:
    """Until version 6 conversations were straight lines, and only a turn or a new title changed them."""
    turns = record.body.get("turns")
    shown = {
        "leaf": turns - 1 if isinstance(turns, int) and turns > 0 else None,
        "pinned": False,
        "archived": False,
        "titled": "",
        "said": record.updated,
    }
    return replace(record, body={**shown, **record.body})


def _turn_with_branches(record: Record, partner: Record | None) -> Record:
    """See `_session_with_branches`: each turn followed the one before it."""
    number = record.id.rpartition("/")[2]
    if not (number.isascii() and number.isdigit()):
        return record  # no version wrote it: it is unreadable
    return replace(record, body={"after": int(number) - 1 if int(number) else None, **record.body})


SESSIONS = Kind(
    KIND,
    ("conversation", "conversations"),
    {
        "title": checks.text(LONGEST_TITLE),
        "turns": checks.integer(MOST_TURNS),
        "adapter": checks.or_null(checks.name),
        "state": checks.object_of(),
        "leaf": checks.or_null(checks.integer(MOST_TURNS)),
        "pinned": checks.boolean,
        "archived": checks.boolean,
        "titled": checks.one_of(*get_args(Titled)),
        "said": checks.time,
    },
    has_blobs=True,
    migrations={5: _session_with_branches},
)

TURNS = Kind(
    TURN,
    ("message", "messages"),
    {
        "session": checks.name,
        "after": checks.or_null(checks.integer(MOST_TURNS)),
        "role": checks.one_of("user", "assistant", "system", "tool"),
        "content": checks.text(),
        "details": checks.object_of(
            agent=checks.or_null(checks.name),
            request=checks.text(),
            route=checks.object_of(
                id=checks.text(),
                title=checks.text(),
                reason=checks.text(),
                confidence=checks.number(-1e9, 1e9),
                threshold=checks.number(-1e9, 1e9),
                ranked=checks.ranked,
            ),
            reason=checks.text(),
            tokens=checks.integer(LARGEST_INTEGER),
            thinking=checks.or_null(checks.thinking),
            lesson=checks.or_null(
                checks.object_of(id=checks.name, question=checks.text(), confidence=checks.share, read=checks.objects)
            ),
            taught=checks.or_null(
                checks.or_list(checks.object_of(id=checks.name, question=checks.text(), answer=checks.text()))
            ),
            card=checks.object_of(kind=checks.one_of("forgotten", "choose", "listed"), lessons=checks.objects),
            adapter=checks.text(),
            passages=checks.objects,
            found=checks.text(LONGEST_NAME),
        ),
    },
    problem=_turn_is_of_its_session,
    indexed=("session",),
    part_of=KIND,
    migrations={5: _turn_with_branches},
)
