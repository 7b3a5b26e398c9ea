"""`sonata quantize`: formats that llama.cpp would choose, unchanged metadata, and no leftover file after a failure."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
from gguf import quants

from app.generation.completion import last_logits
from app.models import quantization
from app.models.quantization import quantize_file
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.format_choice import choose_formats
from py_core.formats.gguf import GGUFHeader, TensorInfo, read_header
from py_core.formats.quantization import FORMATS, dequantize
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.cli.command_line import SONATA, assert_sentence, printed, sonata
from tests.formats.split_gguf import split_gguf


def header_of(path: Path) -> GGUFHeader:
    return asyncio.run(read_header(FileSource(path)))


def model_of(layers: int, columns: int = 256, tied: bool = False, values: str = "attn_v") -> dict[str, TensorInfo]:
    """The tensors of a model whose matrices are `columns` wide, F32, in no particular order."""
    names = {
        f"blk.{layer}.{name}.weight" for layer in range(layers) for name in ("attn_q", values, "ffn_down", "ffn_up")
    }
    names |= {"token_embd.weight"} if tied else {"token_embd.weight", "output.weight"}
    shapes = dict.fromkeys(sorted(names), (64, columns)) | {
        "output_norm.weight": (columns,),
        "blk.0.attn_q.bias": (64,),
    }
    return {name: TensorInfo(name, shape, FORMATS["F32"], 0, 0) for name, shape in shapes.items()}


def layers_in(tensors: dict[str, TensorInfo], mixture: str, name: str, form: str) -> list[int]:
    chosen = choose_formats(tensors, mixture)
    return sorted(int(key.split(".")[1]) for key, one in chosen.items() if f".{name}." in key and one.name == form)


@pytest.mark.parametrize(("mixture", "base"), [("Q4_K_M", "Q4_K"), ("Q5_K_M", "Q5_K")])
@pytest.mark.parametrize("values", ["attn_v", "attn_qkv"])
def test_the_outer_layers_and_every_third_get_more_bits(mixture: str, base: str, values: str) -> None:
    tensors = model_of(16, values=values)
    chosen = choose_formats(tensors, mixture)
    more = [0, 1, 4, 7, 10, 13, 14, 15]
    assert layers_in(tensors, mixture, values, "Q6_K") == layers_in(tensors, mixture, "ffn_down", "Q6_K") == more
    assert {chosen[f"blk.{layer}.{name}.weight"].name for layer in range(16) for name in ("attn_q", "ffn_up")} == {base}
    assert (chosen["output.weight"].name, chosen["token_embd.weight"].name) == ("Q6_K", base)
    assert {chosen["output_norm.weight"].name, chosen["blk.0.attn_q.bias"].name} == {"F32"}


def test_an_embedding_that_is_the_output_too_is_kept_as_one() -> None:
    assert choose_formats(model_of(2, tied=True), "Q4_K_M")["token_embd.weight"].name == "Q6_K"
    assert choose_formats(model_of(2, tied=True), "Q8_0")["token_embd.weight"].name == "Q8_0"


@pytest.mark.parametrize(
    ("mixture", "columns", "usual", "more", "output"),
    [
        ("Q4_K_M", 576, "Q5_0", "Q8_0", "Q8_0"), ("Q5_K_M", 576, "Q5_1", "Q8_0", "Q8_0"),
        ("Q8_0", 576, "Q8_0", "Q8_0", "Q8_0"), ("Q4_K_M", 80, "F16", "F16", "F16"), ("Q8_0", 80, "F16", "F16", "F16"),
    ],
)  # fmt: skip
def test_rows_that_are_no_whole_blocks_get_another_format(mixture, columns, usual, more, output) -> None:
    chosen = choose_formats(model_of(16, columns), mixture)
    assert chosen["blk.2.ffn_up.weight"].name == usual
    assert chosen["blk.0.ffn_down.weight"].name == more
    assert chosen["output.weight"].name == output


@pytest.mark.parametrize("mixture", ["Q8_0", "mixed"])
@pytest.mark.parametrize("name", ["shortconv.conv", "ssm_conv1d", "ffn_gate_inp"])
def test_convolutions_and_routers_stay_in_float32(mixture: str, name: str) -> None:
    kept = TensorInfo(f"blk.0.{name}.weight", (256, 256), FORMATS["F32"], 0, 0)
    assert choose_formats({kept.name: kept, **model_of(2)}, mixture)[kept.name].name == "F32"


def test_last_matrices_of_experts_get_as_many_bits_as_those_of_an_mlp() -> None:
    tensors = model_of(16)
    for layer in range(16):
        name = f"blk.{layer}.ffn_down_exps.weight"
        tensors[name] = TensorInfo(name, (4, 64, 256), FORMATS["F32"], 0, 0)
        del tensors[f"blk.{layer}.ffn_down.weight"]
    assert layers_in(tensors, "Q4_K_M", "ffn_down_exps", "Q6_K") == [0, 1, 4, 7, 10, 13, 14, 15]


def test_mixed_keeps_attention_in_halves_and_the_mlp_in_four_bits() -> None:
    chosen = choose_formats(model_of(2), "mixed")
    assert {chosen[f"blk.0.{name}.weight"].name for name in ("attn_q", "attn_v")} == {"F16"}
    assert {chosen[f"blk.0.{name}.weight"].name for name in ("ffn_up", "ffn_down")} == {"Q4_K"}


@pytest.fixture(scope="module")
def quantized(write_model, tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """A model of floats, and each mixture's result: (model, made) by mixture."""
    path = write_model(hidden=256, ffn=512, formats=("F32",), embedding_format="F16", tied=False)
    folder = tmp_path_factory.mktemp("quantized")
    made = {}
    for mixture in ("Q4_K_M", "Q5_K_M", "Q8_0", "mixed"):
        out = folder / f"{mixture}.gguf"
        quantize_file(path, out, mixture, lambda done, total: None)
        made[mixture] = (path, out)
    return made


def test_the_command_says_which_formats_it_wrote(quantized, tmp_path: Path) -> None:
    path, made = quantized["Q4_K_M"]
    said = printed(sonata("quantize", path, tmp_path / "out.gguf", "--type", "Q4_K_M"))
    assert (tmp_path / "out.gguf").read_bytes() == made.read_bytes()
    tensors = header_of(made).tensors.values()
    for name in {info.format.name for info in tensors}:
        count = sum(info.format.name == name for info in tensors)
        assert re.search(rf"{name} +│ {count} ", said), said


@pytest.mark.parametrize(("mixture", "file_type"), [("Q4_K_M", 15), ("Q5_K_M", 17), ("Q8_0", 7), ("mixed", 15)])
def test_ggmls_own_reader_reads_the_file(quantized, mixture: str, file_type: int) -> None:
    path, out = quantized[mixture]
    before, after = gguf.GGUFReader(path), gguf.GGUFReader(out)
    kept = {name: field for name, field in before.fields.items() if not name.startswith("GGUF.")}
    for name, field in kept.items():
        assert after.fields[name].types == field.types, name
        assert after.fields[name].contents() == field.contents(), name
    added = set(after.fields) - set(before.fields)
    assert added == {"general.file_type", "general.quantization_version"}
    assert after.fields["general.file_type"].contents() == file_type
    assert after.fields["general.quantization_version"].contents() == 2
    formats = choose_formats(header_of(path).tensors, mixture)
    originals = {tensor.name: tensor for tensor in before.tensors}
    assert [tensor.name for tensor in after.tensors] == list(originals)
    for tensor in after.tensors:
        assert tensor.tensor_type.name == formats[tensor.name].name
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        exact = quants.dequantize(originals[tensor.name].data, originals[tensor.name].tensor_type)
        assert np.linalg.norm(values - exact) < 0.09 * np.linalg.norm(exact)


@pytest.mark.parametrize("mixture", ["Q4_K_M", "mixed"])
async def test_the_small_model_says_nearly_what_the_large_one_does(quantized, mixture: str) -> None:
    logits = []
    for path in quantized[mixture]:
        model = await load_model(FileSource(path), load_numpy, native_renderer())
        logits.append(await last_logits(model, "Hello", raw=True))
        model.close()
    large, small = logits
    assert large @ small > 0.9 * np.linalg.norm(large) * np.linalg.norm(small)


def test_a_tensor_that_is_in_its_format_already_is_not_touched(quantized, tmp_path: Path) -> None:
    made = quantized["Q8_0"][1]
    quantize_file(made, tmp_path / "again.gguf", "Q8_0", lambda done, total: None)
    assert (tmp_path / "again.gguf").read_bytes() == made.read_bytes()


def test_parts_become_one_file(quantized, tmp_path: Path) -> None:
    path, made = quantized["Q4_K_M"]
    first = split_gguf(path, tmp_path, 3)[0]
    quantize_file(first, tmp_path / "whole.gguf", "Q4_K_M", lambda done, total: None)
    whole, expected = header_of(tmp_path / "whole.gguf"), header_of(made)
    assert not [key for key in whole.metadata if key.startswith("split.")]
    assert whole.tensors == expected.tensors
    assert (tmp_path / "whole.gguf").read_bytes() == made.read_bytes()


def test_weights_that_were_quantized_before_are_told(quantized, tmp_path: Path) -> None:
    said = sonata("quantize", quantized["Q5_K_M"][1], tmp_path / "out.gguf", "--type", "Q4_K_M")
    assert "Weights in Q5_K were quantized already, so their precision does not come back." in " ".join(
        said.stderr.split()
    )
    assert quantize_file(quantized["Q8_0"][0], tmp_path / "new.gguf", "Q8_0", lambda done, total: None).again == []


def test_progress_ends_with_all_weights(quantized, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(quantization, "_SLAB", 16384)
    path, made = quantized["Q4_K_M"]
    seen: list[tuple[int, int]] = []
    quantize_file(path, tmp_path / "out.gguf", "Q4_K_M", lambda done, total: seen.append((done, total)))
    weights = sum(int(np.prod(info.shape)) for info in header_of(path).tensors.values())
    assert seen[-1] == (weights, weights)
    assert seen == sorted(seen)
    assert len(seen) > 50
    assert (tmp_path / "out.gguf").read_bytes() == made.read_bytes()


def test_a_file_that_is_there_is_not_written_over(quantized) -> None:
    path, out = quantized["Q8_0"]
    before = out.read_bytes()
    assert_sentence(sonata("quantize", path, out, "--type", "Q8_0"), "There is already a file", "choose another name")
    with pytest.raises(FileExistsError, match="There is already a file"):
        quantize_file(path, path, "Q8_0", lambda done, total: None)
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "out", "said"),
    [
        ("no.gguf", "out.gguf", "This is not a GGUF file"),
        ("nothing.gguf", "out.gguf", r"nothing\.gguf"),
        (
            "model-00002-of-00002.gguf",
            "out.gguf",
            r"Part 1 of 2 of this model is missing: put model-00001-of-00002\.gguf",
        ),
        ("no.gguf", "folder/out.gguf", "There is no folder"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, source: str, out: str, said: str) -> None:
    (tmp_path / "no.gguf").write_bytes(b"hello, this is not a model")
    with pytest.raises((ValueError, OSError), match=said):
        quantize_file(tmp_path / source, tmp_path / out, "Q8_0", lambda done, total: None)
    assert [path.name for path in tmp_path.iterdir()] == ["no.gguf"]


def test_a_disk_without_room_is_told_before_anything_is_written(quantized, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    with pytest.raises(OSError, match=r"takes 0\.00 GB, and the disk has 0\.00 GB left: make room"):
        quantize_file(quantized["Q8_0"][0], tmp_path / "out.gguf", "Q8_0", lambda done, total: None)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_stops_taking_bytes_leaves_no_file(quantized, tmp_path: Path) -> None:
    limit = (100_000, 100_000)
    no_bytecode = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # cut off, it would break every later start
    ran = subprocess.run(
        [SONATA, "quantize", quantized["Q8_0"][0], tmp_path / "out.gguf", "--type", "Q8_0"], env=no_bytecode,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert_sentence(ran, "out.gguf could not be written (File too large), and nothing of it is left.")
    assert not list(tmp_path.iterdir())


def test_weights_without_a_number_are_named_and_leave_no_file(write_model, tmp_path: Path) -> None:
    path = write_model(formats=("F32",), embedding_format="F16")
    info = header_of(path).tensors["blk.1.attn_k.weight"]
    damaged = bytearray(path.read_bytes())
    damaged[info.offset : info.offset + 4] = b"\x00\x00\xc0\x7f"
    (tmp_path / "damaged.gguf").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"blk\.1\.attn_k\.weight cannot be stored in Q5_0: NaN and infinity"):
        quantize_file(tmp_path / "damaged.gguf", tmp_path / "out.gguf", "Q4_K_M", lambda done, total: None)
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.gguf"]


def test_values_survive_a_quantization_as_the_formats_allow(quantized) -> None:
    path, out = quantized["Q8_0"]
    source, header = FileSource(out), header_of(out)
    info, was = header.tensors["blk.0.ffn_up.weight"], header_of(path).tensors["blk.0.ffn_up.weight"]
    values = dequantize(source.view(info.offset, info.nbytes), info.format, info.shape)
    exact = np.frombuffer(FileSource(path).view(was.offset, was.nbytes), np.float32).reshape(was.shape)
    rounding = 1 / 254 + 1 / 2048  # of values, and of a scale, which is a half
    assert np.abs(values - exact).max() <= np.abs(exact).max() * rounding
