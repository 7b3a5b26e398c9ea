"""Random operations in random order, for minutes or hours: how often an answer differs from the same answer alone.

    python -m tests.bench interleavings [--kind wasm|webgpu] [--seconds 60] [--processes 1] [--seed 0] [--only SEED]
        [--json FILE]

Each play opens a tiny model (plain, with windows, with tiers of keys and values) on the backend and on numpy, the
reference, and does 20 to 60 random steps: conversations open, branch, answer alone and beside others, greedy and at a
temperature, with guesses and adapters, are kept and brought back, lose their workers or their device
(tests/backends/test_interleavings.py). "Decided by rounding" are tokens that differ from numpy's as much as the
kernels' noise explains. A play that fails is reported with its seed; `--only` plays it again.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from rich.table import Table

from app.models.build_outputs import kernel_path
from py_core.paging import page_table
from py_core.paging.page_table import PAGE
from tests.backends.test_interleavings import CONTEXT, NAMES, Step, play
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.models.architectures.variants import VARIANTS
from tests.paging.test_tiers import POLICY
from tests.tiny.llama import TinyLlama
from tests.tiny.models import ALL_BYTES

NOISE = 1e-3
"""The tolerance, as a share of the largest logit. The tests use half of it, which 2 of 100,000 answers exceeded."""
TIERS_NOISE = 0.5
"""The tolerance with tiers: the contents of a tier also depend on the order of reading."""
GEMMA = VARIANTS["gemma2"]
MODELS = {
    "plain": TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT),
    "windows": replace(
        GEMMA, config={**GEMMA.config, "vocab_size": ALL_BYTES, "max_position_embeddings": CONTEXT}, context=CONTEXT
    ),
    "tiers": TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT, seed=1),
}


def played(kind: str, seed: int, folder: Path, kernel: Path) -> tuple[Counter[str], str]:
    """Return counts of what was seen, and the error or ""."""
    draw = random.Random(seed)
    name = draw.choice(list(MODELS))
    path = folder / f"{name}.gguf"
    names = [*NAMES, "uses an adapter"]
    steps = [Step(draw.choice(names), draw.randint(0, 11), draw.randint(1, 200)) for _ in range(draw.randint(20, 60))]
    seen = Counter({"plays": 1, "steps": len(steps), f"plays ({name})": 1})
    page_table.FIRST_PAGES, page_table.SLACK = 2, PAGE  # windows of 16 tokens then keep less than the context
    try:
        tiers = POLICY if name == "tiers" else None
        noise = TIERS_NOISE if tiers else NOISE
        asyncio.run(
            play(kind, path, kernel, steps, seen, adapters=2, counts_pages=name == "plain", tiers=tiers, noise=noise)
        )
    except Exception:
        return seen, f"{kind}, {name}, seed {seed}: {traceback.format_exc(limit=-3)}"
    return seen, ""


def played_until(
    kind: str, end: float, seed: int, every: int, folder: Path, kernel: Path
) -> tuple[Counter[str], list[str]]:
    seen, wrong = Counter[str](), []
    while time.time() < end:
        one, problem = played(kind, seed, folder, kernel)
        seen += one
        wrong += [problem] if problem else []
        seed += every
    return seen, wrong


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--kind", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    kernel = kernel_path()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, model in MODELS.items():
            model.write(folder / f"{name}.gguf")
        if given.only is not None:
            seen, problem = played(given.kind, given.only, folder, kernel)
            wrong = [problem] if problem else []
        else:
            end = time.time() + given.seconds
            with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
                runs = [
                    pool.submit(played_until, given.kind, end, given.seed + at, given.processes, folder, kernel)
                    for at in range(given.processes)
                ]
                results = [run.result() for run in runs]
            seen = sum((one for one, _ in results), Counter())
            wrong = [problem for _, problems in results for problem in problems]
    table = Table("seen", "times")
    for what, times in sorted(seen.items()):
        table.add_row(what, f"{times:,}")
    table.add_row("plays that went wrong", f"{len(wrong):,}")
    print_tables(table)
    print(*wrong[:20], sep="\n")
    write_figures(given, {"kind": given.kind, "seen": seen, "wrong": wrong})
