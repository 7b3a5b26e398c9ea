"""Which way finds the right passage: by meaning, by words, or by both. Prints recall over tests/passages.

.venv/bin/python tests/bench/passages.py [--json]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.cli.terminal import say
from app.native_runtime import open_embedder
from tests.passages.asked import open_case

WAYS, PLACES = ("meaning", "words", "both"), (1, 3, 5)


async def main() -> None:
    embedder = open_embedder()
    begin = time.perf_counter()
    case = await open_case(embedder)
    milliseconds = 1000 * (time.perf_counter() - begin) / (len(case.texts) + len(case.asked))
    found = {way: {most: case.recall(way, most) for most in PLACES} for way in WAYS}
    if "--json" in sys.argv:
        print(json.dumps({"questions": len(case.asked), "passages": len(case.texts), "found": found}))
        return
    say(f"{len(case.asked)} questions, {len(case.texts)} passages, {milliseconds:.0f} ms a text")
    for way in WAYS:
        say(f"{way:8}" + "".join(f"  at {most}: {found[way][most]:3}" for most in PLACES))


if __name__ == "__main__":
    asyncio.run(main())
