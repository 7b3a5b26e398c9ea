"""Adapters are written, read again, and refused with a sentence where they do not belong to a model."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from py_core.adapters.files import export_peft, read_adapter, read_details, write_adapter
from py_core.adapters.layout import Layout
from py_core.adapters.lora import AdapterError, LoraAdapter, LoraPair, check_adapter, check_base
from py_core.formats.safetensors import read_safetensors
from tests.adapters.adapter_models import SHA256, described, drawn, same

EVERY_KIND = ["llama", "llama-fused-qkv", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "smollm3"]


@pytest.mark.parametrize("name", EVERY_KIND)
def test_what_is_written_is_read_again(name: str) -> None:
    config, graph = described(name)
    adapter = drawn(graph, 1)
    data = write_adapter(adapter, config, graph)
    same(read_adapter(data, config, graph), adapter)
    assert write_adapter(read_adapter(data, config, graph), config, graph) == data
    details = read_details(data)
    assert (details.name, details.architecture, details.rank) == ("drawn 1", config.architecture, 4)
    assert details.linears == len(Layout(config, graph).places)
    assert (details.base_sha256, details.metadata) == (SHA256, {"trained on": "nothing"})


@pytest.mark.parametrize("name", EVERY_KIND)
def test_what_is_exported_for_peft_is_read_again(name: str) -> None:
    config, graph = described(name)
    adapter = drawn(graph, 1, rank=3)
    files = export_peft(adapter, config, graph, "some/model")
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == "some/model"
    read = read_adapter(
        files["adapter_model.safetensors"], config, graph, peft_config=files["adapter_config.json"], name="drawn 1"
    )
    same(read, dataclasses.replace(adapter, base_sha256="", metadata={}))
    check_adapter(read, graph)


def test_ranks_and_scales_may_differ_from_matrix_to_matrix() -> None:
    config, graph = described("llama")
    pairs = {**drawn(graph, 1).pairs, **drawn(graph, 2, rank=2, only="blk.1.ffn_up", scale=1.5).pairs}
    del pairs["blk.2.attn_v.weight"]
    adapter = LoraAdapter("mixed", pairs)
    same(read_adapter(write_adapter(adapter, config, graph), config, graph), adapter)
    settings = json.loads(export_peft(adapter, config, graph)["adapter_config.json"])
    assert (settings["r"], settings["lora_alpha"]) == (4, 2)
    assert settings["rank_pattern"] == {"model.layers.1.mlp.up_proj": 2}
    assert settings["alpha_pattern"] == {"model.layers.1.mlp.up_proj": 3}
    assert "model.layers.1.self_attn.v_proj" in settings["target_modules"]
    assert "model.layers.2.self_attn.v_proj" not in settings["target_modules"]


def test_matrices_of_q_k_and_v_become_one_where_the_file_has_one() -> None:
    config, graph = described("llama")
    fused_config, fused = described("llama-fused-qkv")
    apart = drawn(graph, 1)
    scales = {"attn_q": 0.5, "attn_v": 2.0}
    pairs = {
        name: dataclasses.replace(pair, scale=scales.get(name.split(".")[2], pair.scale))
        for name, pair in apart.pairs.items() if not name.startswith("blk.3.attn_k")
    }  # fmt: skip
    data = write_adapter(dataclasses.replace(apart, pairs=pairs), config, graph)
    joined = read_adapter(data, fused_config, fused)
    for layer in range(4):
        q, k, v = (pairs.get(f"blk.{layer}.attn_{part}.weight") for part in "qkv")
        deltas = [q.delta, np.zeros((32, 64)) if k is None else k.delta, v.delta]
        np.testing.assert_allclose(
            joined.pairs[f"blk.{layer}.attn_qkv.weight"].delta, np.concatenate(deltas), rtol=1e-5, atol=1e-6
        )
    again = read_adapter(write_adapter(joined, fused_config, fused), config, graph)
    assert again.pairs.keys() == pairs.keys()
    for name, pair in pairs.items():
        np.testing.assert_allclose(again.pairs[name].delta, pair.delta, rtol=1e-5, atol=1e-6)


def test_rows_of_q_and_k_lie_as_transformers_has_them() -> None:
    config, graph = described("llama")
    rows = np.arange(64, dtype=np.float32)[:, None]
    adapter = LoraAdapter("rows", {"blk.0.attn_q.weight": LoraPair(np.ones((1, 64), np.float32), rows, 1.0)})
    arrays, _ = read_safetensors(export_peft(adapter, config, graph)["adapter_model.safetensors"])
    written = arrays["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"][:, 0]
    assert written[:16].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]


def test_another_base_is_refused() -> None:
    config, graph = described("llama")
    adapter = read_adapter(write_adapter(drawn(graph, 1), config, graph), config, graph)
    check_base(adapter, SHA256)
    check_base(dataclasses.replace(adapter, base_sha256=""), "cd" * 32)
    with pytest.raises(AdapterError, match=r"for a file with the sha256 ababababab.*Choose that model"):
        check_base(adapter, "cd" * 32)


def test_a_model_of_another_architecture_is_refused() -> None:
    data = write_adapter(drawn(described("llama")[1], 1), *described("llama"))
    with pytest.raises(AdapterError, match="'drawn 1' is for a model of 'llama', and this is one of qwen2"):
        read_adapter(data, *described("qwen2"))
