"""What a draft model costs that is never right: tokens a second without guesses, with those of the text, and with it.

    python tests/bench/random_gguf.py /tmp/model.gguf --shape qwen2.5-3b
    python tests/bench/random_gguf.py /tmp/draft.gguf --shape qwen2.5-0.5b
    python tests/bench/draft_cost.py /tmp/model.gguf /tmp/draft.gguf [--backend webgpu] [--tokens 400] [--rounds 6]

Random weights, so the draft's guesses are wrong, as those of a bad draft would be. Natively; answers behind 200 random
tokens, in turns over the same loaded models. Ratios are medians of each round's.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from speculation_draft import WAYS, open_both

from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.sampling import SamplingParams

PROMPT = 200
TEMPERATURES = (0.9, 0.0)


async def answer(model: Model, way: str, seed: int, tokens: int, temperature: float) -> tuple[float, int]:
    """Tokens a second, and passes with the draft's guesses."""
    engine, draft, timings = model.engine, model.engine.draft, Timings()
    assert draft is not None
    engine.speculates = way != "plain"
    engine.draft = draft if way == "draft" else None
    before, sequence, draw = draft.passes, engine.new_sequence(), random.Random(seed)
    text = [draw.randrange(model.config.vocab_size) for _ in range(PROMPT)]
    await engine.prefill(sequence, text, timings)
    async for _ in engine.generate(sequence, tokens, SamplingParams(temperature=temperature, seed=seed), timings):
        pass
    engine.draft = draft
    engine.free(sequence)
    return timings.decode_tok_s, draft.passes - before


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="webgpu")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    model = await open_both(options.model, options.draft, options.backend, "precise")
    for way in WAYS:
        await answer(model, way, 0, options.tokens, TEMPERATURES[0])  # so that kernels are compiled
    table = Table(title=f"{model.config.name} with a draft that is never right, {options.tokens} tokens")
    for column in ("temperature", "", "tok/s", "times", "passes with its guesses"):
        table.add_column(column)
    for temperature in TEMPERATURES:
        found: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
        for turn in range(options.rounds):
            for way in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                found[way].append(await answer(model, way, turn + 1, options.tokens, temperature))
        for way, answers in found.items():
            times = median(one[0] / plain[0] for one, plain in zip(answers, found["plain"], strict=True))
            speed, passes = median(one[0] for one in answers), sum(one[1] for one in answers)
            table.add_row(f"{temperature:.1f}", way, f"{speed:.1f}", f"{times:.2f}", str(passes))
    Console().print(table)
    model.close()


if __name__ == "__main__":
    asyncio.run(main())
