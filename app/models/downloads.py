"""The files that build.py downloads (downloads.toml), and the paths of the chat models. Standard library only."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from app.paths import cache_dir

DOWNLOADS = Path(__file__).with_name("downloads.toml")


@dataclass(frozen=True)
class ModelFile:
    """A chat model's file. `bytes` and `sha256` are those of the whole file; `licence` is an SPDX name."""

    id: str
    title: str
    file: str
    bytes: int
    sha256: str
    licence: str

    @property
    def path(self) -> Path:
        """The path of the file once it has been downloaded."""
        return cache_dir() / "models" / self.file


@cache
def downloads() -> dict[str, list[dict[str, Any]]]:
    """app/models/downloads.toml, parsed: the tables `models`, `larger`, `embedder`, `multilingual`, `wheels` and
    `interpreter`."""
    return tomllib.loads(DOWNLOADS.read_text(encoding="utf-8"))


def model_files() -> list[ModelFile]:
    """Every chat model of the site; the first is the default."""
    names = ModelFile.__dataclass_fields__
    entries = downloads()["models"]
    return [ModelFile(**{key: value for key, value in entry.items() if key in names}) for entry in entries]


def default_model_path() -> Path:
    """The file of the default model. Raises FileNotFoundError, with what to do, if it is not downloaded."""
    path = model_files()[0].path
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: run `python build.py serve` once in the repository to download it, or "
            "`sonata models pull smollm2-135m`, and then name that model with --model smollm2-135m."
        )
    return path
