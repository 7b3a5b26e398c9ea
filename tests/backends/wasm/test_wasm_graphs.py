"""Graphs that no architecture has yet, in the WASM kernels against the numpy reference."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from py_core.backends.numpy.backend import NumpyBackend, load_weights
from py_core.backends.wasm.backend import WasmBackend, load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import OP_BYTES, Barrier, OpKind
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models import blocks
from py_core.models.config import ModelConfig, config_from_gguf
from py_core.models.graph import Graph, Value
from tests.backends.backend_pairs import Pair, collect, cosine, prompt
from tests.backends.wasm.builds import OTHERS, in_turn
from tests.models.architectures.variants import QUANTIZED
from tests.tiny.models import Variant

# Heads of keys and queries are as wide as the residual, so that its norms fit them.
TINY = QUANTIZED["qwen3"].changed(num_key_value_heads=4, head_dim=16)


def rotated(g: Graph, c: ModelConfig, x: Value, heads: int) -> Value:
    return g.rope(x, heads, interleaved=False, rotation=c.rope)


def attention(g: Graph, c: ModelConfig, layer: int, q: Value, k: Value, v: Value) -> Value:
    return g.attention(layer, q, k, v, c.num_attention_heads, c.num_key_value_heads, c.head_dim**-0.5)


def norm_of(g: Graph, c: ModelConfig, x: Value, name: str) -> Value:
    return g.rms_norm(x, f"{name}.weight", c.rms_norm_eps)


def parallel(g: Graph, c: ModelConfig, x: Value, block: str, layer: int) -> Value:
    """Attention and MLP read one norm of the residual, to which attention has been added by then (as in GPT-J)."""
    h = norm_of(g, c, x, f"{block}.attn_norm")
    q, k, v = blocks.qkv(g, c, h, block)
    a = attention(g, c, layer, rotated(g, c, q, c.num_attention_heads), rotated(g, c, k, c.num_key_value_heads), v)
    x = g.add(x, g.linear(a, f"{block}.attn_output", c.hidden_size))
    return g.add(x, blocks.mlp(g, c, h, block))


def unlike(g: Graph, c: ModelConfig, x: Value, block: str, layer: int) -> Value:
    """Queries, keys and values of different values; k alone is normalized, and v rotates; a capped residual."""
    kv_heads = c.num_key_value_heads
    h = norm_of(g, c, x, f"{block}.attn_norm")
    q = g.linear(h, f"{block}.attn_q", c.num_attention_heads * c.head_dim)
    k = g.linear(x, f"{block}.attn_k", kv_heads * c.head_dim)
    k = g.rms_norm(k, f"{block}.attn_k_norm.weight", c.rms_norm_eps, kv_heads)
    v = rotated(g, c, g.linear(h, f"{block}.attn_v", kv_heads * c.head_dim), kv_heads)
    a = attention(g, c, layer, q, rotated(g, c, k, kv_heads), v)
    x = g.soft_cap(g.add(g.linear(a, f"{block}.attn_output", c.hidden_size), x), 20.0)
    gate = g.linear(norm_of(g, c, x, f"{block}.ffn_norm"), f"{block}.ffn_gate", c.intermediate_size)
    up = g.linear(x, f"{block}.ffn_up", c.intermediate_size)
    down = g.linear(g.glu(gate, up, "gelu"), f"{block}.ffn_down", c.hidden_size)
    return g.add(norm_of(g, c, x, f"{block}.attn_norm"), down)


def itself(g: Graph, c: ModelConfig, x: Value, block: str, layer: int) -> Value:
    """To the residual a linear of itself is added, and a linear of its norm, with no attention between."""
    wide = g.linear(norm_of(g, c, x, f"{block}.ffn_norm"), f"{block}.ffn_gate", c.intermediate_size)
    x = g.add(x, g.linear(wide, f"{block}.ffn_down", c.hidden_size))
    for normed in (False, True):
        h = norm_of(g, c, x, f"{block}.ffn_norm") if normed else x
        square, _ = g.linears(h, f"{block}.ffn_up", [c.hidden_size, c.intermediate_size - c.hidden_size])
        x = g.add(x, square)
    return parallel(g, c, x, block, layer)


def whole(g: Graph, c: ModelConfig, x: Value, block: str, layer: int) -> Value:
    """Norms of whole rows of q and k, not of each head (as in OLMo 2)."""
    h = norm_of(g, c, x, f"{block}.attn_norm")
    q, k, v = blocks.qkv(g, c, h, block)
    q, k = norm_of(g, c, q, f"{block}.attn_norm"), norm_of(g, c, k, f"{block}.ffn_norm")
    a = attention(g, c, layer, rotated(g, c, q, c.num_attention_heads), rotated(g, c, k, c.num_key_value_heads), v)
    return g.add(x, g.linear(a, f"{block}.attn_output", c.hidden_size))


Block = Callable[[Graph, ModelConfig, Value, str, int], Value]
BLOCKS: dict[str, Block] = {"parallel": parallel, "unlike": unlike, "itself": itself, "whole": whole}


async def open_graph(path: Path, kernels: Path, block: Block, model: Variant = TINY) -> Pair:
    source = FileSource(model.write(path))
    header = await read_header(source)
    config, graph = config_from_gguf(header), Graph(header.tensors)
    x = graph.embedding("token_embd.weight", config.vocab_size, config.hidden_size)
    for layer in range(config.num_hidden_layers):
        x = block(graph, config, x, f"blk.{layer}", layer)
        graph.tap(f"residual.{layer + 1}", x)
    logits = blocks.logits(graph, config, x)
    graph.tap("logits", logits)  # so that the cap is not fused
    graph.soft_cap(logits, 4.0)
    numpy = NumpyBackend(config, graph, await load_weights(source, header, graph))
    return Pair(numpy, await load_wasm(WasmtimeHost(kernels), source, header, config, graph))


@in_turn(BLOCKS, OTHERS)
async def test_a_graph_that_fits_no_pattern_runs(tmp_path: Path, kernel_wasm, name: str, build: str) -> None:
    pair = await open_graph(tmp_path / "tiny.gguf", kernel_wasm(build), BLOCKS[name])
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    for length in (1, 70, 100):
        await pair.other.prefill(ours, prompt(length, seed=length))
        await pair.numpy.prefill(reference, prompt(length, seed=length))
        assert cosine(await pair.other.logits(ours), await pair.numpy.logits(reference)) > 0.9999
    await pair.numpy.prefill(reference, await collect(pair.other, ours, 4))
    got, expected = await pair.other.last_logits(ours, 5), await pair.numpy.last_logits(reference, 5)
    assert min(map(cosine, got, expected)) > 0.9999
    names = ["residual.1", "residual.3", "final_norm"]
    states, wanted = await pair.other.hidden(ours, names), await pair.numpy.hidden(reference, names)
    for value in names:
        assert min(map(cosine, states[value], wanted[value])) > 0.9999, value
    np.testing.assert_allclose(await pair.other.last_logits(ours, 5), got, rtol=0, atol=1e-4)


async def test_workers_wait_before_one_overwrites_what_another_still_reads(tmp_path: Path, kernel_wasm) -> None:
    pair = await open_graph(tmp_path / "tiny.gguf", kernel_wasm(), itself)
    assert isinstance(pair.other, WasmBackend)
    lowering = pair.other.device.lowering
    body = next(data for address, data in lowering.arena.writes if address == lowering.programs["body"])
    words = [struct.unpack("<16I", body[at : at + OP_BYTES]) for at in range(OP_BYTES, len(body), OP_BYTES)]
    found = 0
    for first, second in pairwise(words):
        if first[0] == OpKind.QUANTIZE and second[0] == OpKind.LINEAR and first[1] == second[2]:
            assert first[15] == Barrier.ALWAYS
            found += 1
    assert found == TINY.config["num_hidden_layers"]


async def test_layers_share_the_buffers_of_their_values(tmp_path: Path, kernel_wasm) -> None:
    taken = []
    for layers in (1, 5):
        model = TINY.changed(num_hidden_layers=layers)
        pair = await open_graph(tmp_path / "tiny.gguf", kernel_wasm(), unlike, model)
        assert isinstance(pair.other, WasmBackend)
        taken.append(len(pair.other.device.lowering._values._buffers))
    assert taken[0] == taken[1]
