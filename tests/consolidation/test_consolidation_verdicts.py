"""The probe, texts that Sonata ships, decides about a trained adapter: as it is, smaller, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.consolidation.service import ConsolidationService
from app.consolidation.texts import shipped_texts
from app.native_runtime import open_embedder
from app.records.revisions import Run
from py_core.engine.scheduler import Priority
from py_core.formats.safetensors import read_safetensors
from py_core.learning.consolidation import layout_of
from py_core.learning.probe import perplexity
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder
from py_core.tokenizers.prompts import encode_text
from tests.consolidation.small_consolidation import BASE, RECIPE, TEXTS, Opened, memories, memory_of, taught

PROBE = shipped_texts().probe[:6]
HARMFUL = replace(RECIPE, portions=replace(RECIPE.portions, texts=0, answers=0))
"""Nothing keeps the model's answers to other texts unchanged."""


@pytest.fixture(scope="module")
def embedder(made_files: dict[str, Path]) -> SentenceEmbedder:
    return open_embedder()


@pytest.fixture(scope="module")
def model(tiny_path: Path, open_model) -> Model:
    return asyncio.run(open_model(tiny_path))


@pytest.fixture
async def opened(
    embedder: SentenceEmbedder, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Opened]:
    async with memories(model, embedder, tmp_path, monkeypatch) as open_one:
        yield open_one


async def trained(opened: Opened, name: str, harm: float) -> tuple[ConsolidationService, Run, np.ndarray | None]:
    """The same training each time, in its own memory; returns the numbers of its revision, float16."""
    service = await opened(replace(HARMFUL, harm=harm), name, replace(TEXTS, probe=PROBE))
    await taught(service)
    run = await service.consolidate()
    assert run is not None
    weights = await memory_of(service).revisions.weights(run)
    return service, run, None if weights is None else read_safetensors(weights)[0]["parameters"]


async def test_an_adapter_that_harms_other_texts_is_made_smaller_until_it_does_not_else_it_is_refused(
    opened: Opened, model: Model
) -> None:
    service, whole, parameters = await trained(opened, "whole", harm=9.0)
    assert (whole.verdict, whole.scale) == ("accepted", 1.0)
    assert parameters is not None
    layout = layout_of(model.graph, HARMFUL)
    probe = [encode_text(model.tokenizer, text, bos=model.bos) for text in PROBE]

    async def measured(scale: float) -> tuple[np.ndarray, float]:
        """The unscaled adapter's numbers at this scale, and the perplexity of the probe with them."""
        flat = parameters.astype(np.float32)
        for _, b in layout.views(flat).values():
            b *= np.float32(scale)
        number = await service._adapters.number(layout.adapter(flat.astype(np.float16).astype(np.float32), "x", BASE))
        try:
            return flat, await perplexity(model.engine, probe, number, Priority.BACKGROUND)
        finally:
            await service._adapters.forget("x")

    base, sizes = whole.probe["base"], {scale: await measured(scale) for scale in HARMFUL.scales}
    assert sizes[1.0][1] == whole.probe["after"]
    assert sizes[1.0][1] > sizes[0.85][1] > sizes[0.7][1] > sizes[0.55][1] > base

    between = (sizes[0.85][1] + sizes[0.7][1]) / 2
    service, scaled, smaller = await trained(opened, "scaled", harm=between / base - 1)
    assert (scaled.verdict, scaled.scale, scaled.revision) == ("scaled", 0.7, 1)
    assert smaller is not None
    np.testing.assert_allclose(smaller.astype(np.float32), sizes[0.7][0], rtol=2e-3, atol=1e-6)
    assert scaled.probe["after"] == pytest.approx(sizes[0.7][1], rel=1e-2)
    assert scaled.recall["after"] > scaled.recall["before"] == 0
    assert "Scaled to 70%" in str(scaled.why)
    assert service.current is not None
    assert service.current.id == scaled.id

    service, refused, none = await trained(opened, "refused", harm=(sizes[0.55][1] / base - 1) / 2)
    assert (refused.verdict, refused.scale, refused.revision, none) == ("refused", 0.55, 0, None)
    assert refused.probe["after"] == pytest.approx(sizes[0.55][1], rel=1e-2)
    assert service.current is None
