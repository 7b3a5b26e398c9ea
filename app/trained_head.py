"""The router's head as it was trained further: what is kept of it, and the head again."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.routing.head import Head


def head_base(head: Head, fingerprint: str) -> str:
    """Names a head and the embedder whose vectors it reads: what was trained of another one does not fit."""
    digest = hashlib.sha256(f"{fingerprint} {' '.join(head.agents)}".encode())
    for part in (head.rarity, head.words, head.dense):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:32]


def head_data(shipped: Head, head: Head) -> bytes:
    """The changes of a head's weights, in float16: 0.24 MB."""
    changes = {"words": head.words - shipped.words, "dense": head.dense - shipped.dense}
    return write_safetensors({name: change.astype(np.float16) for name, change in changes.items()})


def trained_head(shipped: Head, data: bytes) -> Head | None:
    """The head that `head_data` was made of, as it is rounded; None where the data do not fit."""
    try:
        arrays, _ = read_safetensors(data)
    except SafetensorsError:
        return None
    words, dense = arrays.get("words"), arrays.get("dense")
    for change, own in ((words, shipped.words), (dense, shipped.dense)):
        if change is None or change.shape != own.shape or not np.isfinite(change).all():
            return None
    return replace(shipped, words=shipped.words + words, dense=shipped.dense + dense)
