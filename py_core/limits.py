"""Limits for files from strangers: larger values are refused before anything is counted, built or allocated.

Each limit exceeds the largest real file that we know of, which its comment names.
"""

from __future__ import annotations

MAX_FILE_BYTES = 1 << 50
"""Kimi K2 in 16 bits has 2 TB."""

# Headers of model files (GGUF, safetensors)
MAX_HEADER_BYTES = 64 << 20
"""Gemma 4's vocabulary of 262,144 tokens with its 514,906 merges takes 16 MB."""
MAX_KEYS = 10_000
"""llama.cpp's files have 20 to 60 keys."""
MAX_TENSORS = 100_000
"""Llama 3.1 405B has 1,138; the folder of a mixture of 256 experts in 60 layers about 46,000."""
MAX_STRINGS = 2_000_000
"""For all lists of strings in a header: Gemma 4 has 777,050, tokens and merges."""

# Vocabularies
MAX_TOKENS = 1_000_000
"""Gemma has 262,144."""
MAX_SPECIAL_TOKENS = 20_000
"""Gemma 3 has 6,414 (most of them unused), DeepSeek 2,400."""
MAX_WORD_CHARACTERS = 1_000
"""The longest word that WordPiece cuts up: BERT has 100."""

# Settings of models
MAX_LAYERS = 1_024
"""Llama 3.1 405B has 126."""
MAX_HEADS = 1_024
"""Llama 3.1 405B and Mistral Large have 128."""
MAX_HEAD_SIZE = 1_024
"""Gemma has 256, its newest version 512."""
MAX_HIDDEN = 1 << 17
"""Llama 3.1 405B has 16,384."""
MAX_INTERMEDIATE = 1 << 19
"""Llama 3.1 405B has 53,248."""
MAX_CONV_TAPS = 8
"""LFM2 has 3, Mamba 4. The WASM kernels have room for 8."""
MAX_EXPERTS = 1_024
"""Qwen3-Next has 512, Kimi K2 384."""
MAX_EXPERTS_USED = 32
"""Ling uses 10 of a layer's experts, OLMoE 8. Kernels keep those of a row."""
MAX_CONTEXT = 1 << 24
"""Llama 4 Scout has 10,485,760."""
MAX_COUNTS = {
    "block_count": MAX_LAYERS,
    "context_length": MAX_CONTEXT,
    "embedding_length": MAX_HIDDEN,
    "feed_forward_length": MAX_INTERMEDIATE,
    "attention.head_count": MAX_HEADS,
    "attention.head_count_kv": MAX_HEADS,
    "attention.key_length": MAX_HEAD_SIZE,
    "attention.key_length_swa": MAX_HEAD_SIZE,
    "attention.shared_kv_layers": MAX_LAYERS,
    "attention.value_length": MAX_HEAD_SIZE,
    "attention.sliding_window": MAX_CONTEXT,
    "rope.dimension_count": MAX_HEAD_SIZE,
    "rope.dimension_count_swa": MAX_HEAD_SIZE,
    "embedding_length_per_layer_input": MAX_HIDDEN,
    "rope.dimension_sections": MAX_HEAD_SIZE,
    "shortconv.l_cache": MAX_CONV_TAPS,
    "ssm.conv_kernel": MAX_CONV_TAPS,
    "ssm.group_count": MAX_HEADS,
    "ssm.time_step_rank": MAX_HEADS,
    "ssm.state_size": MAX_HEAD_SIZE,
    "ssm.inner_size": MAX_HIDDEN,
    "full_attention_interval": MAX_LAYERS,
    "nextn_predict_layers": MAX_LAYERS,
    "expert_count": MAX_EXPERTS,
    "expert_used_count": MAX_EXPERTS_USED,
    "rope.scaling.original_context_length": MAX_CONTEXT,
}
"""Whole numbers by their names in GGUF, without the architecture's prefix."""
MAX_ROPE_BASE = 1e12
"""Qwen 2.5 1M has 10,000,000; some stretched Llamas 4,000,000,000."""
MAX_STRETCH = 1e6
"""Factors by which a rotation is stretched: 32 for Llama 3.2, up to 64 elsewhere."""

# Adapters
MAX_ADAPTER_BYTES = 2 << 30
"""Rank 64 on every linear of Llama 3.1 405B in 16 bits has 1.8 GB."""
MAX_ADAPTER_RANK = 1_024
"""Adapters extracted from a trained model have up to 512; 8 to 64 is usual."""
MAX_ADAPTER_CONFIG_BYTES = 512 << 10
"""A rank and an alpha for every linear of Llama 3.1 405B by name take 200 KB."""
MAX_ADAPTER_PATTERNS = 2_000
"""Llama 3.1 405B has 882 linears."""
MAX_ADAPTER_SCALE = 1e4
"""alpha / rank is 1 or 2 in most adapters, and seldom over 16."""

# Exported chats of other programs
MAX_CHATS_BYTES = 256 << 20
"""The size of the unpacked JSON: people's exports have 30 to 200 MB."""
