"""A model of some gigabytes, for tests of its header: its weights are a hole in the file."""

from __future__ import annotations

import os
from pathlib import Path

from py_core.formats.gguf_writer import StoredTensor, write_gguf
from py_core.formats.quantization import FORMATS
from tests.tiny.llama import TinyLlama
from tests.tiny.models import metadata, tensors


def write_large(path: Path, form: str = "Q8_0", layers: int = 48) -> Path:
    """A model of 4.8 billion weights (5.1 GB as Q8_0) with matrices of one format."""
    shape = TinyLlama(hidden=2560, heads=20, kv_heads=4, ffn=9728, layers=layers, context=8192)
    stored = {
        tensor.gguf_name: StoredTensor(tensor.shape, FORMATS[form if tensor.is_matrix else "F32"], list)
        for tensor in tensors(shape)
    }
    write_gguf(path, metadata(shape) | {"general.name": "large"}, stored)
    os.truncate(path, path.stat().st_size + sum(tensor.nbytes for tensor in stored.values()))
    return path
