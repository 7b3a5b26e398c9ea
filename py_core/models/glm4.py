"""GLM-4-0414: Llama with norms before and after attention and MLP, and a gate and up in one matrix.

Half of each head rotates, neighbours in pairs. Biases of q, k and v are optional tensors. GLM-4V rotates by three
positions, and GLM-OCR has a layer that predicts further tokens: refusals.py refuses both.

Source: https://github.com/zai-org/GLM-4
"""

from __future__ import annotations

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    x = blocks.embedding(g, c)
    for layer in range(c.num_hidden_layers):
        x = blocks.block(g, c, x, layer, rotation=c.rope, interleaved=True, fused_gate=True, post_norms=True)
    blocks.logits(g, c, x)
