"""Compares the ways to find the right passage: by meaning, by words, or by both. Prints recall over tests/passages.

python -m tests.bench passages [--json FILE]
"""

from __future__ import annotations

import time

from app.cli.terminal import say
from app.native_runtime import open_embedder
from tests.bench.reporting import options_of, write_figures
from tests.passages.asked import open_case

WAYS, PLACES = ("meaning", "words", "both"), (1, 3, 5)


async def main() -> None:
    options = options_of(__doc__).parse_args()
    embedder = open_embedder()
    begin = time.perf_counter()
    case = await open_case(embedder)
    milliseconds = 1000 * (time.perf_counter() - begin) / (len(case.texts) + len(case.asked))
    found = {way: {most: case.recall(way, most) for most in PLACES} for way in WAYS}
    write_figures(options, {"questions": len(case.asked), "passages": len(case.texts), "found": found})
    say(f"{len(case.asked)} questions, {len(case.texts)} passages, {milliseconds:.0f} ms a text")
    for way in WAYS:
        say(f"{way:8}" + "".join(f"  at {most}: {found[way][most]:3}" for most in PLACES))
