"""The settings of answers and of the page's looks, with the real engine and a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.page.chat_page import ChatPage
from tests.page.views.accessibility import found_by_axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]


def policy_is(name: str, part: str) -> str:
    """A promise of true if the memory has this policy, with `part` in its value."""
    wanted = f"one.name === {json.dumps(name)} && String(one.value).includes({json.dumps(part)})"
    return f"sonata.engine.memory.policies().then((all) => all.some((one) => {wanted}))"


async def test_how_answers_are_made_is_chosen_and_kept(ready_chat: ChatPage, screenshots: Path) -> None:
    await ready_chat.routed()
    part = await ready_chat.open_part("Answers")
    await expect(part.get_by_label("As the agent sets it")).to_be_checked()
    await part.get_by_label("Your instructions").fill("Call me Zorbina.")
    await part.get_by_label("Your instructions").blur()
    await expect(part.get_by_role("status")).to_contain_text("Saved")
    await ready_chat.until(policy_is("answers.instructions", "Call me Zorbina."))

    await part.get_by_label("Balanced").check()
    await expect(part.get_by_label("Balanced")).to_be_checked()
    await ready_chat.until(policy_is("answers.sampling", "balanced"))
    await part.get_by_label("Your own settings").check()
    temperature = part.get_by_label("Temperature")
    await temperature.fill("-2")
    await temperature.press("Tab")
    await expect(part.get_by_role("alert")).to_contain_text("temperature is -2")
    await temperature.fill("0.3")
    await temperature.press("Tab")
    await expect(part.get_by_role("alert")).to_be_hidden()
    await ready_chat.until(policy_is("answers.sampling", '"temperature":0.3'))
    await ready_chat.page.screenshot(path=screenshots / "settings-answers.png")
    assert await found_by_axe(ready_chat.page) == []

    await part.get_by_label("Longest answer").fill("3")
    await part.get_by_label("Longest answer").press("Tab")
    await expect(part.get_by_role("status")).to_contain_text("Saved")
    await ready_chat.ask("Say something.")
    assert await ready_chat.page.evaluate("sonata.lastAnswer.newTokens") == 3

    await part.get_by_label("Longest answer").fill("")
    await part.get_by_label("Longest answer").press("Tab")
    await part.get_by_label("As the agent sets it").check()
    await part.get_by_label("Your instructions").fill("")
    await part.get_by_label("Your instructions").blur()
    await ready_chat.until(
        "sonata.engine.memory.policies().then((all) => !all.some(({ name }) => name.startsWith('answers.')))"
    )


async def test_what_runs_the_model_is_chosen_and_kept(page_alone: ChatPage) -> None:
    page = page_alone.page
    part = await page_alone.open_part("Model")
    await page_alone.choose("backend", "wasm")
    await page.wait_for_function("() => sonata.info?.backend === 'wasm'")
    lengths = [length for length, _ in (await page.evaluate("sonata.info.fit"))["contexts"]]
    await expect(part.locator("#context option")).to_have_count(len(lengths) + 1)
    await page_alone.choose("context", str(lengths[0]))
    await page.wait_for_function(f"() => sonata.info?.contextLength === {lengths[0]}")
    await expect(part).to_contain_text(f"Now {lengths[0]:,} tokens")
    await part.locator("#workers").focus()
    await part.locator("#workers").select_option("1")
    await page_alone.wait_for("ready")
    await expect(part.locator("#workers")).to_be_focused()  # also while the model is loaded again
    assert await found_by_axe(page) == []

    await page.reload()
    await page.wait_for_function(f"() => sonata.info?.contextLength === {lengths[0]}")
    await expect(part.locator("#workers")).to_have_value("1")
    await expect(part.locator("#backend")).to_have_value("wasm")
    await part.locator("#context").select_option("")
    await page.wait_for_function(f"() => sonata.info?.contextLength === {lengths[-1]}")
    await page.wait_for_function("() => localStorage.getItem('sonata.context') === null")


@pytest.mark.all
async def test_what_runs_the_real_engine_is_what_was_chosen(ready_chat: ChatPage, screenshots: Path) -> None:
    page = ready_chat.page
    await ready_chat.open_part("Answers")
    part = await ready_chat.open_part("Model")
    await expect(part).to_contain_text("Set by the address of this page (backend=wasm)")
    await expect(part.locator(".run-why").first).to_contain_text("as you chose")
    fit = await page.evaluate("sonata.info.fit")
    lengths = [length for length, _ in fit["contexts"]]
    assert lengths == sorted(lengths)
    assert lengths[-1] == fit["trained"]
    await expect(part.locator("#context option")).to_have_count(len(lengths) + 1)
    await expect(part).to_contain_text(f"The model was trained for {fit['trained']:,} tokens.")
    await page.screenshot(path=screenshots / "settings-model.png")
    assert await found_by_axe(page) == []

    await ready_chat.choose("context", str(lengths[0]))
    await page.wait_for_function(f"() => sonata.info?.contextLength === {lengths[0]}")
    await expect(part).to_contain_text(f"Now {lengths[0]:,} tokens")
    await part.locator("#workers").focus()
    await part.locator("#workers").select_option("1")
    await ready_chat.wait_for("ready")
    await expect(part.locator("#workers")).to_be_focused()  # also while the model is loaded again
    await expect(part).not_to_contain_text("workers=1")
    await page.reload()
    await ready_chat.wait_for("ready")
    await page.wait_for_function(f"() => sonata.info?.contextLength === {lengths[0]}")
    await expect(part.locator("#workers")).to_have_value("1")
    await expect(page.locator("#notices")).to_have_text("")  # only Settings show the choice

    await part.locator("#context").select_option("")
    await ready_chat.wait_for("ready")
    await page.wait_for_function(f"() => sonata.info?.contextLength === {lengths[-1]}")
    await page.wait_for_function("() => localStorage.getItem('sonata.context') === null")

    sizes = await part.locator("#memory option").evaluate_all("(all) => all.map(({ value }) => Number(value))")
    assert min(sizes[1:]) * 1e6 >= fit["weights"] + fit["pages"] + fit["scratch"]  # every offered value fits
    await part.locator("#memory").select_option("1000")
    await ready_chat.wait_for("ready")
    await ready_chat.until("sonata.engine.model.memoryUse().then(({ limit }) => limit === 1e9)")
    await part.locator("#memory").scroll_into_view_if_needed()
    await page.screenshot(path=screenshots / "settings-memory.png")
    await ready_chat.close_panel()
    await ready_chat.ask("Hello")
    await page.click("#context-bar")
    await expect(page.locator(".context-held")).to_contain_text("of memory, 1.0 GB at most")
    await page.screenshot(path=screenshots / "memory-at-most.png")


async def test_the_looks_are_chosen_and_kept(page_alone: ChatPage, screenshots: Path) -> None:
    page = page_alone.page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(ground)
    part = await page_alone.open_part("Appearance")
    await part.get_by_label("Dark").check(force=True)
    await page.wait_for_function(f"light => {ground} !== light", arg=light)
    await part.get_by_label("Larger").check(force=True)
    await expect(page.locator("html")).to_have_css("font-size", "20px")
    await page.screenshot(path=screenshots / "settings-appearance-dark.png")
    assert await found_by_axe(page) == []

    await part.get_by_label("Language").select_option("de")
    await page.wait_for_load_state()
    await expect(page.get_by_role("button", name="Neues Gespräch").first).to_be_visible()
    assert await page.evaluate(ground) != light, "what was chosen counts before the page is ready"
    await expect(page.locator("html")).to_have_attribute("lang", "de")
    await page_alone.wait_for("ready")
    await page.locator("#panel").get_by_role("tab", name="Aussehen").click()
    await page.get_by_label("Wie das System").check(force=True)
    await page.get_by_label("Üblich").check(force=True)
    await page.get_by_label("Sprache").select_option("en")
    await expect(page.get_by_role("button", name="New chat").first).to_be_visible()
    await page.wait_for_function(f"light => {ground} === light", arg=light)
    await page_alone.wait_for("ready")
