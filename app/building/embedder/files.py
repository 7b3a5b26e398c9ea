"""The sentence embedders with Sonata's adapters, as ONNX files kept in <cache>/embedder/: all-MiniLM-L6-v2, and
multilingual-e5-small once it was asked for.

The folder there is named after everything that goes into a file: the model, the adapter, and the code that makes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from app.building.common import make_in_venv
from app.building.download import Downloader, read_download
from app.checksums import sha256_of
from app.models.build_outputs import (
    EMBEDDER_ADAPTER,
    EMBEDDER_MODEL,
    EMBEDDER_TOKENIZER,
    MULTILINGUAL_ADAPTER,
    MULTILINGUAL_WEIGHTS,
    EmbedderFiles,
    embedder_files,
    multilingual_files,
)
from app.models.downloads import downloads

WEIGHTS = "all-MiniLM-L6-v2.safetensors"


def ensure_embedder(cache: Path, files: Mapping[str, Path], adapter: Path = EMBEDDER_ADAPTER) -> dict[str, Path]:
    """Make the ONNX file, if needed, from the downloads (file name -> path). It takes two seconds, in .venv.

    Returns its name -> path, in the form of the downloads. Raises BuildError with the cause.
    """
    made = embedder_files(cache, adapter).model
    arguments: list[str | Path] = [files[WEIGHTS], files[EMBEDDER_TOKENIZER]]
    arguments += ["--adapter", adapter] if adapter.is_file() else []
    failure = "The sentence embedder could not be made"
    make_in_venv(made, "Sentence embedder (ONNX)", "app.building.embedder.export", arguments, failure)
    return {EMBEDDER_MODEL: made}


def fetch_multilingual(cache: Path, downloader: Downloader) -> None:
    """Download the weights of the multilingual embedder; from then on it is made for each site."""
    for entry in downloads()["multilingual"]:
        downloader.ensure(read_download(entry, cache / "embedder"))


def ensure_multilingual(cache: Path) -> EmbedderFiles | None:
    """Make the multilingual embedder, if needed, in fifteen seconds, in .venv; None if it was not fetched. Raises
    BuildError with the cause."""
    weights = cache / "embedder" / MULTILINGUAL_WEIGHTS
    if not weights.is_file():
        return None
    files = multilingual_files(cache)
    failure = "The multilingual embedder could not be made"
    arguments: list[str | Path] = ["--adapter", MULTILINGUAL_ADAPTER, weights]
    make_in_venv(files.model, "Multilingual embedder (ONNX)", "app.building.embedder.multilingual", arguments, failure)
    return files


def site_files(made: EmbedderFiles, folder: str) -> dict[str, Path | bytes]:
    """The files that the page needs (path in dist/ -> content), in a folder; embedder.json names the rest."""
    about = {
        "fingerprint": made.fingerprint,
        "meaning_fingerprint": made.meaning_fingerprint,
        "multilingual": made.is_multilingual,
        "model": made.model.name,
        "bytes": made.model.stat().st_size,
        "sha256": sha256_of(made.model),
        "tokenizer": made.tokenizer.name,
    }
    return {
        f"{folder}/{made.model.name}": made.model,
        f"{folder}/{made.tokenizer.name}": made.tokenizer,
        f"{folder}/embedder.json": json.dumps(about, indent=1).encode(),
    }
