"""The cost of sonata.js and of the service worker beside the page's own chat, in one interleaved run.

    python -m tests.bench page_object [--backend wasm] [--workers 2] [--rounds 12] [--tokens 96] [--json FILE]

One page, one engine, and the same question without routing, in turns: the chat of the page; a stream of the object that
`Sonata.load()` gives; and a stream of a plain fetch of `/v1/chat/completions`, which the service worker answers. Each
answer ends at --tokens tokens, and is read to its end; a rate is that of the tokens behind the first text. `beside` is
the median of the rounds' ratios to the chat.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from playwright.sync_api import Page
from rich.table import Table

from tests.bench.in_browser import LIMIT_MS, chromium, evaluate, local_server, processor, until_ready
from tests.bench.reporting import options_of, print_tables, write_figures

WAYS = ("page", "object", "fetch")
QUESTION = "Tell me a long story about a keeper of a lighthouse."
LOAD = """async (options) => {
  const { Sonata } = await import(new URL('sonata.js', location));
  globalThis.object = await Sonata.load({ ...options, routing: false });
}"""
RATE = """async (texts, count) => {
  let first = 0;
  for await (const text of texts) if (text) first ||= performance.now();
  return (count - 1) / (performance.now() - first) * 1000;
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
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()
    given = {"backend": options.backend, "workers": options.workers}
    with local_server() as address, chromium() as browser:
        page = browser.new_page(bypass_csp=True)  # whose policy lets nobody else load Sonata there
        page.goto(
            f"{address}/?backend={options.backend}&workers={options.workers}&routing=off&max_tokens={options.tokens}"
        )
        until_ready(page)
        page.wait_for_function("() => navigator.serviceWorker.controller", timeout=LIMIT_MS)
        evaluate(page, LOAD, given)
        rows = measure(page, options.rounds, options.tokens)
        adapter = page.evaluate("sonata.info.adapter")
    found = figures(rows) | {"adapter": adapter, "cpu": processor(), "tokens": options.tokens, **given}
    table = Table("way", "tokens/s", "beside the chat", title=f"{adapter}; {found['cpu']}; {options.tokens} tokens")
    for way in WAYS:
        table.add_row(way, f"{found[way]['per_second']:.1f}", f"{found[way]['beside']:.3f}")
    print_tables(table)
    write_figures(options, found)


def measure(page: Page, rounds: int, count: int) -> list[dict[str, float]]:
    """Return tokens a second of each way, by round."""
    messages = [{"role": "user", "content": QUESTION}]
    body = {"messages": messages, "max_tokens": count, "stream": True}
    rows = []
    for number in range(rounds + 1):
        row = {}
        for at in range(len(WAYS)):
            way = WAYS[(at + number) % len(WAYS)]
            script = f"([question, body, count]) => ({RATE})(({TEXTS[way]})(question, body), count)"
            row[way] = evaluate(page, script, [QUESTION, body, count])
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
