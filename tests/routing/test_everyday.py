"""The shipped router leaves untuned everyday requests with the plain assistant, or with an agent that suits them."""

from __future__ import annotations

from app.bench.routing import measure_everyday, read_everyday
from app.native_runtime import open_router


async def test_everyday_requests_stay_with_the_assistant_or_go_to_an_agent_that_suits_them() -> None:
    rows = [row for row in read_everyday() if row["half"] == "b"]
    groups = {group["language"]: group for group in await measure_everyday(await open_router(), rows)}
    assert groups["de"]["assistant"] == 1, groups["de"]["elsewhere"]
    elsewhere = [one for group in groups.values() for one in group["elsewhere"]]
    assert len(elsewhere) <= 0.05 * len(rows), elsewhere
