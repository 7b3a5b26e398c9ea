"""Encodes long texts beside other work: a megabyte takes a second, or twenty if it has no words that occur again."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

from py_core.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

LONG = 20_000
"""Characters: a shorter text takes little longer than a step of the model."""

HAS_THREADS = sys.platform != "emscripten"
_THREADS = 2
"""More would only take the interpreter from the event loop more often."""

_AT_ONCE = 0.01
"""Seconds of encoding until others have their turn, without threads."""


async def encode_aside(
    tokenizer: Tokenizer, parts: Sequence[tuple[str, bool]], guarded: Collection[str] = ()
) -> list[int]:
    """Return what `encode_parts` returns. A long text is encoded in a thread; in the page, which has none, in pieces.
    Tokenizers share nothing between threads but their caches."""
    if sum(len(text) for text, _ in parts) < LONG:
        return tokenizer.encode_parts(parts, guarded)
    if HAS_THREADS:
        return await asyncio.get_running_loop().run_in_executor(_threads(), tokenizer.encode_parts, parts, guarded)
    out, begin = list[int](), time.perf_counter()
    for piece in tokenizer.encode_pieces(parts, guarded):
        out += piece
        if time.perf_counter() - begin > _AT_ONCE:
            await asyncio.sleep(0)
            begin = time.perf_counter()
    return out


@cache
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # the page has no threads, and need not read it

    return ThreadPoolExecutor(_THREADS, "tokenizer")
