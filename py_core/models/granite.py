"""Granite 3, also as mixtures of experts, and the dense models of Granite 4: Llama with four multipliers.

The embedding, the scores of attention, and what a block adds to the residual are multiplied; the logits are divided.
No kernel needs to know it. With y = x / residual_multiplier for the residual x, a block is Llama's, since

    norm(x) = x / sqrt(mean(x^2) + eps) = y / sqrt(mean(y^2) + eps / residual_multiplier^2),

and the logits' divisor is one of the last norm. The taps are those of llama.py, but "residual.N" is y, and "final_norm"
is divided like the logits.

Source: Power Scheduler (arXiv 2408.13359).

A mixture (granitemoe) has the experts of `blocks.moe` instead of each MLP.

Granite 4 with layers of Mamba is another architecture, granitehybrid.
"""

from __future__ import annotations

from dataclasses import replace

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size)."""
    # Like in llama.cpp, 0 means that a multiplier was never set.
    residual = c.residual_multiplier or 1.0
    c = replace(c, rms_norm_eps=c.rms_norm_eps / residual**2)
    x = blocks.embedding(g, c, (c.embedding_multiplier or 1.0) / residual)
    for layer in range(c.num_hidden_layers):
        scale = c.attention_multiplier or None
        # llama.cpp permutes the rows of q and k when it converts, like Llama's.
        x = blocks.block(g, c, x, layer, rotation=c.rope, interleaved=True, scale=scale)
    blocks.logits(g, c, x, 1 / (c.logits_scaling or 1.0))
