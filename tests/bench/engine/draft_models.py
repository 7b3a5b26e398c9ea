"""Writes GGUF files that are a model and a draft for it, if only one real model is there.

    python -m tests.bench draft_models OUT.gguf [--model FILE] [--format F16] [--keep N] [--empty N]

--format brings all matrices to a format: a draft in few bits is often, not always, right. --keep N keeps only
the first N blocks: a draft that is fast and seldom right. --empty N appends N blocks whose output matrices are zero:
the model's answers stay the same, and a pass takes as long as that of a larger model.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np

from app.models.downloads import default_model_path
from py_core.formats.format_choice import fitting, is_quantized
from py_core.formats.gguf import read_header
from py_core.formats.gguf_writer import StoredTensor, write_gguf
from py_core.formats.quantization import FORMATS, BlockFormat, dequantize
from py_core.formats.source import FileSource
from tests.bench.reporting import options_of

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_OUTPUTS = ("attn_output.weight", "ffn_down.weight")
"""The matrices whose outputs a block adds to the residual stream."""


async def write(path: Path, out: Path, form: BlockFormat | None, keep: int | None, empty: int) -> None:
    source = FileSource(path)
    header = await read_header(source)
    metadata: dict[str, Any] = {
        key: value if isinstance(value, str | int | float | bool | list) else np.asarray(value).tolist()
        for key, value in header.metadata.items()
    }
    count_key = f"{metadata['general.architecture']}.block_count"
    blocks = min(metadata[count_key], keep or metadata[count_key])
    tensors: dict[str, tuple[np.ndarray, BlockFormat] | StoredTensor] = {}
    for name, info in header.tensors.items():
        block = _BLOCK.fullmatch(name)
        if block and int(block[1]) >= blocks:
            continue
        data = bytes(source.view(info.offset, info.nbytes))
        wanted = fitting(form, info.shape[-1]) if form and is_quantized(info) else info.format
        if wanted == info.format:
            tensors[name] = StoredTensor(info.shape, info.format, lambda data=data: [data])  # type: ignore[misc]
        else:
            tensors[name] = dequantize(data, info.format, info.shape), wanted
        if block and int(block[1]) == 0:
            for number in range(blocks, blocks + empty):
                values = dequantize(data, info.format, info.shape)
                scale = 0.0 if block[2] in _OUTPUTS else 1.0
                tensors[f"blk.{number}.{block[2]}"] = (values * scale).astype(np.float32), wanted
    metadata[count_key] = blocks + empty
    write_gguf(out, metadata, tensors)


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--format", choices=FORMATS)
    parser.add_argument("--keep", type=int)
    parser.add_argument("--empty", type=int, default=0)
    options = parser.parse_args()
    form = FORMATS[options.format] if options.format else None
    asyncio.run(write(options.model or default_model_path(), options.out, form, options.keep, options.empty))
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.0f} MB")
