"""The sentence embedder natively, with the files that build.py made."""

from __future__ import annotations

from app.building.embedder import embedder_files
from app.models import cache_dir
from py_core.routing.embedder import EmbedderError, SentenceEmbedder
from py_core.routing.embedder_onnx import OnnxEncoder
from py_core.tokenizers.wordpiece import WordPiece


def open_embedder(threads: int = 1) -> SentenceEmbedder:
    """Raises EmbedderError, with what to do, when the embedder has not been made or is damaged."""
    files = embedder_files(cache_dir())
    for path in (files.model, files.tokenizer):
        if not path.is_file():
            raise EmbedderError(f"{path} is not there: run `python build.py site` once to make it.")
    tokenizer = WordPiece.from_json(files.tokenizer.read_bytes())
    return SentenceEmbedder(tokenizer, OnnxEncoder(files.model, files.fingerprint, threads))
