"""A user with nothing but a keyboard: after each key some element has the focus, visibly."""

from __future__ import annotations

from playwright.async_api import Locator, Page

# An element that only a script can focus, such as the heading of a list that has just opened, needs no outline.
SEEN = """() => {
  const now = document.activeElement;
  if (!now || now === document.body) return false;
  const { top, bottom, left, right, width, height } = now.getBoundingClientRect();
  if (!width || !height || bottom < 0 || right < 0 || top > innerHeight || left > innerWidth) return false;
  if (now.tabIndex < 0) return true;
  const style = (node) => (node ? getComputedStyle(node) : { outlineStyle: 'none', boxShadow: 'none' });
  const shows = (node) => style(node).outlineStyle !== 'none' || style(node).boxShadow !== 'none';
  return now.matches(':focus-visible') && (shows(now) || shows(now.closest('form, label, .chats-search')));
}"""
IS_FOCUSED = "(element) => element === document.activeElement"
WHERE = "() => document.activeElement.outerHTML.slice(0, 300)"
NAME = "() => document.activeElement.ariaLabel ?? document.activeElement.id"
COUNT = """() => {
  let pointed = 0;
  const listening = new AbortController();
  for (const name of ['pointerdown', 'mousedown', 'wheel', 'touchstart']) {
    document.addEventListener(name, () => { pointed += 1; }, { capture: true, signal: listening.signal });
  }
  window.pointed = () => {
    listening.abort();
    delete window.pointed;
    return pointed;
  };
}"""


class Keys:
    """Presses keys on a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def begin(self) -> None:
        """From now on all mouse events are counted."""
        await self.page.evaluate(COUNT)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)
            await self.is_seen(f"after {key}")

    async def type(self, text: str) -> None:
        await self.page.keyboard.type(text)

    async def is_seen(self, when: str) -> None:
        try:
            await self.page.wait_for_function(SEEN, timeout=60_000)
        except Exception as error:
            raise AssertionError(f"{when} the focus cannot be seen: {await self.page.evaluate(WHERE)}") from error

    async def go_to(self, wanted: Locator, key: str = "Tab", most: int = 60) -> None:
        """Press Tab, Shift+Tab or another key until this element has the focus."""
        await wanted.first.wait_for()
        passed = []
        for _ in range(most):
            if await wanted.first.evaluate(IS_FOCUSED):
                return
            try:
                await self.press(key)
            except AssertionError as error:
                raise AssertionError(f"{error}; on the way to {wanted}, after {passed}") from error
            passed.append(await self.page.evaluate(NAME))
        raise AssertionError(f"{key} does not lead to {wanted}, but to {passed}")

    async def use(self, wanted: Locator, key: str = "Tab") -> None:
        """Move the focus there and press Enter."""
        await self.go_to(wanted, key)
        await self.press("Enter")

    async def end(self) -> None:
        """No mouse event was counted."""
        assert await self.page.evaluate("pointed()") == 0
