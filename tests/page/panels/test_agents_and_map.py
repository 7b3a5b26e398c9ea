"""The Agents and the Map of the panels, with the real engine and a tiny model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from app.routing.agent_catalog import shipped_agents, shipped_examples
from py_core.sampling import SamplingParams
from tests.page.chat_page import ChatPage, open_part

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

RECIPES = ["how do i bake sourdough bread", "a soup with carrots for six", "what can i cook with leftover rice"]
CORRECTED = "the tomatoes on my balcony have brown spots"
PLACE = """(text) => {
  const chart = Chart.getChart(document.querySelector('.map-box canvas'));
  const { left, top } = chart.canvas.getBoundingClientRect();
  for (const [number, { data }] of chart.data.datasets.entries()) {
    const at = data.findIndex((point) => point.text === text);
    if (at < 0) continue;
    const { x, y } = chart.getDatasetMeta(number).data[at];
    return [left + x, top + y];
  }
}"""
PLACE_IS = f"([text, [x, y]], [a, b] = ({PLACE})(text)) =>"
DRAWN = """() => {
  const canvas = document.querySelector('.map-box canvas');
  if (!canvas?.width) return 0;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let drawn = 0;
  for (let at = 3; at < data.length; at += 4) drawn += data[at] > 0;
  return drawn;
}"""
"""Pixels of the map that are not empty."""


@pytest_asyncio.fixture(loop_scope="session")
async def page(ready_chat: ChatPage) -> Page:
    await ready_chat.routed()
    return ready_chat.page


async def open_tab(page: Page, name: str) -> Locator:
    panel = await open_part(page, name)
    await panel.wait_for()
    return panel


def row_of(panel: Locator, title: str) -> Locator:
    return panel.locator("[data-agent]").filter(has=panel.page.locator(".record-title", has_text=title))


async def agents_of(page: Page) -> dict[str, dict]:
    return {agent["id"]: agent for agent in await page.evaluate("sonata.engine.memory.agents()")}


async def test_a_new_agent_gets_the_messages_that_are_like_its_requests(
    ready_chat: ChatPage, page: Page, screenshots: Path
) -> None:
    panel = await open_tab(page, "Agents")
    await panel.get_by_role("button", name="Add an agent").click()
    await panel.get_by_label("Name", exact=True).fill("Head cook!")
    await panel.get_by_label("Description").fill("Cooking and baking")
    await panel.get_by_label("System prompt").fill("You are a helpful AI assistant who cooks.")
    await panel.get_by_label("Example requests").fill("\n".join(["", *RECIPES, " "]))
    await page.screenshot(path=screenshots / "agents-add.png")
    await panel.get_by_role("button", name="Add", exact=True).click()

    await row_of(panel, "Head cook!").wait_for()
    await expect(row_of(panel, "Head cook!")).to_contain_text("3 examples of yours")
    await expect(page.locator("[data-agent=head-cook] :focus, [data-agent=head-cook]:focus").first).to_be_attached()
    made = (await agents_of(page))["head-cook"]
    assert made["examples"] == RECIPES
    assert "sampling" not in made
    assert not made["shipped"]

    await page.get_by_role("button", name="Close", exact=True).click()
    await ready_chat.ask("how can i bake bread")
    await expect(page.locator(".route-chip").last).to_contain_text("Head cook!")

    await open_tab(page, "Agents")
    await row_of(panel, "Head cook!").get_by_role("button", name="Delete").click()
    await row_of(panel, "Head cook!").get_by_role("button", name="Delete", exact=True).click()
    await row_of(panel, "Head cook!").wait_for(state="detached")
    assert "head-cook" not in await agents_of(page)


async def test_what_python_refuses_is_said_at_the_form_which_keeps_what_was_typed(page: Page) -> None:
    panel = await open_tab(page, "Agents")
    await row_of(panel, "Planner").get_by_role("button", name="Edit").click()
    await panel.get_by_text("Generation settings", exact=True).click()
    await panel.get_by_label("Top p").fill("3")
    await panel.get_by_role("button", name="Save").click()
    problem = panel.locator(".agent-form").get_by_role("alert")
    await problem.wait_for()
    await expect(problem).to_contain_text("top_p is 3")
    top_p = panel.get_by_label("Top p")
    await expect(top_p).to_have_value("3")
    await expect(top_p).to_have_attribute("aria-invalid", "true")
    await expect(top_p).to_have_attribute("aria-describedby", re.compile(await problem.get_attribute("id") or "?"))
    await expect(top_p).to_be_focused()
    below = "(problem) => problem.previousElementSibling.querySelector('input').closest('.agent-field').textContent"
    assert (await problem.evaluate(below)).startswith("Top p")

    await panel.get_by_label("Top p").fill("a lot")
    await panel.get_by_role("button", name="Save").click()
    await problem.filter(has_text="a number such as 1").wait_for()
    await panel.get_by_label("Name", exact=True).fill(" ")
    await panel.get_by_label("Top p").fill("0.5")
    await panel.get_by_role("button", name="Save").click()
    await problem.filter(has_text="needs the key title").wait_for()
    await expect(panel.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    await expect(top_p).not_to_have_attribute("aria-invalid")
    await expect(top_p).to_have_attribute("aria-describedby", "agent-hint-top-p")
    await panel.get_by_label("Name", exact=True).fill("Planner")

    await panel.get_by_label("Top p").fill("0,5")
    await panel.get_by_role("button", name="Save").click()
    await panel.locator(".agent-form").wait_for(state="detached")
    planner = (await agents_of(page))["planner"]
    assert planner["sampling"] == {"top_p": 0.5}

    await expect(row_of(panel, "Planner")).to_contain_text("edited by you")
    await row_of(panel, "Planner").get_by_role("button", name="Undo changes").click()
    await row_of(panel, "Planner").get_by_role("button", name="Undo", exact=True).click()
    await row_of(panel, "Planner").get_by_text("edited by you").wait_for(state="detached")
    planner = (await agents_of(page))["planner"]
    assert "sampling" not in planner
    assert not planner["edited"]


async def test_a_changed_form_asks_before_it_is_thrown_away_and_outlasts_other_tabs(page: Page) -> None:
    panel = await open_tab(page, "Agents")
    await row_of(panel, "Tester").get_by_role("button", name="Edit").click()
    prompt = panel.get_by_label("System prompt")
    await panel.get_by_role("button", name="Cancel").click()  # nothing was changed: there is no question
    await panel.locator(".agent-form").wait_for(state="detached")

    await row_of(panel, "Tester").get_by_role("button", name="Edit").click()
    await prompt.fill("You test.")
    await open_tab(page, "Log")
    await open_tab(page, "Agents")
    await expect(prompt).to_have_value("You test.")
    await prompt.press("Escape")
    question = page.get_by_role("dialog", name="Discard your changes?")
    await question.get_by_role("button", name="Cancel").click()
    await expect(prompt).to_have_value("You test.")

    await panel.get_by_role("button", name="Cancel").click()
    await question.get_by_role("button", name="Discard").click()
    await panel.locator(".agent-form").wait_for(state="detached")
    assert not (await agents_of(page))["tester"]["edited"]


async def test_a_shipped_agent_is_removed_and_brought_back(page: Page) -> None:
    panel = await open_tab(page, "Agents")
    listed = panel.get_by_role("list", name="Agents", exact=True)
    await expect(listed.get_by_role("listitem")).to_have_count(len(shipped_agents()))
    await expect(row_of(listed, "Assistant").get_by_role("button")).to_have_count(1)  # it can only be edited

    await panel.get_by_role("button", name="Remove Refactorer").click()
    removed = row_of(panel.get_by_role("list", name="Removed agents"), "Refactorer")
    await removed.wait_for()
    assert (await agents_of(page))["refactorer"]["hidden"]
    await expect(row_of(listed, "Refactorer")).to_have_count(0)

    await removed.get_by_role("button", name="Restore Refactorer").click()
    await row_of(listed, "Refactorer").wait_for()
    assert not (await agents_of(page))["refactorer"]["hidden"]


async def test_the_form_knows_pythons_standards(page: Page) -> None:
    """The placeholders are what an empty field means."""
    shown = await page.evaluate(
        """async () => {
          const { SAMPLING, MAX_TOKENS } = await import('./panels/agents/agent_fields.js');
          return { max_tokens: MAX_TOKENS, ...Object.fromEntries(SAMPLING.map((f) => [f.name, f.standard])) };
        }"""
    )
    assert shown.pop("max_tokens") == 1024
    assert shown == {name: getattr(SamplingParams(), name) for name in shown}
    assert len(shown) >= 6


async def test_the_map_shows_every_request_and_what_the_user_said_stands_out(page: Page, screenshots: Path) -> None:
    await page.evaluate("text => sonata.engine.memory.correct({ id: '', text, agent: 'planner' })", CORRECTED)
    panel = await open_tab(page, "Map")
    entry = panel.get_by_role("button")
    await entry.filter(has_text="Planner").wait_for()
    await page.screenshot(path=screenshots / "map.png")

    examples = shipped_examples()
    assert await number_of(entry.filter(has_text="Shipped")) == len(examples)
    assert await number_of(entry.filter(has_text="Yours")) == 1
    own = sum(example.agent == "planner" for example in examples)
    assert await number_of(entry.filter(has_text="Planner")) == own + 1
    told = re.compile(f"{len(examples) + 1:,} requests of 19 agents")
    await expect(panel.get_by_role("img")).to_have_attribute("aria-label", told)

    x, y = await place_of(page, CORRECTED)
    await page.mouse.move(x, y)
    tip = f"Planner · your correction\n\n{CORRECTED}"
    await expect(panel.locator(".map-tip")).to_have_js_property("innerText", tip)


async def test_the_legend_hides_agents_and_the_map_is_zoomed_and_moved(page: Page) -> None:
    panel = await open_tab(page, "Map")
    coder = panel.get_by_role("button", name="Coder")
    await coder.wait_for()
    await page.wait_for_function(f"() => ({DRAWN})() > 0")
    before = await page.evaluate(DRAWN)
    await coder.click()
    await expect(coder).to_have_attribute("aria-pressed", "false")
    await expect(coder).to_be_focused()
    await page.wait_for_function(f"before => ({DRAWN})() < before", arg=before)
    await panel.get_by_role("button", name="Show all agents").click()
    await page.wait_for_function(f"before => ({DRAWN})() === before", arg=before)

    first = shipped_examples()[0].text
    whole = panel.get_by_role("button", name="Show the whole map")
    await expect(whole).to_be_disabled()
    await panel.locator(".map-box").focus()  # the panel scrolls to it
    at_first = await place_of(page, first)
    await panel.get_by_role("button", name="Zoom in").click()
    await page.wait_for_function("() => !document.querySelector('.map-zoom button:last-child').disabled")
    await page.wait_for_function(f"{PLACE_IS} Math.hypot(a - x, b - y) > 2", arg=[first, at_first])
    near = await place_of(page, first)
    await panel.locator(".map-box").press("ArrowLeft")
    await page.wait_for_function(f"{PLACE_IS} a > x + 5 && Math.abs(b - y) < 1", arg=[first, near])
    await whole.click()
    await expect(whole).to_be_disabled()
    await page.wait_for_function(f"{PLACE_IS} Math.hypot(a - x, b - y) < 1.5", arg=[first, at_first])


async def test_the_map_follows_light_and_dark_and_a_phones_width(page: Page, screenshots: Path) -> None:
    panel = await open_tab(page, "Map")
    await panel.get_by_role("button", name="Coder").wait_for()
    light = await panel.locator(".map-symbol").first.evaluate("canvas => canvas.toDataURL()")
    await page.emulate_media(color_scheme="dark")
    try:
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.wait_for_function("() => document.querySelector('.map-box canvas')?.clientWidth < 390")
        await page.screenshot(path=screenshots / "map-phone-dark.png")
        await page.wait_for_function("light => document.querySelector('.map-symbol')?.toDataURL() !== light", arg=light)
        await page.wait_for_function("() => document.querySelector('.panel-body').scrollWidth <= innerWidth")
    finally:
        await page.emulate_media(color_scheme="light")
        await page.set_viewport_size({"width": 1280, "height": 800})


async def number_of(entry: Locator) -> int:
    return int((await entry.locator(".map-count").inner_text()).split()[0].replace(",", ""))


async def place_of(page: Page, text: str) -> tuple[float, float]:
    """The place of a request's point on the screen."""
    x, y = await page.evaluate(PLACE, text)
    return x, y
