"""What axe finds wrong with a page for people who use a keyboard, a screen reader, or see few colours."""

from __future__ import annotations

from playwright.async_api import Page

from app.building.node import NODE_MODULES

AXE = NODE_MODULES / "axe-core" / "axe.min.js"
RUN = """async (root) => {
  const { violations } = await axe.run(root ?? document, { resultTypes: ['violations'] });
  return violations.flatMap(({ id, help, nodes }) => (
    nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target.join(' ')}: ${failureSummary}`)));
}"""


async def found_by_axe(page: Page, root: str | None = None) -> list[str]:
    """A sentence for each violation, in what this selector chooses, or on the whole page."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text("utf-8") + "; undefined")
    return await page.evaluate(RUN, root)
