"""Sentences as vectors: texts that ask for the same thing are close, whatever their topic.

Also the meaning of a text: its token states in the same model without the adapter that makes the model look at what is
asked for. They tell what a text is about, word by word.

An Encoder runs the model (embedder_onnx.py natively, embedder_browser.py in the page). SentenceEmbedder adds the
tokenizer and a cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from py_core.messages import UserError
from py_core.tokenizers.unigram import Unigram
from py_core.tokenizers.wordpiece import WordPiece

DIMENSIONS = 384
CACHED_TEXTS = 2048
"""The number of most recent texts whose vectors are kept: 3 MB."""
CACHED_MEANING_BYTES = 8 << 20
"""The size of the most recent meanings that are kept: about 400 questions of 12 tokens, or 20 of the longest texts."""
TEXTS_AT_ONCE = 32
"""The most texts in one call of the encoder; other requests get their turn between two calls."""

_T = TypeVar("_T")


class EmbedderError(UserError):
    """A text could not be embedded; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Meaning:
    """A text's meaning, token by token; it depends only on the text. An embedder's arrays are read-only.

    ids: int32 (tokens,), from [CLS] to [SEP]. states: float32 (tokens, 384), the last layer of the plain model.
    vector: float32 (384,), their mean, of length 1.
    """

    ids: np.ndarray
    states: np.ndarray
    vector: np.ndarray

    @classmethod
    def from_states(cls, ids: Sequence[int], states: np.ndarray) -> Meaning:
        """The arrays are copied."""
        mean = states.mean(0)
        arrays = np.array(ids, np.int32), np.array(states, np.float32), (mean / np.linalg.norm(mean)).astype(np.float32)
        for array in arrays:
            array.setflags(write=False)
        return cls(*arrays)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.states.nbytes + self.vector.nbytes


class Embedder(Protocol):
    """`fingerprint` identifies the model: vectors of embedders with different fingerprints cannot be compared.

    `meaning_fingerprint` is the same for meanings. `is_multilingual`: the model knows other languages than English.
    """

    fingerprint: str
    meaning_fingerprint: str
    is_multilingual: bool
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (texts, dimensions), each row of length 1. A row depends only on its text.

        Raises EmbedderError.
        """
        ...

    async def meanings(self, texts: Sequence[str]) -> list[Meaning]:
        """One meaning per text, which depends only on that text. Raises EmbedderError."""
        ...

    def forget(self) -> None:
        """Forget all texts that were embedded, with their vectors and meanings."""
        ...


class Encoder(Protocol):
    """Runs the model on token ids. The fingerprints are those of an Embedder."""

    fingerprint: str
    meaning_fingerprint: str

    async def encode(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """float32 (texts, 384), each row of length 1, from the ids of each text. Raises EmbedderError."""
        ...

    async def states(self, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """float32 (tokens, 384) for each text: the last layer without the adapter. Raises EmbedderError."""
        ...


class SentenceEmbedder:
    """An Embedder with a cache of recent results: vectors of `cached_texts` texts, and meanings up to a size in bytes.

    A text with more than the tokenizer's `max_tokens` is truncated.
    """

    dimensions = DIMENSIONS

    def __init__(
        self,
        tokenizer: WordPiece | Unigram,
        encoder: Encoder,
        cached_texts: int = CACHED_TEXTS,
        cached_meaning_bytes: int = CACHED_MEANING_BYTES,
        is_multilingual: bool = False,
    ) -> None:
        self.fingerprint = encoder.fingerprint
        self.meaning_fingerprint = encoder.meaning_fingerprint
        self.is_multilingual = is_multilingual
        self.tokenizer = tokenizer
        self._encoder = encoder
        self._limits = cached_texts, cached_meaning_bytes
        self.forget()

    def forget(self) -> None:
        """See Embedder."""
        # replaced: running computations still fill the old caches, which vanish with them
        self._vectors: _Recent[np.ndarray] = _Recent(self._limits[0], lambda vector: 1)
        self._meanings: _Recent[Meaning] = _Recent(self._limits[1], lambda meaning: meaning.nbytes)

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See Embedder."""

        async def make(ids: Sequence[Sequence[int]]) -> list[np.ndarray]:
            # copies of rows, which do not keep the whole array alive
            return [vector.copy() for vector in await self._encoder.encode(ids)]

        known = await self._of(texts, self._vectors, make)
        out = np.empty((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            out[row] = known[text]
        return out

    async def meanings(self, texts: Sequence[str]) -> list[Meaning]:
        """See Embedder."""

        async def make(ids: Sequence[Sequence[int]]) -> list[Meaning]:
            return list(map(Meaning.from_states, ids, await self._encoder.states(ids)))

        known = await self._of(texts, self._meanings, make)
        return [known[text] for text in texts]

    async def _of(
        self, texts: Sequence[str], recent: _Recent[_T], make: Callable[[Sequence[Sequence[int]]], Awaitable[list[_T]]]
    ) -> dict[str, _T]:
        """The result for each text: cached, or computed now, TEXTS_AT_ONCE at a time."""
        known = {text: recent.kept[text] for text in texts if text in recent.kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for start in range(0, len(missing), TEXTS_AT_ONCE):
            part = missing[start : start + TEXTS_AT_ONCE]
            known |= zip(part, await make([self.tokenizer.encode(text) for text in part]), strict=True)
        for text in known:
            recent.keep(text, known[text])
        return known


class _Recent(Generic[_T]):
    """The most recently used values by text, as many as fit into `limit` together."""

    def __init__(self, limit: int, size: Callable[[_T], int]) -> None:
        self.kept: OrderedDict[str, _T] = OrderedDict()
        self._limit = limit
        self._size = size
        self._taken = 0

    def keep(self, text: str, value: _T) -> None:
        if text not in self.kept:
            self.kept[text] = value
            self._taken += self._size(value)
        self.kept.move_to_end(text)
        while self._taken > self._limit:
            self._taken -= self._size(self.kept.popitem(last=False)[1])
