"""Separates a model's thoughts from its answer: `<think> ... </think>` at the beginning of its output.

The template may have opened the thought itself; then the text begins inside of it. White space around the tags belongs
to neither. Later tags are plain text: only the beginning can be a thought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from py_core.tokenizers.base import THINKING_TAGS, Tokenizer

_OPEN, _CLOSE = THINKING_TAGS
_TAIL_TOKENS = 16


@dataclass(frozen=True)
class ThoughtPiece:
    """More text of the thought or the answer."""

    text: str
    is_thought: bool


class _Part(Enum):
    BEGIN = 0  # so far only white space and the beginning of a tag
    THOUGHT = 1
    AFTER = 2  # white space between thought and answer
    ANSWER = 3


class ThoughtSplitter:
    """Splits a text that arrives in pieces. What could be the beginning of a tag is held back until that is decided."""

    def __init__(self, opened: bool = False) -> None:
        """opened: the template ends with an opened thought (see `opens_thought`)."""
        self._opened = opened
        self._state = _Part.BEGIN
        self._kept = ""
        self._has_thought = False
        self._shown = ""

    def go_on(self, text: str) -> None:
        """Continue after a text that is shown already, to its end."""
        self.push(text)
        self._shown = self._kept

    def push(self, text: str) -> list[ThoughtPiece]:
        """The pieces that this text decides."""
        out, shown = self._push(text), self._shown
        if out:
            self._shown = ""
        if shown and out and out[0].text.startswith(shown):
            rest = out[0].text.removeprefix(shown)
            out = [ThoughtPiece(rest, out[0].is_thought), *out[1:]] if rest else out[1:]
        return out

    def _push(self, text: str) -> list[ThoughtPiece]:
        self._kept += text
        out: list[ThoughtPiece] = []
        if self._state is _Part.BEGIN:
            begun = self._kept.lstrip()
            if begun.startswith(_OPEN):
                self._state, self._kept = _Part.THOUGHT, begun.removeprefix(_OPEN)
            elif not _OPEN.startswith(begun):
                self._state = _Part.THOUGHT if self._opened else _Part.ANSWER
        if self._state is _Part.THOUGHT:
            thought, closed, rest = self._kept.partition(_CLOSE)
            thought = thought if self._has_thought else thought.lstrip()
            if closed:
                _add(out, thought.rstrip(), True)
                self._state, self._kept = _Part.AFTER, rest
            else:
                clear = _without_beginning(thought, _CLOSE).rstrip()
                _add(out, clear, True)
                self._kept = thought[len(clear) :]
                self._has_thought = self._has_thought or bool(clear)
        if self._state is _Part.AFTER:
            self._kept = self._kept.lstrip()
            if self._kept:
                self._state = _Part.ANSWER
        if self._state is _Part.ANSWER:
            _add(out, self._kept, False)
            self._kept = ""
        return out

    def flush(self) -> list[ThoughtPiece]:
        """The held-back rest at the end."""
        self._kept = self._kept.removeprefix(self._shown)
        is_thought = self._state is _Part.THOUGHT or (self._state is _Part.BEGIN and self._opened)
        out: list[ThoughtPiece] = []
        if self._state is not _Part.AFTER:
            _add(out, self._kept.lstrip() if is_thought and not self._has_thought else self._kept, is_thought)
        self._kept = ""
        return out


def split_thought(text: str, opened: bool = False) -> tuple[str, str]:
    """(thought, answer) of a whole text."""
    splitter = ThoughtSplitter(opened)
    pieces = [*splitter.push(text), *splitter.flush()]
    thought = "".join(piece.text for piece in pieces if piece.is_thought)
    return thought, "".join(piece.text for piece in pieces if not piece.is_thought)


def opens_thought(tokenizer: Tokenizer, prompt: Sequence[int]) -> bool:
    """True if the prompt ends with an opened thought, so that the model's output begins inside of it."""
    return tokenizer.decode(prompt[-_TAIL_TOKENS:]).rstrip().endswith(_OPEN)


def _add(out: list[ThoughtPiece], text: str, is_thought: bool) -> None:
    if text:
        out.append(ThoughtPiece(text, is_thought))


def _without_beginning(text: str, tag: str) -> str:
    """`text` without a partial `tag` at its end."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return text[:-length]
    return text
