"""Two hundred clients, of which some leave, stall or lie: each of the others gets what it would get alone, and nothing
is left of any."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from app.api.server import ApiOptions, ApiServer
from py_core.loading import Model
from tests.api.load import EACH_CLOSED, KINDS, answer, body_of, load, sent
from tests.api.served import listening, until

alone = pytest.mark.asyncio(loop_scope="module")
CONNECTIONS, AT_ONCE, STALLED, TOKENS = 200, 64, 2, 8
BUFFERED = 256 << 10
"""The most bytes that a client that does not read may leave in the server. uvicorn stops at 64 kB and a piece."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(write_model, open_model) -> AsyncIterator[Model]:
    model = await open_model(write_model(tied=False, context=2048))
    yield model
    model.close()


@alone
async def test_each_gets_what_it_would_get_alone_and_nothing_is_left(
    model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    api = ApiServer(model, ApiOptions(answers=8, queue=AT_ONCE, unread_seconds=1.0))
    async with (
        listening(api, send_buffer=4096) as (server, address),
        httpx.AsyncClient(base_url=address, **EACH_CLOSED) as http,
    ):
        texts = [await answer(http, body_of(kind, TOKENS)) for kind in range(KINDS)]
        assert len(set(texts)) == KINDS
        kept = list[int]()

        async def is_over() -> bool:
            """The others have their answers, and the server has dropped the clients that do not read."""
            return len(kept) == CONNECTIONS and api.door.slots.running == 0

        async def stall() -> None:
            async with sent(address, json.dumps(body_of(0, 400, n=2)).encode(), 4096) as (reader, _):
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                await until(is_over)

        def note() -> None:
            kept.append(sum(one.transport.get_write_buffer_size() for one in server.server_state.connections))

        stalled = [asyncio.ensure_future(stall()) for _ in range(STALLED)]
        await load(http, texts, CONNECTIONS, AT_ONCE, TOKENS, note)
        await asyncio.gather(*stalled)
        assert max(kept) < BUFFERED * STALLED
        assert (api.door.slots.running, api.door.slots.waiting, len(api.door._running)) == (0, 0, 0)
        assert not model.engine._sequences
        assert "Exception" not in capfd.readouterr().err
        told = (await http.get("/metrics")).text
    figures = {one.name: one.value for family in text_string_to_metric_families(told) for one in family.samples}
    assert figures["llamacpp:requests_processing"] == figures["llamacpp:requests_deferred"] == 0
    assert figures["llamacpp:kv_cache_usage_ratio"] == 0
    assert figures["llamacpp:tokens_predicted_total"] > TOKENS * (KINDS + 2 * CONNECTIONS / 5)
    assert figures["llamacpp:prompt_tokens_total"] > 0
    assert figures["llamacpp:tokens_predicted_seconds_total"] > 0
