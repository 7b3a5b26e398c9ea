"""The measurements of adapters.py, natively and in the page: Python over a backend, independent of the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from py_core.adapters.lora import LoraAdapter, LoraPair
from py_core.backends.protocols import Backend, Tunes
from py_core.models.graph import Graph
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence

Milliseconds = dict[str, list[float]]


class Tuning:
    """A `TuningStore` that lasts as long as a model: kernels have the shapes that a user's have."""

    text = ""

    async def read(self) -> str:
        return self.text

    async def write(self, text: str) -> None:
        self.text = text


def drawn(graph: Graph, rank: int, seed: int) -> LoraAdapter:
    """A set for every linear, some hundredths of the weights: its numbers do not change the speed."""
    draw = np.random.default_rng(seed)
    pairs = {}
    for name in sorted(graph.linear_weights):
        rows, columns = graph.weights[name]
        a, b = (draw.standard_normal(shape, np.float32) for shape in ((rank, columns), (rows, rank)))
        pairs[name] = LoraPair(a, b, 0.05 / (rank * columns) ** 0.5)
    return LoraAdapter(f"drawn {seed}", pairs)


@contextmanager
def stopwatch(found: Milliseconds, name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    found.setdefault(name, []).append((time.perf_counter() - start) * 1000)


async def decode(backend: Backend, sequence: TokenSequence, count: int) -> None:
    async for _ in backend.decode(sequence, count, SamplingParams()):
        pass


async def measure(
    backend: Backend, graph: Graph, vocab_size: int, rank: int, rounds: int, prompt: int, tokens: int
) -> Milliseconds:
    """Return milliseconds for each round: "prefill" and "decode", "plain" and "adapted" in turns; then of a pass over
    one token "same", with the set of the pass before, and "swap", with another set. "add": of each set once."""
    if isinstance(backend, Tunes):
        await backend.tune(lambda: False)
    text = np.random.default_rng(3).integers(0, vocab_size, prompt).tolist()
    found: Milliseconds = {}
    numbers = []
    for seed in (1, 2):
        adapter = drawn(graph, rank, seed)
        with stopwatch(found, "add"):
            numbers.append(await backend.add_adapter(adapter))
    for turn in range(rounds + 1):
        noted = found if turn else {}  # in the first turn code is compiled that runs often
        order = [("plain", 0), ("adapted", numbers[0])]
        for name, number in order if turn % 2 else order[::-1]:
            sequence = backend.new_sequence()
            backend.use_adapter(sequence, number)
            with stopwatch(noted, f"prefill {name}"):
                await backend.prefill(sequence, text)
            await decode(backend, sequence, 2)
            with stopwatch(noted, f"decode {name}"):
                await decode(backend, sequence, tokens)
            backend.free(sequence)
        sequence = backend.new_sequence()
        for name, number in (("", numbers[0]), ("same", numbers[0]), ("swap", numbers[1])):
            backend.truncate(sequence, 0)
            with stopwatch(noted, name):
                backend.use_adapter(sequence, number)
                await backend.prefill(sequence, text[:1])
        backend.free(sequence)
    for number in numbers:
        backend.remove_adapter(number)
    return found
