"""The WebGPU backend against the numpy reference, on tiny models in every format and kernel shape."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path

import numpy as np
import pytest

from py_core.backend_errors import BackendError
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost, wgpu
from py_core.backends.webgpu.kernel_shapes import choose_shapes
from py_core.backends.webgpu.weights.layout import LAYOUTS
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from tests.backends.backend_pairs import MODELS, collect, open_pair, prompt
from tests.backends.variants import gated
from tests.backends.webgpu.gpu_shapes import HARDWARE, INTEGERS, SHAPES
from tests.tiny.llama import TinyLlama

# Each model as this machine's adapter would run it or as a GPU would, and models with every format in all ways.
WAYS = [
    (model, "integers" if at % 2 else "software") for at, model in enumerate(MODELS) if not model.startswith("mixed")
]
WAYS += [("mixed", shapes) for shapes in SHAPES] + [("mixed few bits", "hardware"), ("mixed k", "subgroups")]
# In the gate: every format and every kind of shapes, and a number of heads that is not a power of two.
IN_GATE = [
    ("mixed", "software"), ("mixed", "integers"), ("mixed", "some"), ("mixed few bits", "hardware"),
    ("mixed k", "subgroups"), ("q8_0 odd heads", "software"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "shapes"), gated(WAYS, lambda way: way in IN_GATE))
async def test_logits_equal_numpy_for_passes_of_every_size(tmp_path: Path, host: WgpuHost, model, shapes) -> None:
    pair = await open_pair(MODELS[model].write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    for length in (1, 5, 70, 9, 33):
        for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
            await backend.prefill(sequence, prompt(length, seed=length))
        expected = await pair.numpy.logits(reference)
        np.testing.assert_allclose(
            await pair.other.logits(ours), expected, rtol=1e-3, atol=2e-4 * np.abs(expected).max()
        )


@pytest.mark.parametrize("shapes", gated(SHAPES, lambda shapes: shapes in ("software", "integers")))
async def test_hidden_states_and_several_rows_of_logits_equal_numpy(tmp_path: Path, host: WgpuHost, shapes) -> None:
    pair = await open_pair(MODELS["mixed"].write(tmp_path / "tiny.gguf"), host, shapes=SHAPES[shapes])
    ours, reference = await pair.prefilled(prompt(75))
    names = ["residual.1", "final_norm", "residual.2"]
    states = await pair.other.hidden(ours, names, 4)
    for name, expected in (await pair.numpy.hidden(reference, names, 4)).items():
        np.testing.assert_allclose(states[name], expected, rtol=1e-3, atol=2e-4 * np.abs(expected).max())
    for rows in (8, 3, 1):
        expected = await pair.numpy.last_logits(reference, rows)
        logits = await pair.other.last_logits(ours, rows)
        np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=2e-4 * np.abs(expected).max())


async def test_reading_hidden_states_leaves_decoding_as_it_was(tmp_path: Path, host: WgpuHost) -> None:
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host, shapes=HARDWARE)
    backend, (ours, _) = pair.other, await pair.prefilled(prompt(5))

    def lists() -> list[int]:
        wanted = (("step", 1), ("argmax", 1), ("body", 5), ("head", 1))
        return [len(backend.device.launches(name, m, 100)) for name, m in wanted]

    # A block takes five dispatches; the embedding, the logits and the sampler come on top.
    assert lists() == [5 * 2 + 2, 1, 5 * 2 + 1, 1]
    await backend.hidden(ours, ["residual.1", "final_norm"])
    await backend.last_logits(ours, 3)
    assert lists() == [5 * 2 + 2, 1, 5 * 2 + 1, 1]


@pytest.mark.all  # in the gate, the blocks of a tiny model have the same number of dispatches
async def test_a_decode_step_of_smollm2_is_152_dispatches_and_its_sampler(model_path: Path, host: WgpuHost) -> None:
    source = FileSource(model_path)
    header = await read_header(source)
    config, graph = describe_model(header)
    backend = await load_webgpu(host, source, header, config, graph, shapes=INTEGERS)
    counts = {name: len(backend.device.launches(name, 1, 100)) for name in ("step", "argmax", "sample", "penalties")}
    assert counts == {"step": 30 * 5 + 2, "argmax": 1, "sample": 1, "penalties": 1}
    # Beyond 1,024 tokens attention is split, and merged by a dispatch of its own.
    assert len(backend.device.launches("step", 1, 1025)) == 30 * 6 + 2


async def test_a_sequence_is_split_when_it_gets_long(tmp_path: Path, host: WgpuHost) -> None:
    pair = await open_pair(TinyLlama(context=2304).write(tmp_path / "tiny.gguf"), host, shapes=HARDWARE)
    text = prompt(1100)
    ours, reference = await pair.prefilled(text[: SHORT - 6])
    # Decode steps over the borders at 1,024 and 2,048 tokens; few rows and many in between.
    for then in (7, SHORT - 34, 7):
        assert await collect(pair.other, ours, 20) == await collect(pair.numpy, reference, 20)
        for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
            await backend.prefill(sequence, text[:then])
    assert ours.length > 2 * SHORT
    expected = await pair.numpy.logits(reference)
    np.testing.assert_allclose(await pair.other.logits(ours), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.all  # it grows also while a sequence is split
async def test_the_pool_of_pages_grows_and_keeps_what_it_held(tmp_path: Path, host: WgpuHost) -> None:
    path = TinyLlama(context=2048, layers=1).write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, host, shapes=dataclasses.replace(HARDWARE, max_rows=256))
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    text = prompt(1500)  # the pool starts with room for 1024 tokens
    for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
        await backend.prefill(sequence, text[:900])
        await backend.prefill(sequence, text[900:])
    expected = await pair.numpy.logits(reference)
    np.testing.assert_allclose(await pair.other.logits(ours), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert await collect(pair.other, ours, 8) == await collect(pair.numpy, reference, 8)


async def test_a_matrix_larger_than_one_binding_is_cut_into_parts(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyLlama(tied=False).write(tmp_path / "tiny.gguf")
    # The table of 259 rows of 64 bytes does not fit; the other matrices do.
    monkeypatch.setattr(host, "adapter", dataclasses.replace(host.adapter, max_binding_size=8192))
    pair = await open_pair(path, host, shapes=dataclasses.replace(choose_shapes(host.adapter, 16), max_rows=8))
    rows = [(part.first_row, part.rows) for part in pair.other.device.arena.place(["output.weight"]).parts]
    assert rows == [(0, 128), (128, 128), (256, 3)]
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
        await backend.prefill(sequence, [0, 100, 121, 240, 258])
    expected = await pair.numpy.logits(reference)
    np.testing.assert_allclose(await pair.other.logits(ours), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


async def test_a_weight_that_cannot_be_bound_is_named(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TinyLlama().write(tmp_path / "tiny.gguf")
    monkeypatch.setattr(host, "adapter", dataclasses.replace(host.adapter, max_binding_size=2048))
    with pytest.raises(BackendError, match=r"blk\.0\.\w+\.weight is larger than this GPU can bind"):
        await open_pair(path, host)


async def test_a_format_without_a_layout_is_named(host, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delitem(LAYOUTS, "Q6_K")  # like a format that only numpy supports so far
    model = TinyLlama(hidden=256, formats=("F32", "F32", "Q6_K", "F32", "F32", "F32", "F32"))
    with pytest.raises(BackendError, match=r"blk\.0\.attn_v\.weight is in Q6_K; the GPU kernels read only .* Q5_K\."):
        await open_pair(model.write(tmp_path / "tiny.gguf"), host)


async def test_norms_in_another_format_are_named(host, tmp_path: Path) -> None:
    path = TinyLlama(norm_format="F16").write(tmp_path / "tiny.gguf")
    with pytest.raises(
        BackendError, match=r"blk\.0\.attn_norm\.weight is in F16; the GPU kernels read norms and biases in F32"
    ):
        await open_pair(path, host)


async def test_the_first_token_is_no_measure_of_a_step(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling starts from known logits: a batch that is long enough for a fast GPU would keep a slow one busy for a
    minute."""
    lengths = list[int]()
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    sequence, _ = await pair.prefilled(prompt(5))
    submit = host.submit
    monkeypatch.setattr(host, "submit", lambda recorded: (lengths.append(len(recorded)), submit(recorded)))
    await collect(pair.other, sequence, 20)
    assert lengths[:3] == [1, 2, 2]


async def test_a_closed_device_says_what_to_do(tmp_path: Path) -> None:
    host = WgpuHost()
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    sequence = pair.other.new_sequence()
    pair.other.close()
    with pytest.raises(BackendError, match="Load the model again"):
        await pair.other.prefill(sequence, prompt(5))


async def test_a_host_that_was_used_and_closed_leaves_nothing_with_the_driver(host: WgpuHost, tmp_path: Path) -> None:
    """A leftover object would hold the device, with all kernels that were compiled for it."""

    def left() -> dict[str, int]:
        gc.collect()
        counts = wgpu.diagnostics.wgpu_native_counts.get_dict()
        return {name: counts[name]["count"] for name in ("Device", "CommandBuffer", "Buffer", "ComputePipeline")}

    before, path = left(), TinyLlama().write(tmp_path / "tiny.gguf")
    for loses in (False, True):
        opened = WgpuHost()
        pair = await open_pair(path, opened)
        sequence = pair.other.new_sequence()
        await pair.other.prefill(sequence, prompt(40))
        if loses:
            opened._device.destroy()
        assert len(await collect(pair.other, sequence, 10)) == 10
        pair.other.close()
        del opened, pair, sequence
    after = left()
    assert all(after[name] <= before[name] for name in before), (before, after)
