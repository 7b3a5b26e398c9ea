"""The encoder natively: the ONNX graphs in onnxruntime, on the CPU."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from py_core.routing.embedder import DIMENSIONS, EmbedderError


class OnnxEncoder:
    """See Encoder. Texts run one after the other, in a thread, so that the event loop keeps running."""

    def __init__(
        self, path: str | os.PathLike[str], fingerprint: str, meaning_fingerprint: str, threads: int = 1
    ) -> None:
        """Raises EmbedderError if the file is missing or damaged."""
        self.fingerprint = fingerprint
        self.meaning_fingerprint = meaning_fingerprint
        self._opening = threading.Lock()
        self._path, self._threads = path, threads
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}
        self._session("vector")

    async def encode(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        return await asyncio.to_thread(self._encode, texts)

    def _encode(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        out = np.empty((len(texts), DIMENSIONS), np.float32)
        for row, ids in enumerate(texts):
            out[row] = self._run("vector", ids)[0]
        return out

    async def states(self, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return await asyncio.to_thread(lambda: [self._run("states", ids) for ids in texts])

    def _run(self, name: str, ids: Sequence[int]) -> np.ndarray:
        (rows,) = self._session(name).run([name], {"ids": np.array([ids], np.int32)})
        return rows

    def _session(self, name: str) -> onnxruntime.InferenceSession:
        """The session of one of the two graphs, opened on first use."""
        with self._opening:
            if name not in self._sessions:
                self._sessions[name] = self._opened(name)
            return self._sessions[name]

    def _opened(self, name: str) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3
        try:
            content = graph_of(Path(self._path).read_bytes(), name)
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no common class
            raise EmbedderError(
                "embedder.not-opened",
                "The embedding model {path} cannot be opened ({why}): run `python build.py site` to make it again.",
                path=os.fspath(self._path),
                why=str(error).splitlines()[0][:200],
            ) from error


def graph_of(file: bytes, name: str) -> bytes:
    """One of the ONNX files in the embedder's (app/building/embedder/export.py): "vector" or "states"."""
    constants, vector = struct.unpack("<II", file[-8:])
    return file[:vector] if name == "vector" else file[:constants] + file[vector:-8]
