"""Each architecture on each backend against `transformers`: tiny models, random weights, every position's logits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from app.models.template_renderer import native_renderer
from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.backends.protocols import Backend
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, load_model
from py_core.models.registry import ARCHITECTURES
from tests.backends.backend_pairs import cosine
from tests.models.architectures.variants import VARIANTS
from tests.tiny.models import Variant

LAST = 8
"""Tokens of the text that are also read one by one."""

LLAMA_SHA256 = "ff2c25f4f4ea3128dbd9f1b258e613c5395ebec2a9697d8af34ce3b0a76d7540"


@dataclass(frozen=True)
class Expected:
    """The results of `transformers` (make_expected.py): logits float32 (positions, vocabulary) after each of `ids`."""

    ids: list[int]
    logits: np.ndarray


def expected(variant: Variant) -> Expected:
    with np.load(Path(__file__).parent / "expected" / f"{variant.name}.npz") as recorded:
        return Expected(recorded["ids"].tolist(), recorded["logits"])


KERNELS = (
    "llama-biases",
    "mistral",
    "qwen2",
    "qwen3",
    "phi3-partial",
    "gemma2",
    "gemma3",
    "gemma4",
    "smollm3",
    "olmo2",
    "glm4",
    "granite",
    "granitemoe",
    "olmoe",
    "lfm2",
    "qwen35",
    "a2d-qwen2",
    "a2d-qwen3",
    "dream",
    "llada",
)
"""Every architecture once, in the variant that demands most of kernels. The others differ in computations that
Python does for all backends."""


def ways() -> Iterator[ParameterSet]:
    """Each variant on each backend. In the gate numpy runs all of them, and kernels run each architecture once."""
    for backend in ("numpy", "webgpu", "wasm"):
        for name, variant in VARIANTS.items():
            marks = [] if backend == "numpy" or name in KERNELS else [pytest.mark.all]
            yield pytest.param(backend, variant, id=f"{backend}-{name}", marks=marks)


@pytest.mark.parametrize(("load_backend", "variant"), list(ways()), indirect=["load_backend"])
async def test_every_position_has_the_logits_of_transformers(
    variant: Variant, load_backend: BackendLoader, tmp_path: Path
) -> None:
    source = FileSource(variant.write(tmp_path / "tiny.gguf"))
    model = await load_model(source, load_backend, native_renderer(), None, variant.context)
    recorded = expected(variant)
    try:
        if variant.diffusion is not None:
            places, logits = await logits_of_blocks(model.backend, recorded.ids, variant.diffusion[0])
            assert smallest_cosine(logits, recorded.logits[places]) > 0.9999
            return
        logits = await logits_of_a_prompt(model.backend, recorded.ids)
        assert smallest_cosine(logits, recorded.logits) > 0.9999
        lengths, expected_lengths = (np.linalg.norm(rows, axis=1) for rows in (logits, recorded.logits))
        np.testing.assert_allclose(lengths, expected_lengths, rtol=0.02)
        one_by_one = await logits_one_by_one(model.backend, recorded.ids)
        assert smallest_cosine(one_by_one, recorded.logits[-LAST:]) > 0.9999
    finally:
        model.close()


def test_kernels_have_every_architecture_in_the_gate() -> None:
    assert {VARIANTS[name].architecture for name in KERNELS} == set(ARCHITECTURES)


async def test_another_run_writes_the_same_bytes(tmp_path: Path) -> None:
    digest = hashlib.sha256(VARIANTS["llama"].write(tmp_path / "tiny.gguf").read_bytes()).hexdigest()
    assert digest == LLAMA_SHA256


def test_each_text_is_longer_than_a_window_and_of_at_least_64_positions() -> None:
    for variant in VARIANTS.values():
        recorded = expected(variant)
        assert recorded.logits.shape == (variant.positions, variant.config["vocab_size"])
        assert 64 <= len(recorded.ids) == variant.positions
        assert variant.config.get("sliding_window") is None or variant.config["sliding_window"] < 32


async def logits_of_a_prompt(backend: Backend, ids: list[int]) -> np.ndarray:
    """All tokens in as few passes as the backend needs, then the logits of each: float32 (positions, vocabulary)."""
    sequence = backend.new_sequence()
    await backend.prefill(sequence, ids)
    rows = []
    while sequence.length:
        count = min(MAX_LOGIT_ROWS, sequence.length)
        rows.append(await backend.last_logits(sequence, count))
        backend.truncate(sequence, sequence.length - count)
    backend.free(sequence)
    return np.concatenate(rows[::-1])


async def logits_of_blocks(backend: Backend, ids: list[int], block: int) -> tuple[list[int], np.ndarray]:
    """The last tokens of each block, which see no further: their positions, and their logits float32 (n,
    vocabulary). A block of 0 is the whole text."""
    sequence, places, rows = backend.new_sequence(), list[int](), list[np.ndarray]()
    for end in range(block, len(ids) + 1, block) if block else [len(ids)]:
        backend.append(sequence, ids[sequence.length : end])
        rows.append(await backend.last_logits(sequence, MAX_LOGIT_ROWS))
        places += range(end - MAX_LOGIT_ROWS, end)
    backend.free(sequence)
    return places, np.concatenate(rows)


async def logits_one_by_one(backend: Backend, ids: list[int]) -> np.ndarray:
    """The last tokens in a pass each, as in decoding: float32 (LAST, vocabulary)."""
    sequence = backend.new_sequence()
    await backend.prefill(sequence, ids[:-LAST])
    rows = []
    for token in ids[-LAST:]:
        await backend.prefill(sequence, [token])
        rows.append(await backend.logits(sequence))
    backend.free(sequence)
    return np.stack(rows)


def smallest_cosine(ours: np.ndarray, reference: np.ndarray) -> float:
    assert ours.shape == reference.shape
    return min(map(cosine, ours, reference))
