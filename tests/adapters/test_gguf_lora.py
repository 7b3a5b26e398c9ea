"""Adapters of llama.cpp are read: ggml's own package writes them here, as convert_lora_to_gguf.py does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from py_core.adapters.files import read_adapter, write_adapter
from py_core.adapters.lora import AdapterError, LoraAdapter
from tests.adapters.adapter_models import described, drawn, same
from tests.models.architectures.variants import VARIANTS

NAME = "blk.0.attn_q.weight"


def written(
    path: Path, adapter: LoraAdapter, alpha: float | None = 8.0, kind: Kind = Kind.F32, architecture: str = "llama",
    adapter_type: str = "lora", invocation: list[int] | None = None, more: dict[str, np.ndarray] | None = None,
) -> bytes:  # fmt: skip
    """Writes an adapter as llama.cpp's converter does: matrices that `kind` cannot hold are F16. `more` are other
    tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, adapter_type)
    writer.add_name("theirs")
    if alpha is not None:
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    if invocation:
        writer.add_array(gguf.Keys.Adapter.ALORA_INVOCATION_TOKENS, invocation)
    matrices = {f"{name}.lora_{half}": getattr(pair, half) for name, pair in adapter.pairs.items() for half in "ab"}
    for name, matrix in {**matrices, **(more or {})}.items():
        block, _ = gguf.GGML_QUANT_SIZES[kind]
        own = kind if matrix.shape[-1] % block == 0 else Kind.F16
        writer.add_tensor(name, gguf.quants.quantize(matrix, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("name", ["llama", "llama-fused-qkv", "qwen2", "phi3", "gemma3", "smollm3"])
def test_an_adapter_of_llama_cpp_is_read(name: str, tmp_path: Path) -> None:
    config, graph = described(name)
    adapter = drawn(graph, 1, scale=2.0)
    data = written(tmp_path / "lora.gguf", adapter, architecture=config.architecture)
    same(read_adapter(data, config, graph), dataclasses.replace(adapter, name="theirs", base_sha256="", metadata={}))


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0])
def test_its_matrices_may_be_rounded(kind: Kind, tmp_path: Path) -> None:
    config, graph = described("llama")
    adapter = drawn(graph, 1, rank=32)
    read = read_adapter(written(tmp_path / "lora.gguf", adapter, kind=kind), config, graph)
    for name, pair in adapter.pairs.items():
        for ours, matrix in ((read.pairs[name].a, pair.a), (read.pairs[name].b, pair.b)):
            own = kind if matrix.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else Kind.F16
            expected = gguf.quants.dequantize(gguf.quants.quantize(matrix, own), own)
            np.testing.assert_array_equal(ours, expected, err_msg=name)


@pytest.mark.parametrize("alpha", [None, 0.0])
def test_the_scale_is_one_where_the_file_has_no_alpha(alpha: float | None, tmp_path: Path) -> None:
    config, graph = described("llama")
    read = read_adapter(written(tmp_path / "lora.gguf", drawn(graph, 1), alpha), config, graph)
    assert {pair.scale for pair in read.pairs.values()} == {1.0}


def test_matrices_of_q_k_and_v_become_one_where_the_model_has_one(tmp_path: Path) -> None:
    """In a file's row order, so that nothing is permuted."""
    config, graph = described("llama")
    apart = drawn(graph, 1, only="attn_", scale=2.0)
    joined = read_adapter(written(tmp_path / "lora.gguf", apart), *described("llama-fused-qkv"))
    deltas = [apart.pairs[f"blk.2.attn_{part}.weight"].delta for part in "qkv"]
    np.testing.assert_allclose(joined.pairs["blk.2.attn_qkv.weight"].delta, np.concatenate(deltas), atol=1e-5)
    own = write_adapter(joined, *described("llama-fused-qkv"))
    assert read_adapter(own, config, graph).pairs.keys() == apart.pairs.keys()


def test_a_tensor_that_comes_whole_and_in_parts_is_refused(tmp_path: Path) -> None:
    apart = drawn(described("llama")[1], 1, only="blk.0.attn_q")
    config, graph = described("llama-fused-qkv")
    both = dataclasses.replace(apart, pairs={**apart.pairs, **drawn(graph, 1, only="blk.0.attn_qkv").pairs})
    with pytest.raises(AdapterError, match=r"changes 'blk\.0\.attn_qkv' twice"):
        read_adapter(written(tmp_path / "lora.gguf", both), config, graph)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"architecture": "qwen2"}, "is for a model of 'qwen2', but this is one of llama"),
    "another kind of adapter": ({"adapter_type": "control"}, "is of the type 'control'"),
    "an invocation": ({"invocation": [1, 2]}, "activated LoRA"),
    "an alpha that is not a number": ({"alpha": float("nan")}, "adapter.lora.alpha is nan"),
    "an alpha beyond any": ({"alpha": 1e30}, "which no adapter has"),
    "a norm": ({"more": {"blk.0.attn_norm.weight": np.ones(64, np.float32)}}, "attn_norm.weight', which does not"),
    "an embedding": ({"more": {"token_embd.weight.lora_a": np.ones((2, 64), np.float32)}}, "'token_embd', which is"),
    "one half": ({"more": {"blk.1.attn_k.weight.lora_a": np.ones((2, 64), np.float32)}}, "only one of the two"),
    "a layer too many": ({"more": {"blk.4.attn_k.weight.lora_a": np.ones((2, 64), np.float32)}}, "not a linear"),
    "another width": ({"more": {f"{NAME}.lora_a": np.ones((4, 32), np.float32)}}, r"of \(4, 32\) and \(64, 4\) for"),
    "another height": ({"more": {f"{NAME}.lora_b": np.ones((8, 4), np.float32)}}, r"which is \(64, 64\)"),
    "a transposed A": ({"more": {f"{NAME}.lora_a": np.ones((64, 4), np.float32)}}, r"of \(64, 4\) and \(64, 4\)"),
    "NaN": ({"more": {f"{NAME}.lora_a": np.full((4, 64), np.nan, np.float32)}}, "not finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(case: str, tmp_path: Path) -> None:
    changes, words = REFUSED[case]
    config, graph = described("llama")
    with pytest.raises(AdapterError, match=words):
        read_adapter(written(tmp_path / "lora.gguf", drawn(graph, 1, only="blk.0.attn_q"), **changes), config, graph)


def test_a_model_is_no_adapter(tmp_path: Path) -> None:
    model = VARIANTS["llama"].write(tmp_path / "model.gguf").read_bytes()
    with pytest.raises(AdapterError, match=r"is not an adapter \(its general\.type is None\): choose another file"):
        read_adapter(model, *described("llama"))


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    config, graph = described("llama")
    data = written(tmp_path / "lora.gguf", drawn(graph, 1, only="blk.0.attn_q"))
    for length in range(4, len(data) - 32, 97):
        with pytest.raises(AdapterError, match="truncated"):
            read_adapter(data[:length], config, graph)
