"""Texts that end an answer, which does not show them."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Takes the pieces of an answer, and gives those before the first of the texts. `found`: it was there."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text for text in texts if text]
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """Return what can be shown now; what may be the beginning of one of the texts is held back."""
        self._held += piece
        places = [at for text in self._texts if (at := self._held.find(text)) >= 0]
        if places:
            self.found = True
            return self._give(min(places))
        return self._give(len(self._held) - max(map(self._begun, self._texts), default=0))

    @property
    def held(self) -> int:
        """The number of characters at the end that are not shown, or not yet."""
        return len(self._held)

    def flush(self) -> str:
        """Return what was held back, at the end of the answer."""
        return "" if self.found else self._give(len(self._held))

    def _begun(self, text: str) -> int:
        """The length of the end of what is held that is a beginning of the text."""
        longest = min(len(text) - 1, len(self._held))
        return next((length for length in range(longest, 0, -1) if text.startswith(self._held[-length:])), 0)

    def _give(self, end: int) -> str:
        given, self._held = self._held[:end], self._held[end:]
        return given
