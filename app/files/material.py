"""The part of the attached files that goes into a prompt: the whole text if it fits, else the passages for a question.

The whole text stands at the beginning of the first message that the model reads, and stays there while the conversation
continues, so that it is read once. Passages belong to a question, and stand before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.protocol import Citation
from py_core.passages.chunks import PAGE_BREAK


@dataclass(frozen=True)
class Material:
    """cited: its parts, in the order of the files. is_whole: whole files. by_words: the passages were found by their
    words alone, because their meanings are not known yet."""

    text: str
    tokens: int
    cited: tuple[Citation, ...]
    is_whole: bool
    by_words: bool = False

    @property
    def opening(self) -> str:
        """The text at the beginning of the first message that the model reads."""
        return self.text if self.is_whole else ""

    def asked(self, question: str) -> str:
        """A message as the model reads it."""
        return question if self.is_whole or not self.text else f"{self.text}\n\nAnswer from this text: {question}"

    @property
    def found(self) -> Literal["whole", "meaning", "words"]:
        """How the passages were found, as in Citations."""
        return "whole" if self.is_whole else "words" if self.by_words else "meaning"


NOTHING_BY_WORDS = Material("", 0, (), is_whole=False, by_words=True)
"""For files that are not indexed and contain no word of the question."""


def whole_text(name: str, text: str) -> str:
    """A file in a prompt."""
    return f"Here is the file {name}:\n\n{without_page_breaks(text).strip()}\n\nThis is the end of {name}."


def passages_text(name: str, passages: Sequence[str]) -> str:
    """Passages of a file in a prompt, in their order."""
    return f"From the file {name}:\n\n" + "\n\n".join(without_page_breaks(passage) for passage in passages)


def without_page_breaks(text: str) -> str:
    """With paragraphs instead of pages."""
    return text.replace(PAGE_BREAK, "\n\n")
