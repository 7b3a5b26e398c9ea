"""The larger real models against llama.cpp in float32, on the three backends.

`python build.py models 0.5b 1.5b` fetches them; tests/oracle/make_llama_cpp_oracle.py says how the oracles were made.
On WebGPU a software adapter takes 3 and some 9 minutes, if there is no GPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.models.cache import CacheError, model_path
from app.models.template_renderer import native_renderer
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, load_model
from tests.backends.backend_pairs import cosine

pytestmark = pytest.mark.long

ORACLES = Path(__file__).parents[1] / "oracle"
SURE = 0.05
"""A lead of the best logit over the second, below which rounding may decide."""


@pytest.mark.parametrize("load_backend", ["numpy", "wasm", "webgpu"], indirect=True)
@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"])
async def test_logits_and_every_sure_token_are_llama_cpps(load_backend: BackendLoader, name: str) -> None:
    try:
        path = model_path(Path(name))
    except CacheError:
        pytest.fail(f"{name} is not here: run `python build.py models {name}`.")
    expected = json.loads((ORACLES / f"{name}.json").read_text("utf-8"))
    model = await load_model(FileSource(path), load_backend, native_renderer())
    for prompt in expected["prompts"]:
        ids, greedy = prompt["prompt_ids"], prompt["greedy_ids"]
        assert model.tokenizer.encode(prompt["prompt"], special=True) == ids
        sequence = model.backend.new_sequence()
        await model.backend.prefill(sequence, ids)
        logits = await model.backend.logits(sequence)
        theirs = np.array(prompt["logits"], np.float32)
        assert cosine(logits[:: expected["stride"]], theirs) > 0.9999, prompt["prompt"]
        checked = 0
        for token, lead in zip(greedy, prompt["top2_margin"], strict=True):
            if lead >= SURE:
                assert int(np.argmax(await model.backend.logits(sequence))) == token, prompt["prompt"]
                checked += 1
            await model.backend.prefill(sequence, [token])
        assert checked >= 0.9 * len(greedy)
        model.backend.free(sequence)
