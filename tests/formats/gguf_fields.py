"""GGUF files put together field by field, so that each field can be wrong."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np

from py_core.formats.gguf import write_gguf
from py_core.formats.quantization import FORMATS

U32, STRING, ARRAY = 4, 8, 9
GGML_F32 = 0


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(encoded)) + encoded


def key_value(key: str | bytes, value_type: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", value_type) + payload


def tensor(name: str, dims: tuple[int, ...], ggml_type: int = GGML_F32, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, ggml_type, offset)


def gguf(
    keys: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
    magic: bytes = b"GGUF",
    version: int = 3,
) -> bytes:
    """A file of these fields, each already in bytes."""
    head = magic + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data if data else head


def small_gguf() -> bytes:
    """A file with a tensor of every format and a value of every kind."""
    rng = np.random.default_rng(0)
    metadata = {
        "general.architecture": "llama",
        "tokens": ["a", "é", "", "漢字", "😀"] * 4,
        "scores": [0.5, -1.0],
        "types": [1, 2, -3],
        "flags": [True, False],
        "big": 1 << 40,
        "tied": True,
        "eps": 1e-5,
        "bytes": np.arange(9, dtype=np.uint8),
    }
    tensors = {name: (rng.normal(size=(1, 256)).astype(np.float32), fmt) for name, fmt in FORMATS.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"
        write_gguf(path, metadata, tensors)
        return path.read_bytes()
