"""The question that a tool gets, and the answer that it gives."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Exact:
    """An answer that no model made. kind: "arithmetic", "date", "unit", "count", "table" or "help". value: the bare
    result ("391"), or "". words: the answer as text. working: how it was computed, in a sentence or two."""

    kind: str
    value: str
    words: str
    working: str


@dataclass(frozen=True)
class Question:
    """A message as the tools read it. text: in one line, without surrounding words such as "please", and without the
    question mark. given: as it was written. now: the person's local time."""

    text: str
    given: str
    now: datetime


class CannotComputeError(ValueError):
    """The question is clear, but has no result: `english` and `german` each give the reason as a sentence."""

    def __init__(self, english: str, german: str) -> None:
        super().__init__(english)
        self.english, self.german = english, german

    def words(self, language: str) -> str:
        return self.german if language == "de" else self.english


_BEFORE = re.compile(
    r"(?:(?:hey|hi|hello|hallo|ok|okay|so|well|and|und|also|sonata|please|bitte|now|um|hm+|quick question|kurze frage)"
    r"\b[\s,!:.-]*)*"
    r"(?:(?:can|could|would|will) you (?:please )?(?=[a-z])(?:(?:tell me|say) )?"
    r"|(?:please )?tell me,? |do you (?:happen to )?know |i (?:want|need|would like) to know |i wonder "
    r"|(?:kannst|könntest|würdest) du (?:mir )?(?:bitte )?(?:sagen,? )?|sag(?:e)? mir,? (?:bitte,? )?|weißt du,? "
    r"|ich (?:möchte|will) wissen,? )?(?:please |bitte )?",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?<=[\s,?.!])(?:please|bitte|thanks|thank you|danke|again|nochmal|noch mal|exactly|genau|for me|für mich"
    r"|sonata)$",
    re.IGNORECASE,
)
_LONGEST_AFTER = 12
_MOST_AFTER = 5


def question_of(message: str, now: datetime) -> Question:
    given = unicodedata.normalize("NFC", message).strip()
    text = " ".join(given.split())
    begin = _BEFORE.match(text)
    text = text[begin.end() :] if begin else text
    for _ in range(_MOST_AFTER):
        text = text.rstrip(" ,.?\u2026")
        if (bare := text.rstrip("!")) and bare[-1] not in "0123456789)":  # 5! is a number
            text = bare
        if (end := _AFTER.search(text, max(len(text) - _LONGEST_AFTER, 0))) is None or not end.start():
            break
        text = text[: end.start()]
    return Question(text, given, now)
