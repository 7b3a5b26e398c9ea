"""Adapters are written, read again, and refused with a sentence if they do not belong to a model."""

from __future__ import annotations

import dataclasses
import json
import mmap
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.adapters.files import export_peft, read_adapter, read_details, write_adapter
from py_core.adapters.layout import AdapterLayout
from py_core.adapters.lora import AdapterError, LoraAdapter, LoraPair, check_adapter, check_base
from py_core.formats.safetensors import read_safetensors, write_safetensors
from py_core.limits import MAX_ADAPTER_BYTES
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
    assert details.linears == len(AdapterLayout(config, graph).places)
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
    written = json.loads(export_peft(adapter, config, graph)["adapter_config.json"])
    assert (written["r"], written["lora_alpha"]) == (4, 2)
    assert written["rank_pattern"] == {"model.layers.1.mlp.up_proj": 2}
    assert written["alpha_pattern"] == {"model.layers.1.mlp.up_proj": 3}
    assert "model.layers.1.self_attn.v_proj" in written["target_modules"]
    assert "model.layers.2.self_attn.v_proj" not in written["target_modules"]


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
    with pytest.raises(AdapterError, match="'drawn 1' is for a model of 'llama', but this is one of qwen2"):
        read_adapter(data, *described("qwen2"))


def mixed(name: str, chosen: list[tuple[int, int, float]]) -> LoraAdapter:
    """Pairs of linears by their numbers, each with a rank and a scale."""
    _, graph = described(name)
    tensors = sorted(graph.linear_weights)
    pairs = {
        (tensor := tensors[at % len(tensors)]): drawn(graph, at, rank, tensor, scale).pairs[tensor]
        for at, rank, scale in chosen
    }
    return LoraAdapter("mixed", pairs)


@settings(max_examples=40)
@given(
    st.sampled_from(EVERY_KIND),
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9), st.floats(-100, 100)), min_size=1, max_size=12),
)
def test_any_choice_of_linears_ranks_and_scales_is_read_again(name: str, chosen: list[tuple[int, int, float]]) -> None:
    config, graph = described(name)
    adapter = mixed(name, chosen)
    same(read_adapter(write_adapter(adapter, config, graph), config, graph), adapter)
    files = export_peft(adapter, config, graph)
    peft_config = files["adapter_config.json"]
    read = read_adapter(files["adapter_model.safetensors"], config, graph, peft_config=peft_config, name="mixed")
    same(read, adapter)


@settings(max_examples=40)
@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=80),
    st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=3),
)
def test_any_name_and_metadata_are_read_again(name: str, metadata: dict[str, str]) -> None:
    config, graph = described("llama")
    adapter = dataclasses.replace(drawn(graph, 1, only="blk.0.attn_q"), name=name, metadata=metadata)
    same(read_adapter(write_adapter(adapter, config, graph), config, graph), adapter)


def test_an_adapter_that_is_not_trained_yet_keeps_its_first_matrices() -> None:
    """Then B is zero; if q, k and v are one tensor, they share A."""
    config, graph = described("llama-fused-qkv")
    pairs = {name: dataclasses.replace(pair, b=pair.b * 0) for name, pair in drawn(graph, 1).pairs.items()}
    adapter = LoraAdapter("new", pairs)
    same(read_adapter(write_adapter(adapter, config, graph), config, graph), adapter)


def test_a_file_of_sonatas_own_is_one_that_peft_would_read() -> None:
    config, graph = described("llama")
    adapter = drawn(graph, 1)
    own, header = read_safetensors(write_adapter(adapter, config, graph))
    files = export_peft(adapter, config, graph)
    exported, _ = read_safetensors(files["adapter_model.safetensors"])
    assert json.loads(header["adapter_config"]) == json.loads(files["adapter_config.json"])
    assert own.keys() == exported.keys()
    for name, values in own.items():
        np.testing.assert_array_equal(values, exported[name])


REFUSED = {
    "a layout to come": ({"sonata_adapter": "2"}, "has layout '2', but this Sonata reads layout 1. Update"),
    "another architecture": ({"architecture": "qwen2"}, "'drawn 1' is for a model of 'qwen2'"),
    "no settings": ({"adapter_config": ""}, "it is not a JSON object"),
    "metadata of another kind": ({"metadata": "[1]"}, "metadata are not text"),
    "metadata that are no JSON": ({"metadata": "[" * 100_000}, "metadata are not text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_header_is_refused_with_a_sentence(case: str) -> None:
    changes, words = REFUSED[case]
    config, graph = described("llama")
    stored, header = read_safetensors(write_adapter(drawn(graph, 1), config, graph))
    with pytest.raises(AdapterError, match=words):
        read_adapter(write_safetensors(stored, {**header, **changes}), config, graph)


def test_a_truncated_file_is_refused_wherever_it_ends() -> None:
    config, graph = described("llama")
    data = write_adapter(drawn(graph, 1, only="blk.0"), config, graph)
    for end in [*range(0, 8), *range(8, len(data), 499)]:
        with pytest.raises(AdapterError, match="damaged"):
            read_adapter(data[:end], config, graph)


def test_a_file_that_is_too_large_is_refused_before_it_is_read() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(MAX_ADAPTER_BYTES + 1)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            with pytest.raises(AdapterError, match="no adapter has more than 2147483648"):
                read_adapter(view, *described("llama"))
            view.release()


def test_details_are_only_of_sonatas_own_files() -> None:
    config, graph = described("llama")
    files = export_peft(drawn(graph, 1), config, graph)
    with pytest.raises(AdapterError, match="Sonata did not write this adapter: import it first"):
        read_details(files["adapter_model.safetensors"])
    with pytest.raises(AdapterError, match="damaged"):
        read_details(b"GGUF")


def test_what_is_not_of_the_model_cannot_be_written() -> None:
    pairs = drawn(described("gemma3")[1], 1, only="blk.7").pairs
    with pytest.raises(AdapterError, match=r"changes 'blk\.7\.\w+\.weight', which is not a linear of this model"):
        write_adapter(LoraAdapter("other", pairs), *described("llama"))


@pytest.mark.parametrize("changes", [{"a": np.full((4, 64), np.nan)}, {"b": np.full((64, 4), 1e39)}, {"scale": np.inf}])
def test_what_could_not_be_read_again_is_not_written(changes: dict[str, Any]) -> None:
    config, graph = described("llama")
    adapter = drawn(graph, 1, only="blk.0.attn_q")
    pairs = {name: dataclasses.replace(pair, **changes) for name, pair in adapter.pairs.items()}
    for write in (write_adapter, export_peft):
        with pytest.raises(AdapterError, match=r"not finite|multiplies by inf"):
            write(dataclasses.replace(adapter, pairs=pairs), config, graph)


@settings(max_examples=40)
@given(
    st.sampled_from(EVERY_KIND),
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9), st.floats(-100, 100)), min_size=1, max_size=12),
)
def test_any_adapter_in_half_the_bytes_is_read_again_as_float16_has_it(
    name: str, chosen: list[tuple[int, int, float]]
) -> None:
    config, graph = described(name)
    adapter = mixed(name, chosen)
    data = write_adapter(adapter, config, graph, half=True)
    rounded = {
        tensor: dataclasses.replace(pair, a=np.float16(pair.a).astype("f4"), b=np.float16(pair.b).astype("f4"))
        for tensor, pair in adapter.pairs.items()
    }
    same(read_adapter(data, config, graph), dataclasses.replace(adapter, pairs=rounded))
    assert {array.dtype for array in read_safetensors(data)[0].values()} == {np.dtype(np.float16)}


def test_a_number_that_float16_lacks_is_not_halved() -> None:
    config, graph = described("llama")
    adapter = drawn(graph, 1, only="blk.0.attn_q")
    pairs = {name: dataclasses.replace(pair, b=pair.b * 1e6) for name, pair in adapter.pairs.items()}
    with pytest.raises(AdapterError, match=r"numbers over 65,504: write it in float32"):
        write_adapter(dataclasses.replace(adapter, pairs=pairs), config, graph, half=True)
