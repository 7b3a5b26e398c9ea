"""The models that Sonata knows (app/downloads.toml), and where files lie. Standard library only."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DOWNLOADS = Path(__file__).with_name("downloads.toml")


def cache_dir() -> Path:
    """Where downloads are kept: $SONATA_CACHE, else ~/.cache/sonata."""
    chosen = os.environ.get("SONATA_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "sonata"


def memory_path() -> Path:
    """Where `sonata chat` remembers: $SONATA_MEMORY, else ~/.local/share/sonata/memory.sqlite."""
    chosen = os.environ.get("SONATA_MEMORY")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path.home() / ".local" / "share" / "sonata" / "memory.sqlite"


@dataclass(frozen=True)
class Model:
    """A model file. `bytes` and `sha256` are those of the whole file; `licence` is an SPDX name."""

    id: str
    title: str
    file: str
    bytes: int
    sha256: str
    licence: str

    @property
    def path(self) -> Path:
        """Where the file lies once it has been downloaded."""
        return cache_dir() / "models" / self.file


@cache
def downloads() -> dict[str, list[dict[str, Any]]]:
    """app/downloads.toml as it is: the tables `models`, `embedder` and `wheels`."""
    return tomllib.loads(DOWNLOADS.read_text(encoding="utf-8"))


def models() -> list[Model]:
    """Every model known; the first is the default."""
    names = Model.__dataclass_fields__
    return [Model(**{key: value for key, value in entry.items() if key in names}) for entry in downloads()["models"]]


def model_path(model_id: str) -> Path:
    """The file of a model. Raises KeyError for an unknown id, FileNotFoundError when it is not downloaded."""
    for model in models():
        if model.id == model_id:
            if not model.path.is_file():
                raise FileNotFoundError(f"{model.path} is not there: run `python build.py serve` once to download it.")
            return model.path
    raise KeyError(f"no model {model_id!r}: there are {', '.join(model.id for model in models())}")


def default_model_path() -> Path:
    """The file of the default model. Raises FileNotFoundError with what to do when it is not downloaded."""
    return model_path(models()[0].id)
