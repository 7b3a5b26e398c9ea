"""The longest task of the page while it shows long or strange answers, in Chromium.

    python -m tests.bench markdown [--characters 60000] [--only NAME ...]

`at once` shows a whole answer, as from the memory; `streamed` gets it in pieces of 96 characters, one every 4 ms.
The last line is of a chat that is shown after a reload. A task is Chromium's long task, drawing included; tasks
under 50 ms are not counted. `until` is the time at which all of it was there.
"""

from __future__ import annotations

from tests.bench.in_browser import chromium, local_server
from tests.bench.reporting import options_of

REPEATED = {
    "bold and italic": "**x** *y ",
    "open emphasis": "*a **b _c __d ",
    "closed emphasis": "**bold** and *italic* words, ",
    "brackets": "[",
    "open links": "[a](b ",
    "links": "[a](https://example.org) ",
    "images": "![a](b) ",
    "backticks": "`a ``b ```c ",
    "tags": "<a <b ",
    "comments": "<!-- a ",
    "comment blocks": "<!-- a\n\n",
    "strikes": "~~a ~b ",
    "formulas": "\\(a ",
    "addresses": "www.a.b http://c ",
    "mail": "a.b@",
    "escapes": "\\*a\\_",
    "entities": "&amp;&lt;",
    "quotes": ">",
    "quoted lines": "> a\n",
    "nested lists": "".join(f"{'  ' * depth}- a\n" for depth in range(40)),
    "list": "1. item **a** of a list\n",
    "one item": "- a\n\n  " + "b c\n\n  " * 20,
    "table": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 40 + "\n",
    "long table": "| 1 | 2 |\n",
    "wide table": "|" * 200 + "\n" + "|-" * 199 + "|\n\n",
    "headings": "# a\n",
    "lines": "a\n",
    "definitions": "[a]: b\n",
    "code": "let answer = 42;\n",
    "prose": "The sky is blue because of **Rayleigh scattering**: air scatters short waves more.\n\n",
    "one paragraph": "The sky is *blue* because air scatters short waves more than long ones, ",
    "no spaces": "x",
}
BEFORE = {"code": "```\n", "long table": "| a | b |\n|---|---|\n"}
MEASURE = """async ([text, streamed]) => {
  const { AnswerView } = await import('./turn/answer_view.js');
  const tasks = [0];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)));
  observer.observe({ type: 'longtask' });
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const parent = document.createElement('div');
  parent.className = 'body';
  document.querySelector('.answer').replaceChildren(parent);
  await pause(100);
  tasks.length = 1;
  const begin = performance.now();
  let changed = begin;
  const view = new AnswerView(parent, { onDraw: () => (changed = performance.now()) });
  if (streamed) {
    for (const piece of text.match(/[^]{1,96}/g)) {
      view.append(piece);
      await pause(4);
    }
  } else {
    view.append(text);
  }
  await new Promise((resolve) => setTimeout(() => resolve(view.finish())));
  while (performance.now() - changed < 300) await pause(50);
  observer.disconnect();
  return { longest: Math.max(...tasks), until: changed - begin, shown: parent.innerText.length };
}"""
CHAT = """async (turns) => {
  const { ChatView } = await import('./chat/chat_view.js');
  const tasks = [0];
  const note = (list) => tasks.push(...list.getEntries().map(({ duration }) => duration));
  new PerformanceObserver(note).observe({ type: 'longtask' });
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const element = (name) => document.body.appendChild(document.createElement(name));
  const parts = { scroller: element('div'), welcome: element('div'), log: element('div') };
  const view = new ChatView(parts, { say() {} });
  await pause(100);
  tasks.length = 1;
  const begin = performance.now();
  let changed = begin;
  new MutationObserver(() => (changed = performance.now())).observe(parts.log, { childList: true, subtree: true });
  await pause(0);
  await view.showStored(turns, { learning: { opinions: async () => ({}) } });
  while (performance.now() - changed < 300) await pause(50);
  return { longest: Math.max(...tasks), until: changed - begin, shown: parts.log.querySelectorAll('.answer').length };
}"""
ANSWER = "The sky is **blue** because of *scattering*.\n\n- one\n- two `three`\n\n```\nlet a = 1;\n```\n\nThat is all. "


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--characters", type=int, default=60_000)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--only", nargs="*", choices=REPEATED, default=list(REPEATED))
    options = parser.parse_args()
    print("milliseconds     at once: longest, until; streamed: longest, until; characters shown")
    with local_server() as site, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(60_000)
        page.goto(f"{site}/THIRD_PARTY.txt")
        page.evaluate(
            """(styles) => {
              const add = (to, name, what) => to.appendChild(Object.assign(document.createElement(name), what));
              document.documentElement.replaceChildren(document.createElement('head'), document.createElement('body'));
              for (const href of styles) add(document.head, 'link', { rel: 'stylesheet', href });
              add(document.body, 'article', { className: 'message answer' });
            }""",
            ["shell/style.css", "markdown/markdown.css"],
        )
        for name in options.only:
            repeated = REPEATED[name]
            text = BEFORE.get(name, "") + (repeated * (options.characters // len(repeated) + 1))[: options.characters]
            found = [page.evaluate(MEASURE, [text, streamed]) for streamed in (False, True)]
            cells = [f"{one[key]:.0f}" for one in found for key in ("longest", "until")]
            print(f"{name:<16}", *(f"{cell:>8}" for cell in cells), f"{found[0]['shown']:>10}", flush=True)
        events = [{"type": "delta", "text": ANSWER * 3}, {"type": "done", "reason": "end"}]
        asked = {"role": "user", "content": "Why is the sky blue?", "events": []}
        turns = [asked, {"role": "assistant", "content": ANSWER * 3, "events": events}] * (options.messages // 2)
        page.evaluate("document.body.replaceChildren()")
        chat = page.evaluate(CHAT, turns)
    print(f"{options.messages} messages: longest task {chat['longest']:.0f} ms, until {chat['until']:.0f} ms")
