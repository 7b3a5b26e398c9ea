"""The look of answers: code, tables, tasks, formulas, links. The page alone, with a stand-in for the worker."""

from __future__ import annotations

import random
import re

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import found_by_axe

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHOW = """async ([texts, piece]) => {
  const { AnswerView } = await import('./turn/answer_view.js');
  const log = document.querySelector('#log');
  log.replaceChildren();
  for (const text of texts) {
    const answer = document.createElement('article'), body = document.createElement('div');
    answer.className = 'message answer';
    body.className = 'body';
    answer.append(body);
    log.append(answer);
    const view = new AnswerView(body);
    for (let at = 0; at < text.length; at += piece) {
      view.append(text.slice(at, at + piece));
      if (piece < text.length) await new Promise(requestAnimationFrame);
    }
    view.finish();
  }
}"""


async def show(chat: ChatPage, *texts: str, piece: int = 10**9) -> Locator:
    """Show answers of these texts instead of the conversation; in pieces, one a frame. Returns the body of the
    first."""
    await chat.page.evaluate("document.querySelector('#welcome').hidden = true")
    await chat.page.evaluate(SHOW, [list(texts), piece])
    return chat.page.locator(".answer .body").first


CODE = 'def area(r):\n    # of a circle\n    return 3.14 * r ** 2, "m²"'


@pytest.mark.parametrize("piece", [10**9, 9])
async def test_code_has_its_language_and_colours(page_apart: ChatPage, piece: int) -> None:
    body = await show(page_apart, f"Look:\n\n```py\n{CODE}\n```\n\nThat is it.", piece=piece)

    await expect(body.locator(".code-language")).to_have_text("Python")
    await expect(body.locator(".code-comment")).to_have_text("# of a circle")
    await expect(body.locator(".code-keyword")).to_have_text(["def", "return"])  # colours follow the words
    await expect(body.locator(".code-string")).to_have_text('"m²"')
    assert await body.locator("pre").text_content() == CODE
    await expect(body.locator(".code-title")).to_have_text("area")


async def test_a_string_that_began_in_an_earlier_part_of_long_code_is_still_one(page_apart: ChatPage) -> None:
    body = await show(page_apart, '```python\ntext = """\n' + "x = 1\n" * 2000 + '"""\nx = 1\n```')
    last = body.locator("pre > code").last
    await last.scroll_into_view_if_needed()
    await expect(last.locator(".code-number")).to_have_text("1")
    await expect(body.locator("pre > code")).to_have_count(2)
    await expect(body.locator("pre > code").first.locator(".code-number")).to_have_count(0)


async def test_code_of_no_or_an_unknown_language_is_plain(page_apart: ChatPage) -> None:
    body = await show(page_apart, "```\nlet a\n```\n\n```brainrot x\n+-<b>\n```\n\n    indented")
    await expect(body.locator(".code-language")).to_have_text(["Code", "brainrot", "Code"])
    assert await body.locator("pre").all_text_contents() == ["let a", "+-<b>", "indented"]
    await expect(body.locator("pre span")).to_have_count(0)


async def test_code_is_copied_as_it_was_written(page_apart: ChatPage) -> None:
    code = "\n".join(f"let answer{number} = '<42>';" for number in range(800))
    body = await show(page_apart, f"```js\n{code}\n```", piece=5000)
    await expect(body.locator("pre > code").last).to_contain_text("answer799 = '<42>';")  # all of it is drawn
    copied = """async () => {
      let text;
      navigator.clipboard.writeText = async (given) => { text = given; };
      document.querySelector('.code-copy').click();
      await Promise.resolve();
      delete navigator.clipboard.writeText;
      return text;
    }"""
    assert await page_apart.page.evaluate(copied) == code
    await expect(body.get_by_role("button", name="Copy the code")).to_have_text("Copied")


async def test_growing_code_keeps_its_elements_and_the_focus(page_apart: ChatPage) -> None:
    await show(page_apart, "x")
    kept = await page_apart.page.evaluate(
        """async (code) => {
          const { AnswerView } = await import('./turn/answer_view.js');
          const body = document.querySelector('.answer .body');
          body.replaceChildren();
          const view = new AnswerView(body);
          const frames = async () => { for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame); };
          view.append('```python\\n' + code.slice(0, 10));
          await frames();
          const pre = body.querySelector('pre');
          pre.focus();
          view.append(code.slice(10));
          await frames();
          view.append('\\n```');
          view.finish();
          return body.querySelector('pre') === pre && (!('moveBefore' in body) || document.activeElement === pre);
        }""",
        CODE,
    )
    assert kept


async def test_what_is_selected_in_an_answer_that_grows_stays_selected(page_apart: ChatPage) -> None:
    await show(page_apart, "x")
    kept = await page_apart.page.evaluate(
        """async (code) => {
          const { AnswerView } = await import('./turn/answer_view.js');
          const frames = async () => { for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame); };
          const kept = [];
          const grow = async (begin, selector, ...rest) => {
            const body = document.querySelector('.answer .body');
            body.replaceChildren();
            const view = new AnswerView(body);
            view.append(begin);
            await frames();
            let node = body.querySelector(selector);
            while (node.firstChild) node = node.firstChild;
            getSelection().setBaseAndExtent(node, 1, node, 3);
            const text = node.data.slice(1, 3);
            const isKept = () => getSelection().anchorNode === node && getSelection().toString() === text;
            for (const more of rest) {
              view.append(more);
              await frames();
              kept.push(isKept());
            }
            view.finish();
            kept.push(isKept());
          };
          await grow('A **bold** wor', 'strong', 'd, and\\n- an it', 'em\\n\\nAnother one, it is new.', '\\n\\nEnd');
          await grow('- one\\n- two', 'li:last-child', ' words\\n- **th', 'ree**\\n\\n```js\\na\\n```\\n\\nSo it is');
          await grow('```py\\n' + code.slice(0, 20), 'code', code.slice(20, 30), code.slice(30), '\\n```');
          return kept;
        }""",
        CODE,
    )
    assert kept == [True] * len(kept)


BUSY = """addEventListener('message', ({ data }) => {
  while (data.text.includes('forever'));
  postMessage([['keyword', 1]]);
});
postMessage('ready');"""


async def test_code_that_takes_too_long_stays_plain_and_the_next_one_is_highlighted(page_apart: ChatPage) -> None:
    async def fulfill(route: Route) -> None:
        headers = {"Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin"}
        await route.fulfill(body=BUSY, content_type="text/javascript", headers=headers)

    page = await page_apart.page.context.new_page()
    await page.route("**/highlight_worker.js", fulfill)
    await page.goto(f"{page_apart.site}/THIRD_PARTY.txt")
    runs = await page.evaluate(
        """async () => {
          const { highlight } = await import('./markdown/highlighter.js');
          return Promise.all(['forever', 'x'].map((text) => highlight('python', text)));
        }"""
    )
    await page.close()
    assert runs == [None, [["keyword", 1]]]


async def test_nothing_is_loaded_for_code_and_formulas_before_there_are_any(page_apart: ChatPage) -> None:
    await page_apart.open_ready()
    page_apart.requests.clear()
    await page_apart.ask("list")
    late = ("highlight", "katex", "code.css")
    assert not [url for url in page_apart.requests if any(name in url for name in late)]
    await page_apart.ask("formula")
    await expect(page_apart.page.locator(".katex")).to_have_count(2)
    assert [url for url in page_apart.requests if "katex.min.js" in url]
    assert not [url for url in page_apart.requests if "highlight" in url]
    assert not [url for url in page_apart.requests if not url.startswith(page_apart.site)]


async def test_a_wide_table_scrolls_by_itself_and_can_be_reached_by_keyboard(page_apart: ChatPage) -> None:
    row = "| " + " | ".join("a_long_word_without_a_break" for _ in range(12)) + " |"
    body = await show(page_apart, f"{row}\n{'|---' * 12}|\n{row}")
    box = body.locator(".table-box")
    assert await box.evaluate("(box) => box.scrollWidth > box.clientWidth")
    assert await page_apart.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await box.focus()
    await expect(box).to_be_focused()


async def test_tasks_have_boxes_with_labels_that_cannot_be_changed(page_apart: ChatPage) -> None:
    body = await show(
        page_apart, "- [x] Buy **milk**\n- [ ] Call Anna\n  - [x] Find her number\n\n1. [ ] one\n\n2. [x] two"
    )
    boxes = body.get_by_role("checkbox")
    names = ["Buy milk", "Call Anna", "Find her number", "one", "two"]
    for name, done in zip(names, (True, False, True, False, True), strict=True):
        box = body.get_by_role("checkbox", name=name, exact=True)
        await expect(box).to_be_disabled()
        await expect(box).to_be_checked(checked=done)
    await expect(boxes).to_have_count(5)


async def test_formulas_are_set_and_prices_are_not(page_apart: ChatPage) -> None:
    body = await show(
        page_apart,
        "The area $a_1 * b_2$ or \\(c_1 * d_2\\), US$5 and $10, $5-$10, `$x$`, $20k or 30k$ and $HOME and $PATH.\n"
        "$$\nE = mc^2\n=\n\\boxed{\\sqrt{x}}\n$$\n\n\\[ \\frac{1}{2} \\]\n\n"
        "An \\( alone, $\\nosuchcommand{$ and $$ too.\n\n"
        "$\\def\\a{x}\\a\\a$, $\\let\\a=x\\a$, $\\begin{matrix}" + "&" * 300 + "\\end{matrix}$, "
        "$"
        + "x^{" * 400
        + "}" * 400
        + "$, $\\begin{matrix}"
        + "\\\\[99em]" * 90
        + "\\end{matrix}$, $x+"
        + "x" * 2000
        + "$",
    )
    await expect(body.locator("math")).to_have_count(4)
    tex = await body.locator("annotation").all_text_contents()
    assert [one.strip() for one in tex] == [
        "a_1 * b_2",
        "c_1 * d_2",
        "E = mc^2\n=\n\\boxed{\\sqrt{x}}",
        "\\frac{1}{2}",
    ]
    text = await body.inner_text()
    assert "US$5 and $10, $5-$10, $x$, $20k or 30k$ and $HOME and $PATH." in text
    assert "$\\def\\a{x}\\a\\a$, $\\let\\a=x\\a$, $\\begin{matrix}&&" in text  # the output of these has no bound
    assert text.rstrip().endswith("xxxx$")
    assert "An ( alone, $\\nosuchcommand{$ and $$ too." in text or "An \\( alone" in text
    assert page_apart.errors == []  # no style attribute that the policy forbids


RENDER = """async (texts) => {
  const { lexBlocks, renderBlocks } = await import('./markdown/markdown.js');
  return texts.map((text) => {
    const shown = document.createElement('div');
    shown.append(renderBlocks(lexBlocks(text)));
    return [shown.textContent.trim(), shown.innerHTML.trim()];
  });
}"""
SAID = r"""
5! = 5*4*3*2*1
cost $5*3 and $6*2
A$$5 and B$$6
x**2 + y**2 and 2**3**2
a*b*c, (a)*(b)*(c), 5!*4!*3!, 2*-3*4, f(x)*g(x)*h(x), width*height*depth
**kwargs and x**2, *args and 5*4
5~7U and 100~200x
(~$1.50) and (~$10), H~2~O, 5~~7 and 8~~9
__init__.py and __init__ of __FILE__
COUNT(*) and SUM(*), *.py/*.js, src/**/*.js and test/**/*.js
_.map(_) and (_, i) => i and (_, j) => j
^_^ and *_* and >_< and >_<
最高气温27~28℃，最低气温14~17℃
总价=单价*数量*折扣，长*宽*高*深。100*数量*2
>5 apples
>= 18 years
[Alice]: Hello
f[0](x)
\\server and C:\x
Use <br> or <b>x</b>.
SELECT a.*, b.* FROM a, b
[a-z]*\.(js|ts)* and .*\.py.*
**/*.py and */test_*.py, int *p and src/* and x *= 2
**kwargs and n**k, "a"*3 and "b"*3
see example.com/_a_/_b_
\\server\_x, C:\Users\_old\*.txt, D:\*.log, ..\_x and %APPDATA%\.x
\d+\.\d* and \w+@\w+\.\w+
¯\_(ツ)_/¯
$('a')/$('b'), ${a}/${b}, $_GET['a']/$_POST['b']
s/$/x/ and s/^$/y/
$$ and $$ or $$$, up to $$$
_ _ _ _ _
*****
+ 5
>>> print(1)
>_<
f[T](std::move(x)) and [call](tel:+123)
p = &notes; q = &copying; a&b; &nosuch; &amp &lt &copy 2024, ?a=1&copy=2
""".strip().split("\n")  # noqa: RUF001
MARKED = {
    "**注意：**重要": "<strong>注意：</strong>重要",  # noqa: RUF001
    "日本語**「強調」**です": "日本語<strong>「強調」</strong>です",
    "한국어**(강조)**입니다": "한국어<strong>(강조)</strong>입니다",
    'คำ**"เน้น"**ครับ': 'คำ<strong>"เน้น"</strong>ครับ',
    "~~「旧」~~新和*重点*内容": "<del>「旧」</del>新和<em>重点</em>内容",
    "**N**atural **model**s": "<strong>N</strong>atural <strong>model</strong>s",
    "**a note**(b), pho**to**graphy": "<strong>a note</strong>(b), pho<strong>to</strong>graphy",
    "**bold** and x**y + a**b": "<strong>bold</strong> and x**y + a**b",
    "**5*4*3** _em_ ~~gone~~": "<strong>5*4*3</strong> <em>em</em> <del>gone</del>",
    '__a b__, *"x"*, (**.NET**).': '<strong>a b</strong>, <em>"x"</em>, (<strong>.NET</strong>).',
    "**m**² *he*/*she* **a *b*.**": "<strong>m</strong>² <em>he</em>/<em>she</em> <strong>a <em>b</em>.</strong>",
    "a\n=\n7, b\n--": "a<br>=<br>7, b<br>--",
    "<x>\ny": "&lt;x&gt;<br>y",
    "&lt;T&gt; &amp; &euro;5 &#65; &copy;&semi;": "&lt;T&gt; &amp; €5 A ©;",
}
NUMBERS = {  # numbers of a list, and the shown ones
    "10. a\n9. b\n8. c": [10, 9, 8],
    "1. a\n\n3. b": [1, 3],
    "1. a\n1. b\n1. c": [1, 2, 3],
    "5. a\n6. b": [5, 6],
}
ROWS = {  # of a table with two columns
    "| `a|b` | c |": ["a|b", "c"],
    "| || | or |": ["||", "or"],
    "| $|x|$ | c |": ["$|x|$", "c"],
    "| a | b | c |": ["a", "b | c"],
    r"| a\|b | `c\|d` |": ["a|b", "c|d"],
    "| a |": ["a", ""],
}


async def test_markdown_never_changes_what_is_said(page_apart: ChatPage) -> None:
    drawn = random.Random(7)

    operands = ["2", "x", "(n-1)", "f(y)", "π", "$5", "z²", "[1]", "a_1", "-3", ".5", "5!", "50%", "3.14", "{a}", "n'"]

    def chain() -> str:
        return drawn.choice(["*", "**", "~", "~~", "_"]).join(drawn.choices(operands, k=drawn.randint(2, 5)))

    drawn_texts = [", ".join(chain() for _ in range(drawn.randint(1, 5))) + " so." for _ in range(400)]
    texts = [*SAID, *drawn_texts]
    shown = await page_apart.page.evaluate(RENDER, texts)
    found = [(text, seen, "data-formula" in html) for text, (seen, html) in zip(texts, shown, strict=True)]
    assert [one for one in found if one != (one[0], one[0], False)] == []

    shown = await page_apart.page.evaluate(RENDER, list(MARKED))
    assert [html for _, html in shown] == [f"<p>{html}</p>" for html in MARKED.values()]
    cells = "| one<br>two<br/>**three<BR />four**<b> | <br> |\n|---|---|"
    ((text, html),) = await page_apart.page.evaluate(RENDER, [cells])
    assert html.count("<br>") == 3
    assert "three<br>four" in html
    assert "<b>" in text
    assert text.endswith("<br>")  # a cell about it

    for text, (_, html) in zip(NUMBERS, await page_apart.page.evaluate(RENDER, list(NUMBERS)), strict=True):
        assert [int(value) for value in re.findall(r'<li value="(\d+)">', html)] == NUMBERS[text]
    tables = await page_apart.page.evaluate(RENDER, [f"| A | B |\n|---|---|\n{row}" for row in ROWS])
    in_cells = [[re.sub("<[^>]*>", "", cell) for cell in re.findall("<td>(.*?)</td>", html)] for _, html in tables]
    assert in_cells == list(ROWS.values())


COPIED = """([begin, end]) => {
  const [body] = document.querySelectorAll('.answer .body');
  const [from, to] = [begin, end].map((name) => body.querySelector(name));
  getSelection().setBaseAndExtent(from, 0, to, to.childNodes.length);
  let copied = null;
  const listen = ({ clipboardData }) => {
    copied = ['text/plain', 'text/html'].map((type) => clipboardData.getData(type));
  };
  document.addEventListener('copy', listen, { once: true });
  document.execCommand('copy');
  getSelection().removeAllRanges();
  return copied;
}"""


async def test_what_is_copied_by_selecting_is_what_one_reads(page_apart: ChatPage) -> None:
    text = f"So $a_1$ is\n\n```py\n{CODE}\n```\n\n- [x] done\n\n$$\nE = mc^2\n$$"
    body = await show(page_apart, text)
    await expect(body.locator(".katex-html")).to_have_count(2)
    copied = lambda *ends: page_apart.page.evaluate(COPIED, list(ends))  # noqa: E731
    plain, html = await copied("p", "p[data-formula]")
    lines = [line for line in plain.split("\n") if line.strip()]
    assert lines == ["So $a_1$ is", *CODE.split("\n"), "[x] done", "$$E = mc^2$$"]
    assert "katex" not in html
    assert "Copy" not in html
    assert "$$E = mc^2$$" in html
    assert f"<code>{CODE.splitlines()[0]}" in re.sub("</?span[^>]*>", "", html)
    assert (await copied("p .mord", "p .mord"))[0] == "$a_1$"
    assert (await copied("code", "code"))[0] in ("", CODE)  # as the browser stores it

    await show(page_apart, "9. nine\n8. eight\n   - a *part*\n\nx\n\n- one\n\n- two")
    assert " ".join((await copied("ol", "li p"))[0].split()) == "9. nine 8. eight - a part x - one"
    assert (await copied("li li", "p"))[0].startswith("  - a part\n")
    assert (await copied("em", "li p"))[0].split() == ["part", "x", "-", "one"]
    assert (await copied("em", "em"))[0] in ("", "part")


async def test_a_formula_that_still_comes_is_not_taken_for_something_else(page_apart: ChatPage) -> None:
    body = await show(page_apart, "So:\n\n$$\na + b\n=\n- c\n$$\n\nThat is **all**.", piece=1)
    await expect(body.locator("math")).to_have_count(1)
    await expect(body.locator("h3, h4, li")).to_have_count(0)
    await expect(body.locator("strong")).to_have_count(1)


async def test_each_block_reads_in_the_direction_of_its_script(page_apart: ChatPage) -> None:
    body = await show(page_apart, "An English one.\n\nمرحبا\n\n1. مرحبا\n2. مرحبا\n\n```js\nlet a\n```")  # noqa: RUF001
    direction = "(all) => all.map((block) => getComputedStyle(block).direction)"
    assert await body.locator("p, ol, pre").evaluate_all(direction) == ["ltr", "rtl", "rtl", "ltr"]


async def test_a_link_asks_before_it_opens_another_site(page_apart: ChatPage) -> None:
    await show(page_apart, "See [your bank](https://example.org/a?b=1) and ![a cat](https://tracker.invalid/cat.png).")
    page = page_apart.page
    page_apart.requests.clear()
    opened: list[str] = []

    def note(tab: Page) -> None:
        opened.append(tab.url)

    page.context.on("page", note)
    question = page.locator(".link-question")
    link = page.get_by_role("link", name="your bank")
    for button in ("left", "middle"):
        await link.click(button=button)  # type: ignore[arg-type]
        await expect(question).to_contain_text("https://example.org/a?b=1")
        await page.keyboard.press("Escape")
        await expect(question).to_have_count(0)
    await expect(link).to_be_focused()

    await link.press("Enter")
    go = question.get_by_role("link", name="Open")
    await expect(go).to_be_focused()
    await expect(go).to_have_attribute("rel", "noopener noreferrer nofollow")
    await expect(go).to_have_attribute("href", "https://example.org/a?b=1")
    await expect(go).to_have_attribute("target", "_blank")
    assert await found_by_axe(page) == []
    await page.keyboard.press("Tab")
    await expect(question.get_by_role("button", name="Copy address")).to_be_focused()
    await page.keyboard.press("Escape")

    await page.get_by_role("link", name="Image: a cat (tracker.invalid)").click()
    await expect(question).to_contain_text("Sonata does not load it")
    await page.keyboard.press("Escape")
    page.context.remove_listener("page", note)
    assert opened == []
    assert [url for url in page_apart.requests if not url.startswith(page_apart.site)] == []


PIECES = r"""
<img src=x onerror=window.harmed=1>
<script>window.harmed=1</script>
<svg onload=window.harmed=1>
<style>*{}
<iframe src=//t.invalid>
<a href=javascript:window.harmed=1>
<form action=//t.invalid>
<base href=//t.invalid>
![a](https://t.invalid/a)
![a](data:image/png;base64,AA)
![
](
[a](javascript:window.harmed=1)
[b](//t.invalid)
[c]: https://t.invalid
[c]
[a](https://t.invalid "x\" onclick=window.harmed=1 y=")
https://t.invalid/<b>
```
```py" onclick="window.harmed=1
`
``
~~~
$$
$
\(
\)
\[
\]
\href{javascript:window.harmed=1}{x}
\includegraphics{https://t.invalid/a}
\url{https://t.invalid}
\def\a{\a\a}\a
\htmlData{a=b}{x}
\style{color:red}{x}
\boxed{x}
\frac{1}{
}
\pmb{x}
\color{red}
\rule{1e9em}{1em}
- [x] 
- [ ] 
> 
# 
1. 
**
*
_
~~
&lt;img src=x&gt;
\
&#x3C;img&#x3E;
a
5
']"})
<!--
-->
<![CDATA[
<?x
<details open ontoggle=window.harmed=1>
مرحبا
""".strip().split("\n")
PIECES += ["\n", "\n", "\n\n", "\n\n", " ", "  ", "    code\n", "```html\n", "| a | b |\n|---|---|\n", "\u202e", "\0"]
LIVE = """() => {
  const allowed = new Set(`A ARTICLE B BLOCKQUOTE BR BUTTON CODE DEL DIV EM FIGCAPTION FIGURE H3 H4 H5 H6 HR INPUT LABEL
    LI OL P PRE SPAN STRONG TABLE TBODY TD TH THEAD TR UL`.split(/\\s+/));
  const found = [];
  for (const node of document.querySelectorAll('#log *')) {
    if (node.closest('.katex') || node.closest('svg.icon')) {
      if (/^(a|img|image|script|style|foreignobject|mglyph|annotation-xml)$/i.test(node.tagName)) found.push('inside');
    } else if (!allowed.has(node.tagName)) found.push(node.outerHTML);
    for (const { name, value } of node.attributes) {
      if (/^(on|src|srcset|action|formaction|background|ping|srcdoc)/i.test(name)) found.push(node.outerHTML);
      if (/href$/i.test(name) && !/^(https?:|mailto:|.*icons\\.svg#)/i.test(value)) found.push(node.outerHTML);
    }
    if (node.tagName === 'INPUT' && !(node.type === 'checkbox' && node.disabled)) found.push(node.outerHTML);
  }
  return found;
}"""


@pytest.mark.parametrize("piece", [10**9, 7])
async def test_no_markdown_becomes_live_html_or_a_request(page_apart: ChatPage, piece: int) -> None:
    drawn = random.Random(20)
    count = 250 if piece > 100 else 12
    texts = ["".join(drawn.choices(PIECES, k=drawn.randint(2, 24))) for _ in range(count)]
    page_apart.requests.clear()
    await show(page_apart, *texts, piece=piece)
    settled = "() => document.querySelectorAll('.answer').length && !document.querySelector('.tail')?.childNodes.length"
    await page_apart.page.wait_for_function(settled)
    await page_apart.page.evaluate(
        "async () => { for (let n = 0; n < 30; n += 1) await new Promise(requestAnimationFrame); }"
    )
    assert await page_apart.page.evaluate(LIVE) == []
    assert await page_apart.page.evaluate("window.harmed") is None
    assert [url for url in page_apart.requests if not url.startswith(f"{page_apart.site}/")] == []
