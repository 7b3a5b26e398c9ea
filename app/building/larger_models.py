"""The chat models for benchmarks and long tests, not in the site: `larger` in app/models/downloads.toml."""

from __future__ import annotations

from pathlib import Path

from app.building.common import BuildError
from app.building.download import Downloader, read_download
from app.models.downloads import downloads


def larger_model_names() -> list[str]:
    """The short names, such as 0.5b: what follows the last hyphen of an id."""
    return [entry["id"].rpartition("-")[2] for entry in downloads()["larger"]]


def ensure_larger_model(cache: Path, downloader: Downloader, name: str) -> Path:
    """Fetch the model of this id, or short name, and return its file. Raises BuildError, in one sentence."""
    for entry, short in zip(downloads()["larger"], larger_model_names(), strict=True):
        if name.lower() in (entry["id"], short):
            return downloader.ensure(read_download(entry, cache / "models"))
    raise BuildError(f"There is no larger model {name}: choose {' or '.join(larger_model_names())}.")
