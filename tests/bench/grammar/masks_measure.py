"""The measurement of grammar_masks.py --browser, natively and, as text, in the page: compilations and masks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from py_core.grammar.expressions import GrammarError
from py_core.grammar.kernel import GrammarKernel
from py_core.grammar.schema import schema_grammar


def measure(
    kernel: GrammarKernel, rows: Sequence[tuple[Any, list[list[int]]]], clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """rows: schemas, each with the tokens of valid instances. Returns {schemas, masks, compile_ms, mask_us}, the last
    two as {mean, p50, p95, p99, max}; refused schemas are left out."""
    compile_ms, mask_us = list[float](), list[float]()
    for schema, instances in rows:
        begin = clock()
        try:
            opened = kernel.open(schema_grammar(schema))
        except GrammarError:
            continue
        compile_ms.append(1e3 * (clock() - begin))
        for tokens in instances:
            state: int | None = opened.begins
            for token in tokens:
                assert state is not None
                begin = clock()
                opened.mask(state)
                mask_us.append(1e6 * (clock() - begin))
                state = opened.after_token(state, token)
        opened.close()
    return {
        "schemas": len(compile_ms),
        "masks": len(mask_us),
        "compile_ms": spread(compile_ms),
        "mask_us": spread(mask_us),
    }


def spread(values: list[float]) -> dict[str, float]:
    parts = {f"p{part}": float(np.percentile(values, part)) for part in (50, 95, 99)}
    return {"mean": float(np.mean(values)), **parts, "max": max(values)}
