"""A model file's settings are read, checked and turned into a forward pass, or refused with a sentence."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.formats.gguf import GGUFError, GGUFHeader, read_header
from py_core.formats.source import FileSource
from py_core.models import graph as ops
from py_core.models import llama, rotation
from py_core.models.config import ModelConfig, config_from_gguf
from py_core.models.graph import Graph
from py_core.models.registry import describe_model


def header_of(path: Path) -> GGUFHeader:
    return asyncio.run(read_header(FileSource(path)))


def changed(header: GGUFHeader, metadata: dict[str, Any]) -> GGUFHeader:
    """The header with other settings; None removes one."""
    merged = {key: value for key, value in {**header.metadata, **metadata}.items() if value is not None}
    return replace(header, metadata=merged)


@pytest.fixture(scope="module")
def header(tiny_path: Path) -> GGUFHeader:
    return header_of(tiny_path)


def test_settings_are_read_under_their_hugging_face_names(header: GGUFHeader) -> None:
    config = config_from_gguf(header)
    assert replace(config, rms_norm_eps=0) == ModelConfig(
        architecture="llama", name="tiny", vocab_size=259, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=0, max_position_embeddings=512,
        context_length=512, tie_word_embeddings=False, rope=rotation.plain(1e4, 16), local_rope=rotation.plain(1e4, 16),
        own_name="tiny",
    )  # fmt: skip
    assert config.rms_norm_eps == pytest.approx(1e-5)


def test_settings_that_may_be_missing_have_the_usual_values(header: GGUFHeader) -> None:
    optional = ("general.name", "llama.attention.head_count_kv", "llama.rope.freq_base", "llama.rope.dimension_count")
    config = config_from_gguf(changed(header, dict.fromkeys(optional)))
    assert config.num_key_value_heads == config.num_attention_heads
    assert config.rope == rotation.plain(1e4, 16)
    assert config.name == "llama"


def test_a_key_length_of_its_own_is_the_head_dim(header: GGUFHeader) -> None:
    lengths = {"llama.attention.key_length": 32, "llama.rope.dimension_count": 32}
    assert config_from_gguf(changed(header, lengths)).head_dim == 32


@pytest.mark.parametrize(
    "key",
    [
        "llama.embedding_length", "llama.feed_forward_length", "llama.block_count", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon", "llama.context_length",
    ],
)  # fmt: skip
def test_a_missing_setting_is_named(header: GGUFHeader, key: str) -> None:
    with pytest.raises(GGUFError, match=f"has no value '{key}'"):
        describe_model(changed(header, {key: None}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.embedding_length", 0), ("llama.embedding_length", -64), ("llama.embedding_length", 2**40),
        ("llama.embedding_length", "64"), ("llama.embedding_length", 64.0), ("llama.embedding_length", True),
        ("llama.feed_forward_length", 2**31), ("llama.block_count", 0), ("llama.block_count", 2000),
        ("llama.attention.head_count", 0), ("llama.attention.head_count", 2**32 - 1),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.key_length", 2**60), ("llama.rope.freq_base", math.nan), ("llama.rope.freq_base", 0.0),
        ("llama.rope.freq_base", math.inf), ("llama.rope.freq_base", "10000"),
        ("llama.attention.layer_norm_rms_epsilon", -1e-5), ("llama.attention.layer_norm_rms_epsilon", math.inf),
        ("llama.context_length", 0), ("llama.context_length", 2**63), ("llama.context_length", []),
    ],
    ids=repr,
)  # fmt: skip
def test_an_absurd_setting_is_named_and_called_damage(header: GGUFHeader, key: str, value: object) -> None:
    with pytest.raises(GGUFError, match=rf"{key}.*damaged"):
        describe_model(changed(header, {key: value}))


@pytest.mark.parametrize("heads", [3, 5, 7])
def test_key_value_heads_must_divide_the_heads(header: GGUFHeader, heads: int) -> None:
    with pytest.raises(GGUFError, match=f"4 attention heads and {heads} key/value heads"):
        describe_model(changed(header, {"llama.attention.head_count_kv": heads}))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"llama.attention.key_length": 21}, "have 21 values; Sonata reads even numbers"),
        ({"llama.attention.head_count": 64, "llama.attention.head_count_kv": 64}, "have 1 values"),
        ({"llama.attention.head_count": np.array([4, 2])}, "attention.head_count = .* Sonata does not support"),
        ({"llama.attention.head_count_kv": np.array([2, 1])}, "attention.head_count_kv = .* Sonata does not support"),
        ({"llama.feed_forward_length": np.array([96, 64])}, "feed_forward_length = .* Sonata does not support"),
        ({"llama.feed_forward_length": np.array([96, 96, 96])}, "feed_forward_length' = .* it is damaged"),
        ({"llama.rope.dimension_count": 24}, "rope.dimension_count = 24, but its attention heads have 16 values"),
        ({"llama.rope.dimension_count": 7}, "rope.dimension_count = 7"),
        ({"llama.rope.freq_base": 1.0, "llama.rope.scaling.type": "yarn"}, "rope.freq_base = 1.0, which no model has"),
        ({"llama.rope.scaling.type": "su"}, "rope.scaling.type = 'su', which Sonata does not support"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length = 8, which Sonata does not support"),
        ({"llama.rope.scaling.type": np.array([1.0, 2.0])}, "rope.scaling.type.* not of the expected kind"),
        ({"general.architecture": "mamba"}, "architecture 'mamba'; Sonata runs a2d-qwen2, a2d-qwen3, "),
        ({"general.architecture": None}, "architecture None; Sonata runs a2d-qwen2"),
        ({"general.architecture": ["llama"]}, "Sonata runs a2d-qwen2"),
        ({"general.architecture": np.array([1, 2])}, "Sonata runs a2d-qwen2"),
    ],
    ids=str,
)
def test_what_sonata_cannot_run_is_a_sentence(header: GGUFHeader, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(GGUFError, match=said):
        describe_model(changed(header, settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"rope.scaling.type": "none"},
        {"rope.scaling.type": ""},
        {"rope.scaling.type": "yarn"},
        {"rope.scaling.factor": 0.0, "rope.scaling.attn_factor": 0.0, "rope.scaling.original_context_length": 0},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 0.0, "rope.scaling.yarn_attn_factor": 0.0},
        {"attention.head_count": np.array([4, 4]), "attention.head_count_kv": np.array([2, 2], np.int32)},
        {"feed_forward_length": np.array([96, 96], np.uint32)},
    ],
    ids=str,
)
def test_what_says_nothing_changes_nothing(header: GGUFHeader, settings: dict[str, Any]) -> None:
    said = {f"llama.{key}": value for key, value in settings.items()}
    assert config_from_gguf(changed(header, said)) == config_from_gguf(header)


@pytest.mark.parametrize(
    "name",
    ["token_embd.weight", "blk.0.attn_norm.weight", "blk.1.attn_q.weight", "blk.1.ffn_down.weight",
     "output_norm.weight"],
)  # fmt: skip
def test_a_missing_tensor_is_named(header: GGUFHeader, name: str) -> None:
    tensors = {key: info for key, info in header.tensors.items() if key != name}
    with pytest.raises(GGUFError, match=f"no tensor '{name}'"):
        describe_model(replace(header, tensors=tensors))


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["blk.0.attn_qkv.bias"], "'blk.0.attn_qkv.bias'"),
        (["blk.1.attn_q_norm.weight"], "'blk.1.attn_q_norm.weight'"),
        (["blk.2.attn_norm.weight"], "'blk.2.attn_norm.weight'"),  # one block more than the settings say
        (["token_embd_norm.weight", "position_embd.weight"], "'token_embd_norm.weight', 'position_embd.weight'"),
        (["\0lk.0.attn_v.bias"], r"'\x00lk.0.attn_v.bias'"),
        (["b" * 200], f"'{'b' * 76}..."),
    ],
)
def test_a_tensor_that_the_forward_pass_does_not_read_is_named(
    header: GGUFHeader, names: list[str], shown: str
) -> None:
    other = header.tensors["output_norm.weight"]
    tensors = {**header.tensors, **{name: replace(other, name=name) for name in names}}
    message = re.escape(f"does not know how to use: {shown}. Its answers would be wrong")
    with pytest.raises(GGUFError, match=message):
        describe_model(replace(header, tensors=tensors))


def test_of_many_tensors_that_are_not_read_three_are_named(header: GGUFHeader) -> None:
    other = header.tensors["output_norm.weight"]
    biases = {name: replace(other, name=name) for name in (f"blk.0.{part}.bias" for part in "abcde")}
    with pytest.raises(GGUFError, match=r"'blk\.0\.a\.bias', 'blk\.0\.b\.bias', 'blk\.0\.c\.bias' and 2 more"):
        describe_model(replace(header, tensors={**header.tensors, **biases}))


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("blk.0.attn_k.weight", (64, 64), (32, 64)),
        ("blk.1.ffn_up.weight", (64, 96), (96, 64)),
        ("output_norm.weight", (1, 64), (64,)),
        ("token_embd.weight", (259, 32), (259, 64)),
        ("token_embd.weight", (259,), (259, 64)),
        ("output.weight", (258, 64), (259, 64)),
    ],
)
def test_a_tensor_of_another_shape_is_named_with_both(
    write_model: Callable[..., Path], name: str, shape: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    header = header_of(write_model(tied=False))
    tensors = {**header.tensors, name: replace(header.tensors[name], shape=shape)}
    with pytest.raises(GGUFError) as raised:
        describe_model(replace(header, tensors=tensors))
    assert all(part in str(raised.value) for part in (repr(name), str(shape), str(wanted), "Download it again"))


@pytest.mark.parametrize(("tied", "head"), [(True, "token_embd.weight"), (False, "output.weight")])
def test_the_logits_come_from_the_output_matrix_where_the_file_has_one(
    write_model: Callable[..., Path], tied: bool, head: str
) -> None:
    header = header_of(write_model(tied=tied))
    config, graph = describe_model(header)
    last = graph.ops[-1]
    assert config.tie_word_embeddings is tied
    assert isinstance(last, ops.Linear)
    assert (last.weight, last.out.width) == (head, config.vocab_size)
    assert set(graph.weights) == set(header.tensors)


def tiny_config(layers: int, heads: int, kv_heads: int, tied: bool) -> ModelConfig:
    rope = rotation.plain(1e4, 8)
    return ModelConfig("llama", "x", 99, 48, 80, layers, heads, kv_heads, 8, 1e-5, 128, 128, tied, rope, rope)


@given(st.integers(1, 6), st.sampled_from([(4, 4), (4, 2), (6, 1)]), st.booleans())
def test_a_graph_is_in_an_order_that_can_be_run(layers: int, heads: tuple[int, int], tied: bool) -> None:
    graph = Graph()
    config = tiny_config(layers, *heads, tied)
    llama.describe(config, graph)
    made: set[ops.Value] = set()
    for op in graph.ops:
        inputs = {value for key, value in vars(op).items() if isinstance(value, ops.Value) and key != "out"}
        assert inputs <= made
        assert op.out not in made
        made.add(op.out)
    assert [op.layer for op in graph.ops if isinstance(op, ops.Attention)] == list(range(layers))
    assert len(graph.weights) == 9 * layers + (2 if tied else 3)
    assert graph.output.width == config.vocab_size


def test_the_head_is_what_only_the_logits_need(header: GGUFHeader) -> None:
    _, graph = describe_model(header)
    norm, output = graph.head
    assert isinstance(norm, ops.RMSNorm)
    assert isinstance(output, ops.Linear)
    assert graph.body + graph.head == graph.ops
    residuals = [op.out for op in graph.body if isinstance(op, ops.Add)]  # after attention and after the feed-forward
    assert residuals[-1] == norm.x
    assert graph.taps == {"residual.1": residuals[1], "residual.2": residuals[3], "final_norm": norm.out}


def test_two_values_cannot_have_one_name() -> None:
    graph = Graph()
    graph.tap("x", graph.embedding("w", 100, 8))
    with pytest.raises(ValueError, match="two values are named 'x'"):
        graph.tap("x", graph.embedding("w", 100, 8))


def test_a_share_of_the_depth_names_a_residual(header: GGUFHeader) -> None:
    config = replace(config_from_gguf(header), num_hidden_layers=30)
    names = [config.residual_at(depth) for depth in (0.001, 0.25, 0.5, 0.75, 7 / 8, 1)]
    assert names == [f"residual.{blocks}" for blocks in (1, 8, 15, 23, 27, 30)]
    graph = Graph()
    llama.describe(config, graph)
    assert set(names) <= set(graph.taps)
    for depth in (0, 1.01):
        with pytest.raises(ValueError, match="must be over 0 and at most 1"):
            config.residual_at(depth)


def test_a_weight_cannot_be_used_with_two_shapes() -> None:
    graph = Graph()
    x = graph.embedding("w", 100, 8)
    with pytest.raises(ValueError, match="w is used with the shapes"):
        graph.rms_norm(x, "w", 1e-5)


@given(st.sampled_from([8, 16, 64, 128]), st.sampled_from([1e4, 1e5, 1e6]), st.integers(1, 3000))
def test_rope_table_is_the_formula_in_float64(head_dim: int, theta: float, positions: int) -> None:
    table = rotation.plain(theta, head_dim).table(positions)
    assert table.shape == (positions, head_dim // 2, 2)
    assert table.dtype == np.float32
    for position in {0, positions // 2, positions - 1}:
        angles = [position / math.pow(theta, 2 * pair / head_dim) for pair in range(head_dim // 2)]
        expected = [(math.cos(angle), math.sin(angle)) for angle in angles]
        np.testing.assert_allclose(table[position], expected, rtol=0, atol=2e-7)
