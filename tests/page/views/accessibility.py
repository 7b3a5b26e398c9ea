"""Problems that axe finds in a page for people who use a keyboard or a screen reader, or see few colours."""

from __future__ import annotations

from playwright.async_api import Page

from app.building.node import NODE_MODULES

AXE = NODE_MODULES / "axe-core" / "axe.min.js"
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules whose result may differ between light and dark."""
RUN = """async ([root, rules]) => {
  const runOnly = rules.length ? { type: 'rule', values: rules } : undefined;
  const { violations } = await axe.run(root ?? document, { resultTypes: ['violations'], runOnly });
  return violations.flatMap(({ id, help, nodes }) => (
    nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target.join(' ')}: ${failureSummary}`)));
}"""


async def found_by_axe(page: Page, root: str | None = None, rules: tuple[str, ...] = ()) -> list[str]:
    """A sentence for each violation within this selector, or on the whole page; of these rules, or of all."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text("utf-8") + "; undefined")
    return await page.evaluate(RUN, [root, list(rules)])
