"""Finds special tokens in a text, like llama.cpp: one token after the other, the longest first.

So of two overlapping tokens the longer one wins, even if the shorter begins first. USER_DEFINED tokens are found
everywhere, CONTROL and UNKNOWN ones only if the caller allows special tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence

from py_core.tokenizers.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary

Span = tuple[int, int]

_PREFIX = 4
_WHITE_SPACE = " \t\n\v\f\r"


class SpecialTokens:
    """`control` and `user_defined`: text -> id."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        self.control = {tokens[i]: i for i in vocabulary.of_types(CONTROL, UNKNOWN) if tokens[i]}
        self.user_defined = {tokens[i]: i for i in vocabulary.of_types(USER_DEFINED) if tokens[i]}
        self._ids = self.control | self.user_defined
        self._longest_first = sorted(self._ids, key=lambda token: (-len(token.encode()), self._ids[token]))
        self._swallowing = vocabulary.swallowing
        # Gemma has 6,000 special tokens with only a few different beginnings: most need no search of their own.
        self._by_prefix: dict[str, list[int]] = {}
        for rank, token in enumerate(self._longest_first):
            self._by_prefix.setdefault(token[:_PREFIX], []).append(rank)

    def split(self, text: str, spans: Sequence[Span], guarded: Collection[str] = ()) -> list[str | int]:
        """Split `text` into ids of special tokens and the texts between them, in order; no text is empty.

        spans: where CONTROL and UNKNOWN tokens are allowed: (start, end) of parts of `text`, in order and disjoint; a
        token must lie within one of them. guarded: USER_DEFINED tokens that are treated like these.
        """
        ranks = sorted(rank for prefix, ranks in self._by_prefix.items() if prefix in text for rank in ranks)
        pieces: list[Span | int] = [(0, len(text))]
        for rank in ranks:
            token = self._longest_first[rank]
            is_control = token in self.control or token in guarded
            if token in text:
                pieces = self._cut(text, token, pieces, spans if is_control else None)
        out = [piece if isinstance(piece, int) else text[piece[0] : piece[1]] for piece in pieces]
        return [piece for piece in out if piece != ""]

    def _cut(self, text: str, token: str, pieces: list[Span | int], spans: Sequence[Span] | None) -> list[Span | int]:
        index = self._ids[token]
        swallows = index in self._swallowing
        out: list[Span | int] = []
        for piece in pieces:
            if isinstance(piece, int):
                out.append(piece)
                continue
            start, end = piece
            while (at := _find(text, token, start, end, spans)) >= 0:
                if at > start:
                    out.append((start, at))
                out.append(index)
                start = at + len(token)
                while swallows and start < end and text[start] in _WHITE_SPACE:
                    start += 1
            if start < end:
                out.append((start, end))
        return out


def _find(text: str, token: str, start: int, end: int, spans: Sequence[Span] | None) -> int:
    """The index of the next `token` between `start` and `end`, and within one of the spans; -1 if there is none."""
    at = text.find(token, start, end)
    if spans is None:
        return at
    while at >= 0:
        span = bisect_right(spans, (at, len(text))) - 1
        if span >= 0 and at + len(token) <= spans[span][1]:
            return at
        at = text.find(token, at + 1, end)
    return -1
