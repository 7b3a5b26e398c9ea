"""The sentence embedder: all-MiniLM-L6-v2 with Sonata's adapter, as an ONNX file kept in <cache>/embedder/.

The folder there is named after everything that goes into the file: the model, the adapter, and the code that makes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.building.common import ROOT, make_in_venv, sha256_of, short_digest
from app.models import downloads

ADAPTER = ROOT / "app" / "embedder_adapter.safetensors"
MODEL = "all-MiniLM-L6-v2.int8.onnx"
WEIGHTS = "all-MiniLM-L6-v2.safetensors"
TOKENIZER = "all-MiniLM-L6-v2.tokenizer.json"
REVISION = 1
"""To be raised when a change of the code below changes vectors: stored ones are then made anew."""
_SOURCES = ("calibration.txt", "embedder_export.py", "minilm.py", "onnx_writer.py")


@dataclass(frozen=True)
class EmbedderFiles:
    """Where the embedder lies, or will lie once it is made. Vectors of different fingerprints cannot be compared."""

    model: Path
    tokenizer: Path
    fingerprint: str


def embedder_files(cache: Path, adapter: Path = ADAPTER) -> EmbedderFiles:
    """Without an adapter's file it is the unchanged model."""
    parts = [f"revision {REVISION}", *(f"{entry['file']} {entry['sha256']}" for entry in downloads()["embedder"])]
    if adapter.is_file():
        parts.append(f"adapter {sha256_of(adapter)}")
    sources = [f"{name} {sha256_of(Path(__file__).with_name(name))}" for name in _SOURCES]
    folder = cache / "embedder"
    return EmbedderFiles(folder / short_digest(parts + sources) / MODEL, folder / TOKENIZER, short_digest(parts))


def ensure_embedder(cache: Path, files: Mapping[str, Path], adapter: Path = ADAPTER) -> dict[str, Path]:
    """Make the ONNX file, if need be, from the downloads (file name -> path). It takes two seconds, in .venv.

    Returns its name -> path, to go with the downloads. BuildError: what went wrong.
    """
    made = embedder_files(cache, adapter).model
    arguments: list[str | Path] = [files[WEIGHTS], files[TOKENIZER]]
    arguments += ["--adapter", adapter] if adapter.is_file() else []
    failure = "The sentence embedder could not be made"
    make_in_venv(made, "Sentence embedder (ONNX)", "app.building.embedder_export", arguments, failure)
    return {MODEL: made}


def site_files(files: Mapping[str, Path], fingerprint: str) -> dict[str, Path | bytes]:
    """What the page needs (path in dist/ -> content); embedder.json names the rest."""
    model = files[MODEL]
    about = {
        "fingerprint": fingerprint,
        "model": MODEL,
        "bytes": model.stat().st_size,
        "sha256": sha256_of(model),
        "tokenizer": TOKENIZER,
    }
    return {
        f"embedder/{MODEL}": model,
        f"embedder/{TOKENIZER}": files[TOKENIZER],
        "embedder/embedder.json": json.dumps(about, indent=1).encode(),
    }
