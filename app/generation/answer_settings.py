"""How the user wants answers: instructions for all of them, how tokens are drawn, how long they may be.

Each setting is a policy, so it is kept, exported and deleted like everything else, and other tabs follow it. A policy
that cannot be read is ignored: it never blocks an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from app.records.policies import Policies
from py_core.messages import Message
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError

INSTRUCTIONS_POLICY = "answers.instructions"
SAMPLING_POLICY = "answers.sampling"
LONGEST_POLICY = "answers.longest"
CALLS_POLICY = "tools.calls"
"""The policy that lets answers of the page call tools; without it they do not."""
PYTHON_POLICY = "tools.python"
"""The policy that lets them run Python as well."""

LONGEST_INSTRUCTIONS = 4_000
"""The most characters. They are read with every conversation."""

PRESETS: Mapping[str, SamplingParams] = MappingProxyType(
    {
        "precise": SamplingParams(),
        "balanced": SamplingParams(temperature=0.5, top_p=0.9, min_p=0.05),
        "varied": SamplingParams(temperature=0.9, top_p=0.95, min_p=0.05),
    }
)
"""Ways of drawing tokens by a name."""

LARGE = 300_000_000
"""A model of this many parameters needs no penalty against loops."""
_PENALTY = 0.2
_NAMES = frozenset(option.name for option in fields(SamplingParams)) - {"seed", "grammar", "closes"}


@dataclass(frozen=True)
class AnswerSettings:
    """instructions: go into the system prompt of every conversation. sampling: replaces the agents'. longest: tokens of
    an answer, in addition to the agents' own limits."""

    instructions: str = ""
    sampling: SamplingParams | None = None
    longest: int | None = None


def kept_from_loops(sampling: SamplingParams, parameters: int) -> SamplingParams:
    """Return the sampling with a penalty on words used before, if the model is small and the sampling has no penalty.

    A small model runs in circles without one; in a larger one it spoils code and lists, which repeat words
    (docs/decisions/0005).
    """
    is_kept = sampling.penalizes or parameters >= LARGE
    return sampling if is_kept else replace(sampling, frequency_penalty=_PENALTY)


def answer_settings(policies: Policies) -> AnswerSettings:
    """Return what the user has chosen, as far as it is valid."""
    instructions = policies.look(INSTRUCTIONS_POLICY)
    sampling, longest = policies.look(SAMPLING_POLICY), policies.look(LONGEST_POLICY)
    said = instructions.value if instructions is not None and isinstance(instructions.value, str) else ""
    limit = int(longest.value) if longest is not None and isinstance(longest.value, int | float) else 0
    try:
        drawn = sampling_of(sampling.value) if sampling is not None and isinstance(sampling.value, str) else None
    except StoreError:
        drawn = None
    return AnswerSettings(said.strip()[:LONGEST_INSTRUCTIONS], drawn, limit if limit > 0 else None)


def sampling_of(value: str) -> SamplingParams | None:
    """value: "agent" (the agents decide: None), the name of a preset, or a JSON object of SamplingParams' fields.
    Raises StoreError("record") with a sentence on what is wrong."""
    if value == "agent":
        return None
    if value in PRESETS:
        return PRESETS[value]
    names = ", ".join(sorted(_NAMES))
    refused = Message(
        "settings.which-sampling",
        "Choose one of {presets}, or give values for some of {names} as JSON.",
        presets=", ".join(("agent", *PRESETS)),
        names=names,
    )
    try:
        given = json.loads(value)
    except ValueError:
        raise StoreError("record", refused) from None
    if not isinstance(given, dict) or not given.keys() <= _NAMES:
        raise StoreError("record", refused)
    try:
        return SamplingParams(**given)
    except (ValueError, TypeError) as error:
        raise StoreError(
            "record", "settings.bad-sampling", "These settings cannot be used. {why}", why=error
        ) from error


def check_setting(name: str, value: object) -> None:
    """Check a policy before it is stored. Raises StoreError with a sentence on what is wrong with it."""
    if name == SAMPLING_POLICY and isinstance(value, str):
        sampling_of(value)
    elif name == INSTRUCTIONS_POLICY and isinstance(value, str) and len(value) > LONGEST_INSTRUCTIONS:
        raise StoreError(
            "record",
            "settings.long-instructions",
            "The instructions have {length} characters. Shorten them to {most}.",
            length=f"{len(value):,}",
            most=f"{LONGEST_INSTRUCTIONS:,}",
        )
    elif name == LONGEST_POLICY and (isinstance(value, bool) or not isinstance(value, int | float) or value < 1):
        raise StoreError(
            "record", "settings.bad-max-tokens", "The longest answer must be a number of tokens, 1 or more."
        )
