"""LoRA sets on each backend: a sequence with a set gives the same as merged weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.lora import AdapterError, LoraAdapter
from py_core.backend_errors import BackendError
from py_core.backends.checks import MAX_ADAPTERS
from py_core.backends.numpy.backend import NumpyBackend, load_weights
from py_core.backends.protocols import Backend
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.graph import Graph
from py_core.models.registry import describe_model
from py_core.token_sequence import TokenSequence
from tests.models.architectures.variants import VARIANTS
from tests.tiny.adapters import drawn

TOKENS = [3, 17, 80, 5, 42, 9, 61]
NAMES = ["llama", pytest.param("llama-fused-qkv", marks=pytest.mark.every_backend), "qwen2", "gemma2", "phi3"]
"""Every layout of a block's linears in tensors; several formats of weights; biases; norms behind linears."""


@dataclasses.dataclass
class Pair:
    """A backend, and the reference with a set in its weights."""

    backend: Backend
    graph: Graph
    merged: Callable[[LoraAdapter], NumpyBackend]


async def opened(name: str, folder: Path, load_backend: BackendLoader) -> Pair:
    source = FileSource(VARIANTS[name].write(folder / "tiny.gguf"))
    header = await read_header(source)
    config, graph = describe_model(header)
    weights = await load_weights(source, header, graph)

    def merged(adapter: LoraAdapter) -> NumpyBackend:
        changed = {name: weights[name] + pair.delta for name, pair in adapter.pairs.items()}
        return NumpyBackend(config, graph, weights | changed)

    return Pair(await load_backend(source, header, config, graph, None), graph, merged)


async def logits(backend: Backend, sequence: TokenSequence, rows: int = 4) -> np.ndarray:
    return await backend.last_logits(sequence, rows)


async def expected(pair: Pair, adapter: LoraAdapter | None) -> np.ndarray:
    reference = pair.merged(adapter or LoraAdapter("none", {}))
    sequence = reference.new_sequence()
    await reference.prefill(sequence, TOKENS)
    return await logits(reference, sequence)


def close(ours: np.ndarray, reference: np.ndarray) -> None:
    np.testing.assert_allclose(ours, reference, atol=2e-3 * np.abs(reference).max())


@pytest.mark.parametrize("name", NAMES)
async def test_a_sequence_gives_the_logits_of_weights_with_its_set_in_them(
    name: str, load_backend: BackendLoader, tmp_path: Path
) -> None:
    pair = await opened(name, tmp_path, load_backend)
    backend, sequence = pair.backend, pair.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    plain = await logits(backend, sequence)
    close(plain, await expected(pair, None))
    # Different ranks, and different choices of linears.
    sets = [drawn(pair.graph, 1), drawn(pair.graph, 2, rank=16), drawn(pair.graph, 3, rank=3, only="attn")]
    numbers = [await backend.add_adapter(one) for one in sets]
    for number, one in zip([*numbers, numbers[0]], [*sets, sets[0]], strict=True):
        backend.use_adapter(sequence, number)
        changed = await logits(backend, sequence)
        close(changed, await expected(pair, one))
        assert np.abs(changed - plain).max() > 0.02 * np.abs(plain).max(), "the set shows"
    backend.use_adapter(sequence, 0)
    np.testing.assert_allclose(await logits(backend, sequence), plain, atol=1e-4 * np.abs(plain).max())


async def test_sequences_with_and_without_a_set_do_not_touch_each_other(
    load_backend: BackendLoader, tmp_path: Path
) -> None:
    pair = await opened("llama", tmp_path, load_backend)
    backend, one = pair.backend, drawn(pair.graph, 1)
    plain, changed = backend.new_sequence(), backend.new_sequence()
    backend.use_adapter(changed, await backend.add_adapter(one))
    for token in TOKENS:
        await backend.prefill(plain, [token])
        await backend.prefill(changed, [token])
    close(await logits(backend, plain), await expected(pair, None))
    close(await logits(backend, changed), await expected(pair, one))


async def test_a_set_that_is_removed_is_used_no_more(load_backend: BackendLoader, tmp_path: Path) -> None:
    pair = await opened("llama", tmp_path, load_backend)
    backend, sequence = pair.backend, pair.backend.new_sequence()
    await backend.prefill(sequence, TOKENS)
    number = await backend.add_adapter(drawn(pair.graph, 1))
    backend.use_adapter(sequence, number)
    await logits(backend, sequence)
    backend.remove_adapter(number)
    assert sequence.adapter == 0
    close(await logits(backend, sequence), await expected(pair, None))
    with pytest.raises(ValueError, match="There is no adapter"):
        backend.use_adapter(sequence, number)


async def test_what_does_not_fit_is_refused_with_a_sentence(load_backend: BackendLoader, tmp_path: Path) -> None:
    pair = await opened("llama", tmp_path, load_backend)
    backend, good = pair.backend, drawn(pair.graph, 1, rank=2)
    name = "blk.0.attn_q.weight"
    other = dataclasses.replace(good, pairs={**good.pairs, "blk.99.attn_q.weight": good.pairs[name]})
    with pytest.raises(AdapterError, match="made for another model"):
        await backend.add_adapter(other)
    with pytest.raises(AdapterError, match="made for another model"):
        await backend.add_adapter(dataclasses.replace(good, pairs={"blk.0.ffn_down.weight": good.pairs[name]}))
    with pytest.raises(AdapterError, match="changes nothing"):
        await backend.add_adapter(LoraAdapter("empty", {}))
    with pytest.raises(AdapterError, match="rank 17"):
        await backend.add_adapter(drawn(pair.graph, 1, rank=17))
    numbers = [await backend.add_adapter(good) for _ in range(MAX_ADAPTERS)]
    with pytest.raises(BackendError, match="Remove one first"):
        await backend.add_adapter(good)
    backend.remove_adapter(numbers[1])
    assert await backend.add_adapter(good) == numbers[1]
