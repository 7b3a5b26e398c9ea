"""The requests of the page's panels: the log, the router's patterns, policies and agents, as plain data.

web/memory/client.js calls its methods with JSON. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from app.chat.context_store import BUDGET
from app.chat.history.api import ConversationApi, agent_titles
from app.generation.answer_settings import check_setting
from app.memory.answer_speeds import speed_groups
from app.records.kinds import counts
from app.routing import agent_catalog
from app.routing.service import RoutingService
from py_core.learning import trajectories
from py_core.learning.trajectories import LOGGED_TEXT, Trajectory
from py_core.messages import Message
from py_core.routing import patterns
from py_core.routing.agents import agent_to_dict
from py_core.routing.embedder import EmbedderError
from py_core.routing.projection import project
from py_core.store.errors import StoreError
from py_core.store.passphrase import remove_passphrase, set_passphrase
from py_core.store.records import Record
from py_core.store.transfer import export, import_file
from py_core.text_search import has_all, terms_of

if TYPE_CHECKING:
    from app.memory.views import (
        CorrectedRoute,
        Entries,
        ImportedChatFile,
        ImportedItems,
        KeptBytes,
        MemoryInfo,
        PatternMap,
        Statistics,
    )

MEANT = 200
"""The number of most similar records that a search by meaning shows."""
LEAST_SIMILARITY = 0.25
ROUTING_OPENS = Message("routing.loading", "Routing is still loading. Try again in a moment.")


class MemoryApi(ConversationApi):
    """Each public method is called by the page. Methods that need the router raise EmbedderError without it."""

    async def info(self) -> MemoryInfo:
        """Return what is known without reading the stored records."""
        runtime = self._runtime
        about: MemoryInfo = {
            "state": runtime.memory_stage.state, "routing": runtime.routing_stage.state,
            "learning": runtime.learning_stage.state,
            "problem": runtime.problem,
            "persistent": False, "place": "", "encrypted": False, "unreadable": 0,
            "agents": [], "uncompacted": None, "suspicion": None,
        }  # fmt: skip
        if (memory := runtime.memory_if_open) is not None:
            store = memory.store
            rows = store.locked_rows or store
            about["persistent"], about["place"] = rows.persistent, rows.place
            about["encrypted"] = memory.is_locked or store.lock is not None
            about["unreadable"] = len(store.unreadable)
            about["uncompacted"], about["suspicion"] = store.uncompacted, store.suspicion
        if runtime.routing is not None:
            about["agents"] = agent_titles(runtime.routing.agents.values())
        return about

    async def counts(self) -> dict[str, int]:
        """Return how many records of each kind are stored, in an order for people: none while the memory is locked."""
        memory = self._runtime.memory_if_open
        return {} if memory is None else await counts(memory.store)

    async def kept_pages(self) -> KeptBytes:
        return {"bytes": await self._runtime.pages.nbytes(), "most": BUDGET}

    async def remove_kept_pages(self) -> None:
        await self._runtime.pages.clear()

    # ---- patterns ----

    async def correct(self, id: str, text: str, agent: str) -> CorrectedRoute:
        return {"pattern": await self._routing.correct(id, text, agent)}

    async def confirm(self, id: str) -> None:
        await self._routing.confirm(id)

    async def take_back(self, id: str) -> None:
        await self._routing.take_back(id)

    async def patterns(self, search: str = "", agent: str | None = None, offset: int = 0, limit: int = 50) -> Entries:
        found = await self._search(patterns.KIND, search, {"agent": agent} if agent else None)
        return _page(found, offset, limit, _pattern_entry)

    async def edit_pattern(self, id: str, text: str, agent: str) -> CorrectedRoute:
        return {"pattern": await self._routing.edit(id, text, agent)}

    async def remove_patterns(self, ids: list[str]) -> None:
        if self._runtime.routing is not None:
            await self._runtime.routing.forget(ids)
        else:
            await self._memory.patterns.delete(*ids)

    async def map(self) -> PatternMap:
        router = self._routing.router
        every = [*router.examples.of.values(), *router.learned.of.values()]
        names = sorted({pattern.agent for pattern in every})
        vectors = np.array([pattern.vector for pattern in every], np.float32).reshape(len(every), -1)
        places = project(vectors, [pattern.agent for pattern in every])
        points = [
            (round(float(x), 4), round(float(y), 4), names.index(one.agent), one.source, one.text, one.id)
            for (x, y), one in zip(places, every, strict=True)
        ]
        return {"agents": names, "points": points}

    # ---- log ----

    async def log(self, filter: str = "all", search: str = "", offset: int = 0, limit: int = 50) -> Entries:
        asked = self._memory.log
        if filter == "poor":
            entries = await asked.poor()
        elif filter == "slow":
            entries = list({spike.entry.id: spike.entry for spike in await asked.spikes()}.values())
        elif filter == "errors" and search:
            entries = [entry for entry, _ in await asked.similar_errors(search, k=MEANT)]
            search = ""  # answered: by the words of the error
        else:
            entries = await self._memory.log.entries()
        if filter == "errors":
            entries = [entry for entry in entries if entry.error is not None]
        if search:
            wanted = {record.id: rank for rank, (record, _) in enumerate(await self._search(trajectories.KIND, search))}
            entries = sorted((e for e in entries if e.id in wanted), key=lambda entry: wanted[entry.id])
        return {"total": len(entries), "items": [_log_entry(entry) for entry in entries[offset : offset + limit]]}

    async def remove_log(self, ids: list[str]) -> None:
        await self._memory.trajectories.delete(*ids)

    async def statistics(self) -> Statistics:
        trends = await self._memory.log.trends()
        answered: dict[str, int] = {}
        entries = await self._memory.log.entries()
        for entry in entries:
            answered[entry.agent] = answered.get(entry.agent, 0) + 1
        return {
            "percentiles": await self._memory.log.percentiles(),
            "trends": {stage: {"medians": t.medians, "change": t.change} for stage, t in trends.items()},
            "agents": sorted(answered.items(), key=lambda item: -item[1]),
            "speeds": speed_groups(entries),
        }

    # ---- policies ----

    async def policies(self) -> list[dict[str, Any]]:
        """Each with its `words`: see policy_words.py."""
        from app.memory.policy_words import told_policies  # late, as in app/runtime.py

        return [
            {
                "name": policy.name, "value": policy.value, "confidence": policy.confidence, "source": policy.source,
                "lastUsed": policy.last_used, "changed": policy.changed, "observations": policy.observations,
                "words": {
                    "title": words.title, "value": words.value, "about": words.about, "by": words.by,
                    "time": words.time, "canEdit": words.can_edit, "deletion": words.deletion,
                },
            }
            for policy, words in told_policies(self._memory)
        ]  # fmt: skip

    async def edit_policy(self, name: str, value: Any) -> None:
        check_setting(name, value)
        await self._memory.policies.edit(name, value)
        await self._read_again()

    async def remove_policies(self, names: list[str]) -> None:
        for name in names:
            await self._memory.policies.delete(name)
        await self._read_again()

    # ---- agents ----

    async def agents(self) -> list[dict[str, Any]]:
        """Return the current agents, then those that the user removed."""
        shipped = {entry["id"]: entry for entry in agent_catalog.shipped_agents()}
        changes = self._routing.changes
        hidden = [shipped[id] for id in changes.get("hidden", []) if id in shipped]
        current = [agent_to_dict(agent) for agent in self._routing.agents.values()]
        edited = shipped.keys() & changes.get("agents", {}).keys()
        return [
            {
                **entry,
                **{key: agent_catalog.agent_words(entry["id"], key, entry[key]) for key in ("title", "definition")},
                "shipped": entry["id"] in shipped,
                "edited": entry["id"] in edited,
                "hidden": is_hidden,
            }
            for entries, is_hidden in ((current, False), (hidden, True))
            for entry in entries
        ]

    async def add_agent(self, fields: dict[str, Any]) -> None:
        await self._routing.change_agents(lambda shipped, changes: agent_catalog.add_agent(shipped, changes, fields))

    async def edit_agent(self, id: str, fields: dict[str, Any]) -> None:
        await self._routing.change_agents(
            lambda shipped, changes: agent_catalog.edit_agent(shipped, changes, id, fields)
        )

    async def remove_agent(self, id: str) -> None:
        await self._routing.change_agents(lambda shipped, changes: agent_catalog.remove_agent(shipped, changes, id))

    async def restore_agent(self, id: str) -> None:
        await self._routing.change_agents(lambda shipped, changes: agent_catalog.restore_agent(changes, id))

    async def reset_agent(self, id: str) -> None:
        await self._routing.change_agents(lambda shipped, changes: agent_catalog.reset_agent(shipped, changes, id))

    # ---- the whole ----

    async def export_file(self, passphrase: str | None = None) -> bytes:
        self._refuse_locked()
        await self._memory.writer.flush()
        return await export(self._memory.store, passphrase or None)

    async def import_file(
        self, data: bytes, mode: Literal["merge", "replace"], passphrase: str | None = None
    ) -> ImportedItems | ImportedChatFile:
        from app.chat.history.files import import_chats  # late, as in app/runtime.py

        self._refuse_locked()
        await self._memory.writer.flush()
        chats = await import_chats(self._memory.sessions, data, mode)
        if chats is not None:
            return {
                "chats": chats.chats, "messages": chats.messages, "leftOut": chats.left_out, "unread": chats.unread,
            }  # fmt: skip
        imported = await import_file(self._memory.store, data, mode, passphrase or None)
        await self._read_again()
        return {"written": imported.written, "leftOut": imported.left_out}

    async def remove_unreadable(self) -> int:
        """Delete the records that cannot be read. Returns how many."""
        self._refuse_locked()
        return await self._memory.store.delete_unreadable()

    async def accept(self) -> None:
        """Accept the memory as it is, whatever another program did to it."""
        self._refuse_locked()
        await self._memory.store.accept()

    async def delete_all(self) -> None:
        await self._runtime.forget()
        await self._read_again()

    async def set_passphrase(self, passphrase: str, old: str | None = None) -> None:
        self._refuse_locked()
        await set_passphrase(self._memory.store, passphrase, old=old)

    async def remove_passphrase(self, old: str) -> None:
        self._refuse_locked()
        await remove_passphrase(self._memory.store, old)

    async def unlock(self, passphrase: str) -> None:
        await self._runtime.unlock(passphrase)

    # ---- helpers ----

    @property
    def _routing(self) -> RoutingService:
        if self._runtime.routing is None:
            raise EmbedderError(self._runtime.routing_stage.why or ROUTING_OPENS)
        return self._runtime.routing

    def _refuse_locked(self) -> None:
        if self._memory.is_locked:
            raise StoreError("locked")

    async def _read_again(self) -> None:
        await self._memory.policies.reload()
        if self._runtime.routing is not None:
            await self._runtime.routing.refresh(everything=True)

    async def _search(
        self, kind: str, search: str, where: dict[str, Any] | None = None
    ) -> list[tuple[Record, float | None]]:
        """Return records with their similarity: the newest first, or, with a search text, those that hold all its words
        and then the most similar."""
        await self._memory.writer.flush()
        records = await self._memory.store.query(kind, where, newest_first=True)
        if not search.strip():
            return [(record, None) for record in records]
        here = {record.id: record for record in records}
        similar = await self._similar(kind, search, here)
        terms = terms_of(search)
        literal = [record.id for record in records if has_all(terms, _words_of(record))]
        order = dict.fromkeys([*sorted(literal, key=lambda id: -similar.get(id, 0.0)), *similar])
        return [(here[id], similar.get(id)) for id in order]

    async def _similar(self, kind: str, search: str, among: dict[str, Record]) -> dict[str, float]:
        if self._runtime.routing is None:
            return {}
        (vector,) = await self._runtime.routing.embedder.embed([search])
        found = await self._memory.search.search(kind, vector, MEANT, among.__contains__)
        return {record.id: similarity for record, similarity in found if similarity >= LEAST_SIMILARITY}


def _page(
    found: list[tuple[Record, float | None]], offset: int, limit: int, entry: Callable[[Record], dict[str, Any]]
) -> Entries:
    shown = found[offset : offset + limit]
    return {"total": len(found), "items": [{**entry(record), "similarity": similar} for record, similar in shown]}


def _pattern_entry(record: Record) -> dict[str, Any]:
    body = record.body
    taken = {name: body[name] for name in ("text", "agent", "source", "weight", "uses")}
    return {"id": record.id, **taken, "created": record.created, "lastUsed": body["last_used"]}


def _log_entry(entry: Trajectory) -> dict[str, Any]:
    return {
        "id": entry.id,
        "created": entry.created,
        "text": entry.asked[:LOGGED_TEXT],
        "agent": entry.agent,
        "backend": entry.backend,
        "stages": entry.stages,
        "totalMs": entry.total_ms,
        "quality": entry.rating,
        "error": entry.error,
        "confidence": entry.route.get("confidence") if entry.route.get("ranked") else None,
        "adapter": entry.route.get("adapter"),
    }


def _words_of(record: Record) -> str:
    """Return the texts of a record that a person would search for."""
    body = record.body
    texts: Iterable[Any] = (body.get("text"), body.get("title"), body.get("error"), body.get("asked"))
    return " ".join(text for text in texts if isinstance(text, str))
