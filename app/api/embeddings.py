"""Vectors of texts in OpenAI's form, by the embedder that also routes and searches."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from app.api.errors import ApiError
from py_core.routing.embedder import SentenceEmbedder

NAME = "all-MiniLM-L6-v2"
MOST_TEXTS = 512


@dataclass(frozen=True)
class EmbeddingsRequest:
    """A request of /v1/embeddings. A long text is read to the embedder's limit of tokens."""

    input: str | list[str] = field(default_factory=list)
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


async def embeddings(embedder: SentenceEmbedder, request: EmbeddingsRequest) -> dict[str, Any]:
    """Return the list of embeddings. Raises ApiError."""
    texts = [request.input] if isinstance(request.input, str) else request.input
    if not texts or len(texts) > MOST_TEXTS:
        raise ApiError(f"`input` has {len(texts)} texts: give from 1 to {MOST_TEXTS}.", param="input")
    if request.dimensions not in (None, embedder.dimensions):
        raise ApiError(f"Vectors have {embedder.dimensions} numbers: leave `dimensions` out.", param="dimensions")
    vectors = await embedder.embed(texts)
    tokens = sum(len(embedder.tokenizer.encode(text)) for text in texts)
    data = [
        {"object": "embedding", "index": at, "embedding": _told(vector, request.encoding_format)}
        for at, vector in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": NAME, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _told(vector: np.ndarray, form: str) -> Any:
    return vector.tolist() if form == "float" else base64.b64encode(vector.astype("<f4").tobytes()).decode()
