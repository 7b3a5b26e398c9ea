"""Writes expected/NAME.npz: the logits of `transformers` for fixed tokens, for each variant (or the named ones) of
variants.py.

python -m venv /tmp/expected && /tmp/expected/bin/pip install ".[expected]"
/tmp/expected/bin/python -m tests.models.architectures.make_expected [NAME ...]

Each file has `ids` int32 (positions,) and `logits` float32 (positions, vocabulary). Attention is eager and
everything is float64, except for operations that `transformers` itself does in float32. Nothing is written unless
each mistake of mistakes.py is visible.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.models.architectures.mistakes import Mistake, mistakes
from tests.models.architectures.variants import VARIANTS
from tests.tiny.models import Variant, weights

EXPECTED = Path(__file__).parent / "expected"
NONE = Mistake("nothing")


def tokens(variant: Variant) -> np.ndarray:
    return np.random.default_rng(1).integers(0, variant.config["vocab_size"], variant.positions, dtype=np.int32)


def model_of(variant: Variant, mistake: Mistake = NONE) -> transformers.PreTrainedModel:
    """The model in float64, with the weights as the variant's file rounds them."""
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    # A configuration writes its defaults into the objects that it gets.
    settings = copy.deepcopy({**special, **variant.config, **mistake.config})
    kinds = {"attn_implementation": "eager", "experts_implementation": "eager"}
    config = getattr(transformers, f"{variant.transformers}Config")(**settings, **kinds)
    model_class = f"{variant.transformers.removesuffix('Text')}ForCausalLM"
    model = getattr(transformers, model_class)(config).double().eval()
    values = mistake.weights(weights(variant))
    state = {name: torch.from_numpy(rows.astype(np.float64)) for name, rows in values.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    if not set(missing) <= tied or not set(unexpected) <= tied:
        raise ValueError(f"{variant.name}: missing {missing}, unexpected {unexpected}")
    if mistake.skipped:
        for name in [name for name, _ in model.named_modules()]:
            if name.endswith(mistake.skipped):
                model.set_submodule(name, torch.nn.Identity())
    return model


def logits_of(model: torch.nn.Module, variant: Variant, block: int | None = None) -> np.ndarray:
    """Logits of every position: float32 (positions, vocabulary). block: how many positions see each other, 0 for all;
    usually those of the variant."""
    if block is None and variant.diffusion is not None:
        block, _ = variant.diffusion
    with torch.no_grad():
        ids = torch.from_numpy(tokens(variant).astype(np.int64))[None]
        sight = None if block is None else _sight(variant.positions, block)
        return model(ids, attention_mask=sight, use_cache=False).logits[0].float().numpy()


def _sight(positions: int, block: int) -> torch.Tensor:
    """Addends of the scores of keys: (1, 1, positions, positions). The staircase of dLLM's BD3LMSampler."""
    numbers = torch.arange(positions) // (block or positions)
    unseen = numbers[None, :] > numbers[:, None]
    return torch.zeros(1, 1, positions, positions, dtype=torch.float64).masked_fill(unseen, torch.finfo().min)


def logits(variant: Variant, mistake: Mistake = NONE) -> np.ndarray:
    return logits_of(model_of(variant, mistake), variant, mistake.block)


def smallest_cosine(a: np.ndarray, b: np.ndarray) -> float:
    """The smallest cosine over all positions."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def make(variant: Variant) -> bool:
    """True if the file was written: each mistake is visible."""
    expected = logits(variant)
    good = True
    for mistake in mistakes(variant):
        cosine = smallest_cosine(expected, logits(variant, mistake))
        shows = cosine < mistake.below
        good &= shows
        print(f"{variant.name:20} {cosine:8.5f} {mistake.what}{'' if shows else '   DOES NOT SHOW'}", flush=True)
    path = EXPECTED / f"{variant.name}.npz"
    if good:
        np.savez_compressed(path, ids=tokens(variant), logits=expected)
        print(f"{variant.name:20} {path.stat().st_size:8} bytes, logits up to {np.abs(expected).max():.1f}", flush=True)
    return good


def main(names: list[str]) -> int:
    EXPECTED.mkdir(exist_ok=True)
    made = [make(VARIANTS[name]) for name in names or VARIANTS]
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
