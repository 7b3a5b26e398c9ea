"""The cost of teaching and recalling in the page, in headless Chromium with the WASM backend.

    python -m tests.bench instant_page [--facts N] [--workers N] [--json FILE]

Each fact of app/lessons/facts (held) is taught, then asked for in other words. Milliseconds are medians, with the
least beside them: other programs may run beside it.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from app.lessons.facts import facts
from tests.bench.in_browser import LIMIT_MS, SonataTab, chromium, evaluate, local_server
from tests.bench.reporting import options_of, write_figures

TEACH = """async ([question, answer]) => {
    const start = performance.now();
    const learned = await sonata.engine.learning.teach({ question, answer });
    return { ...learned, wall: performance.now() - start };
}"""
ASK = """async (question) => {
    await sonata.engine.conversation.begin();
    const start = performance.now();
    const told = { lesson: null, text: '', first: null };
    for await (const event of await sonata.engine.conversation.respond({ text: question })) {
        if (event.type === 'recall') told.lesson = event;
        if (event.type === 'delta') {
            told.first ??= performance.now() - start;
            told.text += event.text;
        }
    }
    return told;
}"""


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--facts", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chosen = facts("held")[: options.facts]
    times: dict[str, list[float]] = {}
    right = 0

    def note(name: str, ms: float) -> None:
        times.setdefault(name, []).append(ms)

    with local_server() as address, chromium() as browser:
        tab = SonataTab(browser, address, options.workers, "precise")
        tab.page.wait_for_function("() => document.documentElement.dataset.learning === 'ready'", timeout=LIMIT_MS)
        before: Any = evaluate(tab.page, ASK, "What is the capital of France?")
        note("first word, nothing taught", evaluate(tab.page, ASK, "What is the capital of France?")["first"])
        for fact in chosen:
            learned: Any = evaluate(tab.page, TEACH, [fact.question, fact.answer])
            note("teach", learned["ms"])
        after: Any = evaluate(tab.page, ASK, "What is the capital of France?")
        note("first word, gate shut", after["first"])
        for fact in chosen:
            said: Any = evaluate(tab.page, ASK, fact.paraphrases[0])
            right += said["text"] == fact.answer
            if said["lesson"]:
                note("recall: embedding, search, gate", said["lesson"]["ms"])
                note("first word of a taught answer", said["first"])
        tab.close()
    print(f"unrelated answer the same: {before['text'] == after['text']}; {right} of {len(chosen)} said in other words")
    for name, each in times.items():
        print(f"{name}: median {median(each):.0f} ms, least {min(each):.0f} ms")
    write_figures(options, {"milliseconds": times, "right": right, "facts": len(chosen)})
