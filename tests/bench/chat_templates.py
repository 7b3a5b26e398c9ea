"""How long the renderer of chat templates takes, and whether it makes of published templates what jinja2 makes of them.

    .venv/bin/python -m tests.bench.chat_templates [--turns 50] [--published FOLDER]

The first table: milliseconds, the median of 20, of one rendering of a chat of so many turns (200 characters each), in
wasmtime and in jinja2 (compiled before), and of the whole prompt with SmolLM2's tokenizer. FOLDER: *.jinja files, each
rendered with each conversation of tests/unit/test_jinja.py; what differs is listed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from app.downloads import default_model_path
from app.template_renderer import native_renderer
from py_core.formats.gguf import parse_header
from py_core.tokenizers.chat_template import ChatTemplate, encode_chat
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.template_renderer import MAX_SECONDS, encode_request
from tests.jinja_reference import environment, reference
from tests.unit.test_jinja import CHATS, FAMILIES, rendered, said

ROUNDS = 20


async def milliseconds(run: Callable[[], Awaitable[Any]]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await run()
        taken.append(1000 * (time.perf_counter() - begin))
    return statistics.median(taken)


async def measure(turns: int) -> None:
    metadata = parse_header(default_model_path().read_bytes()[: 2 << 20]).metadata
    tokenizer, renderer = tokenizer_from_gguf(metadata), native_renderer()
    messages = [{"role": ("user", "assistant")[turn % 2], "content": "word " * 40} for turn in range(turns | 1)]
    variables = {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    sources = {path.stem: path.read_text(encoding="utf-8") for path in FAMILIES}
    sources["SmolLM2's own"] = metadata["tokenizer.chat_template"]
    print(f"{turns} turns{'':<12}{'wasmtime':>10}{'jinja2':>10}{'prompt':>10}")
    for name, source in sources.items():
        compiled, template = environment().from_string(source), ChatTemplate(source, renderer)

        async def run_here(source: str = source) -> None:
            await renderer.run(encode_request(source, variables), False, MAX_SECONDS)

        async def run_jinja2(compiled: Any = compiled) -> None:
            compiled.render(**variables)

        async def make_prompt(template: ChatTemplate = template) -> None:
            await encode_chat(tokenizer, template, messages)

        figures = [await milliseconds(run) for run in (run_here, run_jinja2, make_prompt)]
        print(f"{name:<20}" + "".join(f"{figure:10.2f}" for figure in figures))


def compare(folder: Path) -> None:
    same = 0
    paths = sorted(folder.glob("*.jinja"))
    for path in paths:
        source = path.read_text(encoding="utf-8")
        for name, chat in CHATS.items():
            variables = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "tools": None, **chat}
            if said(rendered, source, variables) == said(reference, source, variables):
                same += 1
            else:
                print(f"differs: {path.stem}, {name}")
    print(f"{same} of {len(paths) * len(CHATS)} are the same ({len(paths)} templates)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--published", type=Path)
    options = parser.parse_args()
    asyncio.run(measure(options.turns))
    if options.published:
        compare(options.published)


if __name__ == "__main__":
    main()
