"""The first words of an answer in a chat of 2,000 tokens after a reload of the page, with and without kept pages.

    python -m tests.bench resume_page [--precision precise] [--workers 2] [--words 1500] [--rounds 3] [--wait 2]
        [--json FILE]

Headless Chromium, the WASM backend, the usual model, pages in IndexedDB. `--wait`: seconds between the page being ready
and the question, in which a person reads. "Without" deletes the pages before the reload. Medians.
"""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from rich.table import Table

from tests.bench.in_browser import LIMIT_MS, SonataTab, chromium, evaluate, local_server, machine
from tests.bench.reporting import options_of, print_tables, write_figures

WORDS = (
    "the",
    "a",
    "harbour",
    "page",
    "reads",
    "boat",
    "answer",
    "question",
    "long",
    "chat",
    "memory",
    "of",
    "weather",
)
ASK = """async (text) => {
  const asked = performance.now();
  let first = 0, done = {};
  for await (const event of await sonata.engine.conversation.respond({ text })) {
    if (event.type === 'delta') first ||= performance.now();
    if (event.type === 'done') done = event;
  }
  return { ms: first - asked, reused: done.reusedTokens, prompt: done.promptTokens };
}"""
COUNT = """async () => {
  const open = indexedDB.open('sonata-pages');
  const db = await new Promise((done, fail) => { open.onsuccess = () => done(open.result); open.onerror = fail; });
  const counts = [...db.objectStoreNames].map((store) => new Promise((done) => {
    const asked = db.transaction(store).objectStore(store).count();
    asked.onsuccess = () => done(asked.result);
  }));
  const all = await Promise.all(counts);
  db.close();
  return all.reduce((a, b) => a + b, 0);
}"""
CLEAR = """() => new Promise((done, fail) => {
  const open = indexedDB.open('sonata-pages');
  open.onsuccess = () => {
    const db = open.result, names = [...db.objectStoreNames];
    if (!names.length) return fail(new Error('The page has kept nothing: the chat is too short.'));
    const all = db.transaction(names, 'readwrite');
    for (const name of names) all.objectStore(name).clear();
    all.oncomplete = () => { db.close(); done(); };
  };
  open.onerror = fail;
})"""


def keeps_all(page: Any) -> None:
    """Wait until no more pages are kept."""
    before = -1
    while (count := evaluate(page, COUNT)) != before:
        before = count
        page.wait_for_timeout(1500)


def reloaded(tab: SonataTab, wait: float) -> None:
    tab.page.reload()
    tab._ready()
    tab.page.wait_for_selector(".answer", timeout=LIMIT_MS)
    tab.page.wait_for_timeout(1000 * wait)


def measure(tab: SonataTab, words: int, rounds: int, wait: float) -> dict[str, Any]:
    draw = random.Random(1)
    tab.page.fill("#message", "Tell me about this: " + " ".join(draw.choices(WORDS, k=words)))
    tab.page.press("#message", "Enter")
    tab.page.wait_for_function("() => sonata.lastAnswer", timeout=LIMIT_MS)
    tab._ready()
    keeps_all(tab.page)
    found: dict[str, list[dict[str, float]]] = {"kept": [], "read": []}
    for turn in range(rounds):
        for name in ("kept", "read"):
            if name == "read":
                evaluate(tab.page, CLEAR)
            reloaded(tab, wait)
            found[name].append(evaluate(tab.page, ASK, f"And what is number {turn}?"))
            keeps_all(tab.page)
    return {f"{name}_{key}": median(one[key] for one in each) for name, each in found.items() for key in each[0]}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--words", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wait", type=float, default=2.0)
    options = parser.parse_args()
    with local_server() as address, chromium() as browser:
        tab = SonataTab(browser, address, options.workers, options.precision, "&routing=off&max_tokens=8")
        found = measure(tab, options.words, options.rounds, options.wait)
        about = machine(browser)
    write_figures(options, {"machine": about, **found})
    table = Table(title=f"First words after a reload, ms; {options.precision}, {options.workers} workers")
    for column in ("", "first words, ms", "tokens of the prompt", "of these not read again"):
        table.add_column(column, justify="right")
    for name, label in (("read", "all read"), ("kept", "from disk")):
        figures = (found[f"{name}_ms"], found[f"{name}_prompt"], found[f"{name}_reused"])
        table.add_row(label, *(f"{figure:,.0f}" for figure in figures))
    print_tables(table)
