"""Makes the file with a model's directions: `python -m app.training.shipped_directions [NAME]`.

NAME is a kept model, the default the one that comes with Sonata. Those of the larger models that Sonata recommends are
made once, too: their first lesson would otherwise wait a minute or two. The directions of all other models are made
from the same texts when the first lesson is taught.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import numpy as np

from app.generation.assistant import SYSTEM_PROMPT
from app.lessons.imprints import GENERIC_TEXTS, shipped_path
from app.models.build_outputs import kernel_path
from app.models.cache import model_path, sha256_of_model
from app.models.template_renderer import native_renderer
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.safetensors import write_safetensors
from py_core.formats.source import FileSource
from py_core.learning.imprint_maker import learn_directions
from py_core.loading import load_model


async def main() -> None:
    path = model_path(Path(sys.argv[1]) if sys.argv[1:] else None)
    loader = partial(load_wasm, WasmtimeHost(kernel_path()))
    model = await load_model(FileSource(path), loader, native_renderer())
    directions = await learn_directions(model, SYSTEM_PROMPT, GENERIC_TEXTS.read_text("utf-8").splitlines())
    out = shipped_path(sha256_of_model(path))
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(write_safetensors({"directions": directions.astype(np.float16)}))
    print(f"{out}: {directions.shape[0]} directions of {directions.shape[1]} numbers")


if __name__ == "__main__":
    asyncio.run(main())
