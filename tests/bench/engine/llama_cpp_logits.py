"""Logits beside llama.cpp's: tiny models of each architecture, each format, stretched contexts, and files you name.

    pip install llama-cpp-python   # compiles for 15 minutes; no part of the project
    python -m tests.bench llama_cpp_logits [MODEL.gguf ...] [--json FILE]

Each file is read by both programs; the logits after each of the same tokens are compared (numpy backend). llama.cpp
rounds activations to 8 bits for quantized weights, to BF16 for BF16, and Sonata does not: so the cosine is 0.99999 for
F32 and less for the others, and what counts there is that no other token is chosen by a clear margin.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from rich.table import Table

from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.quantization import FORMATS
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.backends.backend_pairs import cosine
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.models.architectures.test_architectures import logits_of_a_prompt
from tests.models.architectures.variants import VARIANTS
from tests.tiny.models import CONTEXT, Variant

POSITIONS, FAR = 72, 600
WIDE = {"hidden_size": 512, "intermediate_size": 768, "num_attention_heads": 8, "num_key_value_heads": 4}
"""Rows that blocks of 256 divide."""

CLEAR = 0.3
"""A margin between the two likeliest tokens, in standard deviations of the logits, that rounding does not turn over."""


@dataclass(frozen=True)
class Case:
    """A file, the number of tokens that are compared, and the context. `stretch`: further options for llama.cpp."""

    path: Path
    name: str
    positions: int = POSITIONS
    context: int = CONTEXT
    stretch: dict[str, Any] = field(default_factory=dict)


def cases(folder: Path, models: list[Path]) -> Iterator[Case]:
    for variant in VARIANTS.values():
        # llama.cpp opens at least 256 positions, so it takes the long factors of a file made for 96.
        original = variant.config.get("original_max_position_embeddings", CONTEXT)
        yield case(folder, variant.changed(original_max_position_embeddings=original))
    short = VARIANTS["phi3-longrope"]
    yield case(folder, short.changed("phi3-longrope-short", original_max_position_embeddings=CONTEXT))
    for form in FORMATS:
        yield case(folder, replace(VARIANTS["llama"].changed(f"llama {form}", **WIDE), format=form))
    for name in ("qwen2", "qwen3", "phi3", "gemma2", "gemma3", "smollm3", "mistral"):
        heads = {key: 64 for key in ("head_dim", "query_pre_attn_scalar") if key in VARIANTS[name].config}
        for form in ("F32", "Q4_K", "Q6_K", "IQ4_XS"):
            yield case(folder, replace(VARIANTS[name].changed(f"{name} {form}", **WIDE, **heads), format=form))
    for name in ("llama", "llama-3-rope", "mistral", "qwen3", "smollm3"):
        stretch = {"rope_scaling_type": llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN, "rope_freq_scale": 0.25}
        plain = case(folder, replace(VARIANTS[name], name=f"{name} stretched 4 times"))
        yield replace(plain, positions=FAR, context=4 * CONTEXT, stretch={**stretch, "yarn_orig_ctx": CONTEXT})
    for model in models:
        yield Case(model, model.name, context=2 * CONTEXT)


def case(folder: Path, variant: Variant) -> Case:
    # llama.cpp looks for tokens of the real vocabulary if a model's name contains "phi3".
    path = variant.changed("tiny").write(folder / f"{variant.name}.gguf")
    return Case(path, variant.name, context=CONTEXT)


def theirs(case: Case, ids: list[int]) -> np.ndarray:
    """llama.cpp's logits after each of `ids`: float32 (positions, vocabulary)."""
    model = llama_cpp.Llama(str(case.path), n_ctx=case.context, logits_all=True, verbose=False, **case.stretch)
    model.eval(ids)
    return np.array(model.scores[: len(ids)], np.float32)


async def compare(case: Case) -> dict[str, Any]:
    model = await load_model(FileSource(case.path), load_numpy, native_renderer(), None, case.context)
    # Tokens of bytes: those above stand for nothing in the tiny vocabularies.
    ids = np.random.default_rng(case.positions).integers(3, 99, case.positions).tolist()
    ours, reference = await logits_of_a_prompt(model.backend, ids), theirs(case, ids)
    model.close()
    cosines = [cosine(a, b) for a, b in zip(ours, reference, strict=True)]
    highest = np.sort(reference, axis=1)
    certain = highest[:, -1] - highest[:, -2] > CLEAR * reference.std()
    other = ours.argmax(axis=1) != reference.argmax(axis=1)
    return {
        "file": case.name,
        "smallest cosine": min(cosines),
        "median": float(np.median(cosines)),
        "same token": float(np.mean(~other)),
        "clear ones that differ": int((other & certain).sum()),
    }


async def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [await compare(case) for case in cases(Path(folder), arguments.models)]
    table = Table(*results[0], title=f"Logits beside llama-cpp-python {llama_cpp.__version__}")
    for row in results:
        table.add_row(*(f"{value:.6f}" if isinstance(value, float) else str(value) for value in row.values()))
    print_tables(table)
    write_figures(arguments, results)
