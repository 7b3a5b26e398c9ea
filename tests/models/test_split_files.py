"""A model in several files is opened by any of them, and errors in its parts are reported."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import numpy as np
import pytest

from app.generation.completion import last_logits
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.gguf import GGUFError, read_header
from py_core.formats.source import FileSource, open_source
from py_core.loading import load_model
from py_core.models.registry import describe_model
from tests.formats.split_gguf import split_gguf


@pytest.fixture
def parts(tiny_path: Path, tmp_path: Path) -> list[Path]:
    return split_gguf(tiny_path, tmp_path, 3)


@pytest.mark.parametrize("opened", [0, 1, 2])
async def test_the_model_is_the_same_whichever_part_is_opened(tiny_path: Path, parts: list[Path], opened: int) -> None:
    whole, source = FileSource(tiny_path), open_source(parts[opened])
    expected, header = await read_header(whole), await read_header(source)
    assert describe_model(header)[0] == describe_model(expected)[0]
    assert list(header.tensors) == list(expected.tensors)
    for name, info in header.tensors.items():
        other = expected.tensors[name]
        assert (info.shape, info.format) == (other.shape, other.format)
        assert await source.read(info.offset, info.nbytes) == await whole.read(other.offset, other.nbytes)
    assert header.end_offset <= source.size


async def test_its_logits_are_those_of_the_whole_file(tiny_path: Path, parts: list[Path]) -> None:
    logits = []
    for source in (FileSource(tiny_path), open_source(parts[0])):
        model = await load_model(source, load_numpy, native_renderer())
        logits.append(await last_logits(model, "Hello", raw=True))
        model.close()
    np.testing.assert_array_equal(*logits)


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(FileNotFoundError) as error:
        open_source(parts[0])
    assert str(error.value) == (
        f"Part 2 of 3 of this model is missing: put model-00002-of-00003.gguf into the folder {parts[0].parent}."
    )


async def test_a_part_under_another_name_asks_for_the_others(parts: list[Path], tmp_path: Path) -> None:
    alone = parts[0].rename(tmp_path / "alone.gguf")
    with pytest.raises(GGUFError, match=r"one of the 3 files of a model\. Keep the names"):
        await read_header(open_source(alone))


async def test_parts_in_the_wrong_order_are_refused(parts: list[Path], tmp_path: Path) -> None:
    parts[1].rename(tmp_path / "second")
    parts[2].rename(parts[1])
    (tmp_path / "second").rename(parts[2])
    with pytest.raises(GGUFError, match=r"model-00002-of-00003\.gguf is not part 2 of 3 of this model"):
        await read_header(open_source(parts[0]))


def test_parts_of_different_models_are_refused(parts: list[Path], write_model, tmp_path: Path) -> None:
    larger = split_gguf(write_model(layers=3), tmp_path, 3, "other")
    larger[1].rename(parts[1])
    with pytest.raises(GGUFError, match=r"has the tensor .* of another part|they do not belong to one model"):
        asyncio.run(read_header(open_source(parts[0])))


async def test_a_truncated_part_names_its_missing_tensor(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-200])
    with pytest.raises(GGUFError, match="truncated"):
        await read_header(open_source(parts[0]))


def test_a_tensor_beyond_four_gigabytes_is_read_where_it_lies(tmp_path: Path) -> None:
    path, far = tmp_path / "large.gguf", 5 << 30
    index = b"".join(
        struct.pack("<Q", 1) + name + struct.pack("<IQIQ", 1, size, 0, offset)
        for name, size, offset in ((b"a", 1 << 30, 0), (b"b", 8, far))
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + index
    values = np.arange(8, dtype=np.float32)
    with open(path, "wb") as file:  # the disk uses no space for the gap
        file.write(head)
        start = -(-len(head) // 32) * 32 + far
        file.seek(start)
        file.write(values.tobytes())
    source = open_source(path)
    info = asyncio.run(read_header(source)).tensors["b"]
    assert info.offset == start > 1 << 32
    np.testing.assert_array_equal(np.frombuffer(source.view(info.offset, info.nbytes), np.float32), values)


def test_a_name_that_only_looks_like_a_part_is_a_file(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00001.gguf"
    path.write_bytes(tiny_path.read_bytes())
    assert asyncio.run(read_header(open_source(path))).tensors
