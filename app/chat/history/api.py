"""Answers the calls of the side bar: the conversations, as plain data.

web/memory/client.js calls its methods with JSON. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from app.chat.chat_question import agent_gone
from app.chat.history.export import as_json, as_markdown
from app.chat.turn_events import stored_turns
from app.records import sessions
from app.records.memory import Memory
from app.routing.agent_catalog import agent_words
from app.routing.agent_choice import AUTOMATIC, CHOICE, agent_choice
from py_core.display import is_blank, whole_end
from py_core.messages import Message
from py_core.routing.agents import Agent
from py_core.store.errors import StoreError
from py_core.store.records import Record
from py_core.text_search import snippet, terms_of

if TYPE_CHECKING:
    from app.chat.history.views import (
        AgentName,
        ChatAgent,
        ConversationPage,
        ShownConversation,
        Snippet,
        StoredConversation,
    )
    from app.runtime import Runtime

LEAST_TURN_SIMILARITY = 0.15
"""The least similarity of a message. A single word ("coding") is less similar to a message than requests are to each
other (docs/decisions/0062)."""
LEAST_IN_PIECES = 0.3
"""The same for a search in words that the embedder knows only in pieces: "zzzzqq" is near to something by chance."""
SHORT_PIECE = 2.4  # characters
MOST_SIMILAR_CONVERSATIONS = 20
NO_UNDO = Message("chat.no-undo", "This can no longer be undone: the conversation was deleted for good.")
LONGEST_TITLE = 200


def agent_titles(agents: Iterable[Agent]) -> list[AgentName]:
    """Return the name of each agent."""
    return [{"id": agent.id, "title": agent_words(agent.id, "title", agent.title)} for agent in agents]


class ConversationApi:
    """Each public method is a call of the page."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._removed: list[Record] = []  # by the last `remove_conversations`, as long as it can be undone

    async def conversations(self, search: str = "", offset: int = 0, limit: int | None = None) -> ConversationPage:
        """Return the conversations, the most recent turn first. With a search: those that have all its words in title
        and messages, those with all in the title first. Each has as a snippet the message with most of the words."""
        if not search.strip():
            every = list((await self._memory.conversations.newest_first()).values())
            return {"total": len(every), "items": [self._entry(record) for record in _part(every, offset, limit)]}
        text = self._memory.text
        found = await text.search(search)
        shown = _part(found, offset, limit)
        turns = {match.session: None if match.in_title else text.best_turn(match.session, search) for match in shown}
        return {"total": len(found), "items": await self._found(search, turns)}

    async def similar_conversations(self, search: str) -> list[StoredConversation]:
        """Return the conversations with a message of a similar meaning, the most similar first, with their
        `similarity`; none without a router. Messages without a vector get one in the background."""
        runtime = self._runtime
        if runtime.routing is None or not search.strip():
            return []
        await runtime.indexer.index_all()
        embedder = runtime.routing.embedder
        (vector,) = await embedder.embed([search])
        (meaning,) = await embedder.meanings([search])
        least = LEAST_IN_PIECES if _is_in_pieces(search, len(meaning.ids) - 2) else LEAST_TURN_SIMILARITY
        found = await self._memory.vectors.search(vector, MOST_SIMILAR_CONVERSATIONS, least)
        similarities = {record.body["session"]: similarity for record, similarity in found}
        turns: dict[str, str | None] = {record.body["session"]: record.id for record, _ in found}
        return [{**item, "similarity": similarities[item["id"]]} for item in await self._found(search, turns)]

    async def prepare_search(self) -> None:
        """Read the data of a search, so that the first search does not wait for it."""
        await self._memory.text.refresh()
        await self._runtime.indexer.index_all()

    async def conversation(self, id: str) -> ShownConversation:
        session = await self._session(id)
        branches = await self._memory.sessions.branches(id)
        kept = self._runtime.keeps(id)
        return {"id": id, "title": session.title, "turns": stored_turns(id, branches), "kept": kept}

    async def choose(self, id: str, number: int) -> ShownConversation:
        """Show the branch of a turn, by its number. Returns the same as `conversation` then."""
        await self._memory.sessions.choose(id, number)
        return await self.conversation(id)

    async def agent_choice(self, id: str | None) -> ChatAgent:
        """Return the agent that answers in a chat; None: in a chat that is not stored yet."""
        session = None if id is None else await self._session(id)
        chosen = session.state.get(CHOICE) if session else None
        choice = agent_choice(self._runtime, chosen)
        agents = self._runtime.routing.agents.values() if self._runtime.routing else ()
        return {
            "agent": choice.agent, "chosen": chosen, "isLost": choice.is_lost,
            "agents": agent_titles(agents),
            "routing": self._runtime.routing_stage.state,
        }  # fmt: skip

    async def choose_agent(self, id: str, agent: str) -> None:
        """Choose the agent that answers in a chat from the next message on; AUTOMATIC: the best agent for each message.
        Raises AgentError."""
        if agent != AUTOMATIC and (self._runtime.routing is None or agent not in self._runtime.routing.agents):
            raise agent_gone()
        await self._memory.sessions.edit(id, state={CHOICE: agent})

    async def rename_conversation(self, id: str, title: str) -> None:
        title = " ".join(title.split())
        if is_blank(title):
            raise StoreError("record", "chat.no-title", "Type a title.")
        await self._memory.sessions.edit(id, title=title[: whole_end(title, LONGEST_TITLE)], titled="user")

    async def pin_conversation(self, id: str, pinned: bool) -> None:
        await self._memory.sessions.edit(id, pinned=pinned)

    async def archive_conversation(self, id: str, archived: bool) -> None:
        await self._memory.sessions.edit(id, archived=archived)

    async def remove_conversations(self, ids: list[str]) -> None:
        """Delete conversations at once. Only this page still knows them, for `restore_conversations`, until
        `forget_removed` is called or the page ends."""
        self._removed = await self._memory.sessions.delete(*ids)

    async def restore_conversations(self) -> None:
        """Undo the last `remove_conversations`."""
        if not self._removed:
            raise StoreError("record", NO_UNDO)
        await self._memory.sessions.restore(self._removed)
        self._removed = []

    async def forget_removed(self) -> None:
        """Drop the deleted conversations: they cannot be restored any more."""
        self._removed = []

    async def export_conversation(self, id: str, form: Literal["markdown", "json"]) -> str:
        """Return what is shown of it as Markdown, or all of it as JSON: see conversation_export.py."""
        session = await self._session(id)
        branches = await self._memory.sessions.branches(id)
        return as_json(session, branches) if form == "json" else as_markdown(session, branches)

    @property
    def _memory(self) -> Memory:
        return self._runtime.memory

    async def _session(self, id: str) -> sessions.Session:
        session = await self._memory.sessions.get(id)
        if session is None:
            raise StoreError("record", "chat.deleted", "This conversation was deleted.")
        return session

    async def _found(self, search: str, turns: dict[str, str | None]) -> list[StoredConversation]:
        """turns: for each conversation that was found, the id of the message that is shown of it."""
        records = await self._memory.conversations.newest_first()
        keys = [(sessions.TURN, turn) for turn in turns.values() if turn]
        contents = {record.id: record.body for record in await self._memory.store.get_many(keys)}
        return [
            {**self._entry(records[id]), "snippet": _snippet(contents[turn], search) if turn in contents else None}
            for id, turn in turns.items()
            if id in records
        ]

    def _entry(self, record: Record) -> StoredConversation:
        body = record.body
        return {
            "id": record.id, "title": body["title"], "turns": body["turns"], "pinned": body["pinned"],
            "archived": body["archived"], "titled": body["titled"], "said": body["said"],
            "created": record.created or 0.0, "updated": record.updated or 0.0, "kept": self._runtime.keeps(record.id),
        }  # fmt: skip


def _is_in_pieces(search: str, pieces: int) -> bool:
    """True if the embedder knows the words only in pieces, in scripts whose words have letters. pieces: the number into
    which the embedder cuts the search."""
    return max(search) < "\u0250" and len("".join(search.split())) < SHORT_PIECE * pieces


def _part(found: list[Any], offset: int, limit: int | None) -> list[Any]:
    return found[offset:] if limit is None else found[offset : offset + limit]


def _snippet(turn: dict[str, Any], search: str) -> Snippet:
    return {"role": turn["role"], "parts": snippet(turn["content"], terms_of(search))}
