"""The cost of sonata.js and of the service worker beside the page's own chat, in one interleaved run.

    python -m tests.bench page_object [--backend wasm] [--workers 2] [--rounds 12] [--characters 1400] [--json FILE]

One page, one engine, and the same prompt, rules and answer without routing, in turns: the chat of the page; a stream of
the object that `Sonata.load()` gives; and a stream of a plain fetch of `/v1/chat/completions`, which the service worker
answers. Each is left after --characters characters. A rate is that of the characters behind the first text. `beside` is
the median of the rounds' ratios to the chat.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from playwright.sync_api import Page
from rich.table import Table

from app.generation.answer_settings import kept_from_loops
from app.generation.assistant import CHAT_SAMPLING, SYSTEM_PROMPT
from tests.bench.in_browser import LIMIT_MS, chromium, evaluate, local_server, processor, until_ready
from tests.bench.reporting import options_of, print_tables, write_figures

WAYS = ("page", "object", "fetch")
QUESTION = "Tell me a long story about a keeper of a lighthouse."
LOAD = """async (options) => {
  const { Sonata } = await import(new URL('sonata.js', location));
  globalThis.object = await Sonata.load({ ...options, routing: false });
}"""
PAUSE_MS = 700
"""Before an answer: what the chat stores and learns from the one before is over."""
RATE = """async (texts, most) => {
  let first = 0, characters = 0;
  for await (const text of texts) {
    if (first) characters += text?.length ?? 0;
    else if (text) first = performance.now();
    if (characters >= most) break;
  }
  return characters / (performance.now() - first) * 1000;
}"""
TEXTS = {
    "page": """async function* (question) {
      await sonata.engine.conversation.begin();
      for await (const event of await sonata.engine.conversation.respond({ text: question })) {
        if (event.type === 'delta') yield event.text;
      }
    }""",
    "object": """async function* (question, body) {
      for await (const { choices: [choice] } of await object.chat.completions.create(body)) yield choice?.delta.content;
    }""",
    "fetch": """async function* (question, body) {
      const { body: parts } = await fetch('v1/chat/completions', { method: 'POST', body: JSON.stringify(body) });
      for await (const part of parts.pipeThrough(new TextDecoderStream())) {
        for (const event of part.split('\\n\\n')) {
          const data = event.slice('data: '.length);
          if (data && data !== '[DONE]') yield JSON.parse(data).choices[0]?.delta.content;
        }
      }
    }""",
}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", default="wasm", choices=("wasm", "webgpu"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--characters", type=int, default=1400)
    options = parser.parse_args()
    given = {"backend": options.backend, "workers": options.workers}
    with local_server() as address, chromium() as browser:
        page = browser.new_page(bypass_csp=True)  # whose policy lets nobody else load Sonata there
        page.goto(f"{address}/?backend={options.backend}&workers={options.workers}&routing=off")
        until_ready(page)
        page.wait_for_function("() => navigator.serviceWorker.controller", timeout=LIMIT_MS)
        evaluate(page, LOAD, given)
        rows = measure(page, options.rounds, options.characters)
        adapter = page.evaluate("sonata.info.adapter")
    found = figures(rows) | {"adapter": adapter, "cpu": processor(), "characters": options.characters, **given}
    table = Table(
        "way", "characters/s", "beside the chat", title=f"{adapter}; {found['cpu']}; {options.characters} characters"
    )
    for way in WAYS:
        table.add_row(way, f"{found[way]['per_second']:.1f}", f"{found[way]['beside']:.3f}")
    print_tables(table)
    write_figures(options, found)


def measure(page: Page, rounds: int, most: int) -> list[dict[str, float]]:
    """Return characters a second of each way, by round."""
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": QUESTION}]
    rules = kept_from_loops(CHAT_SAMPLING, 0)  # those of the chat: the answers are the same
    body = {"messages": messages, "frequency_penalty": rules.frequency_penalty, "stream": True}
    rows = []
    for number in range(rounds + 1):
        row = {}
        for at in range(len(WAYS)):
            way = WAYS[(at + number) % len(WAYS)]
            script = f"([question, body, most]) => ({RATE})(({TEXTS[way]})(question, body), most)"
            page.wait_for_timeout(PAUSE_MS)
            row[way] = evaluate(page, script, [QUESTION, body, most])
        rows.append(row)
    return rows[1:]  # the first one reads the prompt


def figures(rows: list[dict[str, float]]) -> dict[str, Any]:
    return {
        way: {
            "per_second": median(row[way] for row in rows),
            "beside": median(row[way] / row["page"] for row in rows),
        }
        for way in WAYS
    }
