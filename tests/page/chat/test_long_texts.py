"""Long and strange texts on the page: they are shown completely, drawn in slices, and as plain text if they would
take too long."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

SHOW = """async ([text, piece]) => {
  const { AnswerView } = await import('./turn/answer_view.js');
  const parent = document.createElement('div');
  let draws = 0;
  const view = new AnswerView(parent, { onDraw: () => (draws += 0.5) }); // before and after each
  for (let at = 0; at < text.length; at += piece) {
    view.append(text.slice(at, at + piece));
    if (piece < text.length) await new Promise(requestAnimationFrame);
  }
  view.finish();
  // All of it is drawn once nothing waits in the tail; a busy machine may take many turns to come to a slice.
  const waiting = () => parent.children[1].childNodes.length > 0;
  for (let before = -1, still = 0; still < (waiting() ? 500 : 20); before = draws) {
    await new Promise((resolve) => setTimeout(resolve));
    still = before === draws ? still + 1 : 0;
  }
  const count = (selector) => parent.querySelectorAll(selector).length;
  const [settled, tail] = parent.children;
  for (const head of parent.querySelectorAll('.code-head')) head.remove();
  return {
    draws, text: parent.textContent, html: settled.innerHTML.replaceAll('\\n', ''), left: tail.childNodes.length,
    strong: count('strong'), pre: count('pre'),
    parts: [...parent.querySelectorAll('pre > code')].map((part) => part.textContent),
    code: count('code'), bad: count('script, img, iframe, form, svg:not(.icon), [onerror], [onload]'),
  };
}"""
AT_ONCE = 10**9
WHOLE = """async (text) => {
  const { lexBlocks, renderBlocks } = await import('./markdown/markdown.js');
  const { enrich } = await import('./markdown/rich_blocks.js');
  const whole = document.createElement('div');
  whole.append(renderBlocks(lexBlocks(text)));
  enrich(whole, [], () => {});
  for (const head of whole.querySelectorAll('.code-head')) head.remove();
  return whole.innerHTML.replaceAll('\\n', '');
}"""
SECTION = """## Part {n}

The sky is **blue** because of *scattering*, see [this](https://example.org/{n}).

1. one
2. two `code`

- a
- b

| a | b |
|---|---:|
| {n} | 2 |

```python
def f(x):
    return x
```

> a quote

"""
HOSTILE = '<img src=x onerror="window.harmed=1"> <script>window.harmed=1</script> [a](javascript:window.harmed=1)\n\n'
STORED = """async ([turns, meanwhile]) => {
  const { ChatView } = await import('./chat/chat_view.js');
  const [scroller, welcome, log] = ['div', 'div', 'div'].map((name) => document.createElement(name));
  scroller.append(welcome, log);
  document.body.append(scroller);
  const chat = new ChatView({ scroller, welcome, log }, { say() {} });
  const questions = () => [...log.querySelectorAll('.question .body')].map((body) => body.textContent);
  const done = chat.showStored(turns, sonata.engine);
  const first = questions();
  if (meanwhile === 'said') chat.addTurn('Meanwhile');
  if (meanwhile === 'cleared') chat.clear(true);
  await done;
  scroller.remove();
  const answers = [...log.querySelectorAll('.answer .body')].map((body) => body.textContent);
  return { first, questions: questions(), answers, nodes: log.childNodes.length };
}"""


async def show(chat: ChatPage, text: str, piece: int = AT_ONCE) -> dict:
    return await chat.page.evaluate(SHOW, [text, piece])


@pytest.mark.parametrize("piece", [AT_ONCE, 3000])
async def test_emphasis_without_end_is_plain_text_and_all_of_it_is_there(page_apart: ChatPage, piece: int) -> None:
    text = "**x** *y " * 6700
    shown = await show(page_apart, text, piece)
    assert "".join(shown["text"].split()).endswith("".join(text.split())[-40_000:])
    assert shown["strong"] < 1000
    assert shown["left"] == 0
    assert shown["draws"] > 5  # no single task drew all of it


async def test_a_dense_paragraph_of_usual_length_is_markdown(page_apart: ChatPage) -> None:
    shown = await show(page_apart, "**bold** and *italic* and `code`, " * 60)
    assert (shown["strong"], shown["code"]) == (60, 60)


@pytest.mark.parametrize("piece", [AT_ONCE, 997])
async def test_a_long_answer_in_slices_is_what_it_would_be_as_a_whole(page_apart: ChatPage, piece: int) -> None:
    text = "".join(SECTION.replace("{n}", str(number)) for number in range(90))
    shown = await show(page_apart, text, piece)
    assert shown["html"] == await page_apart.page.evaluate(WHOLE, text)
    assert shown["draws"] > 3


async def test_an_answer_as_long_as_usual_is_there_at_once(page_apart: ChatPage) -> None:
    assert (await show(page_apart, SECTION * 12))["draws"] == 1


@pytest.mark.parametrize("piece", [AT_ONCE, 1500])
async def test_long_code_stays_code_and_what_follows_is_markdown(page_apart: ChatPage, piece: int) -> None:
    code = "\n".join(f"let answer{number} = '**42**';" for number in range(1500))
    shown = await show(page_apart, f"Look:\n\n```js\n{code}\n```\n\nThat is **all**.", piece)
    assert "\n".join(shown["parts"]) == code
    assert len(shown["parts"]) > 2
    assert shown["pre"] == 1  # which scrolls and is copied as one block
    assert shown["strong"] == 1
    assert shown["text"].endswith("That is all.\n") or shown["text"].endswith("That is all.")


@pytest.mark.parametrize(
    "block", ["<!-- a\n\n", "> a\n", "  - a\n    - b\n", "| a | b |\n", "[a]: b\n", "`a ``b ", "- a\n\n  "]
)
async def test_blocks_without_end_are_shown_in_a_few_slices(page_apart: ChatPage, block: str) -> None:
    text = block * (40_000 // len(block))
    shown = await show(page_apart, text)
    assert shown["left"] == 0
    assert (
        shown["text"].count("a") > 0.99 * text.count("a") or block == "[a]: b\n"
    )  # which defines the target of a link
    assert shown["draws"] < 60


async def test_after_a_block_that_is_too_long_there_is_markdown_again(page_apart: ChatPage) -> None:
    shown = await show(page_apart, "x" * 50_000 + "\n\nThat is **all**.")
    assert shown["strong"] == 1
    assert shown["text"].count("x") == 50_000


async def test_hostile_text_is_sanitised_in_every_slice(page_apart: ChatPage) -> None:
    shown = await show(page_apart, HOSTILE * 300)
    assert shown["bad"] == 0
    assert shown["text"].count("<script>") == 300
    assert 'href="javascript:' not in shown["html"]
    assert not await page_apart.page.evaluate("window.harmed")
    assert page_apart.errors == []


def turns_of(pairs: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for number in range(pairs):
        events = [{"type": "delta", "text": f"Answer {number}"}, {"type": "done", "reason": "end"}]
        turns.append({"role": "user", "content": f"Question {number}", "events": []})
        turns.append({"role": "assistant", "content": f"Answer {number}", "events": events})
    return turns


async def test_a_long_stored_chat_shows_its_end_at_once_and_then_all_of_it_in_order(page_apart: ChatPage) -> None:
    shown = await page_apart.page.evaluate(STORED, [turns_of(500), ""])
    assert shown["first"][-1] == "Question 499"
    assert shown["first"] == shown["questions"][-len(shown["first"]) :]
    assert shown["questions"] == [f"Question {number}" for number in range(500)]
    assert [answer.strip() for answer in shown["answers"]] == [f"Answer {number}" for number in range(500)]
    assert shown["nodes"] == 1000
    assert len(shown["first"]) < 500  # no single task drew all of it


async def test_what_is_said_while_a_stored_chat_comes_stays_below_it(page_apart: ChatPage) -> None:
    shown = await page_apart.page.evaluate(STORED, [turns_of(200), "said"])
    assert shown["questions"] == [*(f"Question {number}" for number in range(200)), "Meanwhile"]


async def test_a_stored_chat_that_is_left_adds_nothing_more(page_apart: ChatPage) -> None:
    assert (await page_apart.page.evaluate(STORED, [turns_of(400), "cleared"]))["questions"] == []


async def test_a_message_that_cannot_fit_is_neither_shown_nor_sent(page_apart: ChatPage) -> None:
    await page_apart.send("x" * 100_001)
    said = "The text is too long: it has 100,001 characters, and the model reads at most 8,192 tokens."
    await expect(page_apart.page.locator("#notices")).to_contain_text(f"{said} Shorten it, or send it in parts.")
    await expect(page_apart.page.locator("#log article")).to_have_count(0)
    assert len(await page_apart.page.input_value("#message")) == 100_001
    await page_apart.ask("Hello")
    await expect(page_apart.page.locator("#notices")).to_have_text("")
    why = "async (given) => (await import('./chat/message_length.js')).whyTooLong(...given)"
    spaced = "x" + " " * 700_000 + "\x06" * 100_000 + "y" * 99_999
    model = {"contextLength": 8192, "longestPrompt": 100_000}
    assert await page_apart.page.evaluate(why, [spaced, model]) is None
    assert await page_apart.page.evaluate(why, [spaced, model | {"longestPrompt": None}]) is None
    assert "Send it once the model is loaded" in await page_apart.page.evaluate(why, ["x" * 200_001, None])
