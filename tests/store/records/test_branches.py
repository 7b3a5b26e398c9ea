"""Conversations as trees of turns: variants, edited messages, and the shown path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from app.records.branches import Branches, Turn
from app.records.kinds import KINDS
from app.records.sessions import KIND, TURN, Session, Sessions
from py_core.store.errors import StoreError
from py_core.store.records import Record
from py_core.store.rows import LAYOUT, Batch
from py_core.store.store import Store
from py_core.store.transfer import export, import_file
from py_core.store.volatile import VolatileRows
from tests.store.browser.page import Tab
from tests.store.places import ANY_BODY, Place, make_place


def texts(branches: Branches) -> list[str]:
    return [turn.content for turn in branches.path()]


async def conversation(sessions: Sessions, *said: str) -> Session:
    session = await sessions.start("Ships")
    roles = ("user", "assistant")
    return await sessions.add_turns(session.id, *(Turn(roles[n % 2], text) for n, text in enumerate(said)))


async def test_another_answer_and_an_edited_message_are_variants_and_the_newest_is_shown(store: Store) -> None:
    sessions = Sessions(store)
    session = await conversation(sessions, "Hello", "Hi.", "A storry", "What?")
    await sessions.add_turns(session.id, Turn("assistant", "Pardon?"), after=2)
    branches = await sessions.branches(session.id)
    assert texts(branches) == ["Hello", "Hi.", "A storry", "Pardon?"]
    assert branches.siblings(4) == [3, 4]
    session = await sessions.add_turns(session.id, Turn("user", "A story"), Turn("assistant", "Once."), after=1)
    branches = await sessions.branches(session.id)
    assert texts(branches) == ["Hello", "Hi.", "A story", "Once."]
    assert branches.siblings(5) == [2, 5]
    assert [turn.after for turn in branches.turns] == [None, 0, 1, 2, 2, 1, 5]
    assert (session.turns, session.leaf) == (7, 6)
    session = await sessions.add_turns(session.id, Turn("user", "Ahoy"), after=None)  # the first message, edited
    assert texts(await sessions.branches(session.id)) == ["Ahoy"]
    assert (await sessions.branches(session.id)).siblings(0) == [0, 7]


async def test_choosing_a_turn_shows_the_newest_one_below_it(store: Store) -> None:
    sessions = Sessions(store)
    session = await conversation(sessions, "Hello", "Hi.", "A storry", "What?")
    await sessions.add_turns(session.id, Turn("assistant", "Pardon?"), after=2)
    await sessions.add_turns(session.id, Turn("user", "A story"), after=1)
    before = await sessions.get(session.id)
    assert before is not None
    chosen = await sessions.choose(session.id, 2)
    assert chosen.leaf == 4
    assert chosen.said == before.said  # no message was sent: the conversation keeps its place in the list
    assert texts(await sessions.branches(session.id)) == ["Hello", "Hi.", "A storry", "Pardon?"]
    await sessions.choose(session.id, 3)
    assert texts(await sessions.branches(session.id))[-1] == "What?"


async def test_what_cannot_be_chosen_or_followed_says_so_and_changes_nothing(store: Store) -> None:
    sessions = Sessions(store)
    session, other = await conversation(sessions, "One", "Two"), await conversation(sessions, *"abcdef")
    before = await sessions.get(session.id)
    for call in (
        sessions.choose(session.id, 5),  # a turn of the other conversation
        sessions.choose(session.id, -1),
        sessions.add_turns(session.id, Turn("user", "?"), after=2),
        sessions.add_turns(session.id, Turn("user", "?"), after=-1),
    ):
        with pytest.raises(StoreError, match="no longer in this conversation"):
            await call
    for call in (sessions.choose("nothing", 0), sessions.add_turns("nothing", Turn("user", "?"), after=None)):
        with pytest.raises(StoreError, match=r"no longer in this conversation|was deleted"):
            await call
    assert await sessions.get(session.id) == before
    assert await store.count(TURN) == 8
    assert other.turns == 6


async def test_a_turn_is_replaced_by_a_longer_one_unless_another_tab_did_that_first(store: Store) -> None:
    sessions = Sessions(store)
    session = await conversation(sessions, "Count", "One, two")
    turn = (await sessions.path(session.id))[1]
    longer = replace(turn, content="One, two, three", details={"reason": "end"})
    await asyncio.gather(sessions.replace_turn(session.id, longer, "One, two"), sessions.edit(session.id, title="One"))
    (found,) = (await sessions.path(session.id))[1:]
    assert (found.content, found.details, found.created) == ("One, two, three", {"reason": "end"}, turn.created)
    await sessions.replace_turn(session.id, replace(turn, content="One, two, four"), "One, two")
    branches = await sessions.branches(session.id)
    assert [turn.content for turn in branches.turns[1:]] == ["One, two, three", "One, two, four"]
    assert branches.siblings(1) == [1, 2]


async def test_tabs_that_answer_at_once_lose_nothing(place: Place) -> None:
    tabs = [Sessions(await place.open()) for _ in range(2)]
    session = await conversation(tabs[0], "Hello", "Hi.")
    await asyncio.gather(
        *(
            tabs[n % 2].add_turns(session.id, Turn("user", f"Q{n}"), Turn("assistant", f"A{n}"), after=1)
            for n in range(6)
        ),
        tabs[0].choose(session.id, 0),
    )
    branches = await tabs[1].branches(session.id)
    paths = [[turn.content for turn in branches.path(turn.number)] for turn in branches.turns]
    assert all(["Hello", "Hi.", f"Q{n}", f"A{n}"] in paths for n in range(6))
    assert [turn.number for turn in branches.turns] == list(range(14))
    assert len(branches.siblings(2)) == 6


async def test_turns_that_the_conversation_does_not_count_are_not_written_over(store: Store) -> None:
    """As after an import of a newer conversation record from a machine with fewer turns."""
    sessions = Sessions(store)
    session = await conversation(sessions, "One", "Two", "Three", "Four")
    await sessions.edit(session.id, turns=2, leaf=1)
    assert texts(await sessions.branches(session.id)) == ["One", "Two", "Three", "Four"]
    session = await sessions.add_turns(session.id, Turn("user", "Five"))
    assert session.turns == 5
    branches = await sessions.branches(session.id)
    assert [turn.content for turn in branches.turns] == ["One", "Two", "Three", "Four", "Five"]


async def test_a_branch_goes_on_past_a_turn_that_is_damaged(store: Store) -> None:
    sessions = Sessions(store)
    session = await conversation(sessions, "One", "Two", "Three", "Four")
    await store.delete(TURN, f"{session.id}/000002")
    assert texts(await sessions.branches(session.id)) == ["One", "Two", "Four"]
    await store.delete(TURN, f"{session.id}/000003", f"{session.id}/000000")  # the first, and the last
    assert texts(await sessions.branches(session.id)) == ["Two"]
    await store.delete(KIND, session.id)
    assert texts(await sessions.branches(session.id)) == ["Two"]


BEFORE = 5
"""The version before conversations were trees."""


def old(record: Record) -> Record:
    """As the previous version stored it."""
    new = ("leaf", "pinned", "archived", "titled", "said", "after")
    return replace(record, body={name: value for name, value in record.body.items() if name not in new})


async def test_conversations_of_the_version_before_are_straight_lines(lasting: Place) -> None:
    store = await lasting.open(kinds=KINDS)
    sessions = Sessions(store)
    session = await conversation(sessions, "One", "Two", "Three", "Four")
    empty = await sessions.start("Nothing said")
    records = [record async for record in store.scan()]
    data = await export(store, in_the_clear=True)
    for record in records:
        assert KINDS.migrated(old(record), BEFORE, LAYOUT) == record
    store.kinds = ANY_BODY
    await store.put_many(map(old, records))
    await store._rows.apply(Batch(meta={"schema": str(BEFORE)}))
    await store.close()
    again = Sessions(await lasting.open(kinds=KINDS))
    assert texts(await again.branches(session.id)) == ["One", "Two", "Three", "Four"]
    assert await again.branches(empty.id) is not None
    assert [found.id for found in await again.all()] == [empty.id, session.id]
    assert (await again.get(session.id)) == await imported(data, session.id)


async def imported(data: bytes, id: str) -> Session | None:
    store = await Store.open(VolatileRows(), kinds=KINDS)
    await import_file(store, data, "replace")
    return await Sessions(store).get(id)


@pytest.mark.parametrize(
    ("id", "after", "sentence"),
    [
        ("s/000001", 1, "follows an earlier one"),
        ("s/000001", 5, "follows an earlier one"),
        ("s/1", 0, "and the message's number"),
        ("s/t/000001", 0, "and the message's number"),
        ("s/00000²", 0, "and the message's number"),
        ("s/000001", -1, "null or a whole number"),
    ],
)
def test_a_turn_that_would_lead_in_a_circle_or_nowhere_cannot_be_imported(id: str, after: int, sentence: str) -> None:
    body = {"session": "s", "role": "user", "content": "?", "details": {}, "after": after}
    assert sentence in (KINDS.problem_of(Record(TURN, id, body)) or "")
    assert KINDS.problem_of(Record(TURN, "s/000001", {**body, "after": 0})) is None


def test_a_path_of_a_conversation_with_many_variants_visits_each_turn_once() -> None:
    visits = 0

    class Counted(Turn):
        @property
        def after(self) -> int | None:  # type: ignore[override]
            nonlocal visits
            visits += 1
            return self.number - 1 if self.number else None

    turns = [object.__new__(Counted) for _ in range(20_000)]
    for number, turn in enumerate(turns):
        object.__setattr__(turn, "number", number)
    branches = Branches(turns)
    assert len(branches.path()) == 20_000
    assert visits <= 3 * 20_000


@dataclass
class Model:
    """The expected tree: the parent of each turn, as lists."""

    after: list[int | None] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    leaf: int | None = None

    def add(self, text: str, after: int | None) -> None:
        self.after.append(after)
        self.text.append(text)
        self.leaf = len(self.text) - 1

    def path(self, number: int | None) -> list[int]:
        return [] if number is None else [*self.path(self.after[number]), number]

    def below(self, number: int) -> int:
        return max(n for n in range(len(self.text)) if number in self.path(n))


class BranchesMachine(RuleBasedStateMachine):
    """`make_place` is given by the test."""

    make_place: Callable[[], Place]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = type(self).make_place()
        self.sessions = Sessions(self.run(self.place.open()))
        self.id = self.run(self.sessions.start()).id
        self.model = Model()

    def run(self, work):
        return self.runner.run(work)

    @rule(texts=st.lists(st.text(max_size=3), min_size=1, max_size=3))
    def say(self, texts: list[str]) -> None:
        self.run(self.sessions.add_turns(self.id, *(Turn("user", text) for text in texts)))
        for text in texts:
            self.model.add(text, self.model.leaf)

    @precondition(lambda self: self.model.text)
    @rule(data=st.data(), texts=st.lists(st.text(max_size=3), min_size=1, max_size=2))
    def say_behind(self, data: st.DataObject, texts: list[str]) -> None:
        """An edited message, or another answer."""
        after = data.draw(st.none() | st.integers(0, len(self.model.text) - 1))
        self.run(self.sessions.add_turns(self.id, *(Turn("user", text) for text in texts), after=after))
        for text in texts:
            self.model.add(text, after)
            after = self.model.leaf

    @precondition(lambda self: self.model.text)
    @rule(data=st.data())
    def choose(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.model.text) - 1))
        self.run(self.sessions.choose(self.id, number))
        self.model.leaf = self.model.below(number)

    @precondition(lambda self: self.model.text)
    @rule(data=st.data(), more=st.text(min_size=1, max_size=2))
    def go_on(self, data: st.DataObject, more: str) -> None:
        number = data.draw(st.integers(0, len(self.model.text) - 1))
        known = self.model.text[number]
        turn = Turn("user", known + more, number=number, after=self.model.after[number])
        self.run(self.sessions.replace_turn(self.id, turn, known))
        self.model.text[number] += more
        self.model.leaf = self.model.below(number)

    @rule()
    def export_and_import(self) -> None:
        store = self.sessions._store
        self.run(import_file(store, self.run(export(store, in_the_clear=True)), "replace"))

    @rule()
    def open_again(self) -> None:
        self.run(self.place.opened[-1].close())
        self.sessions = Sessions(self.run(self.place.open()))

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        branches, session = self.run(self.sessions.branches(self.id)), self.run(self.sessions.get(self.id))
        model = self.model
        assert [turn.content for turn in branches.turns] == model.text
        assert [turn.after for turn in branches.turns] == model.after
        assert session.turns == len(model.text)
        assert [turn.number for turn in branches.path()] == model.path(model.leaf)
        for number, after in enumerate(model.after):
            assert branches.siblings(number) == [n for n, other in enumerate(model.after) if other == after]
            assert branches.newest_below(number) == model.below(number)

    def teardown(self) -> None:
        for store in self.place.opened[-1:]:
            self.run(store.close())
        self.runner.close()


@pytest.mark.parametrize(
    ("backend", "examples"),
    [("sqlite", 10), *(pytest.param(*more, marks=pytest.mark.all) for more in (("sqlite", 50), ("indexeddb", 10)))],
)
def test_a_conversation_is_the_tree_that_a_simple_model_says(
    backend: str, examples: int, tmp_path: Path, get_tab: Callable[[], Tab]
) -> None:
    class Machine(BranchesMachine):
        @staticmethod
        def make_place() -> Place:
            return make_place(backend, tmp_path, get_tab)

    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=examples, stateful_step_count=15, deadline=None, suppress_health_check=checks),
    )
