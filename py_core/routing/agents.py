"""Agents, and example requests for them: types, and their parsing from plain dicts (TOML, JSON).

Every mistake in the data is an AgentError whose message is a sentence that names the agent and says what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from py_core.display import is_blank, shown
from py_core.messages import Message, UserError
from py_core.sampling import SamplingParams

FALLBACK_ID = "assistant"
"""The agent that answers if no other is likely enough. It always exists."""

MAX_TOKENS_LIMIT = 1 << 20
_LONGEST = {"title": 60, "definition": 1_000, "system_prompt": 8_000}
_LONGEST_EXAMPLE = 8_000
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_ID = 40

_REQUIRED = ("id", "title", "definition", "system_prompt")
_KEYS = (*_REQUIRED, "max_tokens", "sampling", "examples")
_RETIRED_KEYS = ("depths",)
"""Keys that older versions wrote. They are ignored."""
_EXAMPLE_KEYS = ("text", "group", "hard")
_SAMPLING_DEFAULTS = {option.name: option.default for option in fields(SamplingParams)}


class AgentError(UserError, ValueError):
    """An agent, or an example of one, is not valid. field: the invalid key, if the error is about one."""

    def __init__(self, message: Message | str, text: str = "", /, field: str | None = None, **values: Any) -> None:
        super().__init__(message, text, **values)
        self.field = field


@dataclass(frozen=True)
class Agent:
    """An agent, which answers messages.

    `definition` tells people and the router what the agent is for. `max_tokens` limits an answer. `examples` are
    requests that a user gave it; those of the shipped agents are kept separately, as `Example`.
    """

    id: str
    title: str
    definition: str
    system_prompt: str
    max_tokens: int = 1024
    sampling: SamplingParams = field(default_factory=SamplingParams)
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    """A request that belongs to an agent.

    Examples of an agent with the same `group` mean nearly the same, so that data can be split by meaning. `hard` marks
    an indirect request, without the agent's obvious keyword.
    """

    text: str
    agent: str
    group: int
    hard: bool = False


def agent_from_dict(data: Mapping[str, Any]) -> Agent:
    """Parse one agent. Raises AgentError."""
    who = _who(data)
    _refuse_unknown_keys(who, data, _KEYS, _RETIRED_KEYS)
    for key in _REQUIRED:
        value = data.get(key)
        if not isinstance(value, str) or is_blank(value):
            raise AgentError(
                "agents.missing-key",
                "{who} needs the key {key}, with a text that is not empty.",
                who=who,
                key=key,
                field=key,
            )
    if len(data["id"]) > _LONGEST_ID or not _ID.fullmatch(data["id"]):
        raise AgentError(
            "agents.bad-id",
            "{id} cannot be an agent's id: use up to {most} lower-case letters, digits and "
            "single hyphens, and begin with a letter.",
            id=shown(data["id"]),
            most=_LONGEST_ID,
            field="id",
        )
    for key, longest in _LONGEST.items():
        if len(data[key]) > longest:
            raise AgentError(
                "agents.long-text",
                "The {key} of {who} has {length} characters; at most {most} are allowed.",
                key=key,
                who=who,
                length=f"{len(data[key]):,}",
                most=f"{longest:,}",
                field=key,
            )
    max_tokens = data.get("max_tokens", Agent.max_tokens)
    if not _is_int(max_tokens) or not 1 <= max_tokens <= MAX_TOKENS_LIMIT:
        raise AgentError(
            "agents.bad-max-tokens",
            "max_tokens of {who} is {value}, but must be a whole number from 1 to 1048576.",
            who=who,
            value=shown(max_tokens),
            field="max_tokens",
        )
    texts = {key: data[key] for key in _REQUIRED}
    return Agent(
        **texts,
        max_tokens=max_tokens,
        sampling=_sampling(who, data),
        examples=_own_examples(who, data.get("examples", [])),
    )


def agent_to_dict(agent: Agent) -> dict[str, Any]:
    """The inverse of `agent_from_dict`; default values are left out."""
    data: dict[str, Any] = {key: getattr(agent, key) for key in _REQUIRED}
    if agent.max_tokens != Agent.max_tokens:
        data["max_tokens"] = agent.max_tokens
    sampling = {name: getattr(agent.sampling, name) for name in _SAMPLING_DEFAULTS}
    if changed := {name: value for name, value in sampling.items() if value != _SAMPLING_DEFAULTS[name]}:
        data["sampling"] = changed
    if agent.examples:
        data["examples"] = list(agent.examples)
    return data


def agents_from_dicts(entries: Iterable[Mapping[str, Any]]) -> list[Agent]:
    """Parse all agents, in order. Raises AgentError, also for a duplicate id or if there is no fallback."""
    agents: dict[str, Agent] = {}
    for entry in entries:
        agent = agent_from_dict(entry)
        if agent.id in agents:
            raise AgentError(
                "agents.twice", "There are two agents with the id {id}: rename or remove one.", id=shown(agent.id)
            )
        agents[agent.id] = agent
    if FALLBACK_ID not in agents:
        raise AgentError(
            "agents.no-fallback",
            "The agent {id} is missing: it answers messages that suit no other agent.",
            id=shown(FALLBACK_ID),
        )
    return list(agents.values())


def examples_from_dicts(agent_id: str, rows: Iterable[Mapping[str, Any]]) -> list[Example]:
    """Parse the examples of one agent. Raises AgentError, with the number of the row (from 1)."""
    examples = []
    for number, row in enumerate(rows, 1):
        who = Message("agents.an-example", "Example {number} of agent {id}", number=number, id=shown(agent_id))
        _refuse_unknown_keys(who, row, _EXAMPLE_KEYS)
        text, group, hard = row.get("text"), row.get("group"), row.get("hard", False)
        if not isinstance(text, str) or is_blank(text):
            raise AgentError("agents.empty-example", "{who} needs a text that is not empty.", who=who)
        if len(text) > _LONGEST_EXAMPLE:
            raise AgentError(
                "agents.long-example",
                "{who} has {length} characters; at most {most} are allowed.",
                who=who,
                length=f"{len(text):,}",
                most=f"{_LONGEST_EXAMPLE:,}",
            )
        if not isinstance(group, int) or isinstance(group, bool) or group < 1:
            raise AgentError(
                "agents.bad-group",
                "{who} has the group {group}, but a group must be a whole number, 1 or more.",
                who=who,
                group=shown(group),
            )
        if not isinstance(hard, bool):
            raise AgentError(
                "agents.bad-hard", "{who} has hard = {hard}, but hard must be true or false.", who=who, hard=shown(hard)
            )
        examples.append(Example(text, agent_id, group, hard))
    return examples


def _who(data: Mapping[str, Any]) -> Message:
    if not isinstance(data, Mapping):
        raise AgentError(
            "agents.agent-no-table", "An agent must be a table of keys and values, not {data}.", data=shown(data)
        )
    if "id" in data:
        return Message("agents.an-agent", "agent {id}", id=shown(data["id"]))
    return Message("agents.nameless", "an agent without an id")


def _refuse_unknown_keys(
    who: Message, data: Mapping[str, Any], known: Iterable[str], ignored: Sequence[str] = ()
) -> None:
    if not isinstance(data, Mapping):
        raise AgentError(
            "agents.no-table", "{who} must be a table of keys and values, not {data}.", who=who, data=shown(data)
        )
    if unknown := [str(key) for key in data if key not in known and key not in ignored]:
        raise AgentError(
            "agents.unknown-key",
            "{who} has an unknown key {key}; the known keys are {known}.",
            who=who,
            key=shown(unknown[0]),
            known=", ".join(known),
        )


def _sampling(who: Message, data: Mapping[str, Any]) -> SamplingParams:
    values = data.get("sampling", {})
    _refuse_unknown_keys(Message("agents.its-sampling", "The sampling of {who}", who=who), values, _SAMPLING_DEFAULTS)
    for name, value in values.items():
        whole = isinstance(_SAMPLING_DEFAULTS[name], int)
        if not (_is_int(value) or (isinstance(value, float) and not whole)):
            kind = Message("agents.whole-number", "a whole number") if whole else Message("agents.number", "a number")
            raise AgentError(
                "agents.bad-sampling",
                "The sampling of {who}: {name} is {value}, but must be {kind}.",
                who=who,
                name=name,
                value=shown(value),
                kind=kind,
                field=name,
            )
        try:
            SamplingParams(**{name: value})
        except ValueError as error:
            raise AgentError(
                "agents.sampling", "The sampling of {who}: {why}", who=who, why=error, field=name
            ) from None
    return SamplingParams(**values)


def _own_examples(who: Message, texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list | tuple):
        raise AgentError(
            "agents.bad-examples",
            "The examples of {who} must be a list of texts, not {data}.",
            who=who,
            data=shown(texts),
        )
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or is_blank(text) or len(text) > _LONGEST_EXAMPLE:
            raise AgentError(
                "agents.bad-example",
                "Example {number} of {who} must be a text of 1 to {most} characters that is not blank.",
                number=number,
                who=who,
                most=f"{_LONGEST_EXAMPLE:,}",
                field="examples",
            )
    return tuple(texts)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
