"""Parts of the API that need no model."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from app.api.slots import Slots
from app.api.stop_texts import StopTexts


async def test_a_slot_is_not_given_to_a_client_that_has_just_left() -> None:
    slots = Slots(1, 4)

    async def wait() -> None:
        async with slots.held(1):
            pass

    async with slots.held(1):
        leaving, staying = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert slots.waiting == 2
        leaving.cancel()  # it learns of that later than the slot is given back
    await asyncio.gather(leaving, staying, return_exceptions=True)
    assert leaving.cancelled()
    assert (slots.running, slots.waiting, staying.exception()) == (0, 0, None)


@given(st.lists(st.text("ab", max_size=4), max_size=4), st.lists(st.text("abc", max_size=4), max_size=3))
def test_an_answer_ends_before_the_first_of_its_texts(pieces: list[str], texts: list[str]) -> None:
    stops, whole, shown = StopTexts(texts), "".join(pieces), ""
    places = [whole.find(text) for text in texts if text and text in whole]
    for piece in pieces:
        if not stops.found:
            shown += stops.push(piece)
    shown += stops.flush()
    assert stops.found == bool(places)
    if not places:
        assert shown == whole
    else:
        assert whole.startswith(shown)
        assert len(shown) <= max(places)
        assert not any(text and text in shown for text in texts)
