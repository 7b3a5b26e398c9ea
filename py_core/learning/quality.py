"""The quality of an answer, from 0 to 1: the person's rating, or else a score of five parts.

Each part is from 0 to 1, or None if it is not known:

fits      relevance: the cosine between the meanings of message and answer, as a share of FITTING
coherent  exp of the mean log-probability of its tokens: how sure the model was of each word, on average
diverse   the share of distinct runs of GRAM tokens: 1 if nothing is said twice, near 0 in a loop
new       the share of these runs that are not in the prompt, so neither in the message nor in earlier answers
finished  FINISHED: whether the model ended the answer by itself

The score is the mean of the known parts, weighted by WEIGHTS. Asking for another answer lowers it. The person's rating
overrides it: a good answer is 1, a bad one 0, and a corrected one half of the share of its words that the correction
keeps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from py_core.learning.trajectories import Trajectory

WEIGHTS: Mapping[str, float] = {"fits": 0.35, "coherent": 0.25, "diverse": 0.15, "new": 0.05, "finished": 0.2}
FITTING = 0.6
"""The cosine from which an answer counts as relevant."""
FINISHED: Mapping[str, float] = {"end": 1.0, "length": 0.5, "context": 0.5, "stopped": 0.25, "loop": 0.0}
"""By the reason why an answer ended (Done). A person who stops an answer has mostly seen enough of it."""
GRAM = 4
AGAIN = 0.6
"""The factor for an answer that the person asked to replace."""
CORRECTED = 0.5


def parts_of(
    answer: Sequence[int], prompt: Sequence[int], reason: str, logprob: float | None, similarity: float | None
) -> dict[str, float | None]:
    """The five parts. answer, prompt: tokens. logprob: the mean over the answer's tokens. similarity: the cosine
    between the meanings of message and answer."""
    runs = _runs(answer)
    known = set(_runs(prompt))
    return {
        "fits": None if similarity is None else _share(similarity / FITTING),
        "coherent": None if logprob is None else _share(math.exp(min(logprob, 0.0))),
        "diverse": len(set(runs)) / len(runs) if runs else _share(len(answer)),
        "new": sum(run not in known for run in runs) / len(runs) if runs else _share(len(answer)),
        "finished": FINISHED.get(reason),
    }


def quality_of(
    parts: Mapping[str, float | None], feedback: str = "", kept: float | None = None, again: bool = False
) -> float | None:
    """The quality from 0 to 1; None if nothing is known. feedback, kept, again: as in a Trajectory."""
    if feedback:
        return {"good": 1.0, "bad": 0.0}.get(feedback, CORRECTED * (kept or 0.0))
    known = {name: value for name in WEIGHTS if (value := parts.get(name)) is not None}
    if not known:
        return None
    mean = sum(WEIGHTS[name] * value for name, value in known.items()) / sum(WEIGHTS[name] for name in known)
    return _share(mean * (AGAIN if again else 1.0))


def rated(trajectory: Trajectory) -> Trajectory:
    """The trajectory with the quality that follows from its parts and from the person's feedback."""
    told = trajectory
    return replace(told, quality=quality_of(told.parts, told.feedback, told.kept, told.again))


def kept_share(answer: str, corrected: str) -> float:
    """The share of the answer's words that the person's correction has in the same order; 0 for an empty answer."""
    words, others = (re.findall(r"\w+", text.lower()) for text in (answer, corrected))
    matching = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    return sum(block.size for block in matching) / len(words) if words else 0.0


def _runs(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    return list(zip(*(tokens[start:] for start in range(GRAM)), strict=False))


def _share(value: float) -> float:
    return min(max(float(value), 0.0), 1.0)
