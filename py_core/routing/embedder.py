"""Sentences as vectors: texts that ask for the same are close, whatever they are about.

An Encoder runs the model (embedder_onnx.py natively, embedder_browser.py in the page); SentenceEmbedder puts the
tokenizer before it and a cache around it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from py_core.tokenizers.wordpiece import WordPiece

DIMENSIONS = 384
CACHED_TEXTS = 2048
"""The most recent texts whose vectors are kept: 3 MB."""
TEXTS_AT_ONCE = 32
"""So many texts go to the encoder together; other requests get their turn between two such parts."""


class EmbedderError(Exception):
    """A text could not be embedded; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Meaning:
    """What the plain model makes of a text, without the adapter for routing.

    ids: int32 (tokens,), with [CLS] and [SEP]. states: float32 (tokens, 384), of the last layer. vector: float32
    (384,), the mean of the states, of length 1.
    """

    ids: np.ndarray
    states: np.ndarray
    vector: np.ndarray


class Embedder(Protocol):
    """`fingerprint` names the model: vectors of embedders with different fingerprints cannot be compared."""

    fingerprint: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (texts, dimensions), each row of length 1. A row depends on its text only.

        Raises EmbedderError.
        """
        ...

    def forget(self) -> None:
        """Keep nothing of the texts that were embedded."""
        ...


class Encoder(Protocol):
    """Runs the model on token ids."""

    fingerprint: str

    async def encode(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """float32 (texts, 384), each row of length 1, from the ids of each text. Raises EmbedderError."""
        ...


class SentenceEmbedder:
    """An Embedder. The vectors of the texts that were asked for last are kept, `cached_texts` at most."""

    dimensions = DIMENSIONS

    def __init__(self, tokenizer: WordPiece, encoder: Encoder, cached_texts: int = CACHED_TEXTS) -> None:
        self.fingerprint = encoder.fingerprint
        self.tokenizer = tokenizer
        self._encoder = encoder
        self._cached_texts = cached_texts
        self._cache: OrderedDict[str, np.ndarray] = OrderedDict()

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See Embedder. A text of more than the tokenizer's `max_tokens` is cut off there."""
        known = {text: self._cache[text] for text in texts if text in self._cache}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for start in range(0, len(missing), TEXTS_AT_ONCE):
            part = missing[start : start + TEXTS_AT_ONCE]
            vectors = await self._encoder.encode([self.tokenizer.encode(text) for text in part])
            known |= zip(part, vectors, strict=True)
        for text in known:
            self._remember(text, known[text])
        out = np.empty((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            out[row] = known[text]
        return out

    def forget(self) -> None:
        """See Embedder."""
        self._cache.clear()

    def _remember(self, text: str, vector: np.ndarray) -> None:
        if text not in self._cache:
            self._cache[text] = vector.copy()  # a row of its own, which does not keep the others alive
        self._cache.move_to_end(text)
        while len(self._cache) > self._cached_texts:
            self._cache.popitem(last=False)
