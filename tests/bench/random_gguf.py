"""Writes a GGUF file of a known shape with random weights, to measure speed where the model itself cannot be had.

python tests/bench/random_gguf.py OUT.gguf [--layers 36 --hidden 2048 --heads 16 --kv-heads 2 --ffn 11008
    --vocabulary 151936 --format Q4_K --head-format Q6_K]

The defaults are those of Qwen2.5-3B (1.9 GB). What the model says means nothing. Only numpy is needed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from py_core.formats.gguf_writer import StoredTensor, write_gguf
from py_core.formats.quantization import FORMATS, quantize
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR

_BYTES = 1 << 20  # of random weights, again and again


def random_tensor(rows: int, columns: int, form: str) -> StoredTensor:
    """Weights of a spread that keeps activations in bounds. (rows, columns)"""
    fmt = FORMATS[form]
    if columns % fmt.block_size:
        raise SystemExit(f"{form} packs {fmt.block_size} values at a time: {columns} is no multiple. Choose another.")
    count = max(1, _BYTES // fmt.block_bytes) * fmt.block_size
    values = np.random.default_rng(rows * columns).standard_normal(count).astype(np.float32) / np.sqrt(columns)
    piece = quantize(values[None], fmt)
    total = rows * columns // fmt.block_size * fmt.block_bytes

    def pieces() -> list[bytes]:
        return [piece] * (total // len(piece)) + [piece[: total % len(piece)]]

    return StoredTensor((rows, columns), fmt, pieces)


def write(path: Path, o: argparse.Namespace) -> None:
    head_dim = o.hidden // o.heads
    qkv, kv = o.heads * head_dim, o.kv_heads * head_dim
    norm = (np.ones(o.hidden, np.float32), FORMATS["F32"])
    tensors: dict = {"token_embd.weight": random_tensor(o.vocabulary, o.hidden, o.head_format)}
    for layer in range(o.layers):
        name = f"blk.{layer}."
        tensors |= {name + "attn_norm.weight": norm, name + "ffn_norm.weight": norm}
        for tensor, rows, columns in (
            ("attn_q", qkv, o.hidden), ("attn_k", kv, o.hidden), ("attn_v", kv, o.hidden),
            ("attn_output", o.hidden, qkv), ("ffn_gate", o.ffn, o.hidden), ("ffn_up", o.ffn, o.hidden),
            ("ffn_down", o.hidden, o.ffn),
        ):  # fmt: skip
            tensors[f"{name}{tensor}.weight"] = random_tensor(rows, columns, o.format)
    tensors["output_norm.weight"] = norm
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *BYTE_TO_CHAR.values()]
    tokens += [f"unused {number}" for number in range(o.vocabulary - len(tokens))]
    metadata = {
        "general.architecture": "llama",
        "general.name": f"random weights, {o.layers} layers of {o.hidden}",
        "llama.embedding_length": o.hidden,
        "llama.feed_forward_length": o.ffn,
        "llama.block_count": o.layers,
        "llama.attention.head_count": o.heads,
        "llama.attention.head_count_kv": o.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.freq_base": 1e6,
        "llama.rope.dimension_count": head_dim,
        "llama.context_length": 32768,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(special) + [1] * (o.vocabulary - len(special)),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    write_gguf(path, metadata, tensors)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for option, default in {
        "layers": 36, "hidden": 2048, "heads": 16, "kv-heads": 2, "ffn": 11008, "vocabulary": 151936,
    }.items():  # fmt: skip
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--format", choices=FORMATS, default="Q4_K")
    parser.add_argument("--head-format", choices=FORMATS, default="Q6_K")
    options = parser.parse_args()
    write(options.out, options)
    print(f"{options.out}: {options.out.stat().st_size / 1e9:.2f} GB")
