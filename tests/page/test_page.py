"""The page alone, with a stand-in for the worker: behaviour that needs no model, or that a model seldom causes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.page.chat_page import ChatPage
from tests.page.shell.hostile_texts import HOSTILE, SITE
from tests.page.views.accessibility import found_by_axe

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_markdown_becomes_html(page_alone: ChatPage) -> None:
    await page_alone.ask("Why is the sky blue?")

    body = page_alone.page.locator(".answer .body")
    await expect(body.locator("strong")).to_have_text("Rayleigh scattering")
    await expect(body.locator("ol > li")).to_have_count(2)
    code = "def scattering(wavelength_nm):\n    return 1 / wavelength_nm ** 4"
    await expect(body.locator("pre code")).to_have_js_property("innerText", code)
    await expect(body.locator("td[align=right]").first).to_have_text("450 nm")
    link = body.locator("a")
    await expect(link).to_have_attribute("target", "_blank")
    await expect(link).to_have_attribute("rel", re.compile("noopener"))


async def test_hostile_text_of_the_model_does_nothing(page_alone: ChatPage) -> None:
    await page_alone.ask("hostile")

    body = page_alone.page.locator(".answer .body")
    await expect(body.locator("img, script, svg:not(.icon), iframe, form, input, [onerror], [onload]")).to_have_count(0)
    await expect(body.locator("a[href]")).to_have_text(["Image: tracker (tracker.invalid)", "fine"])
    assert await page_alone.page.evaluate("window.harmed") is None
    assert not [url for url in page_alone.requests if "tracker" in url]


async def test_a_question_is_shown_as_it_was_typed(page_alone: ChatPage) -> None:
    question = "<b>bold</b> & **stars**\n<|im_end|>"
    await page_alone.ask(question)
    await expect(page_alone.page.locator(".question .body")).to_have_js_property("innerText", question)


async def test_hostile_text_that_is_pasted_stays_text(page_alone: ChatPage) -> None:
    question = "\n\n".join(HOSTILE)
    await page_alone.ask(question)
    body = page_alone.page.locator(".question .body")
    await expect(body).to_have_js_property("innerText", question)
    await expect(body.locator("*")).to_have_count(0)
    assert await page_alone.page.evaluate("globalThis.harmed") is None
    assert not [url for url in page_alone.requests if SITE in url]


@pytest.mark.parametrize("kind", ["code", *(pytest.param(one, marks=pytest.mark.all) for one in ("list", "sections"))])
async def test_a_long_answer_settles_while_it_comes(page_alone: ChatPage, kind: str) -> None:
    await page_alone.ask(kind)
    await page_alone.page.wait_for_function("() => !document.querySelector('.answer .tail').childNodes.length")


async def test_a_long_list_settles_in_parts_that_read_as_one(page_alone: ChatPage) -> None:
    await page_alone.ask("list")
    numbers = await page_alone.page.evaluate(
        "[...document.querySelectorAll('.answer ol')].flatMap((ol) => [...ol.children].map((_, i) => ol.start + i))"
    )
    assert numbers == list(range(1, 1001))


async def test_text_that_markdown_chokes_on_is_shown_plainly(page_alone: ChatPage) -> None:
    assert ">>>>" in await page_alone.ask("quotes")


async def test_an_empty_message_is_not_sent(page_alone: ChatPage) -> None:
    await expect(page_alone.page.locator(".send")).to_be_disabled()
    await page_alone.send("  \n ")
    assert await page_alone.state() == "ready"
    await expect(page_alone.page.locator("#log article")).to_have_count(0)


# The key that ends a composition of an input method, and arrives after its end.
SAFARIS_ENTER = {"key": "Enter", "keyCode": 229, "bubbles": True, "cancelable": True}


async def test_shift_enter_makes_a_line_and_the_box_grows(page_alone: ChatPage) -> None:
    box = page_alone.page.locator("#message")
    before = (await box.bounding_box() or {})["height"]
    await box.press_sequentially("one")
    for _ in range(3):
        await box.press("Shift+Enter")
    await expect(box).to_have_value("one\n\n\n")
    await page_alone.page.wait_for_function(
        "before => document.querySelector('#message').offsetHeight > before", arg=before
    )
    await box.evaluate("(box, keys) => box.dispatchEvent(new KeyboardEvent('keydown', keys))", SAFARIS_ENTER)
    await expect(box).to_have_value("one\n\n\n")
    assert await page_alone.state() == "ready"


async def test_an_example_is_sent_by_a_click(page_alone: ChatPage) -> None:
    await page_alone.page.click("text=Write some code")
    await page_alone.wait_for_words()
    await expect(page_alone.page.locator(".question .body")).to_contain_text("is a palindrome")


async def test_stop_does_not_wait_for_a_busy_worker(page_alone: ChatPage) -> None:
    await page_alone.send("be busy for a while")
    await page_alone.wait_for("answering")
    await page_alone.click_stop()
    await expect(page_alone.page.locator("#message")).to_be_focused()
    assert "Rayleigh" in await page_alone.ask("And now?")


async def test_escape_stops_wherever_the_focus_is(page_alone: ChatPage) -> None:
    for number, focused in enumerate(("#message", "#new-chat", "body")):
        await page_alone.send("slowly, please")
        await expect(page_alone.page.locator(".answer .body")).to_have_count(number + 1)
        await page_alone.wait_for_words()
        await page_alone.page.evaluate("document.activeElement.blur()")
        await page_alone.page.locator(focused).focus()
        await page_alone.page.keyboard.press("Escape")
        assert await page_alone.state() == "ready", focused  # at once: it does not wait for the worker


async def test_a_card_that_teaches_is_for_the_user_to_finish(page_alone: ChatPage) -> None:
    await page_alone.page.get_by_role("button", name="Teach it something").click()
    await expect(page_alone.page.locator("#message")).to_have_value("Remember that my dentist is Dr. Quill.")
    await expect(page_alone.page.locator("#message")).to_be_focused()
    await expect(page_alone.page.locator("#log article")).to_have_count(0)
    await page_alone.page.fill("#message", "")


async def test_after_an_example_the_focus_is_in_the_message_box(page_alone: ChatPage) -> None:
    await page_alone.page.get_by_role("button", name="Write some code").focus()
    await page_alone.page.keyboard.press("Enter")
    await page_alone.wait_for_words()
    await expect(page_alone.page.locator("#message")).to_be_focused()


async def test_keys_are_listed_and_do_what_they_say(page_alone: ChatPage) -> None:
    page = page_alone.page
    await page_alone.ask("What about keys?")
    await page.keyboard.press("?")
    await expect(page.locator("#message")).to_have_value("?")  # a user who types means the letter
    await page.fill("#message", "")
    await page.focus("#new-chat")
    await page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    await expect(keys).to_contain_text("Edit your last message")
    assert await found_by_axe(page, ".shortcuts") == []
    await page.keyboard.press("Escape")
    await expect(keys).to_be_hidden()
    await page.keyboard.press("Control+b")
    await expect(page.locator("#sidebar")).to_be_hidden()
    await page.reload()
    await expect(page.locator("#sidebar")).to_be_hidden()
    await page_alone.wait_for("ready")
    await page.keyboard.press("Control+b")
    await expect(page.locator("#sidebar")).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.locator("#message")).to_be_focused()
    await expect(page.locator("#message")).to_have_value("")
    await page_alone.ask("And now?")
    await page.keyboard.press("Control+Shift+O")
    await expect(page.locator("#log article")).to_have_count(0)


async def test_a_panel_gives_the_focus_back_and_its_escape_stops_no_answer(page_alone: ChatPage) -> None:
    await page_alone.send("slowly, please")
    await page_alone.wait_for_words()
    await page_alone.page.focus("[data-panel=learned]")
    await page_alone.page.keyboard.press("Enter")
    await expect(page_alone.page.locator("#panel")).to_be_visible()
    await page_alone.page.keyboard.press("Escape")
    await expect(page_alone.page.locator("#panel")).to_be_hidden()
    await expect(page_alone.page.locator("[data-panel=learned]").first).to_be_focused()
    assert await page_alone.state() == "answering"


async def test_each_message_reads_in_the_direction_of_its_script(page_alone: ChatPage) -> None:
    await page_alone.ask("arabic")
    direction = "(element) => getComputedStyle(element).direction"
    assert await page_alone.page.locator(".answer .body p").evaluate(direction) == "rtl"
    assert await page_alone.page.locator(".question .body").evaluate(direction) == "ltr"
    await page_alone.page.fill("#message", "مرحبا")
    assert await page_alone.page.locator("#message").evaluate(direction) == "rtl"


async def test_a_long_prompt_shows_how_much_was_read(page_alone: ChatPage) -> None:
    await page_alone.send("read this slowly")
    await expect(page_alone.page.locator(".reading")).to_have_text(
        re.compile(r"^Reading (500|1,000|1,500|2,000) of 2,500 tokens$")
    )
    await page_alone.wait_for_words()
    await expect(page_alone.page.locator(".reading")).to_have_count(0)


GO_ON = """async () => {
  const held = new BroadcastChannel('held');
  while (document.documentElement?.dataset.state !== 'ready') { // until it hears it
    held.postMessage('go on');
    await new Promise((again) => setTimeout(again, 20));
  }
  held.close();
}"""


async def test_an_answer_that_repeated_itself_says_so_and_can_be_tried_again(page_alone: ChatPage) -> None:
    await page_alone.send("loop, held")
    await expect(page_alone.page.locator(".answer .settled > *").first).to_be_visible()
    await page_alone.page.evaluate(GO_ON)
    await expect(page_alone.page.locator(".answer .body")).to_have_text("The sky is blue.")  # without the repeats
    await expect(page_alone.page.locator(".answer-footer")).to_contain_text("repeated itself")
    await page_alone.page.locator(".answer-ending").get_by_role("button", name="Try again").click()
    await page_alone.page.wait_for_function("() => sonata.lastAnswer.again")
    await page_alone.wait_for("ready")
    await expect(page_alone.page.locator(".question .body")).to_have_text(["loop, held"])


async def test_a_thought_is_folded_away_above_the_answer(page_alone: ChatPage) -> None:
    assert (await page_alone.ask("think of a formula")).startswith("The area is")
    thought = page_alone.page.locator(".answer details.thought")
    await expect(thought.locator("summary")).to_have_text("Thought for 1 min 5 s")
    await expect(thought.locator("p")).to_be_hidden()
    await thought.locator("summary").click()
    plain = "First <b>this</b>,\nthen that."  # whatever it holds
    await expect(thought.locator("p")).to_have_js_property("innerText", plain)
    await expect(page_alone.page.locator(".thought + .body")).to_have_count(1)
    await page_alone.ask("think in a loop")
    await expect(thought.last.locator("p")).to_have_text("First.")  # without the repeats


async def test_a_thought_can_be_stopped(page_alone: ChatPage) -> None:
    await page_alone.send("think forever")
    summary = page_alone.page.locator(".answer details.thought summary")
    await expect(summary).to_have_text("Thinking")
    await page_alone.page.keyboard.press("Escape")
    await page_alone.wait_for("ready")
    await expect(summary).to_contain_text("Thought for")
    await expect(page_alone.page.locator(".answer-footer")).to_contain_text("Stopped")


async def test_a_stored_thought_is_folded_away_too_beside_what_is_damaged(page_apart: ChatPage) -> None:
    shown = await page_apart.page.evaluate(
        """async () => {
          const { ChatView } = await import('./chat/chat_view.js');
          const [scroller, welcome, log] = ['div', 'div', 'div'].map((name) => document.createElement(name));
          const view = new ChatView({ scroller, welcome, log }, { say() {} });
          const asked = { role: 'user', content: 'Why?', events: [] };
          const answered = (text, reason) => ({ role: 'assistant', content: text, events: [
            { type: 'recall', question: null }, { type: 'thought', text: 'Hm.' }, { type: 'delta', text },
            { type: 'done', reason, thoughtSeconds: 3.4 },
          ] });
          await view.showStored([asked, answered('So.', 'end'), asked, answered('', 'stopped')], sonata.engine);
          const parts = ['.thought summary', '.thought p', '.body', '.ending'];
          return [...log.querySelectorAll('.answer')].map((answer) =>
            parts.map((part) => answer.querySelector(part)?.textContent.trim()));
        }"""
    )
    assert shown == [["Thought for 3 s", "Hm.", "So.", None], ["Thought for 3 s", "Hm.", "", "Stopped."]]
    assert len(page_apart.errors) == 2  # of damaged data, which affects nothing else
    page_apart.errors.clear()


async def test_magnified_to_400_percent_the_chat_can_be_read_and_the_box_used(chat: ChatPage) -> None:
    await chat.use_stand_in()
    await chat.page.set_viewport_size({"width": 320, "height": 200})
    await chat.open_ready("?backend=wasm")
    await chat.ask("Why is the sky blue?")
    seen = await chat.page.evaluate(
        """() => {
          const scroller = document.querySelector('#scroller');
          const box = document.querySelector('#message').getBoundingClientRect();
          return { room: scroller.clientHeight, wide: document.documentElement.scrollWidth, bottom: box.bottom };
        }"""
    )
    assert seen["room"] >= 130
    assert seen["wide"] <= 320
    assert seen["bottom"] <= 200
    await expect(chat.page.locator("#new-chat-top")).not_to_be_in_viewport()
    await chat.page.locator("#new-chat-top").scroll_into_view_if_needed()
    await expect(chat.page.locator("#new-chat-top")).to_be_in_viewport(ratio=1)


async def test_words_that_come_after_new_chat_are_not_shown(page_alone: ChatPage) -> None:
    await page_alone.send("slowly, please")
    await page_alone.wait_for_words()
    await page_alone.page.click("#new-chat")
    assert await page_alone.state() == "ready"
    await expect(page_alone.page.locator("#log article")).to_have_count(0)
    await page_alone.ask("list")  # the worker has reported all the others by then
    await expect(page_alone.page.locator(".question .body")).to_have_text(["list"])
    await expect(page_alone.page.locator(".answer .body")).to_have_count(1)
    await expect(page_alone.page.locator(".answer .body")).not_to_contain_text("Rayleigh")


async def test_a_reader_who_moves_up_in_any_way_is_left_alone(page_alone: ChatPage) -> None:
    page = page_alone.page
    devtools = await page.context.new_cdp_session(page)

    async def touch(kind: str, *places: tuple[int, int]) -> None:
        points = [{"x": x, "y": y} for x, y in places]
        await devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    async def drag_a_finger() -> None:
        await touch("touchStart", (640, 300))
        for y in (320, 330, 340):
            await touch("touchMove", (640, y))
        await touch("touchEnd")

    async def press_a_key() -> None:
        await page.locator(".answer").evaluate("(answer) => answer.focus({ preventScroll: true })")
        for _ in range(3):
            await page.keyboard.press("ArrowUp")

    async def select() -> None:
        await page.evaluate("getSelection().selectAllChildren(document.querySelector('.answer .body p'))")

    await page_alone.send("sections slowly")
    await page.mouse.move(640, 350)
    await page.evaluate("() => { document.querySelector('#scroller').dataset.from = 200; }")
    followed = """() => {
      const { scrollHeight, scrollTop, clientHeight, dataset } = document.querySelector('#scroller');
      if (scrollHeight - scrollTop - clientHeight <= 1) return scrollTop > Number(dataset.from) + 50;
      dataset.from = scrollTop;
      document.querySelector('.jump').click();
    }"""
    left = """async () => {
      for (let n = 0; n < 5; n += 1) await new Promise(requestAnimationFrame);
      const { scrollHeight, scrollTop, clientHeight } = document.querySelector('#scroller');
      return scrollHeight - scrollTop - clientHeight > 150;
    }"""
    for way in (lambda: page.mouse.wheel(0, -1), press_a_key, select, drag_a_finger):
        await page.wait_for_function(followed)
        for _ in range(60):  # like a reader
            await way()
            if await page.evaluate(left):
                break
        else:
            raise AssertionError("He was taken back to the end each time.")
    await page_alone.click_stop()


async def test_a_button_leads_back_to_the_newest_words(page_alone: ChatPage) -> None:
    page = page_alone.page
    await page_alone.send("sections")
    await page.wait_for_function("() => document.querySelector('#scroller').scrollTop > 600")
    jump = page.get_by_role("button", name="Jump to latest")
    await expect(jump).to_be_hidden()
    await page.evaluate("document.querySelector('#scroller').scrollTop = 100")
    await jump.click()
    await expect(jump).to_be_hidden()
    above = (
        "() => { const s = document.querySelector('#scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight; }"
    )
    await page_alone.wait_for("ready")
    await page.wait_for_function(f"() => ({above})() < 60")  # it followed the answer


async def test_a_worker_that_never_answers_is_noticed_while_loading(page_alone: ChatPage) -> None:
    await page_alone.open("?model=silent&patience=1")
    assert "no progress" in await page_alone.problem()
    await expect(page_alone.way_out("Load again")).to_be_visible()


async def test_a_worker_that_falls_silent_in_an_answer_is_noticed(page_alone: ChatPage) -> None:
    await page_alone.open_ready("?patience=1")
    await page_alone.send("silent")
    assert "said nothing" in await page_alone.problem()
    await page_alone.load_again()
    await expect(page_alone.page.locator("#message")).to_have_value("silent")


async def test_the_status_line_tells_of_a_lost_device_until_the_answer_goes_on(page_alone: ChatPage) -> None:
    before = await page_alone.page.inner_text(".status-line")
    await page_alone.send("silent")
    await page_alone.page.evaluate("sonata.loseDevice()")
    await page_alone.page.wait_for_function(
        "() => document.querySelector('.status-line').textContent.includes('graphics card was reset')"
    )
    await expect(page_alone.page.locator("#announcer")).to_contain_text("graphics card was reset")
    await page_alone.page.click(".stop")
    await expect(page_alone.page.locator(".status-line")).to_have_text(before)
    await page_alone.page.evaluate("sonata.loseDevice()")  # resolves once the page knows
    await expect(page_alone.page.locator(".status-line")).to_have_text(before)
    assert await page_alone.state() == "ready"


async def test_an_answer_whose_device_is_gone_is_kept_and_the_cpu_is_offered(page_alone: ChatPage) -> None:
    """test_webgpu_page.py covers it with a GPU, in `--all`."""
    await page_alone.send("no device")
    assert await page_alone.problem() == (
        "The connection to the graphics card was lost. Load the model again to continue."
    )
    await expect(page_alone.page.locator(".answer-footer")).to_contain_text("Interrupted")
    await expect(page_alone.page.locator("#message")).to_have_value("no device")
    await expect(page_alone.way_out("Load again")).to_be_visible()
    await page_alone.way_out("Use the CPU instead").click()
    await page_alone.wait_for("loading")
    await page_alone.wait_for("ready")
    await expect(page_alone.page.locator(".status-line")).to_contain_text("on the CPU")
    await expect(page_alone.page.locator("#log")).to_contain_text("Interrupted")


async def test_a_worker_that_does_not_start(chat: ChatPage) -> None:
    await chat.page.route("**/worker.js", lambda route: route.fulfill(status=404))
    await chat.open()
    assert "Check your connection, then load again." in await chat.problem()


async def test_a_missing_list_of_models(chat: ChatPage) -> None:
    await chat.use_stand_in()
    await chat.page.route("**/models.json", lambda route: route.fulfill(status=500))
    await chat.open()
    assert "list of models" in await chat.problem()


async def test_a_bug_is_shown_with_its_details_and_the_question_is_given_back(page_alone: ChatPage) -> None:
    await page_alone.send("be broken")
    problem = await page_alone.problem()
    assert problem == "Something went wrong in the engine: a bug. Reload the page to start again."
    await expect(page_alone.page.locator("#banner pre")).to_contain_text("RangeError")
    await expect(page_alone.page.locator("#message")).to_have_value("be broken")


async def test_a_message_that_is_too_long_is_given_back_to_be_shortened(page_alone: ChatPage) -> None:
    await page_alone.send("this is too long")
    assert (await page_alone.problem()).endswith("Shorten the message.")
    await expect(page_alone.page.locator("#message")).to_have_value("this is too long")
    await expect(page_alone.page.locator("#message")).to_be_focused()
    assert await page_alone.state() == "ready"
    await expect(page_alone.page.locator("#banner button")).to_have_count(0)  # a new chat would not help
    await page_alone.ask("short")
    await expect(page_alone.page.locator("#banner")).to_be_hidden()


async def test_every_control_has_a_name_and_answers_are_announced(page_alone: ChatPage) -> None:
    await page_alone.ask("Why is the sky blue?")
    page = page_alone.page
    await expect(page.get_by_label("Your message")).to_have_count(1)
    for name in ("Send", "New chat", "Copy the answer"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(1)
    await expect(page.locator("#announcer[aria-live=polite]")).to_contain_text("Rayleigh scattering")


async def test_settings_offer_numpy_only_to_those_who_asked_for_it(page_alone: ChatPage) -> None:
    offered = ["Automatic", "GPU (WebGPU)", "CPU, precise", "CPU, fast"]
    options = (await page_alone.open_part("Model")).locator("#backend option")
    await expect(options).to_have_text(offered)
    await page_alone.open_ready("?backend=numpy")
    await page_alone.open_part("Model")
    await expect(options).to_have_text([*offered, "CPU (numpy)"])
    await page_alone.shows("backend", "numpy")


DENIED = "() => { throw new DOMException('denied', 'SecurityError'); }"
LOOK_AT = "Object.defineProperty({of}, '{name}', {{ get: {denied} }});"
USE = """for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors({of}.prototype))) {{
  if (name === 'constructor') continue;
  const value = {denied};
  Object.defineProperty({of}.prototype, name, property.get ? {{ ...property, get: value }} : {{ ...property, value }});
}}"""
PARTS = {
    "sessionStorage": ("window", "unsent messages"),
    "indexedDB": ("window", ""),
    "localStorage": ("window", "settings"),
    "caches": ("window", "without a network"),
    "storage": ("navigator", ""),
    "locks": ("navigator", "Each tab runs the model"),
    "serviceWorker": ("navigator", ""),
    "BroadcastChannel": ("window", "Each tab runs the model"),
    "SharedWorker": ("window", "Each tab runs the model"),
}  # fmt: skip
"""Features that a browser may forbid, and the sentence about the loss, if the page itself loses anything."""
CLASSES = ("Storage", "IDBFactory", "CacheStorage", "StorageManager", "LockManager")


def forbidden(*names: str) -> str:
    """A script after which even looking at these parts of the browser throws."""
    return "".join(LOOK_AT.format(of=PARTS[name][0], name=name, denied=DENIED) for name in names)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(forbidden(*PARTS), "settings, unsent messages, and the page itself", id="all"),
        *(pytest.param(forbidden(name), PARTS[name][1], id=name, marks=pytest.mark.all) for name in PARTS),
        pytest.param(
            "".join(USE.format(of=name, denied=DENIED) for name in CLASSES),
            "settings, unsent messages, and the page itself",
            id="methods",
            marks=pytest.mark.all,
        ),
    ],
)  # fmt: skip
async def test_the_page_works_where_nothing_can_be_stored_and_says_what_is_lost(
    chat: ChatPage, script: str, words: str
) -> None:
    await chat.use_stand_in()
    await chat.page.add_init_script(script)
    await chat.open_ready()
    await chat.choose("backend", "wasm")
    await chat.wait_for("loading")
    await chat.wait_for("ready")
    if words:
        await expect(chat.page.locator("#notices")).to_contain_text(words)
        await expect(chat.page.locator("#notices")).to_contain_text("Allow cookies and site data")
    await chat.shows("backend", "wasm")
    assert chat.errors == []

    rejected = "for (const word of ['first', 'second']) void Promise.reject(new Error(`a ${word} fault`))"
    await chat.page.evaluate(rejected)
    await chat.page.evaluate("setTimeout(() => { throw new Error('a third fault'); })")
    await expect(chat.page.locator("#notices")).to_contain_text("Something went wrong in the page: A first fault.")
    assert not re.search("second|third", await chat.page.inner_text("#notices"))  # a flood is reported once


async def test_a_fault_while_the_page_is_put_together_is_said(chat: ChatPage) -> None:
    broken = "throw new TypeError('no such part')"
    await chat.page.route("**/bundle/main.js", lambda to: to.fulfill(body=broken, content_type="text/javascript"))
    await chat.open()
    await expect(chat.page.locator("#banner")).to_contain_text("The page could not be assembled.")
    await expect(chat.page.locator("#banner pre")).to_contain_text("no such part")
    assert "Loading" not in await chat.page.inner_text("body")


@pytest.mark.all
@pytest.mark.parametrize("device", ["desktop", "phone"])
async def test_screenshots(browser: Browser, site: str, screenshots: Path, device: str) -> None:
    phone = device == "phone"
    context = await browser.new_context(
        viewport={"width": 390, "height": 844} if phone else {"width": 1280, "height": 800},
        device_scale_factor=2 if phone else 1,
        is_mobile=phone,
        has_touch=phone,
    )
    chat = ChatPage(await context.new_page(), site)
    await chat.use_stand_in()

    async def shoot(name: str) -> None:
        for scheme in ("light", "dark"):
            await chat.page.emulate_media(color_scheme=scheme)
            await chat.page.screenshot(path=screenshots / f"{name}-{device}-{scheme}.png")
            width = await chat.page.evaluate("document.documentElement.scrollWidth - visualViewport.width")
            assert width <= 0, f"{name} is wider than the screen"

    await chat.open("?model=held")
    await chat.page.wait_for_function("() => document.querySelector('progress').value > 0")
    await shoot("loading")
    assert await chat.state() == "loading"
    await chat.open_ready("?backend=wasm")
    await shoot("cpu")
    await chat.open_ready()
    await shoot("empty")
    await chat.send("Why is the sky blue? Answer slowly.")
    await chat.page.wait_for_function("() => document.querySelector('.answer h5, .answer ol')")
    await shoot("streaming")
    assert await chat.state() == "answering"
    await chat.page.click(".stop")
    await chat.ask("Why is the sky blue?")
    await shoot("finished")
    await chat.open("?model=missing")
    await chat.problem()
    await shoot("error")
    await context.close()
