"""A chat template for a file that has none, chosen by the model family of its special tokens.

The templates are the files in templates/.
"""

from __future__ import annotations

from importlib.resources import files

from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.sentencepiece import SentencePiece

FAMILIES = (
    (("<|im_start|>",), "chatml"),
    (("<|start_header_id|>",), "llama3"),
    (("<start_of_turn>",), "gemma"),
    (("<|turn>", "<turn|>"), "gemma4"),
    (("<|assistant|>", "<|end|>"), "phi3"),
    (("[INST]",), "mistral"),
    (("[gMASK]", "<sop>"), "glm4"),
    (("<|start_of_role|>",), "granite"),
)
"""Special tokens that only this family has, and the name of its template."""


def default_template(tokenizer: Tokenizer) -> str:
    """Jinja source. Base models belong to no family: SentencePiece ones get Llama 2's, whose marks are plain text,
    and others get ChatML, the format of most instruction data of small models."""
    for tokens, name in FAMILIES:
        if all(token in tokenizer.special_tokens for token in tokens):
            return _source(name)
    return _source("llama2" if isinstance(tokenizer, SentencePiece) else "chatml")


def _source(name: str) -> str:
    return files("py_core.tokenizers").joinpath("templates", f"{name}.jinja").read_text(encoding="utf-8")
