"""Sends each message to the agent that suits it, and learns from the user's feedback.

    routing = await RoutingService.open(embedder, data, memory, kernel)
    routed = await routing.route("why does my page crash")     # routed.agent answers
    await routing.correct(routed.id, routed.text, "tester")    # from now on, for similar messages too

The learned patterns and the user's changes to the agents are stored in the memory. Changes of other tabs are followed.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from app.records.memory import Memory
from app.records.policies import KIND as POLICY
from app.records.sessions import TURN
from app.routing.agent_catalog import Changes, Fields, current_agents, no_changes, shipped_agents
from app.routing.factory import build_router
from app.routing.pattern_store import EMBEDDER_POLICY, load_patterns
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.learning.trajectories import KIND as TRAJECTORY
from py_core.routing.agents import FALLBACK_ID, Agent, AgentError
from py_core.routing.embedder import Embedder
from py_core.routing.pattern_index import pattern_id
from py_core.routing.patterns import KIND as PATTERN
from py_core.routing.router import Decision, Reason, Router
from py_core.store.errors import StoreError
from py_core.store.records import decode_body
from py_core.store.rows import Change
from py_core.store.stored_index import StoredIndex

AGENTS_POLICY = "routing.agents"
"""The user's changes to the agents, as JSON."""
REMEMBERED = 200
"""Number of recent routes that can still be judged by their ids: outcomes then count for the patterns that decided
them."""
JUDGED_NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class Routed:
    """The route of a message. vector: the message's vector, float32 (dimensions,)."""

    id: str
    text: str
    agent: Agent
    decision: Decision
    vector: np.ndarray


class Reweighed(NamedTuple):
    """An outcome changed the weight of a pattern."""

    pattern: str
    before: float
    after: float


class RoutingService:
    """Made by `open`."""

    def __init__(self, embedder: Embedder, data: bytes, memory: Memory, kernel: HnswKernel | None) -> None:
        self.embedder = embedder
        self._data, self._kernel = data, kernel
        self._routed: OrderedDict[str, Routed] = OrderedDict()
        self._outcomes: dict[str, list[Reweighed]] = {}  # by route
        self._stale_patterns: set[str] = set()
        self._stale = True
        self._corrected: dict[str, str] = {}  # route -> the user's agent for it
        self._router: Router
        self._index: StoredIndex | None = None  # of the router
        self.memory = memory
        memory.store.on_change(self._note)

    @classmethod
    async def open(
        cls, embedder: Embedder, data: bytes, memory: Memory, kernel: HnswKernel | None = None
    ) -> RoutingService:
        """data: the router's data (build_outputs.py). kernel: that of the router's indexes, numpy's if None.

        Raises RoutingDataError, EmbedderError, StoreError.
        """
        routing = cls(embedder, data, memory, kernel)
        await routing.refresh()
        return routing

    # ---- routes ----

    async def route(
        self, text: str, conversation_agent: str | None = None, chosen: Agent | None = None, why: Reason = "chosen"
    ) -> Routed:
        """conversation_agent: the id of the agent that answered before, if any. chosen: the agent that answers this one
        in any case, and why. Raises EmbedderError, StoreError."""
        await self.refresh()
        decision = await self._router.route(text, conversation_agent)
        (vector,) = await self.embedder.embed([text])  # from its cache
        if chosen is not None:  # no pattern decided it
            decision = replace(decision, agent=chosen.id, reason=why, neighbours=())
        agent = chosen or self.agents.get(decision.agent) or self.agents[FALLBACK_ID]
        return self._noted(Routed(uuid.uuid4().hex, text, agent, decision, vector))

    async def unrouted(self, text: str, agent: Agent, why: Reason) -> Routed:
        """An agent answers without a search: nothing can be learned from that. Raises EmbedderError."""
        (vector,) = await self.embedder.embed([text])
        decision = Decision(agent.id, why, 0.0, self._router.parameters.threshold, (), (), {})
        return self._noted(Routed(uuid.uuid4().hex, text, agent, decision, vector))

    async def corrected(self, text: str) -> Agent | None:
        """The agent that the user set for exactly these words, if any. Raises StoreError."""
        await self.refresh()
        pattern = self._router.learned.of.get(pattern_id(text, "user"))
        return self.agents.get(pattern.agent) if pattern else None

    def _noted(self, routed: Routed) -> Routed:
        self._routed[routed.id] = routed
        while len(self._routed) > REMEMBERED:
            forgotten, _ = self._routed.popitem(last=False)
            self._outcomes.pop(forgotten, None)
            self._corrected.pop(forgotten, None)
        return routed

    def agent_of(self, routed: Routed) -> str:
        """The id of a route's agent: the user's correction, if there is one."""
        return self._corrected.get(routed.id, routed.agent.id)

    async def correct(self, route_id: str, text: str, agent: str) -> str:
        """Route messages like this one to this agent. Returns the id of the pattern for it.

        route_id: of the route that was wrong (or ""): the patterns that decided it lose weight. Raises AgentError,
        EmbedderError, StoreError.
        """
        await self.refresh()
        pattern = await self._router.correct(text, agent)
        await self.memory.patterns.keep(pattern)
        await self.take_back(route_id)
        routed = self._routed.get(route_id)
        if routed is not None:
            self._corrected[routed.id] = agent
        if routed is not None and routed.agent.id != agent:
            await self._judge(routed, routed.agent.id, good=False)
            await self._judge(routed, agent, good=True)
            await self.memory.trajectories.rate(routed.id, 0.0)
        return pattern.id

    async def confirm(self, route_id: str) -> None:
        """The route was right: the patterns that decided it gain weight. Does nothing if the route is forgotten."""
        await self.take_back(route_id)
        if routed := self._routed.get(route_id):
            await self._judge(routed, routed.agent.id, good=True)
            await self.memory.trajectories.rate(routed.id, 1.0)

    async def take_back(self, route_id: str) -> None:
        """Undo the user's feedback on this route; a pattern that was made from it stays (see `forget`)."""
        await self.refresh()
        self._corrected.pop(route_id, None)
        outcomes = self._outcomes.pop(route_id, [])
        await self.unlearn(outcomes)
        if outcomes:
            await self.memory.trajectories.rate(route_id, None)

    async def learn(self, pattern_ids: Sequence[str], good: bool) -> list[Reweighed]:
        """A route that these patterns decided was good, or not: adjust their weights. Returns the changes."""
        await self.refresh()
        changed = list[Reweighed]()
        for id in pattern_ids[:JUDGED_NEIGHBOURS]:
            with contextlib.suppress(KeyError):  # deleted meanwhile
                before = self._router.weight(id)
                pattern = self._router.learn(id, good)
                changed.append(Reweighed(id, before, pattern.weight))
                await self.memory.patterns.keep(pattern)
        return changed

    async def unlearn(self, changed: Sequence[Reweighed]) -> None:
        """Undo the changes of `learn`."""
        await self.refresh()
        for one in reversed(changed):
            with contextlib.suppress(KeyError):  # deleted meanwhile
                await self.memory.patterns.keep(self._router.unlearn(*one))

    async def used(self, routed: Routed) -> None:
        """A message was answered: mark the user's own pattern that routed it as used."""
        for neighbour in routed.decision.neighbours:
            if neighbour.source == "user" and neighbour.agent == routed.agent.id:
                await self.memory.patterns.use(neighbour.pattern_id)
                return

    async def forget(self, pattern_ids: Sequence[str]) -> None:
        """Delete learned patterns. The weight of a shipped example goes back to 1."""
        await self.refresh()
        await self.memory.patterns.delete(*pattern_ids)
        for id in pattern_ids:
            self._router.forget(id)

    def forget_messages(self) -> None:
        """Forget the routed messages: their routes can no longer be judged."""
        self._routed.clear()
        self._outcomes.clear()
        self._corrected.clear()
        self.embedder.forget()

    async def edit(self, pattern_id: str, text: str, agent: str) -> str:
        """Change one of the user's patterns. Returns its id, which changes with the text."""
        await self.refresh()
        pattern = await self._router.correct(text, agent)
        await self.memory.patterns.keep(pattern)
        if pattern.id != pattern_id:
            await self.forget([pattern_id])
        return pattern.id

    async def _judge(self, routed: Routed, agent: str, *, good: bool) -> None:
        if routed.decision.reason == "follow-up":
            return  # no pattern decided it
        deciding = [n.pattern_id for n in routed.decision.neighbours if n.agent == agent]
        if changed := await self.learn(deciding, good):
            self._outcomes.setdefault(routed.id, []).extend(changed)

    # ---- agents ----

    @property
    def changes(self) -> Changes:
        """The user's changes to the shipped agents (app/routing/agent_catalog.py). Unreadable changes count as none."""
        policy = self.memory.policies.look(AGENTS_POLICY)
        if policy is None or not isinstance(policy.value, str):
            return no_changes()
        try:
            changes = decode_body(policy.value.encode())
            current_agents(shipped_agents(), changes)
        except (AgentError, StoreError, ValueError):
            return no_changes()
        return changes

    async def change_agents(self, change: Callable[[Sequence[Fields], Changes], Mapping[str, Any]]) -> None:
        """change: a function of app/routing/agent_catalog.py, from the shipped agents and the current changes to the
        new ones.

        Raises AgentError, EmbedderError, StoreError; then nothing is changed.
        """
        new = dict(change(shipped_agents(), self.changes))
        router = await build_router(self.embedder, self._data, self._kernel, new)
        await self.memory.policies.set(AGENTS_POLICY, json.dumps(new), confidence=1.0, source="user")
        await self._take(router)

    # ---- keeping up ----

    @property
    def router(self) -> Router:
        return self._router

    async def refresh(self, everything: bool = False) -> None:
        """Read changes by others; or read everything again, as after an import."""
        self._stale |= everything
        await self.memory.store.poll()
        if self._stale:
            self._stale = False
            try:
                await self.memory.policies.reload()
                await self._take(await build_router(self.embedder, self._data, self._kernel, self.changes))
            except BaseException:
                self._stale = True
                raise
        while self._stale_patterns:
            id = self._stale_patterns.pop()
            kept = await self.memory.patterns.get(id)
            if kept is None:
                self._router.forget(id)
            else:
                self._router.put(kept)

    async def _take(self, router: Router) -> None:
        agents = current_agents(shipped_agents(), self.changes)
        await self._renew_vectors()
        index = await load_patterns(router, self.memory)
        if self._index is not None:
            self._index.forget()
        self._index = index
        await router.route("Hello")  # costs that only the first call pays
        self.agents: dict[str, Agent] = {agent.id: agent for agent in agents}
        self._router = router
        self._stale_patterns.clear()

    async def _renew_vectors(self) -> None:
        """Vectors of another embedder cannot be compared with new ones: messages and records of answers lose theirs
        (turn_indexer.py makes new ones for messages). load_patterns does the rest, and names the embedder last."""
        made_by = self.memory.policies.look(EMBEDDER_POLICY)
        if made_by is None or made_by.value == self.embedder.fingerprint:
            return
        for kind in (TURN, TRAJECTORY):
            await self.memory.drop_vectors(kind)
        await self.memory.strategies.replace_all([])  # the deep loop makes them again

    def _note(self, change: Change) -> None:
        keys = (*change.puts, *change.deletes)
        if change.everything or change.cleared is not None:
            self._stale = True
        elif change.elsewhere:
            self._stale_patterns.update(id for kind, id in keys if kind == PATTERN)
            self._stale |= (POLICY, AGENTS_POLICY) in keys
