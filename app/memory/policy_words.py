"""Policies in words for a person: the meaning of each, its value, the source of the value, and whether it can be set.

told = policy_words(policy)
told.title, told.value, told.about
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.chat.exact_answers import EXACT_POLICY
from app.consolidation.deep_loop import REPORT_POLICY, UNTIL_POLICY
from app.consolidation.idle_learning import LAST
from app.consolidation.idle_work import BACKGROUND_POLICY
from app.consolidation.loop_runs import RUNS_POLICY
from app.generation.answer_settings import (
    CALLS_POLICY,
    INSTRUCTIONS_POLICY,
    LONGEST_POLICY,
    PYTHON_POLICY,
    SAMPLING_POLICY,
)
from app.lessons.service import INSTANT_POLICY, READING_POLICY, THRESHOLD_POLICY
from app.lessons.vectors import EMBEDDER_POLICY as LESSONS_EMBEDDER
from app.records.memory import Memory
from app.records.policies import Policy, Value
from app.routing.agent_choice import ROUTING_POLICY
from app.routing.pattern_store import EMBEDDER_POLICY
from app.routing.service import AGENTS_POLICY
from py_core.messages import Message, Words

_RESET = Message("policy.reset", "Reset")
_DELETE = Message("policy.delete", "Delete")


@dataclass(frozen=True)
class PolicyWords:
    """about: a sentence. value: "" if it is only for programs. by: the source of the value, and its amount of evidence.
    time: seconds since 1970, if the value is a time. can_edit: True if a person may set the value here. deletion: the
    label for deleting it."""

    title: Words
    value: Words
    about: Words
    by: Message
    time: float | None = None
    can_edit: bool = True
    deletion: Message = _RESET


def _from_observations(by: Words, count: int) -> Message:
    if count == 1:
        return Message("policy.from-observation", "{by} from 1 observation", by=by)
    return Message("policy.from-observations", "{by} from {count} observations", by=by, count=f"{count:,}")


def _from_judged(by: Words, count: int) -> Message:
    if count == 1:
        return Message("policy.from-judged", "{by} from 1 judged answer", by=by)
    return Message("policy.from-judged-answers", "{by} from {count} judged answers", by=by, count=f"{count:,}")


@dataclass(frozen=True)
class _Known:
    title: Words
    about: Words
    value: Callable[[Value], Words]
    observed: Callable[[Words, int], Message] = _from_observations
    is_time: bool = False
    can_edit: bool = True


def _on(value: Value) -> Message:
    return Message("policy.off", "off") if value is False else Message("policy.on", "on")


def _nothing(value: Value) -> str:
    return ""


def _opening(value: Value) -> Message:
    score = _number(value)
    return Message(
        "policy.score",
        "a score of {score}: {share} sure",
        score=f"{score:.2f}",
        share=f"{1 / (1 + math.exp(-max(min(score, 30.0), -30.0))):.0%}",
    )


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


_KNOWN: Mapping[str, _Known] = {
    INSTRUCTIONS_POLICY: _Known(
        Message("policy.instructions.title", "Your instructions"),
        Message("policy.instructions.about", "The model reads them with every conversation."),
        str,
    ),
    SAMPLING_POLICY: _Known(
        Message("policy.sampling.title", "How answers are drawn"),
        Message("policy.sampling.about", "agent, precise, balanced or varied, or sampling settings as JSON."),
        str,
    ),
    LONGEST_POLICY: _Known(
        Message("policy.max-tokens.title", "The longest answer"),
        Message("policy.max-tokens.about", "In tokens. The agents' own limits apply, too."),
        str,
    ),
    INSTANT_POLICY: _Known(
        Message("policy.imprints.title", "Learning at once"),
        Message("policy.imprints.about", "Whether what you teach is used in answers."),
        _on,
    ),
    READING_POLICY: _Known(
        Message("policy.reading.title", "Learning by reading"),
        Message("policy.reading.about", "Whether the model reads facts if the gate is not sure."),
        _on,
    ),
    BACKGROUND_POLICY: _Known(
        Message("policy.training.title", "Learning by training"),
        Message("policy.training.about", "Whether the model is trained in pauses, and the result is used."),
        _on,
    ),
    EXACT_POLICY: _Known(
        Message("policy.exact.title", "Exact answers"),
        Message(
            "policy.exact.about", "Whether arithmetic, dates, units and counting are computed before the model answers."
        ),
        _on,
    ),
    CALLS_POLICY: _Known(
        Message("policy.calls.title", "Answers call tools"),
        Message("policy.calls.about", "Whether the model may call tools for its answers."),
        _on,
    ),
    PYTHON_POLICY: _Known(
        Message("policy.python.title", "Answers run Python"),
        Message("policy.python.about", "Whether Python that the model writes runs for its answers without a click."),
        _on,
    ),
    ROUTING_POLICY: _Known(
        Message("policy.routing.title", "Agents are chosen automatically"),
        Message(
            "policy.routing.about",
            "Whether each message goes to the agent that suits it, in chats for which you have not chosen who answers.",
        ),
        _on,
    ),
    "learning.deep": _Known(
        Message("policy.experience.title", "Learning from experience"),
        Message("policy.experience.about", "Whether Sonata looks at many answers together in pauses."),
        _on,
    ),
    THRESHOLD_POLICY: _Known(
        Message("policy.gate.title", "When a fact answers"),
        Message(
            "policy.gate.about",
            "How sure the gate must be that a message asks for a fact. Fitted to your feedback on answers.",
        ),
        _opening,
        _from_judged,
    ),
    REPORT_POLICY: _Known(
        Message("policy.deep-loop.title", "The last review of all answers"),
        Message("policy.deep-loop.about", "What it found is in Learned, Learning."),
        _nothing,
        can_edit=False,
    ),
    UNTIL_POLICY: _Known(
        Message("policy.seen-until.title", "Answers reviewed so far"),
        Message("policy.seen-until.about", "Up to this time; later answers are new."),
        _nothing,
        is_time=True,
        can_edit=False,
    ),
    RUNS_POLICY.format("deep"): _Known(
        Message("policy.deep-loops.title", "Reviews of all answers"),
        Message("policy.plotted.about", "The plot in Learned, Learning shows them."),
        _nothing,
        can_edit=False,
    ),
    LESSONS_EMBEDDER: _Known(
        Message("policy.facts-embedder.title", "The model that searches facts"),
        Message("policy.facts-embedder.about", "Names the model that made the facts' vectors."),
        _nothing,
        can_edit=False,
    ),
    EMBEDDER_POLICY: _Known(
        Message("policy.patterns-embedder.title", "The model that searches routes"),
        Message("policy.patterns-embedder.about", "Names the model that made the patterns' vectors."),
        _nothing,
        can_edit=False,
    ),
    AGENTS_POLICY: _Known(
        Message("policy.agents.title", "Your changes to agents"),
        Message("policy.agents.about", "Edit them in Agents."),
        _nothing,
        can_edit=False,
    ),
    **{
        LAST.format(loop): _Known(title, "", _nothing, is_time=True, can_edit=False)
        for loop, title in (
            ("background", Message("policy.last-training.title", "When the model was last trained")),
            ("deep", Message("policy.last-deep-loop.title", "When all answers were last reviewed")),
        )
    },
}
_SOURCES = {
    "user": Message("policy.by-user", "set by you"),
    "instant": Message("policy.by-lesson", "learned at once"),
    "background": Message("policy.by-background", "learned by the background loop"),
    "deep": Message("policy.by-deep", "learned by the deep loop"),
    "router": Message("policy.by-router", "noted by the router"),
}


def policy_words(policy: Policy) -> PolicyWords:
    known = _KNOWN.get(policy.name)
    by = _SOURCES.get(policy.source) or Message("policy.by-other", "set by {source}", source=policy.source)
    if known is None:
        return PolicyWords(policy.name, json.dumps(policy.value), "", by, deletion=_DELETE)
    if policy.observations:
        by = known.observed(by, policy.observations)
    time = float(policy.value) if known.is_time and isinstance(policy.value, int | float) else None
    return PolicyWords(known.title, known.value(policy.value), known.about, by, time, known.can_edit)


def told_policies(memory: Memory) -> list[tuple[Policy, PolicyWords]]:
    """Return all policies with their words, the last used first."""
    return [(policy, policy_words(policy)) for policy in memory.policies.all()]
