"""Answers in four styles, written for measuring whether a style can be learned (`sonata bench style`).

One file per style, beside this one: {"split", "prompt", "answer"}. The prompts are the same in all files; the split
"taught" is learned from, the split "unseen" is only for the figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Split = Literal["taught", "unseen"]
_FOLDER = Path(__file__).parent
_FORMAL = re.compile(
    r"\b(one (should|may|requires)|should be|may be|is advisable|is recommended|recommended to|in order to|"
    r"subsequently|therefore|is considered|would be appropriate|is customary)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class StyledAnswer:
    prompt: str
    answer: str


@dataclass(frozen=True)
class StyleMeasure:
    """A measure of the style of answers: the share of answers that have it, or a mean. `more`: the style raises it."""

    words: str
    of: Callable[[str], float]
    more: bool = True


MEASURES = {
    "brief": StyleMeasure("words of an answer", lambda text: float(len(text.split())), more=False),
    "asking": StyleMeasure("ends with a question", lambda text: float(text.rstrip().endswith("?"))),
    "formal": StyleMeasure("has a formal phrase", lambda text: float(bool(_FORMAL.search(text)))),
    "lists": StyleMeasure(
        "is a list", lambda text: float(text.startswith("- ") and len(re.findall(r"^- ", text, re.MULTILINE)) > 1)
    ),
}


@cache
def styled_answers(style: str, split: Split) -> tuple[StyledAnswer, ...]:
    lines = (_FOLDER / f"{style}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return tuple(StyledAnswer(row["prompt"], row["answer"]) for row in rows if row["split"] == split)


def measured(style: str, answers: Sequence[str]) -> float:
    """The mean of the style's measure over answers."""
    return sum(map(MEASURES[style].of, answers)) / max(len(answers), 1)
