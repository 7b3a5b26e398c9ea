"""The time of the renderer of chat templates, and a comparison of its output with jinja2's on published templates.

    python -m tests.bench chat_templates [--turns 50] [--page] [--published FOLDER]

The table: milliseconds, the median of 20, of one rendering of a chat of --turns turns (200 characters each), in
wasmtime, with --page in the page (its worker, including the messages), and in jinja2 (compiled before); and of the
whole prompt with SmolLM2's tokenizer, natively. FOLDER: *.jinja files, each rendered with each conversation of
tests/tokenizers/test_jinja.py; differences are listed.
"""

from __future__ import annotations

import asyncio
import base64
import math
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

from app.building.site.dist import DIST
from app.building.system import CHROMIUM_FLAGS, find_chromium
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.formats.gguf import parse_header
from py_core.tokenizers.chat_template import ChatTemplate, encode_chat
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.template_renderer import MAX_SECONDS, encode_request
from tests.bench.page.page_load import start_server
from tests.bench.reporting import options_of
from tests.tokenizers.jinja_reference import environment, reference
from tests.tokenizers.test_jinja import CHATS, FAMILIES, rendered, said

ROUNDS = 20


async def milliseconds(run: Callable[[], Awaitable[Any]]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await run()
        taken.append(1000 * (time.perf_counter() - begin))
    return statistics.median(taken)


IN_PAGE = """async ([request, rounds]) => {
  globalThis.cage ??= new (await import('./tokenizers/template_cage.js')).TemplateCage();
  const bytes = () => Uint8Array.from(atob(request), (c) => c.charCodeAt(0));
  await cage.run(bytes(), false, 2000);
  const taken = [];
  for (let round = 0; round < rounds; round++) {
    const given = bytes(), begin = performance.now();
    await cage.run(given, false, 2000);
    taken.push(performance.now() - begin);
  }
  return taken.sort((a, b) => a - b)[rounds >> 1];
}"""


async def in_page(requests: dict[str, bytes]) -> dict[str, float]:
    """Milliseconds by name, in Chromium."""
    server, address = start_server("isolating", DIST)
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=find_chromium(), args=[*CHROMIUM_FLAGS])
            page = await browser.new_page(bypass_csp=True)
            await page.goto(f"{address}/THIRD_PARTY.txt")
            encoded = {name: base64.b64encode(request).decode() for name, request in requests.items()}
            return {name: await page.evaluate(IN_PAGE, [given, ROUNDS]) for name, given in encoded.items()}
    finally:
        server.terminate()
        server.communicate(timeout=10)


async def measure(turns: int, with_page: bool) -> None:
    metadata = parse_header(default_model_path().read_bytes()[: 2 << 20]).metadata
    tokenizer, renderer = tokenizer_from_gguf(metadata), native_renderer()
    messages = [{"role": ("user", "assistant")[turn % 2], "content": "word " * 40} for turn in range(turns | 1)]
    variables = {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    sources = {path.stem: path.read_text(encoding="utf-8") for path in FAMILIES}
    sources["SmolLM2's own"] = metadata["tokenizer.chat_template"]
    requests = {name: encode_request(source, variables) for name, source in sources.items()}
    page = await in_page(requests) if with_page else {}
    print(f"{turns} turns{'':<12}{'wasmtime':>10}{'page':>10}{'jinja2':>10}{'prompt':>10}")
    for name, source in sources.items():
        compiled, template = environment().from_string(source), ChatTemplate(source, renderer)

        async def run_here(request: bytes = requests[name]) -> None:
            await renderer.run(request, False, MAX_SECONDS)

        async def run_jinja2(compiled: Any = compiled) -> None:
            compiled.render(**variables)

        async def make_prompt(template: ChatTemplate = template) -> None:
            await encode_chat(tokenizer, template, messages)

        figures = [await milliseconds(run) for run in (run_here, run_jinja2, make_prompt)]
        figures.insert(1, page.get(name, math.nan))
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
    parser = options_of(__doc__)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--published", type=Path)
    options = parser.parse_args()
    asyncio.run(measure(options.turns, options.page))
    if options.published:
        compare(options.published)
