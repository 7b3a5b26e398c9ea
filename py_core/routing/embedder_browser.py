"""The encoder in the page: web/routing/embedder.js, whose worker runs onnxruntime-web, called through Pyodide."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from pyodide.ffi import JsException, to_js

from py_core.messages_browser import js_words
from py_core.routing.embedder import DIMENSIONS, EmbedderError, SentenceEmbedder
from py_core.tokenizers.unigram import Unigram
from py_core.tokenizers.wordpiece import WordPiece


class BrowserEncoder:
    """See Encoder."""

    def __init__(self, embedder: Any) -> None:
        """embedder: an Embedder of web/routing/embedder.js."""
        self.fingerprint = str(embedder.fingerprint)
        self.meaning_fingerprint = str(embedder.meaningFingerprint)
        self._embedder = embedder

    async def encode(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        return await _rows(self._embedder.encode, texts)

    async def states(self, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        rows = await _rows(self._embedder.states, texts)
        ends = list(accumulate(map(len, texts)))
        return [rows[end - len(text) : end] for end, text in zip(ends, texts, strict=True)]


async def _rows(run: Any, texts: Sequence[Sequence[int]]) -> np.ndarray:
    """The result of a method of web/routing/embedder.js for the ids of all texts: float32 (rows, 384)."""
    ids, lengths = array("i"), array("i", map(len, texts))
    for text in texts:
        ids.extend(text)
    try:
        rows = await run(to_js(memoryview(ids)), to_js(memoryview(lengths)))
    except JsException as error:
        raise EmbedderError(js_words(error)) from error
    return np.frombuffer(rows.to_bytes(), np.float32).reshape(-1, DIMENSIONS)


def browser_embedder(embedder: Any) -> SentenceEmbedder:
    """The page's embedder, from web/routing/embedder.js. Raises WordPieceError or UnigramError if its tokenizer is
    damaged."""
    is_multilingual = bool(getattr(embedder, "isMultilingual", False))
    tokenizer = (Unigram if is_multilingual else WordPiece).from_json(embedder.tokenizer)
    return SentenceEmbedder(tokenizer, BrowserEncoder(embedder), is_multilingual=is_multilingual)
