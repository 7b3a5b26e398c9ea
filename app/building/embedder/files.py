"""The sentence embedder: all-MiniLM-L6-v2 with Sonata's adapter, as an ONNX file kept in <cache>/embedder/.

The folder there is named after everything that goes into the file: the model, the adapter, and the code that makes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from app.building.common import make_in_venv
from app.checksums import sha256_of
from app.models.build_outputs import EMBEDDER_ADAPTER, EMBEDDER_MODEL, EMBEDDER_TOKENIZER, EmbedderFiles, embedder_files

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


def site_files(files: Mapping[str, Path], made: EmbedderFiles) -> dict[str, Path | bytes]:
    """The files that the page needs (path in dist/ -> content); embedder.json names the rest."""
    model = files[EMBEDDER_MODEL]
    about = {
        "fingerprint": made.fingerprint,
        "meaning_fingerprint": made.meaning_fingerprint,
        "model": EMBEDDER_MODEL,
        "bytes": model.stat().st_size,
        "sha256": sha256_of(model),
        "tokenizer": EMBEDDER_TOKENIZER,
    }
    return {
        f"embedder/{EMBEDDER_MODEL}": model,
        f"embedder/{EMBEDDER_TOKENIZER}": files[EMBEDDER_TOKENIZER],
        "embedder/embedder.json": json.dumps(about, indent=1).encode(),
    }
