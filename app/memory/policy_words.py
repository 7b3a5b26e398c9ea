"""Policies as a person reads them: what each is, its value in words, who says so, and whether it can be set.

told = policy_words(policy, {"98f4a6...": "SmolLM2 135M Instruct"})
told.title, told.value, told.about
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.chat.trajectory_recorder import DEPTHS_POLICY
from app.consolidation.deep_loop import REPORT_POLICY, UNTIL_POLICY
from app.consolidation.idle_learning import LAST
from app.consolidation.idle_work import BACKGROUND_POLICY
from app.consolidation.loop_runs import RUNS_POLICY
from app.consolidation.training_settings import PREFIX
from app.generation.answer_settings import INSTRUCTIONS_POLICY, LONGEST_POLICY, SAMPLING_POLICY
from app.generation.exact_answers import EXACT_POLICY
from app.lessons.service import EMBEDDER_POLICY as LESSONS_EMBEDDER
from app.lessons.service import INSTANT_POLICY, READING_POLICY, THRESHOLD_POLICY
from app.routing.agent_choice import ROUTING_POLICY
from app.routing.service import AGENTS_POLICY
from py_core.learning.self_tuning import FACTORS
from py_core.memory.memory import Memory
from py_core.memory.policies import Policy, Value
from py_core.routing.pattern_store import EMBEDDER_POLICY


@dataclass(frozen=True)
class PolicyWords:
    """about: a sentence. value: "" where it is only for programs. by: who says so, and from how much. time: seconds
    since 1970, where the value is a time. can_edit: whether it is a value that a person may set here. deletion: what
    deleting it is called."""

    title: str
    value: str
    about: str
    by: str
    time: float | None = None
    can_edit: bool = True
    deletion: str = "Reset"


@dataclass(frozen=True)
class _Known:
    title: str
    about: str
    value: Callable[[Value], str]
    observed: tuple[str, str] = ("observation", "observations")
    is_time: bool = False
    can_edit: bool = True


def _on(value: Value) -> str:
    return "off" if value is False else "on"


def _nothing(value: Value) -> str:
    return ""


def _times(least: float, most: float) -> Callable[[Value], str]:
    def words(value: Value) -> str:
        number = _number(value)
        return f"{number:.2f} times (from {least:g} to {most:g})"

    return words


def _opening(value: Value) -> str:
    score = _number(value)
    return f"a score of {score:.2f}: {1 / (1 + math.exp(-max(min(score, 30.0), -30.0))):.0%} sure"


def _shares(value: Value) -> str:
    return ", ".join(f"{share:.0%}" for share in value) if isinstance(value, list) else str(value)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


_TRAININGS = ("training", "trainings")
_FACTORS = {
    "rate": (
        "How fast trainings learn",
        "The learning rate beside the measured one. It falls after a training that harmed other texts.",
    ),
    "divergence": (
        "How firmly other texts are held",
        "How much other texts and the model's own answers count in a training, beside what was measured.",
    ),
    "rounds": (
        "How long trainings are",
        "How often each fact comes in a training, beside what was measured. More after one that gave too few answers.",
    ),
    "rehearsal": (
        "How much is rehearsed",
        "How many facts of earlier trainings each step repeats, beside what was measured. More after some were lost.",
    ),
    "elastic": (
        "How firmly earlier facts are held",
        "How much it counts what earlier facts need of the adapter (Fisher information), beside what was measured.",
    ),
}
_KNOWN: Mapping[str, _Known] = {
    INSTRUCTIONS_POLICY: _Known("Your instructions", "The model reads them with every conversation.", str),
    SAMPLING_POLICY: _Known(
        "How answers are drawn", "agent, precise, balanced, varied, or fields of the sampling as JSON.", str
    ),
    LONGEST_POLICY: _Known("The longest answer", "In tokens, beside the agents' own limits.", str),
    INSTANT_POLICY: _Known("Learning at once", "Whether what you teach answers.", _on),
    READING_POLICY: _Known("Learning by reading", "Whether the model reads facts where the gate is not sure.", _on),
    BACKGROUND_POLICY: _Known("Learning by training", "Whether the model is trained in pauses, and uses it.", _on),
    EXACT_POLICY: _Known(
        "Exact answers", "Whether arithmetic, dates, units and counting are computed before the model answers.", _on
    ),
    ROUTING_POLICY: _Known(
        "Agents are chosen automatically",
        "Whether each message goes to the agent that suits it, in chats for which you have not chosen who answers.",
        _on,
    ),
    "learning.deep": _Known("Learning from experience", "Whether answers are looked at together in pauses.", _on),
    "learning.style": _Known("Learning your style", "Whether the tone that you like is learned and used.", _on),
    THRESHOLD_POLICY: _Known(
        "From when on a fact answers",
        "How sure the gate must be that a message asks for a fact. Fitted to what you said of answers.",
        _opening,
        ("judged answer", "judged answers"),
    ),
    DEPTHS_POLICY: _Known(
        "Where answers are recorded", "The depths of the model at which an answer's states are kept.", _shares
    ),
    REPORT_POLICY: _Known(
        "The last look at all answers", "What it found is in Learned, Learning.", _nothing, can_edit=False
    ),
    UNTIL_POLICY: _Known(
        "Answers looked at so far", "Up to this time; newer ones are new.", _nothing, is_time=True, can_edit=False
    ),
    **{
        RUNS_POLICY.format(loop): _Known(title, "The plot in Learned, Learning shows them.", _nothing, can_edit=False)
        for loop, title in (("deep", "Looks at all answers"), ("style", "Trainings of your style"))
    },
    LESSONS_EMBEDDER: _Known(
        "What searches among facts", "Names the model that made the facts' vectors.", _nothing, can_edit=False
    ),
    EMBEDDER_POLICY: _Known(
        "What searches among routes", "Names the model that made the patterns' vectors.", _nothing, can_edit=False
    ),
    AGENTS_POLICY: _Known("Your changes to agents", "Edit them in Agents.", _nothing, can_edit=False),
    **{
        LAST.format(loop): _Known(f"When {said} was last done", "", _nothing, is_time=True, can_edit=False)
        for loop, said in (
            ("background", "a training"),
            ("deep", "a look at all answers"),
            ("style", "a training of your style"),
        )
    },
}
_SOURCES = {
    "user": "set by you",
    "instant": "learned at once",
    "background": "learned by the background loop",
    "deep": "learned by the deep loop",
    "router": "noted by the router",
}


def policy_words(policy: Policy, models: Mapping[str, str]) -> PolicyWords:
    """models: names of models by the first 16 digits of their files' sha256."""
    known = _of(policy.name, models)
    by = _SOURCES.get(policy.source, f"set by {policy.source}")
    if known is None:
        return PolicyWords(policy.name, json.dumps(policy.value), "", by, deletion="Delete")
    if policy.observations:
        by += f" from {policy.observations:,} {known.observed[policy.observations != 1]}"
    time = float(policy.value) if known.is_time and isinstance(policy.value, int | float) else None
    return PolicyWords(known.title, known.value(policy.value), known.about, by, time, known.can_edit)


async def told_policies(memory: Memory) -> list[tuple[Policy, PolicyWords]]:
    """The one that was used last comes first. Raises StoreError."""
    models = {run.base_sha256[:16]: run.model for run in await memory.revisions.runs() if run.model}
    return [(policy, policy_words(policy, models)) for policy in memory.policies.all()]


def _of(name: str, models: Mapping[str, str]) -> _Known | None:
    if (known := _KNOWN.get(name)) is not None:
        return known
    factor, _, base = name.removeprefix(PREFIX).partition("/")
    if not name.startswith(PREFIX) or not base or factor not in _FACTORS:
        return None
    title, about = _FACTORS[factor]
    limits = FACTORS[factor]
    model = models.get(base, f"the model {base}")
    return _Known(f"{title}: {model}", about, _times(limits.least, limits.most), _TRAININGS)
