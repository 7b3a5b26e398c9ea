"""The encoder natively: the ONNX file in onnxruntime, on the CPU."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import numpy as np
import onnxruntime

from py_core.routing.embedder import DIMENSIONS, EmbedderError


class OnnxEncoder:
    """See Encoder. Texts run one after the other, in a thread, so that the event loop goes on."""

    def __init__(
        self, path: str | os.PathLike[str], fingerprint: str, meaning_fingerprint: str, threads: int = 1
    ) -> None:
        """Raises EmbedderError when the file is missing or damaged."""
        self.fingerprint = fingerprint
        self.meaning_fingerprint = meaning_fingerprint
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no common class
            raise EmbedderError(
                f"The embedding model {os.fspath(path)} cannot be opened ({str(error).splitlines()[0][:200]}): "
                "run `python build.py site` to make it again."
            ) from error

    async def encode(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        return await asyncio.to_thread(self._encode, texts)

    def _encode(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        out = np.empty((len(texts), DIMENSIONS), np.float32)
        for row, ids in enumerate(texts):
            out[row] = self._run(ids, adapted=True)[0]
        return out

    async def states(self, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return await asyncio.to_thread(lambda: [self._run(ids, adapted=False) for ids in texts])

    def _run(self, ids: Sequence[int], *, adapted: bool) -> np.ndarray:
        (rows,) = self._session.run(["rows"], {"ids": np.array([ids], np.int32), "adapted": np.array(adapted)})
        return rows
