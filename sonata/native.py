"""Opens a model on this machine, as the commands of the terminal do."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from app.cli.loading import BackendChoice, ModelOptions
from app.models.cache import ModelCache
from app.models.catalog import read_catalog
from app.models.model_pull import pull, wanted_model
from py_core.loading import Model


async def open_model(model: str | bytes | None, backend: str, context: int | None) -> Model:
    """Open a model: see `Sonata.load`. Raises ValueError, UserError, OSError, CacheError, PullError."""
    options = ModelOptions(backend=BackendChoice(backend), context=context)
    if isinstance(model, bytes):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder, "model.gguf")
            path.write_bytes(model)  # noqa: ASYNC240 - loading blocks, too
            return await replace(options, model=path).load()
    if model is not None and model.startswith(("https://", "http://")):
        return await replace(options, model=await asyncio.to_thread(_pulled, model)).load()
    return await replace(options, model=None if model is None else Path(model)).load()


def _pulled(address: str) -> Path:
    """The file of a model that is kept, or is now downloaded."""
    cache, catalog = ModelCache(), read_catalog()
    wanted = wanted_model(catalog, cache, address)
    kept = next((model for model in cache.models() if model.source == wanted.url), None)
    return (kept or pull(catalog, cache, wanted)).path
