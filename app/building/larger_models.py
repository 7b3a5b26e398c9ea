"""The chat models for benchmarks and long tests, not in the site: `larger` in app/models/downloads.toml."""

from __future__ import annotations

from pathlib import Path

from app.building.common import BuildError
from app.building.download import Download, Downloader, read_source
from app.models.downloads import downloads, larger_models


def larger_model_names() -> list[str]:
    """The short names, such as 0.5b: what follows the last hyphen of an id."""
    return [model.id.rpartition("-")[2] for model in larger_models()]


def ensure_larger_model(downloader: Downloader, name: str) -> Path:
    """Fetch the model of this id, or short name, and return its file. Raises BuildError, in one sentence."""
    for model, short, entry in zip(larger_models(), larger_model_names(), downloads()["larger"], strict=True):
        if name.lower() in (model.id, short):
            sources = tuple(map(read_source, entry["sources"]))
            return downloader.ensure(Download(model.path, model.sha256, sources, model.bytes))
    raise BuildError(f"There is no larger model {name}: choose {' or '.join(larger_model_names())}.")
