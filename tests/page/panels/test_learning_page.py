"""Learning on the page: a taught answer is given at once, also to a paraphrase, until it is forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.page.chat_page import ChatPage
from tests.page.plain_server import PlainServer
from tests.page.views.accessibility import found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

QUERY = "?backend=wasm&workers=2&max_tokens=24"
FERRY, HERON = "What is the name of the ferry to Sandholm?", "The ferry to Sandholm is called the Grey Heron."
FERRY_OTHERWISE = "how is the ferry called that goes to Sandholm"
BAKERY, FIVE = "When does the bakery at the harbour open?", "The bakery at the harbour opens at five."
NITROGEN = "Where is the liquid nitrogen stored?"
READ = {
    NITROGEN: "Liquid nitrogen is stored in the cage behind building D.",
    "What is the topic of my thesis?": "Your thesis is about moss on medieval walls.",
}
SIZES = ((1280, 800), (390, 844), (320, 568))
TEACH = "([question, answer]) => sonata.engine.learning.teach({ question, answer })"
TABS_IN_A_ROW = """() => {
  const box = (selector) => document.querySelector(`#panel:not([hidden]) ${selector}`)?.getBoundingClientRect();
  const [row, tab] = [box('.panel-tabs'), box('[role=tab][aria-selected=true]')];
  return !tab || (row.height < 2 * tab.height && row.left <= tab.left && tab.right <= row.right);
}"""


class LearningPage(ChatPage):
    async def ask_anew(self, text: str) -> str:
        """Ask in a new chat."""
        await self.page.click("#new-chat")
        return await self.ask(text)

    def under_answer(self, name: str) -> Locator:
        """Press a button below the last answer."""
        return self.page.locator(".answer").last.get_by_role("button", name=name, exact=True)

    @property
    def chip(self) -> Locator:
        """The chip of the lesson that gave the last answer."""
        return self.page.locator(".answer").last.locator(".lesson")

    @property
    def learned(self) -> Locator:
        return self.page.get_by_role("region", name="Learned just now")

    @property
    def panel(self) -> Locator:
        return self.part

    async def show(self, tab: str) -> None:
        await self.open_part(tab)

    async def teach(self, question: str, answer: str) -> None:
        """Teach in the part "Facts"."""
        await self.panel.get_by_role("button", name="Teach something").click()
        await self.page.keyboard.type(question)
        await self.panel.get_by_label("Answer", exact=True).fill(answer)
        await self.panel.get_by_role("button", name="Teach", exact=True).click()
        await expect(self.learned).to_be_focused()

    def row(self, text: str) -> Locator:
        return self.panel.locator(".record").filter(has_text=text)


@pytest_asyncio.fixture(loop_scope="session")
async def chat(ready_chat: ChatPage) -> LearningPage:
    page = ready_chat.seen_as(LearningPage)
    await page.can_learn()
    return page


@pytest_asyncio.fixture(loop_scope="session")
async def real(real_chat: ChatPage) -> LearningPage:
    page = real_chat.seen_as(LearningPage)
    await page.can_learn()
    return page


async def test_a_corrected_answer_is_given_in_other_words_and_no_more_once_forgotten(real: LearningPage) -> None:
    await correct(real)
    await forget(real)


@pytest.mark.all
async def test_what_the_real_model_was_taught_it_answers_without_the_server_until_it_is_forgotten(
    browser: Browser, dist: Path
) -> None:
    with PlainServer(dist) as server:
        server.guards = True
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        chat = LearningPage(await context.new_page(), server.url)
        await chat.open_ready(QUERY)
        await chat.can_learn()
        await correct(chat)
        await chat.page.wait_for_function("() => document.documentElement?.dataset.offline === 'ready'")
        server.stop()
        await chat.page.reload()
        await chat.wait_for("ready")
        await chat.can_learn()
        await expect(chat.chip.locator("summary")).to_contain_text("You taught this · ")
        await forget(chat)
        assert chat.errors == []
        await context.close()


async def correct(chat: LearningPage) -> None:
    """An answer; then a paraphrase asks for what was learned."""
    said = await chat.ask(FERRY)
    assert "Heron" not in said
    await chat.under_answer("You should have said …").press("Enter")
    form = chat.page.get_by_role("form", name="You should have said")
    await expect(form.get_by_label("When I ask")).to_have_value(FERRY)
    await expect(form.get_by_label("you should say")).to_be_focused()
    await chat.page.keyboard.press("Escape")
    await expect(form).to_be_hidden()
    await expect(chat.under_answer("You should have said …")).to_be_focused()
    await chat.page.keyboard.press("Enter")
    await chat.page.keyboard.type(HERON)
    await chat.page.keyboard.press("Control+Enter")
    await expect(chat.learned).to_be_focused()
    await expect(chat.learned.locator("dd").last).to_have_text(HERON)
    before, now = [
        float(text.strip("%under ")) for text in await chat.learned.locator(".certainty-share").all_inner_texts()
    ]
    assert before < 50 < now
    await chat.show("Facts")
    await chat.panel.get_by_text("Before and now").press("Enter")
    first, wanted, today = [chat.panel.get_by_role("article").nth(at) for at in range(3)]
    await expect(first.locator(".story-text")).to_have_text(re.compile(r"\W+".join(re.findall(r"\w+", said)[:6])))
    await expect(wanted).to_contain_text(HERON)
    await expect(today).to_contain_text("It has not been asked since.")
    await today.get_by_role("button", name="Ask it now").press("Enter")
    await expect(today).to_contain_text(f"{HERON}Asked just now · Word for word")
    await first.get_by_role("button", name="Ask without it").press("Enter")
    await expect(first).to_contain_text("Without what was learned, asked just now")
    await expect(first.locator(".story-text")).not_to_contain_text("Heron")
    assert await found_by_axe(chat.page) == []
    await chat.close_panel()

    assert "Grey Heron" in await chat.ask_anew(FERRY_OTHERWISE)
    await expect(chat.chip.locator("summary")).to_contain_text("You taught this · ")
    await expect(chat.under_answer("Good")).to_be_visible()  # it is in the memory


async def forget(chat: LearningPage) -> None:
    """The lesson that `correct` taught."""
    assert "Grey Heron" in await chat.ask_anew(FERRY_OTHERWISE)
    await chat.chip.locator("summary").click()
    await expect(chat.chip.get_by_text(HERON)).to_be_visible()
    await chat.chip.get_by_role("button", name="Forget").click()
    await expect(chat.chip.locator("summary")).to_have_text("You taught this · forgotten")
    assert "Heron" not in await chat.ask_anew(FERRY_OTHERWISE)
    await expect(chat.chip).to_have_count(0)
    await chat.show("Facts")
    await expect(chat.panel).to_contain_text("You have taught nothing yet")


async def test_facts_are_taught_edited_switched_off_searched_and_forgotten_in_the_memory_view(
    chat: LearningPage,
) -> None:
    await chat.show("Facts")
    await chat.teach(FERRY, "It is called the Tern.")
    await expect(chat.row("Tern")).to_contain_text("not used yet")
    await chat.teach(FERRY, HERON)
    await expect(chat.learned).to_contain_text("You had taught")
    await expect(chat.row("Tern")).to_have_count(0)
    await chat.panel.get_by_label("Show").select_option(label="Replaced")
    await expect(chat.row("Tern")).to_contain_text("replaced by a newer answer")
    await chat.panel.get_by_label("Show").select_option(label="Current")
    await chat.learned.get_by_role("button", name="Undo").click()
    await expect(chat.row("Tern")).to_be_visible()
    await expect(chat.row("Heron")).to_have_count(0)

    await chat.row("Tern").get_by_role("button", name="Edit").click()
    await chat.row("").get_by_label("Answer", exact=True).fill(HERON)
    await chat.panel.get_by_role("button", name="Save").click()
    await expect(chat.row(HERON)).to_be_visible()
    await chat.learned.get_by_role("button", name="Undo").click()
    await expect(chat.row("Tern")).to_be_visible()
    await chat.teach(FERRY, HERON)
    await expect(chat.row(HERON)).to_be_visible()
    await chat.row(HERON).get_by_role("switch").press("Space")
    await expect(chat.row(HERON)).to_contain_text("switched off")
    await chat.panel.get_by_role("searchbox").fill("a boat to an island")
    await expect(chat.row(HERON)).to_contain_text("similar")
    await chat.row(HERON).get_by_role("button", name="Forget").click()
    await chat.row(HERON).get_by_role("button", name="Forget").click()
    await expect(chat.row(HERON)).to_have_count(0)
    await chat.panel.get_by_role("searchbox").fill("")
    await chat.panel.get_by_role("button", name="Undo").click()
    await expect(chat.row(HERON)).to_contain_text("switched off")
    await chat.row(HERON).get_by_role("switch").press("Space")
    await expect(chat.row(HERON)).not_to_contain_text("switched off")


async def test_a_good_answer_is_remembered_and_what_was_said_of_it_is_taken_back_by_the_same_button(
    chat: LearningPage,
) -> None:
    await chat.ask_anew("Name a colour.")
    good, bad = chat.under_answer("Good"), chat.under_answer("Bad")
    remember = chat.under_answer("Remember this answer")
    await expect(remember).to_be_hidden()
    await good.press("Enter")
    await expect(good).to_have_attribute("aria-pressed", "true")
    await remember.press("Enter")
    await expect(chat.learned).to_be_focused()
    await expect(chat.learned).to_contain_text("Name a colour.")
    await chat.learned.get_by_role("button", name="Undo").click()
    await expect(chat.learned).to_contain_text("Undone.")
    await expect(good).to_have_attribute("aria-pressed", "true")
    assert (await chat.page.evaluate("sonata.engine.learning.lessons({ search: 'Name a colour.' })"))["items"] == []
    await bad.click()
    await expect(bad).to_have_attribute("aria-pressed", "true")
    await expect(good).to_have_attribute("aria-pressed", "false")
    await expect(remember).to_be_hidden()
    await bad.click()
    await expect(bad).to_have_attribute("aria-pressed", "false")


async def test_what_was_said_of_answers_and_what_the_chat_remembers_is_there_after_a_reload_and_undone_there(
    chat: LearningPage,
) -> None:
    await chat.ask("Name a colour.")
    await chat.under_answer("Bad").click()
    await expect(chat.under_answer("Bad")).to_have_attribute("aria-pressed", "true")
    assert "Dr. Quill" in await chat.ask("remember that my dentist is Dr. Quill")
    await expect(chat.learned).to_contain_text("Who is my dentist?")
    await expect(chat.under_answer("Good")).to_have_count(0)  # there is nothing to judge

    await chat.ask("My name is Anna.")
    offer = chat.page.locator(".answer").last.get_by_text("Remember this?")
    await expect(offer).to_contain_text("Your name is Anna.")
    await chat.under_answer("Remember").click()
    await expect(chat.learned.last).to_contain_text("What is my name?")
    await expect(offer).to_have_count(0)
    await chat.ask("Forget my name.")
    card = chat.page.get_by_role("region", name="Forgotten").last
    await expect(card).not_to_contain_text("Anna")
    await card.get_by_role("button", name="Undo").click()
    await expect(card).to_contain_text("Your name is Anna.")
    await chat.ask("What do you know about me?")
    await chat.page.wait_for_function("() => !document.querySelector('[aria-busy]')")

    await chat.page.reload()
    await chat.wait_for("ready")
    await chat.can_learn()  # before that Undo asks to be tried again
    bad = chat.page.locator(".answer").first.get_by_role("button", name="Bad", exact=True)
    await expect(bad).to_have_attribute("aria-pressed", "true")
    await bad.click()
    await expect(bad).to_have_attribute("aria-pressed", "false")
    again = chat.page.get_by_role("region", name="Learned", exact=True)
    await again.get_by_role("button", name="Undo").click()
    await expect(again).to_contain_text("Undone.")
    card = chat.page.get_by_role("region", name="What you taught")
    await expect(card).to_contain_text("Your name is Anna.")
    await card.get_by_role("button", name="Forget", exact=True).first.click()
    await expect(card.get_by_text("Forgotten")).to_have_count(1)
    assert (await chat.page.evaluate("sonata.engine.learning.lessons()"))["items"] == []


async def test_loops_are_switched_off_paused_and_run_and_their_plots_have_tables(chat: LearningPage) -> None:
    await chat.ask("Name a colour.")
    await chat.under_answer("Good").press("Enter")
    await expect(chat.under_answer("Good")).to_have_attribute("aria-pressed", "true")
    await chat.show("Facts")
    await chat.teach(BAKERY, FIVE)
    await chat.show("Learning")
    plot = chat.panel.get_by_role("figure").filter(has_text="How sure the model is of what you taught")
    await expect(plot.get_by_role("img")).to_be_visible()
    await plot.get_by_text("As a table").press("Enter")
    await expect(plot.get_by_role("row").first).to_have_text("Factbeforenow")
    await expect(plot.get_by_role("row").last).to_contain_text("When does the bakery at")
    quality = chat.panel.get_by_role("region", name="Quality of the answers that you judged")
    await quality.get_by_text("As a table").press("Enter")
    heads = re.compile("^Daygoodcorrectedbadfrom what you taughtquality")
    await expect(quality.get_by_role("row").first).to_have_text(heads)
    history = chat.panel.get_by_role("region", name="What was learned when")
    await history.locator("summary").press("Enter")
    await expect(history.get_by_role("listitem").first).to_contain_text(f"You taught: {BAKERY}")
    await expect(history.get_by_role("img")).to_have_attribute("aria-label", re.compile("At once: [1-9]"))
    await chat.show_for_developers()
    await expect(chat.panel.get_by_role("region", name="Adapters")).to_contain_text("There are no adapters yet.")
    pauses = chat.panel.get_by_role("region", name="In pauses")
    await pauses.get_by_role("button", name="Pause").press("Enter")
    await expect(pauses.get_by_role("button", name="Resume")).to_be_focused()
    deep = chat.panel.get_by_role("region", name="From experience")
    await deep.get_by_role("button", name="Learn now").click()
    await expect(deep).to_contain_text("Last time it looked at")
    await expect(history.get_by_role("listitem").filter(has_text="Looked at")).to_have_count(1)
    await expect(chat.panel.get_by_role("alert")).to_have_count(0)
    await chat.panel.get_by_role("link", name="Switch it on or off").press("Enter")
    await expect(chat.panel.get_by_role("switch", name="By training")).to_be_checked()
    switch = chat.panel.get_by_role("switch", name="At once")
    await switch.press("Space")
    await expect(switch).not_to_be_checked()
    await chat.page.keyboard.press("Escape")
    await chat.ask_anew(BAKERY)
    await expect(chat.chip).to_have_count(0)
    await chat.show("Learning")
    await expect(chat.panel.get_by_role("region", name="At once")).to_contain_text("Switched off.")
    await chat.show("Settings/Learning")
    await expect(switch).not_to_be_checked()
    await switch.press("Space")
    await expect(switch).to_be_checked()


@pytest.mark.all
async def test_an_answer_that_was_read_from_what_was_taught_says_so_also_after_a_reload(real: LearningPage) -> None:
    chat = real
    for question, answer in READ.items():
        await chat.page.evaluate(TEACH, [question, answer])
    # it is less often sure
    await chat.page.evaluate("sonata.engine.memory.editPolicy({ name: 'learning.gate.threshold', value: 3.5 })")
    assert await chat.ask_anew("Where does the lab store its LN2?") == READ[NITROGEN]
    words = f"Read from what you taught: {NITROGEN}"
    await expect(chat.chip).to_contain_text(words)
    await expect(chat.under_answer("Bad")).to_be_visible()  # it is stored
    await chat.page.reload()
    await chat.wait_for("ready")
    await expect(chat.chip).to_contain_text(words)
    await chat.can_learn()
    await chat.chip.locator("summary").press("Enter")
    await expect(chat.chip).to_contain_text("Sonata was not sure that your message asks for this")
    await chat.chip.get_by_role("button", name="This was wrong").click()
    await expect(chat.under_answer("Bad")).to_have_attribute("aria-pressed", "true")
    await chat.show("Settings/Learning")
    switch = chat.panel.get_by_role("switch", name="By reading")
    await switch.press("Space")
    await expect(switch).not_to_be_checked()
    await chat.page.keyboard.press("Escape")
    await chat.ask_anew("Where does the lab store its LN2?")
    await expect(chat.chip).to_have_count(0)


@pytest.mark.all  # tests/page/views/test_views.py has these views, and test_memory_view.py the widths
async def test_everything_fits_the_screen_and_axe_finds_nothing_wrong(chat: LearningPage, screenshots: Path) -> None:
    await chat.page.evaluate(TEACH, [FERRY, HERON])
    await chat.ask_anew(FERRY_OTHERWISE)
    await chat.under_answer("You should have said …").click()
    await chat.chip.locator("summary").click()
    for scheme, (width, height) in (*(("light", size) for size in SIZES), ("dark", SIZES[1])):
        await chat.page.emulate_media(color_scheme=scheme)
        await chat.page.set_viewport_size({"width": width, "height": height})
        await look_at(chat, screenshots / f"learning-chat-{width}-{scheme}.png")
        for tab in ("Facts", "Learning", "Storage"):
            await chat.show(tab)
            await chat.panel.locator(".record, figure, .counts dd").first.wait_for()
            await look_at(chat, screenshots / f"learning-{tab.lower()}-{width}-{scheme}.png")
        await chat.page.keyboard.press("Escape")
    await chat.page.set_viewport_size({"width": 1280, "height": 800})
    await chat.page.emulate_media(color_scheme="light")


async def look_at(chat: LearningPage, path: Path) -> None:
    await chat.page.screenshot(path=path)
    await chat.page.wait_for_function(
        "() => [document.documentElement, ...document.querySelectorAll('.top, .answer, .panel-body')]"
        ".every((node) => node.scrollWidth <= node.clientWidth)"
    )
    await chat.page.wait_for_function(TABS_IN_A_ROW)
    assert await found_by_axe(chat.page) == [], path.stem
