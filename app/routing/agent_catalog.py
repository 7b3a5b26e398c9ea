"""The agents: the shipped ones (agents/agents.toml, agents/examples/), with the user's changes on top.

Changes are plain data that any store can keep (they survive JSON), and the functions on them are pure: they take
changes and return new ones.

    {"agents": {id: fields}, "hidden": [id, ...]}

`agents` holds whole agents that the user added, and the edited fields of shipped ones: unchanged fields follow the next
version. `hidden` are shipped agents that the user removed; their edits are kept.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from py_core.display import shown
from py_core.messages import Message, Words
from py_core.routing.agents import (
    FALLBACK_ID,
    Agent,
    AgentError,
    Example,
    agent_from_dict,
    agents_from_dicts,
    examples_from_dicts,
)

AGENTS = Path(__file__).with_name("agents") / "agents.toml"
EXAMPLES = AGENTS.with_name("examples")

Fields = Mapping[str, Any]
"""An agent, or some of its keys, as a plain dict."""
Changes = Mapping[str, Any]


def shipped_agents(path: Path = AGENTS) -> list[dict[str, Any]]:
    """The shipped agents, as plain dicts. Raises AgentError, naming the file."""
    entries = _tables(path, "agent")
    try:
        agents_from_dicts(entries)
    except AgentError as error:
        raise AgentError("agents.in-file", "{path}: {why}", path=path, why=error) from None
    return entries


@cache
def _shipped_texts() -> Mapping[str, Fields]:
    return {entry["id"]: entry for entry in shipped_agents()}


def agent_words(id: str, key: Literal["title", "definition"], text: str) -> Words:
    """The title or definition of an agent: a shipped agent's is translated."""
    is_shipped = _shipped_texts().get(id, {}).get(key) == text
    return Message(f"agent.{id}.{key}", text) if is_shipped else text


def shipped_examples(folder: Path = EXAMPLES) -> list[Example]:
    """The examples of all shipped agents, a file each, in the order of the files' names. Raises AgentError."""
    return list(_examples_in(folder))


@cache
def _examples_in(folder: Path) -> tuple[Example, ...]:
    """Read once: thousands of tables of TOML take a tenth of a second, and every opened router needs them."""
    examples: list[Example] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            examples += examples_from_dicts(path.stem, _tables(path, "example"))
        except AgentError as error:
            raise AgentError("agents.in-file", "{path}: {why}", path=path, why=error) from None
    return tuple(examples)


def no_changes() -> dict[str, Any]:
    """The changes of a new user: none."""
    return {"agents": {}, "hidden": []}


def current_agents(shipped: Sequence[Fields], changes: Changes) -> list[Agent]:
    """The agents that can answer: the shipped ones with the user's changes, then the user's own.

    Changes may be older than this version: edits of agents that are no longer shipped stay in case they return. Raises
    AgentError if the changes do not have this form.
    """
    edited, hidden = _parts(changes)
    ids = {entry["id"] for entry in shipped}
    entries = [_merge(entry, edited.get(entry["id"], {})) for entry in shipped if entry["id"] not in hidden]
    entries += [fields for id_, fields in edited.items() if id_ not in ids and "id" in fields]
    return agents_from_dicts(entries)


def current_examples(agents: Iterable[Agent], shipped: Iterable[Example]) -> list[Example]:
    """The shipped examples of these agents, then the user's."""
    agents = list(agents)
    ids = {agent.id for agent in agents}
    kept = [example for example in shipped if example.agent in ids]
    last_group = {agent.id: max((e.group for e in kept if e.agent == agent.id), default=0) for agent in agents}
    return kept + [
        Example(text, agent.id, last_group[agent.id] + number)
        for agent in agents
        for number, text in enumerate(agent.examples, 1)
    ]


def add_agent(shipped: Sequence[Fields], changes: Changes, agent: Fields) -> dict[str, Any]:
    """A new agent of the user's. Raises AgentError if it is not valid or its id is taken."""
    edited, hidden = _parts(changes)
    added = agent_from_dict(agent)
    if added.id in hidden:
        raise AgentError(
            "agents.removed-id",
            "An agent {id} was removed: restore it, or choose another id.",
            id=shown(added.id),
            field="id",
        )
    if any(added.id == entry["id"] for entry in shipped) or added.id in edited:
        raise AgentError(
            "agents.taken-id",
            "There is already an agent {id}: edit it, or choose another id.",
            id=shown(added.id),
            field="id",
        )
    return {"agents": {**edited, added.id: dict(agent)}, "hidden": hidden}


def edit_agent(shipped: Sequence[Fields], changes: Changes, agent_id: str, fields: Fields) -> dict[str, Any]:
    """Change some keys of an agent; of `sampling` only the given ones. An agent keeps its id.

    Raises AgentError if there is no such agent or it would not be valid.
    """
    edited, hidden = _parts(changes)
    _require(shipped, changes, agent_id)
    if fields.get("id", agent_id) != agent_id:
        raise AgentError(
            "agents.fixed-id",
            "The id of agent {id} cannot change: add a new agent and remove this one.",
            id=shown(agent_id),
        )
    base = _shipped(shipped, agent_id)
    before = edited.get(agent_id, {})
    agent_from_dict(_merge(base or {}, _merge(before, fields)))
    after = _merge(before, {key: value for key, value in fields.items() if base is None or key != "id"})
    return {"agents": {**edited, agent_id: after}, "hidden": hidden}


def remove_agent(shipped: Sequence[Fields], changes: Changes, agent_id: str) -> dict[str, Any]:
    """Delete an agent of the user's, or hide a shipped one. Raises AgentError for the fallback or an unknown id."""
    edited, hidden = _parts(changes)
    _require(shipped, changes, agent_id)
    if agent_id == FALLBACK_ID:
        raise AgentError(
            "agents.fallback-stays",
            "{id} answers what suits no other agent: it can be edited but not removed.",
            id=shown(FALLBACK_ID),
        )
    if _shipped(shipped, agent_id) is not None:
        return {"agents": edited, "hidden": [*hidden, agent_id]}
    return {"agents": {id_: fields for id_, fields in edited.items() if id_ != agent_id}, "hidden": hidden}


def restore_agent(changes: Changes, agent_id: str) -> dict[str, Any]:
    """Restore a removed shipped agent, with its edits. Raises AgentError if it was not removed."""
    edited, hidden = _parts(changes)
    if agent_id not in hidden:
        raise AgentError(
            "agents.not-removed", "Agent {id} was not removed; there is nothing to restore.", id=shown(agent_id)
        )
    return {"agents": edited, "hidden": [id_ for id_ in hidden if id_ != agent_id]}


def reset_agent(shipped: Sequence[Fields], changes: Changes, agent_id: str) -> dict[str, Any]:
    """Discard the user's edits of a shipped agent. Raises AgentError if there is no such shipped agent."""
    edited, hidden = _parts(changes)
    if _shipped(shipped, agent_id) is None:
        raise AgentError(
            "agents.not-shipped",
            "Agent {id} did not come with Sonata, so there is no original to go back to.",
            id=shown(agent_id),
        )
    return {"agents": {id_: fields for id_, fields in edited.items() if id_ != agent_id}, "hidden": hidden}


def _tables(path: Path, name: str) -> list[dict[str, Any]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AgentError("files.unreadable", "{path} cannot be read: {why}.", path=path, why=error.strerror) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AgentError("agents.no-toml", "{path} is not valid TOML: {why}.", path=path, why=error) from None
    tables = document.get(name)
    if set(document) != {name} or not isinstance(tables, list):
        raise AgentError(
            "agents.other-tables", "{path} must hold [[{name}]] tables and nothing else.", path=path, name=name
        )
    return tables


def _parts(changes: Changes) -> tuple[dict[str, dict[str, Any]], list[str]]:
    edited, hidden = changes.get("agents", {}), changes.get("hidden", [])
    if not isinstance(edited, Mapping) or not all(isinstance(fields, Mapping) for fields in edited.values()):
        raise AgentError(
            "agents.damaged-tables", "The changes to agents are damaged: `agents` must hold a table for each id."
        )
    if not isinstance(hidden, list | tuple):
        raise AgentError("agents.damaged-hidden", "The changes to agents are damaged: `hidden` must be a list of ids.")
    return {id_: dict(fields) for id_, fields in edited.items()}, list(hidden)


def _merge(base: Fields, over: Fields) -> dict[str, Any]:
    merged = {**base, **over}
    if isinstance(base.get("sampling"), Mapping) and isinstance(over.get("sampling"), Mapping):
        merged["sampling"] = {**base["sampling"], **over["sampling"]}
    return merged


def _shipped(shipped: Sequence[Fields], agent_id: str) -> Fields | None:
    return next((entry for entry in shipped if entry["id"] == agent_id), None)


def _require(shipped: Sequence[Fields], changes: Changes, agent_id: str) -> None:
    known = [agent.id for agent in current_agents(shipped, changes)]
    if agent_id not in known:
        raise AgentError(
            "agents.unknown",
            "There is no agent {id}. The agents are {known}.",
            id=shown(agent_id),
            known=", ".join(known),
        )
