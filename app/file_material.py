"""What of the attached files stands in a prompt: the whole text where it fits, else the passages for a question.

The whole text stands at the beginning of the first message that the model reads, where it stays while the conversation
goes on, so that it is read once. Passages belong to a question, and stand before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py_core.passages.chunks import PAGE_BREAK


@dataclass(frozen=True)
class Cited:
    """A passage that the model read for an answer. The text of a whole file is not repeated here; its place is its
    pages, "" where it has none."""

    file: str
    name: str
    place: str = ""
    text: str = ""

    def entry(self) -> dict[str, Any]:
        """As it is stored and shown: JSON."""
        return {"file": self.file, "name": self.name, "place": self.place, "text": self.text}


@dataclass(frozen=True)
class Material:
    """cited: what it consists of, in the order of the files. is_whole: whole files. by_words: the passages were found
    by their words alone, because their meanings are not known yet."""

    text: str
    tokens: int
    cited: tuple[Cited, ...]
    is_whole: bool
    by_words: bool = False

    @property
    def opening(self) -> str:
        """What stands at the beginning of the first message that the model reads."""
        return self.text if self.is_whole else ""

    def asked(self, question: str) -> str:
        """A message as the model reads it."""
        return question if self.is_whole or not self.text else f"{self.text}\n\nAnswer from this text: {question}"

    def entry(self) -> dict[str, Any]:
        """As plain data, for the page and for what is stored of the turn: passages (Cited.entry), and how they were
        found: "whole" files, or by "meaning" and words, or by "words" alone."""
        found = "whole" if self.is_whole else "words" if self.by_words else "meaning"
        return {"passages": [one.entry() for one in self.cited], "found": found}


NOTHING_BY_WORDS = Material("", 0, (), is_whole=False, by_words=True)
"""Of files that are not indexed, in which no word of the question was found."""


def whole_text(name: str, text: str) -> str:
    """A file in a prompt."""
    return f"Here is the file {name}:\n\n{without_page_breaks(text).strip()}\n\nThis is the end of {name}."


def passages_text(name: str, passages: Sequence[str]) -> str:
    """Passages of a file in a prompt, in their order."""
    return f"From the file {name}:\n\n" + "\n\n".join(without_page_breaks(passage) for passage in passages)


def without_page_breaks(text: str) -> str:
    """With paragraphs in place of pages."""
    return text.replace(PAGE_BREAK, "\n\n")
