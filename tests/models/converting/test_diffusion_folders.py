"""dLLM's folders: models that were made of others, with the same tensors, and a mask."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from app.models.converting.converter import convert_folder
from py_core.formats.gguf import GGUFError
from py_core.formats.source import FileSource
from py_core.loading import read_description
from py_core.models.diffusion import Diffusion
from tests.models.converting.folders import BYTE_CONFIG, FOLDERS, Folder, added, byte_level

MASK = 287
BASES = {case.name: case for case in FOLDERS}


def folder_of(name: str, base: str, architecture: str, **config: object) -> Folder:
    """A folder with the tensors and settings of `base`, under another architecture, and a mask among its tokens."""
    case, tokenizer = BASES[base], byte_level("qwen2")
    tokenizer["added_tokens"].append(added(MASK, "<|mask|>"))
    return Folder(
        name, {**case.config, "architectures": [architecture], **config}, tokenizer,
        {**BYTE_CONFIG, "mask_token": "<|mask|>"}, case.dtype, biases=case.biases, head_norms=case.head_norms,
    )  # fmt: skip


CASES = [
    (folder_of("Coder-bd3lm-v0.1", "qwen2", "A2DQwen2LMHeadModel"), None, Diffusion(MASK, 32, False)),
    (folder_of("Coder-mdlm", "qwen2", "A2DQwen2LMHeadModel"), None, Diffusion(MASK, 0, False)),
    (folder_of("Qwen3-bd3lm", "qwen3", "A2DQwen3LMHeadModel"), 8, Diffusion(MASK, 8, False)),
    (folder_of("Dream", "qwen2", "DreamModel", mask_token_id=MASK), None, Diffusion(MASK, 0, True)),
]


def silent(done: int, total: int) -> None:
    pass


@pytest.mark.parametrize(("folder", "block", "expected"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_a_folder_says_how_its_model_writes(
    folder: Folder, block: int | None, expected: Diffusion, tmp_path: Path
) -> None:
    out = tmp_path / "made.gguf"
    convert_folder(folder.write(tmp_path), out, silent, block)
    header, config, _ = asyncio.run(read_description(FileSource(out), None, lambda *_: None))
    assert config.diffusion == expected
    # The tensors, which the random numbers of a folder's name fill, are those of the base under the same names.
    base = Folder(folder.name, BASES["qwen3" if folder.head_norms else "qwen2"].config, byte_level("qwen2"),
                  dtype=folder.dtype, biases=folder.biases, head_norms=folder.head_norms)  # fmt: skip
    convert_folder(base.write(tmp_path / "base"), tmp_path / "base.gguf", silent)
    plain, _, _ = asyncio.run(read_description(FileSource(tmp_path / "base.gguf"), None, lambda *_: None))
    assert header.tensors.keys() == plain.tensors.keys()
    for name, info in header.tensors.items():
        other = plain.tensors[name]
        ours, theirs = (
            np.fromfile(path, np.uint8, one.nbytes, offset=one.offset)
            for path, one in ((out, info), (tmp_path / "base.gguf", other))
        )
        assert np.array_equal(ours, theirs), name


def test_a_file_without_a_mask_is_refused_with_a_sentence(tmp_path: Path) -> None:
    case, out = BASES["qwen2"], tmp_path / "made.gguf"
    config = {**case.config, "architectures": ["A2DQwen2LMHeadModel"]}
    folder = Folder("Coder-mdlm", config, byte_level("qwen2"), biases=case.biases)
    convert_folder(folder.write(tmp_path), out, silent)
    with pytest.raises(GGUFError, match="which token is its mask"):
        asyncio.run(read_description(FileSource(out), None, lambda *_: None))
