"""Writes a GGUF file of a known model's shape with random weights, to measure speed where the model cannot be had.

python -m tests.bench random_gguf OUT.gguf [--shape qwen2.5-3b] [--format Q4_K_M] [--embedding Q8_0]
    [--layers N --hidden N --heads N --kv-heads N --ffn N --vocabulary N]

--format is a mixture of `sonata quantize`, or one format of all matrices, but for --embedding. A number given besides
the shape replaces the shape's own. The model's text means nothing. Only numpy is needed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from py_core.formats.format_choice import BASES, choose_formats, fitting, is_quantized
from py_core.formats.gguf import TensorInfo
from py_core.formats.gguf_writer import StoredTensor, write_gguf
from py_core.formats.quantization import FORMATS, BlockFormat, quantize
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR
from tests.bench.reporting import options_of

_BYTES = 1 << 20  # of random weights, again and again


@dataclass(frozen=True)
class Shape:
    """Sizes of a model whose embedding is its output matrix as well."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    rope_base: float
    context: int
    eps: float
    pre_tokenizer: str
    rope_freqs: bool = False
    """True if the file has factors for the rotation's frequencies, as Llama 3's files have."""

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


SHAPES = {
    "smollm2-135m": Shape("llama", 30, 576, 9, 3, 1536, 49152, 1e5, 8192, 1e-5, "smollm"),
    "qwen2.5-0.5b": Shape("qwen2", 24, 896, 14, 2, 4864, 151936, 1e6, 32768, 1e-6, "qwen2"),
    "qwen2.5-1.5b": Shape("qwen2", 28, 1536, 12, 2, 8960, 151936, 1e6, 32768, 1e-6, "qwen2"),
    "qwen2.5-3b": Shape("qwen2", 36, 2048, 16, 2, 11008, 151936, 1e6, 32768, 1e-6, "qwen2"),
    "llama-3.2-1b": Shape("llama", 16, 2048, 32, 8, 8192, 128256, 5e5, 131072, 1e-5, "llama-bpe", rope_freqs=True),
}
RANDOM_FORMATS = {"smollm2-135m": ("Q4_1", "Q8_0")}
"""The formats of the layers and the embedding of a shape, as in its usual file, if they are not a mixture."""
_SIZES = [field.name for field in fields(Shape) if field.type == "int" and field.name != "context"]


@functools.cache
def random_piece(columns: int, form: BlockFormat) -> bytes:
    """Return weights whose spread keeps activations in bounds, for matrices of `columns` columns."""
    count = max(1, _BYTES // form.block_bytes) * form.block_size
    values = np.random.default_rng(columns).standard_normal(count).astype(np.float32) / np.sqrt(columns)
    return quantize(values[None], form)


def random_tensor(shape: tuple[int, ...], form: BlockFormat) -> StoredTensor:
    """(rows, columns)"""
    rows, columns = shape
    piece = random_piece(columns, form)
    total = rows * columns // form.block_size * form.block_bytes

    def pieces() -> list[bytes]:
        return [piece] * (total // len(piece)) + [piece[: total % len(piece)]]

    return StoredTensor(shape, form, pieces)


def tensor_shapes(s: Shape) -> dict[str, tuple[int, ...]]:
    """The tensors of the architecture, in the order of a file."""
    qkv, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (s.vocabulary, s.hidden)}
    for layer in range(s.layers):
        block = f"blk.{layer}."
        for name, rows, columns in (
            ("attn_q", qkv, s.hidden), ("attn_k", kv, s.hidden), ("attn_v", kv, s.hidden),
            ("attn_output", s.hidden, qkv), ("ffn_gate", s.ffn, s.hidden), ("ffn_up", s.ffn, s.hidden),
            ("ffn_down", s.hidden, s.ffn),
        ):  # fmt: skip
            found[f"{block}{name}.weight"] = (rows, columns)
            if s.architecture == "qwen2" and name in ("attn_q", "attn_k", "attn_v"):
                found[f"{block}{name}.bias"] = (rows,)
        found |= {f"{block}attn_norm.weight": (s.hidden,), f"{block}ffn_norm.weight": (s.hidden,)}
    found["output_norm.weight"] = (s.hidden,)
    if s.rope_freqs:
        found["rope_freqs.weight"] = (s.head_dim // 2,)
    return found


def formats(shapes: dict[str, tuple[int, ...]], wanted: str) -> dict[str, BlockFormat]:
    """The format of each tensor in a mixture, or in one format wherever rows are whole blocks of it."""
    infos = {name: TensorInfo(name, shape, FORMATS["F32"], 0, 0) for name, shape in shapes.items()}
    if wanted in BASES:
        return choose_formats(infos, wanted)
    form = FORMATS[wanted]
    return {name: fitting(form, one.shape[-1]) if is_quantized(one) else one.format for name, one in infos.items()}


def write(path: Path, s: Shape, wanted: str, embedding: str = "") -> None:
    """`embedding`: the format of the embedding, if it is not that of `wanted`."""
    shapes = tensor_shapes(s)
    tensors: dict[str, tuple[np.ndarray, BlockFormat] | StoredTensor] = {}
    chosen = formats(shapes, wanted) | ({"token_embd.weight": FORMATS[embedding]} if embedding else {})
    for name, form in chosen.items():
        if len(shapes[name]) == 2:
            tensors[name] = random_tensor(shapes[name], form)
        elif name == "rope_freqs.weight":
            tensors[name] = np.linspace(1, 32, shapes[name][0]).astype(np.float32), form
        else:
            # Norms leave a vector as it is, and biases are small.
            value = 0.1 if name.endswith(".bias") else 1.0
            tensors[name] = np.full(shapes[name], value, np.float32), form
    write_gguf(path, metadata(s), tensors)


def metadata(s: Shape) -> dict[str, Any]:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *BYTE_TO_CHAR.values()]
    tokens += [f"unused {number}" for number in range(s.vocabulary - len(tokens))]
    return {
        "general.architecture": s.architecture,
        "general.name": f"random weights, {s.layers} layers of {s.hidden}",
        f"{s.architecture}.embedding_length": s.hidden,
        f"{s.architecture}.feed_forward_length": s.ffn,
        f"{s.architecture}.block_count": s.layers,
        f"{s.architecture}.attention.head_count": s.heads,
        f"{s.architecture}.attention.head_count_kv": s.kv_heads,
        f"{s.architecture}.attention.layer_norm_rms_epsilon": s.eps,
        f"{s.architecture}.rope.freq_base": s.rope_base,
        f"{s.architecture}.rope.dimension_count": s.head_dim,
        f"{s.architecture}.context_length": s.context,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": s.pre_tokenizer,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(special) + [1] * (s.vocabulary - len(special)),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-3b")
    parser.add_argument("--format", choices=[*BASES, *FORMATS], default="Q4_K_M")
    parser.add_argument("--embedding", choices=FORMATS, default="")
    for size in _SIZES:
        parser.add_argument(f"--{size.replace('_', '-')}", type=int)
    options = parser.parse_args()
    given = {size: getattr(options, size) for size in _SIZES if getattr(options, size)}
    write(options.out, replace(SHAPES[options.shape], **given), options.format, options.embedding)
    print(f"{options.out}: {options.out.stat().st_size / 1e9:.2f} GB")
