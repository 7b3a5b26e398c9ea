"""A memory with a little of everything, always the same, for tests that look at views."""

from __future__ import annotations

from playwright.async_api import expect

from app.records.kinds import KINDS
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.sessions import Turn
from py_core.store.encryption import NativeCrypto
from py_core.store.store import Store
from py_core.store.transfer import export
from py_core.store.volatile import VolatileRows
from tests.page.chat_page import ChatPage

DAY = 24 * 60 * 60
RICH, SKY = "A bit of everything", "Why the sky is blue"
OTHERS = {"A trip to Lisbon": 1.0, "Rivers": 1.1, "Knots": 5.0, "Old bread": 5.1}
"""Titles of chats, and the days since their last message."""

EVERYTHING = """### A heading that begins deep

It has **bold** and *italic* words, `code`, and the area $\\pi r^2$.

###### The deepest one

> A quotation says it in a box of its own.

# The highest one

1. Sunlight enters the air.
2. Blue light is scattered the most.

#### One in between

- [x] Buy milk
- [ ] Call Anna

| colour | wavelength |
|---|---:|
| blue | 450 nm |
| red | 700 nm |

```python
@cache
def scattering(nm: float) -> float:
    # shorter waves are scattered more
    return 1 / nm ** 4, "m²"
```

```diff
+a
-b
```

```html
<a href='b'>c &amp; d</a>
```

$$E = mc^2$$

See [Rayleigh scattering](https://en.wikipedia.org/wiki/Rayleigh_scattering), ![a cat](https://cats.invalid/cat.png)."""
SHORT = """Air scatters **short waves** far more than long ones, so blue light comes from everywhere.

## In short

1. Sunlight enters the air.
2. Blue light is scattered about *ten times* as much as red.

```python
def scattering(wavelength_nm):
    return 1 / wavelength_nm ** 4
```"""
LESSONS = {
    "What is my dentist called?": "Your dentist is Dr. Quill.",
    "When does the bakery open?": "The bakery opens at five.",
    "Where is the key of the shed?": "It is under the blue pot.",
}
_ROUTE = {
    "id": "r", "title": "Planner", "reason": "nearest", "confidence": 0.8, "threshold": 0.5,
    "ranked": [["planner", 0.8], ["coder", 0.1]],
}  # fmt: skip
_PASSAGES = [
    {"file": "f", "name": "notes.md", "place": "2", "text": "Blue light is scattered the most."},
    {"file": "g", "name": "key.txt", "place": "", "text": "The key is under the pot."},
]


async def furnish(chat: ChatPage) -> None:
    """Replace the page's memory: today's messages came in the first minute of the day."""
    today = await chat.page.evaluate("new Date(new Date().setHours(0, 0, 1, 0)).getTime() / 1000")
    now = [today - 100 * DAY]
    store = await Store.open(VolatileRows(), crypto=NativeCrypto(), clock=lambda: now[0], kinds=KINDS)
    memory, last = await Memory.open(store), ""
    for question, answer in LESSONS.items():
        now[0] += 60
        await memory.lessons.keep(Lesson(question, answer))
    for title, days in reversed(OTHERS.items()):
        now[0] = today - days * DAY + DAY / 2
        session = await memory.sessions.start(title, titled="user")
        await memory.sessions.add_turns(session.id, Turn("user", f"Tell me: {title}."), Turn("assistant", "Gladly."))
    now[0] = today
    session = await memory.sessions.start(SKY, titled="user")
    await memory.sessions.add_turns(session.id, Turn("user", "Why is the sky blue?"), Turn("assistant", SHORT))
    now[0] += 30
    session = await memory.sessions.start(RICH, titled="user")
    said = (
        Turn("user", "What is 17 * 23?"),
        Turn("assistant", "17 × 23 = **391**", details={"tool": {"kind": "arithmetic", "words": "17 * 23", "working": "17 × 23"}}),  # noqa: E501, RUF001
        Turn("user", "Show me everything."),
        Turn("assistant", "Another one.", details={"request": "a"}),
    )  # fmt: skip
    await memory.sessions.add_turns(session.id, *said)
    details = {
        "request": "b", "agent": "planner", "route": _ROUTE, "passages": _PASSAGES, "found": "words",
        "reason": "length", "tokens": 8, "thinking": {"text": "Hm.", "seconds": 3.4},
    }  # fmt: skip
    last = (await memory.sessions.add_turns(session.id, Turn("assistant", EVERYTHING, details=details), after=2)).id
    put = "async ([bytes]) => sonata.engine.memory.importFile({ data: Uint8Array.from(bytes), mode: 'replace' })"
    await chat.page.evaluate(put, [list(await export(store))])
    await expect(chat.page.locator(f"#chats [data-chat='{last}']")).to_have_count(1)
    await expect(chat.page.locator("#chats .chat-name")).to_have_count(len(OTHERS) + 2)


async def open_chat(chat: ChatPage, title: str) -> None:
    """Open it by its link in the side bar."""
    await chat.page.locator("#chats a").filter(has_text=title).click()
    await chat.page.locator(".answer .answer-actions").last.wait_for(state="attached")
