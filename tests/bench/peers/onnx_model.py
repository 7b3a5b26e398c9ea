"""SmolLM2-135M-Instruct for transformers.js: the usual GGUF file as ONNX, with the files that it reads beside that.

The weights are rounded once more: to eight bits a column for the CPU, to four bits in blocks for WebGPU. So answers
differ from those of the GGUF file. Operators are those of ONNX Runtime's own exporter for this kind of model.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from app.building.common import one_build_at_a_time, write_atomically
from app.building.embedder.onnx_writer import OnnxGraph
from app.checksums import sha256_of
from app.models.downloads import default_model_path
from app.paths import cache_dir
from py_core.backends.numpy.backend import load_weights
from py_core.formats.gguf import GGUFHeader, read_header
from py_core.formats.source import FileSource
from py_core.models.config import ModelConfig
from py_core.models.registry import describe_model

OPERATOR_SETS = {"": 21, "com.microsoft": 1}
BLOCK = 32
FILES = {"q8": "model_quantized.onnx", "q4": "model_q4.onnx"}
"""The names that transformers.js gives its `dtype`s."""

Linear = Callable[[OnnxGraph, str, np.ndarray], str]
"""Adds the product of a value and a weight (outputs, inputs)."""


def onnx_folder() -> Path:
    """The folder of the model's files, made if it is not there: `onnx/` in it has FILES."""
    path, cache = default_model_path(), cache_dir()
    folder = cache / "bench" / f"onnx-{sha256_of(Path(__file__))[:12]}"
    with one_build_at_a_time(cache):
        if not (folder / "config.json").is_file():
            header = asyncio.run(read_header(FileSource(path)))
            config, graph = describe_model(header)
            weights = asyncio.run(load_weights(FileSource(path), header, graph))
            for kind, name in FILES.items():
                made = model_graph(config, weights, {"q8": linear_q8, "q4": linear_q4}[kind])
                write_atomically(folder / "onnx" / name, made)
            for name, content in described(header, config).items():  # config.json is the last
                write_atomically(folder / name, json.dumps(content).encode())
    return folder


def linear_q8(graph: OnnxGraph, x: str, weight: np.ndarray) -> str:
    scale = np.abs(weight).max(axis=1) / 127
    rounded = np.rint(weight / scale[:, None]).astype(np.int8)
    return graph.node(
        "DynamicQuantizeMatMul", x, graph.constant(np.ascontiguousarray(rounded.T)),
        graph.constant(scale.astype(np.float32)), domain="com.microsoft",
    )  # fmt: skip


def linear_q4(graph: OnnxGraph, x: str, weight: np.ndarray) -> str:
    outputs, inputs = weight.shape
    blocks = weight.reshape(outputs, inputs // BLOCK, BLOCK)
    low, high = np.minimum(blocks.min(axis=-1), 0), np.maximum(blocks.max(axis=-1), 0)
    scale = np.maximum((high - low) / 15, 1e-9)
    zero = np.rint(-low / scale)
    quants = np.clip(np.rint(blocks / scale[..., None]) + zero[..., None], 0, 15).astype(np.uint8)
    if zero.shape[1] % 2:
        zero = np.pad(zero, ((0, 0), (0, 1)))
    zero = zero.astype(np.uint8)
    return graph.node(
        "MatMulNBits", x,
        graph.constant(quants[..., 0::2] | quants[..., 1::2] << 4), graph.constant(scale.astype(np.float32)),
        graph.constant(zero[:, 0::2] | zero[:, 1::2] << 4), domain="com.microsoft",
        K=inputs, N=outputs, bits=4, block_size=BLOCK,
    )  # fmt: skip


def model_graph(config: ModelConfig, weights: dict[str, np.ndarray], linear: Linear) -> bytes:
    """The forward pass of Llama's architecture over new tokens, with keys and values of those before."""
    graph, heads, kv_heads, size = OnnxGraph("smollm2"), 9, 3, 64
    ids = graph.input("input_ids", np.int64, ["batch_size", "sequence_length"])
    seen = graph.input("attention_mask", np.int64, ["batch_size", "total_sequence_length"])
    graph.input("position_ids", np.int64, ["batch_size", "sequence_length"])

    def number(value: int | list[int], kind: Any = np.int64) -> str:
        return graph.constant(np.array(value, kind))

    length = graph.node("Cast", graph.node("ReduceSum", seen, number([1]), keepdims=0), to=6)
    last = graph.node("Sub", length, number(1, np.int32))
    total = graph.node("Cast", graph.node("Gather", graph.node("Shape", seen), number(1)), to=6)
    angles = np.outer(np.arange(config.context_length), 100_000.0 ** (-np.arange(0, size, 2) / size))
    cos, sin = (graph.constant(one(angles).astype(np.float32)) for one in (np.cos, np.sin))
    x = graph.node("Gather", graph.constant(weights["token_embd.weight"]), ids)

    def norm(value: str, name: str) -> str:
        return graph.node(
            "SimplifiedLayerNormalization", value, graph.constant(weights[name]), axis=-1, epsilon=1e-5, stash_type=1
        )

    def halves(weight: np.ndarray, count: int) -> np.ndarray:
        """Rows whose pairs lie half a head apart, and not beside each other as in GGUF."""
        return weight.reshape(count, size // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)

    for layer in range(30):
        block, shape = f"blk.{layer}", ["batch_size", kv_heads, "past_sequence_length", size]
        y = norm(x, f"{block}.attn_norm.weight")
        query, key = (
            linear(graph, y, halves(weights[f"{block}.attn_{part}.weight"], count))
            for part, count in (("q", heads), ("k", kv_heads))
        )
        value = linear(graph, y, weights[f"{block}.attn_v.weight"])
        past = [graph.input(f"past_key_values.{layer}.{part}", np.float32, shape) for part in ("key", "value")]
        mixed, *present = graph.nodes(
            "GroupQueryAttention", 3, query, key, value, *past, last, total, cos, sin, domain="com.microsoft",
            num_heads=heads, kv_num_heads=kv_heads, do_rotary=1, rotary_interleaved=0, scale=size**-0.5,
        )  # fmt: skip
        for part, name in zip(("key", "value"), present, strict=True):
            graph.output(
                name, f"present.{layer}.{part}", np.float32, ["batch_size", kv_heads, "total_sequence_length", size]
            )
        x = graph.node("Add", x, linear(graph, mixed, weights[f"{block}.attn_output.weight"]))
        y = norm(x, f"{block}.ffn_norm.weight")
        gate, up = (linear(graph, y, weights[f"{block}.ffn_{part}.weight"]) for part in ("gate", "up"))
        inner = graph.node("Mul", graph.node("Mul", gate, graph.node("Sigmoid", gate)), up)
        x = graph.node("Add", x, linear(graph, inner, weights[f"{block}.ffn_down.weight"]))
    logits = linear(graph, norm(x, "output_norm.weight"), weights["token_embd.weight"])
    graph.output(logits, "logits", np.float32, ["batch_size", "sequence_length", 49152])
    return graph.to_bytes(OPERATOR_SETS)


def described(header: GGUFHeader, config: ModelConfig) -> dict[str, Any]:
    """The other files by their names."""
    about = header.metadata
    tokens, types = about["tokenizer.ggml.tokens"], about["tokenizer.ggml.token_type"]
    special = [number for number, kind in enumerate(types) if kind == 3]
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": number, "content": tokens[number], "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for number in special
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": list(about["tokenizer.ggml.merges"]),
        },
    }  # fmt: skip
    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer", "bos_token": tokens[1], "eos_token": tokens[2], "pad_token": tokens[2],
            "unk_token": tokens[0], "model_max_length": config.context_length, "add_prefix_space": False,
            "chat_template": about["tokenizer.chat_template"],
        },
        "generation_config.json": ends,
        "config.json": {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 576, "num_hidden_layers": 30,
            "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536,
            "vocab_size": len(tokens), "max_position_embeddings": config.context_length, "rope_theta": 100_000.0,
            **ends,
        },
    }  # fmt: skip
