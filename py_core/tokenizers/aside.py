"""Encodes long texts beside other work: a megabyte takes a second, or twenty if it has no words that occur again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

LONG = 20_000
"""Characters: a shorter text takes little longer than a step of the model."""

_THREADS = 2
"""More would only take the interpreter from the event loop more often."""


async def encode_aside(length: int, encode: Callable[[], list[int]]) -> list[int]:
    """Return what `encode` returns for a text of this length. A long one is encoded in a thread, if there are any: not
    in the page. Tokenizers share nothing between threads but their caches."""
    if length < LONG or sys.platform == "emscripten":
        return encode()
    return await asyncio.get_running_loop().run_in_executor(_threads(), encode)


@cache
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # the page has no threads, and need not read it

    return ThreadPoolExecutor(_THREADS, "tokenizer")
