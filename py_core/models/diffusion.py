"""Models of diffusion: an answer begins as masks, which become tokens in any order, and a row sees its whole block.

BD3-LM (arXiv 2503.09573) writes block after block and keeps the keys and values of what is finished. MDLM (arXiv
2406.07524), LLaDA (arXiv 2502.09992) and Dream (arXiv 2508.15487) have one block, the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py_core.display import shown
from py_core.formats.gguf import GGUFError

ARCHITECTURES = ("a2d-qwen2", "a2d-qwen3", "dream", "llada")
"""Those whose rows see their block. dLLM made the first two of models that write from left to right."""

MOST_AT_ONCE = 1024
"""The most tokens of a text that is one block: each pass runs all of them."""

_MASKS = ("<|mask|>", "<|mdm_mask|>")
LONGEST_BLOCK = 32
"""Half of the least pass of a backend: a pass ends with a block, and behind it there may be another."""


@dataclass(frozen=True)
class Diffusion:
    """mask: the token of a place that is not known yet. block: this many places see each other, the first from position
    0 on; 0 if all do. shifted: the logits of a row are those of the next place, as in models that write from left to
    right."""

    mask: int
    block: int
    shifted: bool


def diffusion_of(metadata: Mapping[str, Any], architecture: str, vocab_size: int) -> Diffusion | None:
    """Read how a model file's model writes; None: from left to right. Keys are llama.cpp's, and `diffusion.block_size`.
    Raises GGUFError."""
    if architecture not in ARCHITECTURES:
        return None
    tokens = metadata.get("tokenizer.ggml.tokens")
    named = (tokens.index(name) for name in _MASKS if isinstance(tokens, list) and name in tokens)
    mask = metadata.get("tokenizer.ggml.mask_token_id", next(named, None))
    if not isinstance(mask, int) or not 0 <= mask < vocab_size:
        raise GGUFError(
            "model.no-mask",
            "The model file does not say which token is its mask: it is damaged, or was converted for another program. "
            "Convert the model again.",
        )
    block = metadata.get("diffusion.block_size", 0)
    if not isinstance(block, int) or not 0 <= block <= LONGEST_BLOCK:
        raise GGUFError(
            "model.block",
            "The model file says diffusion.block_size = {value}; Sonata runs blocks of up to {most} tokens.",
            value=shown(block),
            most=LONGEST_BLOCK,
        )
    return Diffusion(mask, block, bool(metadata.get("diffusion.shift_logits", architecture == "dream")))
