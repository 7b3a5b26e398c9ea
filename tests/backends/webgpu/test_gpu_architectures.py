"""Graphs of every architecture in the GPU's kernels against the numpy reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from py_core.backend_errors import BackendError
from py_core.backends.fusion import fused_layers
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.lowering import model as lowering
from py_core.formats.gguf import read_header
from py_core.formats.quantization import FORMATS
from py_core.formats.source import FileSource
from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Attention, Graph
from py_core.models.registry import ARCHITECTURES, describe_model
from tests.backends.backend_pairs import open_pair, prompt, unfused
from tests.backends.variants import gated
from tests.backends.webgpu.gpu_shapes import HARDWARE, INTEGERS, SHAPES, SUBGROUPS
from tests.models.architectures.variants import QUANTIZED
from tests.tiny.llama import TinyLlama

# Fused as a GPU would run them: tests/models/architectures covers the adapter of this machine.
WAYS = [(model, ("hardware", "integers", "subgroups")[at % 3]) for at, model in enumerate(QUANTIZED)]
# They have no operation that the others lack.
REPEATED = ("llama with biases of q and v", "llama in fused tensors")
UNFUSED_WAYS = [
    (model, ("software", "integers", "subgroups")[at % 3])
    for at, model in enumerate(QUANTIZED)
    if model not in REPEATED
]
# In the gate: a model of each kind of shapes, with biases, windows, soft-caps, norms of heads and fused matrices.
# tests/models/architectures covers every architecture.
IN_GATE = ("llama with biases of q and v", "phi3", "gemma2", "gemma3", "qwen3 of odd widths")
UNFUSED_IN_GATE = ("llama with every bias", "phi3", "gemma3")


@pytest.mark.parametrize(("model", "shapes"), gated(WAYS, lambda way: way[0] in IN_GATE))
async def test_logits_equal_numpy(tmp_path: Path, host: WgpuHost, model: str, shapes: str) -> None:
    pair = await open_pair(QUANTIZED[model].write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    # One row, few and many; windows have 40 and 150 tokens.
    await pair.compare((1, 2, 45, 70, 3, 60), 6)


@pytest.mark.parametrize(("model", "shapes"), gated(UNFUSED_WAYS, lambda way: way[0] in UNFUSED_IN_GATE))
async def test_each_operation_of_a_graph_runs_unfused(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch, model: str, shapes: str
) -> None:
    monkeypatch.setattr(lowering, "fuse", unfused)
    pair = await open_pair(QUANTIZED[model].write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    await pair.compare((1, 2, 45, 130), 2)


async def test_biases_of_fused_matrices_are_those_of_their_rows(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(QUANTIZED["phi3"], biased=("attn_qkv", "ffn_up"))
    path = model.write(tmp_path / "tiny.gguf")
    await (await open_pair(path, host, shapes=INTEGERS)).compare((1, 45), 1)
    monkeypatch.setattr(lowering, "fuse", unfused)
    await (await open_pair(path, host, shapes=INTEGERS)).compare((1, 45), 1)


async def test_heads_of_256_values_run_on_a_software_adapter(tmp_path: Path, host: WgpuHost) -> None:
    model = QUANTIZED["gemma2"].changed(head_dim=256, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2)
    await (await open_pair(model.write(tmp_path / "tiny.gguf"), host)).compare((1, 5, 160), 2)


@pytest.mark.parametrize(
    ("model", "dispatches"),
    [
        ("llama with every bias", 5),
        pytest.param("qwen2", 5, marks=pytest.mark.all),
        pytest.param("phi3", 5, marks=pytest.mark.all),
        pytest.param("smollm3", 5, marks=pytest.mark.all),
        ("qwen3", 6),
        ("gemma2", 7),
        ("gemma3", 8),
    ],
)
async def test_dispatches_of_a_block(tmp_path: Path, host: WgpuHost, model: str, dispatches: int) -> None:
    """Norms of heads need the linears by themselves; a norm before the residual is one more."""
    tiny = replace(QUANTIZED[model], formats={})
    layers = tiny.config["num_hidden_layers"]
    pair = await open_pair(tiny.write(tmp_path / "tiny.gguf"), host, shapes=INTEGERS)
    assert len(pair.other.device.launches("step", 1, 100)) == dispatches * layers + 2
    assert all(fused_layers(pair.other.graph))
    # Beyond 1,024 tokens attention is split and merged, but not that of a short window.
    wide = sum(isinstance(op, Attention) and not op.window for op in pair.other.graph.ops)
    assert len(pair.other.device.launches("step", 1, 1100)) == dispatches * layers + 2 + wide


@pytest.mark.parametrize(
    ("shapes", "biases"),
    [pytest.param("software", True, marks=pytest.mark.all), ("integers", False), ("subgroups", True)],
)
async def test_values_in_another_format_need_no_kernel_of_their_own(
    tmp_path: Path, host: WgpuHost, shapes: str, biases: bool
) -> None:
    formats = {"attn_q": "Q5_0", "attn_k": "Q5_0", "attn_v": "Q8_0" if biases else "F16"}
    tiny = replace(QUANTIZED["qwen2" if biases else "smollm3"], formats=formats)
    pair = await open_pair(tiny.write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    await pair.compare((1, 2, 45), 4)
    kernels = [launch.kernel for launch in pair.other.device.launches("step", 1, 100)]
    qkv = [kernel.name for kernel in kernels if kernel.name.startswith("qkv")]
    assert len(qkv) == tiny.config["num_hidden_layers"]
    assert all("+" in name for name in qkv)


async def test_kernels_bind_8_buffers_where_webgpu_promises_no_more(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "adapter", replace(host.adapter, max_storage_buffers=8))
    for model in ("phi3", "qwen3", "llama with biases of q and v"):
        pair = await open_pair(QUANTIZED[model].write(tmp_path / "tiny.gguf"), host, shapes=SUBGROUPS)
        kernels = [launch.kernel for m in (1, 5, 60) for launch in pair.other.device.launches("body", m, 2000)]
        assert max(len(kernel.bindings()) for kernel in kernels) == 8
        await pair.compare((1, 5, 60), 1)


def unusual(c: ModelConfig, g: Graph) -> None:
    """A made-up model: only queries rotate, values are keys, and a block's halves read one norm."""
    heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
    x = g.embedding("token_embd.weight", c.vocab_size, c.hidden_size, scale=3.0)
    for layer in range(c.num_hidden_layers):
        block = f"blk.{layer}"
        h = g.rms_norm(x, f"{block}.attn_norm.weight", c.rms_norm_eps)
        q, k, v = blocks.qkv(g, c, h, block)
        q = g.rope(q, heads, interleaved=False, rotation=c.rope)
        a = g.attention(layer, q, k, g.add(k, g.soft_cap(v, 2.0)), heads, kv_heads, 0.3, softcap=2.0, window=20)
        x = g.add(x, g.linear(a, f"{block}.attn_output", c.hidden_size))
        x = g.add(x, blocks.mlp(g, c, h, block, "gelu"))  # h is the norm of the earlier x
        x = g.add(x, g.linear(x, f"{block}.attn_output", c.hidden_size))
        x = g.add(g.rms_norm(x, f"{block}.ffn_norm.weight", c.rms_norm_eps), x)
        g.tap(f"residual.{layer + 1}", x)
    g.soft_cap(blocks.logits(g, c, x), 5.0)


def wide_norms(c: ModelConfig, g: Graph) -> None:
    """Nearly OLMo 2 (arXiv 2501.00656): norms of q and k over all heads, and of the added vectors, by the same
    weights."""
    heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
    x = g.embedding("token_embd.weight", c.vocab_size, c.hidden_size)
    for layer in range(c.num_hidden_layers):
        block = f"blk.{layer}"
        before, after = f"{block}.attn_norm.weight", f"{block}.ffn_norm.weight"
        q, k, v = blocks.qkv(g, c, x, block)
        q, k = g.rms_norm(q, before, c.rms_norm_eps), g.rms_norm(k, before, c.rms_norm_eps)
        q, k = (g.rope(one, heads, interleaved=False, rotation=c.rope) for one in (q, k))
        a = g.linear(g.attention(layer, q, k, v, heads, kv_heads, 0.3), f"{block}.attn_output", c.hidden_size)
        x = g.add(x, g.rms_norm(a, after, c.rms_norm_eps))
        x = g.add(x, g.rms_norm(blocks.mlp(g, c, x, block), after, c.rms_norm_eps))
    blocks.logits(g, c, x)


@pytest.mark.parametrize("shapes", [pytest.param("software", marks=pytest.mark.all), "subgroups"])
async def test_norms_over_all_heads_are_not_taken_for_norms_of_each(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch, shapes: str
) -> None:
    monkeypatch.setitem(ARCHITECTURES, "llama", wide_norms)
    path = TinyLlama(kv_heads=4).write(tmp_path / "tiny.gguf")
    await (await open_pair(path, host, shapes=SHAPES[shapes])).compare((1, 5, 70), 2)


@pytest.mark.parametrize("shapes", [pytest.param("software", marks=pytest.mark.all), "integers"])
async def test_a_graph_that_fits_no_pattern_runs(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch, shapes: str
) -> None:
    monkeypatch.setitem(ARCHITECTURES, "llama", unusual)
    pair = await open_pair(TinyLlama(layers=3).write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    assert fused_layers(pair.other.graph) == [False] * 3
    names = Counter(launch.kernel.name for launch in pair.other.device.launches("step", 1, 100))
    assert {name: names[name] for name in ("rope", "append", "add", "soft_cap")} == {
        "rope": 3, "append": 3, "add": 9, "soft_cap": 3,
    }  # fmt: skip
    await pair.compare((1, 5, 70), 2)


async def test_layers_that_fit_no_pattern_are_told(tmp_path: Path) -> None:
    header = await read_header(FileSource(TinyLlama(layers=3).write(tmp_path / "tiny.gguf")))
    _, graph = describe_model(header)
    assert fused_layers(graph) == [True] * 3
    rope = next(value for value in graph.ops if type(value).__name__ == "Rope" and graph.ops.index(value) > 20)
    graph.tap("a value inside of the second layer's attention", rope.out)
    assert fused_layers(graph) == [True, False, True]


@pytest.mark.parametrize(
    ("model", "shapes", "is_fused"),
    [
        ("gemma3", "hardware", True),
        ("phi3", "software", False),
        pytest.param("gemma3", "hardware", False, marks=pytest.mark.all),
        pytest.param("phi3", "software", True, marks=pytest.mark.all),
    ],
)
async def test_hidden_states_and_last_logits_equal_numpy(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch, model: str, shapes: str, is_fused: bool
) -> None:
    if not is_fused:
        monkeypatch.setattr(lowering, "fuse", unfused)
    pair = await open_pair(QUANTIZED[model].write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    ours, reference = await pair.prefilled(prompt(75))
    names = ["residual.1", "residual.3", "final_norm"]
    got = await pair.other.hidden(ours, names, 20)
    for name, expected in (await pair.numpy.hidden(reference, names, 20)).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max(), err_msg=name)
    expected = await pair.numpy.last_logits(reference, 5)
    rows = await pair.other.last_logits(ours, 5)
    np.testing.assert_allclose(rows, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


async def test_a_window_costs_what_it_lets_be_seen(tmp_path: Path, host: WgpuHost) -> None:
    model = QUANTIZED["gemma3"]
    backend = (await open_pair(model.write(tmp_path / "tiny.gguf"), host, shapes=HARDWARE)).other

    def moved(position: int) -> tuple[int, int]:
        costs = [launch.kernel.cost for launch in backend.device.launches("step", 1, 200)]
        return sum(cost.bytes(1, position) for cost in costs), sum(cost.flops(1, position) for cost in costs)

    # Position 10 sees 11 tokens; position 110 sees 111, or the 40 of the window in six of seven layers.
    tokens = (111 - 11) + 6 * (40 - 11)
    heads, kv_heads = model.config["num_attention_heads"], model.config["num_key_value_heads"]
    token = 8 * kv_heads * model.config["head_dim"], 4 * heads * model.config["head_dim"]
    assert [far - near for near, far in zip(moved(10), moved(110), strict=True)] == [tokens * each for each in token]


async def test_biases_in_another_format_are_named(tmp_path: Path, host: WgpuHost) -> None:
    source = FileSource(QUANTIZED["qwen2"].write(tmp_path / "tiny.gguf"))
    header = await read_header(source)
    config, graph = describe_model(header)
    name = "blk.1.attn_k.bias"
    tensors = {**header.tensors, name: replace(header.tensors[name], format=FORMATS["F16"])}
    with pytest.raises(
        BackendError, match=r"blk\.1\.attn_k\.bias is in F16; the GPU kernels read norms and biases in F32 only"
    ):
        await load_webgpu(host, source, replace(header, tensors=tensors), config, graph)
