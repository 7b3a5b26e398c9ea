"""The same model on numpy, the reference, and on another backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from py_core.backends.numpy.backend import NumpyBackend, load_weights
from py_core.backends.protocols import Backend
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.settings import DeviceSettings
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.config import read_rope_factors
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from py_core.sampling import SamplingParams, sample
from py_core.token_sequence import TokenSequence
from tests.tiny.llama import TinyLlama

CONTEXT = 400
"""The context of the model of `written`."""
GREEDY = SamplingParams()

NO_PAUSE = DeviceSettings(pause=0.01)
"""A software GPU has no driver that needs time after a loss."""

# Every format alone, and mixtures in which no two neighbours have the same format.
MODELS = {
    "q4_1": TinyLlama(),
    "q4_0 untied": TinyLlama(formats=("Q4_0",), tied=False, embedding_format="Q4_0"),
    "q8_0 odd heads": TinyLlama(hidden=96, heads=6, kv_heads=3, ffn=160, formats=("Q8_0",)),
    "f16": TinyLlama(formats=("F16",), embedding_format="F16", kv_heads=4),
    "f32": TinyLlama(formats=("F32",), embedding_format="F32", kv_heads=1),
    "mixed": TinyLlama(formats=("Q4_0", "Q4_1", "Q8_0", "F16", "Q4_0", "Q8_0", "F32")),
    "q5_0": TinyLlama(formats=("Q5_0",), embedding_format="Q5_0"),
    "q5_1": TinyLlama(formats=("Q5_1",), embedding_format="Q5_1"),
    "bf16": TinyLlama(formats=("BF16",), embedding_format="BF16"),
    "q4_k": TinyLlama(hidden=256, ffn=256, formats=("Q4_K",), embedding_format="Q6_K"),
    "q5_k": TinyLlama(hidden=256, ffn=256, formats=("Q5_K",), embedding_format="Q5_K"),
    "q6_k": TinyLlama(hidden=256, ffn=512, formats=("Q6_K",), tied=False, embedding_format="Q4_K"),
    "mixed k": TinyLlama(hidden=256, ffn=256, formats=("Q4_K", "Q5_0", "BF16", "Q6_K", "Q5_1", "Q5_K", "Q4_K")),
    "q2_k": TinyLlama(hidden=256, ffn=256, formats=("Q2_K",), embedding_format="Q3_K"),
    "iq4_xs": TinyLlama(hidden=256, ffn=256, formats=("IQ4_XS",), embedding_format="IQ4_NL"),
    "mixed few bits": TinyLlama(
        hidden=256, ffn=256, formats=("Q2_K", "TQ1_0", "Q3_K", "MXFP4", "Q4_K", "TQ2_0", "IQ4_XS"), tied=False,
        embedding_format="Q2_K",
    ),
}  # fmt: skip


def unfused(graph: Graph) -> tuple[list, list]:
    """Each operation by itself, instead of `fuse`."""
    return graph.body, graph.head


@dataclass
class Pair:
    numpy: NumpyBackend
    other: Backend

    @property
    def both(self) -> tuple[Backend, Backend]:
        return self.other, self.numpy

    async def prefilled(self, tokens: list[int]) -> tuple[TokenSequence, TokenSequence]:
        """A sequence on the other backend and one on numpy that hold the same tokens."""
        ours, reference = self.other.new_sequence(), self.numpy.new_sequence()
        await self.other.prefill(ours, tokens)
        await self.numpy.prefill(reference, tokens)
        return ours, reference

    async def compare(self, lengths: tuple[int, ...], steps: int, atol: float = 1e-3) -> None:
        """Logits after prefills of these lengths, and twice after this number of decoded tokens.

        `atol`: the allowed distance from numpy's, relative to the largest.
        """
        ours, reference = self.other.new_sequence(), self.numpy.new_sequence()

        async def logits_are_equal(where: object) -> None:
            got, expected = await self.other.logits(ours), await self.numpy.logits(reference)
            assert cosine(got, expected) > 0.9999, where
            most = atol * np.abs(expected).max()
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=most, err_msg=str(where))

        for length in lengths:
            for backend, sequence in ((self.other, ours), (self.numpy, reference)):
                await backend.prefill(sequence, prompt(length, seed=length))
            await logits_are_equal(length)
        for _ in range(2):
            await self.numpy.prefill(reference, await collect(self.other, ours, steps))
            await logits_are_equal("decode")


async def open_pair(path: Path, host, **options) -> Pair:
    """Opens a model on a GPU's host or on that of the WASM kernels; options as in load_webgpu and load_wasm."""
    source = FileSource(path)
    header = await read_header(source)
    config, graph = describe_model(header, rope_factors=await read_rope_factors(source, header))
    load = load_wasm if isinstance(host, WasmtimeHost) else partial(load_webgpu, settings=NO_PAUSE)
    other = await load(host, source, header, config, graph, **options)
    weights = await load_weights(source, header, graph)
    return Pair(NumpyBackend(config, graph, weights, options.get("tiers")), other)


async def collect(backend: Backend, sequence: TokenSequence, n: int, sampling: SamplingParams = GREEDY) -> list[int]:
    return [token async for ids in backend.decode(sequence, n, sampling) for token in ids]


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


async def alone(
    backend: Backend, tokens: Sequence[int], n: int, rules: SamplingParams = GREEDY, adapter: int = 0, head: int = 0
) -> list[int]:
    """The continuation of these tokens in a sequence of its own."""
    if not n:
        return []
    sequence = backend.new_sequence()
    backend.use_adapter(sequence, adapter)
    backend.use_head_adapter(sequence, head)
    await backend.prefill(sequence, tokens)
    said = [token async for ids in backend.decode(sequence, n, rules) for token in ids]
    backend.free(sequence)
    return said


async def assert_said_alone(
    backend: Backend, before: list[int], rules: SamplingParams, said: list[int], noise: float = 1e-4, adapter: int = 0
) -> int:
    """Asserts that the continuation of these tokens equals that of a sequence alone, except for tokens between which
    rounding decides: passes that read a text in other pieces add up in another order. `noise`: the allowed error of
    logits, relative to the largest.

    Returns:
        The number of tokens that rounding decided.
    """
    done = rounded = 0
    while (again := await alone(backend, before + said[:done], len(said) - done, rules, adapter)) != said[done:]:
        done += next(at for at, (one, other) in enumerate(zip(again, said[done:], strict=True)) if one != other)
        sequence = backend.new_sequence()
        backend.use_adapter(sequence, adapter)
        await backend.prefill(sequence, before + said[:done])
        logits, draw = await backend.logits(sequence), np.random.default_rng(0)
        backend.free(sequence)
        # Errors of all sizes up to that: a token between two others in the order of ids may need a small one.
        sizes = noise * np.abs(logits).max() * draw.random((300, 1))
        off = (sizes * draw.standard_normal((300, len(logits)))).astype(np.float32)
        tokens = before + said[:done]
        assert said[done] in {sample(logits + one, tokens, len(tokens), rules) for one in off}
        done, rounded = done + 1, rounded + 1
    return rounded


def written(folder: Path) -> Path:
    """Write a tiny model."""
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    return tiny.write(folder / "tiny.gguf")


@asynccontextmanager
async def sharing_backend(kind: str, folder: Path, kernel_wasm: Callable[[], Path]) -> AsyncIterator[Backend]:
    """Open the model of `written` on "numpy", "wasm" or "webgpu". As many sequences as possible share steps, whichever
    is faster here."""
    pair = await open_pair(written(folder), WgpuHost() if kind == "webgpu" else WasmtimeHost(kernel_wasm()))
    pair.other.rows_that_pay = pair.numpy.rows_that_pay  # type: ignore[method-assign]
    yield pair.numpy if kind == "numpy" else pair.other
    pair.other.close()
