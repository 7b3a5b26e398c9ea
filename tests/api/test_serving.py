"""The server as a program: beside the page, and when it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import httpx
import pytest

from app.api.server import ApiOptions, ApiServer
from app.building.common import ROOT
from app.server.site import create_app
from tests.api.served import listening, until

LONG = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1500}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name in ("models.json", "index.html"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def reasons(events: str) -> list[str]:
    """Why the choices of a stream ended. It came to its end."""
    assert events.endswith("data: [DONE]\n\n")
    chunks = [json.loads(line[6:]) for line in events.split("\n\n") if line.startswith("data: {")]
    return [one["finish_reason"] for chunk in chunks for one in chunk["choices"] if one["finish_reason"]]


async def test_answers_end_with_the_server_and_what_waits_is_refused(write_model, open_model) -> None:
    model = await open_model(write_model(tied=False, context=2048))
    api = ApiServer(model, ApiOptions(answers=2))
    async with httpx.AsyncClient(timeout=30) as http:
        async with listening(api) as (server, address):
            http.base_url = address
            path = "/v1/chat/completions"
            asked = [http.post(path, json={**LONG, "stream": one == 0}) for one in range(3)]
            running = [asyncio.ensure_future(one) for one in asked]

            async def is_at_work() -> bool:
                return api.door.slots.waiting == 1 and len(model.engine._sequences) == 2

            await until(is_at_work)
            server.should_exit = True
            answers = await asyncio.gather(*running)
        ended = sorted(answers, key=lambda one: one.status_code)
        assert [one.status_code for one in ended] == [200, 200, 503]
        assert "is closing" in ended[2].json()["error"]["message"]
        for one in ended[:2]:
            is_stream = one.headers["content-type"].startswith("text/event-stream")
            found = reasons(one.text) if is_stream else [one.json()["choices"][0]["finish_reason"]]
            assert found == ["length"]
    assert not model.engine._sequences
    model.close()


async def test_what_may_wait_does_while_others_are_answered(write_model, open_model) -> None:
    model = await open_model(write_model(tied=False, context=2048))
    api, path, ended = ApiServer(model, ApiOptions(answers=2)), "/v1/chat/completions", list[str]()
    transport = httpx.ASGITransport(api.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:

        async def ask(name: str, tokens: int, **more: str) -> None:
            assert (await http.post(path, json={**LONG, "max_tokens": tokens, **more})).status_code == 200
            ended.append(name)

        def made() -> int:
            return sum(timings.new_tokens for asked in api.door._running for timings in asked.answer.timings)

        async def has_begun() -> bool:
            return made() > 0

        flexible = asyncio.ensure_future(ask("flexible", 300, service_tier="flex"))
        await until(has_begun)
        before = made()
        await ask("urgent", 100)
        assert made() < before + 50
        more = [
            asyncio.ensure_future(ask(name, 3, service_tier=tier))
            for name, tier in (("first", "auto"), ("second", "flex"), ("third", "auto"))
        ]
        await asyncio.gather(flexible, *more)
    assert ended.index("first") < ended.index("third") < ended.index("second")
    model.close()


async def test_the_site_may_have_the_api_and_ctrl_c_ends_both(site: Path, write_model) -> None:
    model = write_model(tied=False, context=2048)
    options = ["--page", "--dist", site, "--no-open", "--port", "0", "--backend", "numpy", "--model", model]
    command = [sys.executable, "-u", "-m", "app.cli.main", "serve", "--api", *map(str, options)]
    server = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert server.stdout
    said = (await server.stdout.readline()).decode()
    async with httpx.AsyncClient(base_url=said.split()[3], timeout=30) as http:
        page, models, other = [await http.get(path) for path in ("/", "/v1/models", "/v1/other")]
        assert (page.status_code, models.json()["data"][0]["object"], other.status_code) == (200, "model", 404)
        assert page.headers["cross-origin-opener-policy"] == "same-origin"
        assert other.json()["error"]["type"] == "not_found_error"
        async with http.stream("POST", "/v1/chat/completions", json={**LONG, "stream": True}) as stream:
            events = stream.aiter_text()
            first = await anext(events)
            server.send_signal(signal.SIGINT)
            assert reasons(first + "".join([text async for text in events])) == ["length"]
    assert await asyncio.wait_for(server.wait(), 10) == 0


async def test_the_site_alone_has_no_api(site: Path) -> None:
    transport = httpx.ASGITransport(create_app(site))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert [(await http.get(path)).status_code for path in ("/", "/v1/models", "/metrics")] == [200, 404, 404]
        assert (await http.post("/v1/chat/completions", json=LONG)).status_code in (404, 405)
