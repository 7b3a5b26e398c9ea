"""Chat templates in a real page: the same text as natively, and an end to hostile ones."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route

from app.models.template_renderer import native_renderer
from py_core.tokenizers.template_renderer import COSTLY, FAILED, decode_text, encode_request
from tests.tokenizers.test_jinja import CHATS, FAMILIES, RENDERED

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPEN = "async () => { globalThis.cage = new (await import('./tokenizers/template_cage.js')).TemplateCage(); }"
RUN = """async ([requests, milliseconds]) => {
  const answers = [];
  for (const request of requests) {
    const bytes = Uint8Array.from(atob(request), (c) => c.charCodeAt(0));
    const { text, spent: _, ...wrong } = await cage.run(bytes, false, milliseconds);
    answers.push(text ? Array.from(text, (byte) => String.fromCharCode(byte)).join('') : wrong);
  }
  return answers;
}"""
LETTERS = "aZé ß ΑΣ. Σ İ 日本 ñ\u0301 ²½٣ Ⅷ 😀 \u00a0\u200b\u0085\u2028\ufeff \U00100000 \ud83d"
# Takes time only: compared at four million places, four million letters each.
ENDLESS = "{{ ('a' * 4000000 ~ 'b') in ('a' * 8000000) }}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(browser: Browser, site: str) -> AsyncIterator[Page]:
    """A page without Sonata's own worker, but with `cage`."""
    page = await browser.new_page(bypass_csp=True)
    await page.goto(f"{site}/THIRD_PARTY.txt")
    await page.evaluate(OPEN)
    yield page
    await page.close()


async def in_page(page: Page, requests: list[bytes], seconds: float = 30.0) -> list[Any]:
    """The text of each, or {kind, words}."""
    given = [base64.b64encode(request).decode() for request in requests]
    answers = await page.evaluate(RUN, [given, 1000 * seconds])
    return [decode_text(answer.encode("latin-1")) if isinstance(answer, str) else answer for answer in answers]


async def natively(request: bytes) -> str | None:
    try:
        return decode_text(await native_renderer().run(request, False, 30.0))
    except ValueError:
        return None


async def test_the_page_renders_every_chat_of_every_family_as_the_terminal_does(page: Page) -> None:
    sources = [path.read_text(encoding="utf-8") for path in FAMILIES]
    requests = [encode_request(source, chat) for source in sources for chat in CHATS.values()]
    requests += [encode_request(source, {"messages": [{"a": 1}]}) for source in RENDERED]
    requests.append(
        encode_request(
            "{{ x.upper() }}|{{ x.lower() }}|{{ x.title() }}|{{ x | capitalize }}|{{ [x] }}|{{ x.swapcase() }}"
            "{% for c in x %}{{ c.isalpha() }}{{ c.isspace() }}{{ c.isupper() }}{{ c.islower() }}{{ c.isdecimal() }}"
            "{% endfor %}",
            {"x": LETTERS},
        )
    )
    answers = await in_page(page, requests)
    expected = [await natively(request) for request in requests]
    assert [answer if isinstance(answer, str) else None for answer in answers] == expected


async def test_a_hostile_template_is_ended_and_the_next_one_runs(page: Page) -> None:
    for source, seconds, kind, words in (
        (ENDLESS, 0.2, COSTLY, None),
        ("{% set x = [0] * 16000000 %}{{ x | length }}", 30.0, COSTLY, "too much memory"),
        ("{% set x = 'x' * 9000000 %}" + "{{ [x, x] | join | length }}" * 99, 30.0, COSTLY, "too much memory"),
        ("{{ " + "(" * 30000 + "1" + ",)" * 30000 + " }}", 30.0, COSTLY, "nests too deep"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 30.0, COSTLY, "nests too deep"),
        ("{{ raise_exception('Not <b>this</b> chat') }}", 30.0, FAILED, "Not <b>this</b> chat"),
    ):
        (answer,) = await in_page(page, [encode_request(source, {"messages": []})], seconds)
        assert answer["kind"] == kind, source[:80]
        assert "words" not in answer if words is None else words in answer["words"], source[:80]
        assert await in_page(page, [encode_request("{{ a }}", {"a": "It goes on"})]) == ["It goes on"]


async def test_templates_that_are_asked_for_at_once_run_one_after_the_other(page: Page) -> None:
    endless, plain = (encode_request(source, {"a": "b"}) for source in (ENDLESS, "{{ a }}"))
    answers = await asyncio.gather(in_page(page, [endless], 0.2), in_page(page, [plain], 30.0))
    assert answers == [[{"kind": COSTLY}], ["b"]]


async def test_the_start_of_the_worker_takes_none_of_a_templates_time(browser: Browser, site: str) -> None:
    """The page's clock advances by a minute while the worker starts."""
    page = await browser.new_page(bypass_csp=True)
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.set()
        await goes_on.wait()
        await route.continue_()

    await page.route("**/template_worker.js", hold)
    await page.clock.install()
    await page.goto(f"{site}/THIRD_PARTY.txt")
    await page.evaluate(OPEN)
    answers = asyncio.ensure_future(in_page(page, [encode_request("{{ a }}", {"a": "b"})], 10.0))
    await asked.wait()
    await page.clock.run_for(60_000)
    goes_on.set()
    assert await answers == ["b"]
    await page.close()
