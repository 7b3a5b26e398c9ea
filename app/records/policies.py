"""Parameters that were learned or chosen: typed values with a confidence and a source."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from py_core.messages import Message
from py_core.store import field_checks as checks
from py_core.store.errors import StoreError
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind
from py_core.store.records import Record
from py_core.store.rows import Change
from py_core.store.store import Store
from py_core.store.write_batch import BatchedWriter

KIND = "policy"
RETIRED = (
    "learning.depths",  # where traces of answers were read
    *("learning.background.router", "learning.router.last"),  # when the router's head was trained
    *(f"learning.background.{factor}/" for factor in ("rate", "divergence", "rounds", "rehearsal", "elastic")),
    "learning.style",  # its switch, and when it was learned
)
"""Numbers by which trainings changed the next ones have a name that ends with a slash and the model's sha256."""
CAPACITY = 1000

Value = bool | int | float | str | list[float]
_KINDS = {
    bool: Message("policies.bool", "true or false"),
    int: Message("policies.whole-number", "a whole number"),
    float: Message("policies.number", "a number"),
    str: Message("policies.text", "text"),
    list: Message("policies.list", "a list of numbers"),
}
_OTHER = Message("policies.other", "something else")
V = TypeVar("V", bool, int, float, str, list[float])


@dataclass(frozen=True, slots=True)
class Policy:
    """confidence: 0 to 1. source: "user", or the loop that learned the policy. observations: the number of observations
    that it is based on. changed: when it was set. Times are seconds since 1970."""

    name: str
    value: Value
    confidence: float
    source: str
    last_used: float = 0.0
    observations: int = 0
    changed: float = 0.0


class Policies:
    """The policies of a store, at most `capacity`: the least recently used is dropped first.

    Made by `open`. All are in memory, so `get` never waits; the writer stores later that a policy was used.
    """

    def __init__(self, store: Store, writer: BatchedWriter, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError("capacity: at least 1")
        self._store = store
        self._writer = writer
        self._capacity = capacity
        self._reloading: asyncio.Future[None] | None = None
        self._policies: OrderedDict[str, Policy] = OrderedDict()  # the one used last is at the end

    @classmethod
    async def open(cls, store: Store, writer: BatchedWriter | None = None, capacity: int = CAPACITY) -> Policies:
        policies = cls(store, writer or BatchedWriter(store), capacity)
        await policies.reload()
        store.on_change(policies._note)
        return policies

    async def reload(self) -> None:
        """Read the policies again. Needed after a change by another process; after a change by another tab this is
        called."""
        found = [_policy(record) for record in await self._store.query(KIND)]
        found.sort(key=lambda policy: policy.last_used)
        self._policies = OrderedDict((policy.name, policy) for policy in found)

    def get(self, name: str, default: V) -> V:
        """The value, if it is of the default's type; otherwise the default. Marks it as used."""
        policy = self._policies.get(name)
        if policy is None or type(policy.value) is not type(default):
            return default
        self._policies[name] = used = replace(policy, last_used=self._store.clock())
        self._policies.move_to_end(name)
        self._writer.put(_record(used))
        return policy.value

    def look(self, name: str) -> Policy | None:
        """The policy with its confidence and source, without marking it as used."""
        return self._policies.get(name)

    def is_on(self, name: str) -> bool:
        """True if the feature that the policy switches is on, as it is until the policy says otherwise. The policy is
        not marked as used."""
        policy = self._policies.get(name)
        return policy is None or policy.value is not False

    def all(self) -> list[Policy]:
        """All policies, the most recently used first."""
        return list(reversed(self._policies.values()))

    async def edit(self, name: str, value: Value) -> Policy:
        """Store the user's choice. Raises StoreError if the policy exists with a value of another type."""
        before = self._policies.get(name)
        if before is not None and isinstance(before.value, float) and type(value) is int:
            value = float(value)  # JavaScript writes 1.0 as 1
        if before is not None and type(before.value) is not type(value):
            held, given = (_KINDS.get(type(each), _OTHER) for each in (before.value, value))
            raise StoreError(
                "record",
                "policies.other-kind",
                "The policy {name} holds {held}, not {given}. Delete it first.",
                name=name,
                held=held,
                given=given,
            )
        return await self.set(name, value, confidence=1.0, source="user")

    async def set(self, name: str, value: Value, *, confidence: float, source: str, observations: int = 0) -> Policy:
        """Replace a policy of any type. Durable when this returns."""
        if not 0.0 <= confidence <= 1.0:
            raise StoreError(
                "record", "policies.bad-confidence", "The confidence of a policy must be a number from 0 to 1."
            )
        before = self._policies.get(name)
        now = self._store.clock()
        policy = Policy(name, value, confidence, source, now, observations, now)
        await self._writer.flush()  # an older use of it must not be written after this
        spare = len(self._policies) + (before is None) - self._capacity
        evicted = [other for other in self._policies if other != name][: max(spare, 0)]
        async with self._store.transaction() as transaction:
            transaction.put(_record(policy))
            for other in evicted:
                transaction.delete(KIND, other)
        for other in evicted:
            self._policies.pop(other, None)
        self._policies[name] = policy
        self._policies.move_to_end(name)
        return policy

    async def delete(self, name: str) -> None:
        await self._writer.flush()
        await self._store.delete(KIND, name)
        self._policies.pop(name, None)

    def _note(self, change: Change) -> None:
        ours = any(kind == KIND for kind, _ in (*change.puts, *change.deletes))
        if change.cleared is not None or change.everything or (change.elsewhere and ours):
            self._reloading = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        with contextlib.suppress(StoreError):  # a policy that can no longer be read stays as it was
            await self.reload()


def _record(policy: Policy) -> Record:
    body = asdict(policy)
    del body["name"]
    return Record(KIND, policy.name, body)


def _policy(record: Record) -> Policy:
    return Policy(name=record.id, **record.body)


def _with_observations(record: Record, partner: Record | None) -> Record:
    """Add the number of observations. A policy was stored when it was last used, so it was set then or before."""
    return replace(record, body={"observations": 0, "changed": record.body.get("last_used", 0.0), **record.body})


POLICIES = Kind(
    KIND,
    ("policy", "policies"),
    {
        "value": checks.policy_value,
        "confidence": checks.share,
        "source": checks.name,
        "last_used": checks.time,
        "observations": checks.integer(LARGEST_INTEGER),
        "changed": checks.time,
    },
    indexed=("source",),
    migrations={4: _with_observations},
    retired=RETIRED,
)
