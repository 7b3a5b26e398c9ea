"""Whatever a client sends to any of the API's addresses, it gets an answer or an error in OpenAI's form, and never a
failure of the server. The addresses and fields are those of /openapi.json; there is no socket between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.api.server import METRICS, ApiServer
from py_core.loading import Model

alone = pytest.mark.asyncio(loop_scope="module")
HELLO = [{"role": "user", "content": "Hello"}]
USUAL: dict[str, Any] = {"messages": HELLO, "prompt": "Hello", "input": "Hello", "content": "Hello", "max_tokens": 2}
"""Fields with which every request is whole."""
WRONG: tuple[Any, ...] = (
    None, True, False, 0, -1, 2, 2**40, -(2**70), 0.5, 1e308, "", "x", "\ud800", [], {}, [None], [[]], ["a"], [0], [""],
    [{}], {"": None}, {"type": "x"}, {"type": "json_schema", "json_schema": {"schema": 3}}, {"type": "function"},
    [{"role": "user"}], [{"role": "user", "content": [{"type": "text"}]}], [{"type": "message", "role": ["user"]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 3}}]}],
    [{"type": "function", "function": []}], {"function": {"name": ["a"]}}, {"memory": 3}, {"format": {"type": "x"}},
    {"format": {"type": "json_schema", "schema": [1]}}, {"include_usage": "yes"},
)  # fmt: skip
"""Values of every type, each in the place of every field; most are wrong for most."""
BODIES = (b"", b"{", b"[" * 90_000, b'{"n": NaN}', b"\xff", b"[]", b"3", b"null", b'"a"', b'{"a": 1e999}', b"{}")
SHORT = st.text(max_size=5)
KEYS = st.sampled_from(
    ["role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "parameters", "json_schema",
     "schema", "call_id", "output", "id", "format", "input_text", "include_usage", "memory"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["user", "assistant", "tool", "text", "json_schema", "json_object", "function", "function_call", "message",
     "function_call_output", "required", "auto", "object", "image_url", "{}", "["]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | SHORT | WORDS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | SHORT, inner, max_size=4), max_leaves=8
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(write_model, open_model) -> AsyncIterator[Model]:
    model = await open_model(write_model(tied=False, context=96))
    yield model
    model.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(model: Model, dist: Path) -> ApiServer:
    """dist: has the embedder."""
    return ApiServer(model)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(api: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(api.app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def document(http: httpx.AsyncClient) -> dict[str, Any]:
    return (await http.get("/openapi.json")).json()


def posts(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The addresses that take a body, with the fields of it."""
    for path, methods in document["paths"].items():
        if body := methods.get("post", {}).get("requestBody"):
            yield path, body["content"]["application/json"]["schema"]["properties"]


def assert_answered(response: httpx.Response, sent: Any) -> None:
    """A text of JSON or events, or an error with a sentence."""
    if response.status_code == 200:
        return
    assert 400 <= response.status_code < 500, (sent, response.text)
    error = response.json()["error"]
    assert {*error} == {"message", "type", "param", "code"}, sent
    assert len(error["message"]) > 10


@alone
async def test_each_field_may_have_any_type(http: httpx.AsyncClient, document: dict[str, Any]) -> None:
    asked = 0
    for path, fields in posts(document):
        usual = {name: value for name, value in USUAL.items() if name in fields}
        for name in fields:
            for value in WRONG:
                sent = json.dumps({**usual, name: value})
                assert_answered(await http.post(path, content=sent), (path, sent))
                asked += 1
    assert asked > 1000


@alone
async def test_each_address_refuses_what_is_no_request(
    api: ApiServer, http: httpx.AsyncClient, document: dict[str, Any]
) -> None:
    assert {*document["paths"]} == {*api.door.paths, METRICS}
    for path, methods in document["paths"].items():
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW"):
            response = await http.request(method, path)
            if method.lower() not in methods and method not in ("HEAD", "OPTIONS"):
                assert response.status_code == 405, (method, path)
            if method != "HEAD":
                assert_answered(response, (method, path))
        if "post" in methods:
            for body in BODIES:
                assert_answered(await http.post(path, content=body), (path, body))
    half = json.dumps({"messages": [{"role": "user", "content": "half a \ud83d"}]})
    assert (await http.post("/v1/chat/completions", content=half)).status_code == 400
    for path in ("/v1", "/v1/", "/v1/chat", "/v1/models/x", "/v1/chat/completions/", "/v1/%2e%2e/x", "/v1/\u00e4"):
        assert_answered(await http.post(path, content=b"{}"), path)


@alone
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_object_is_answered(http: httpx.AsyncClient, document: dict[str, Any], data: st.DataObject) -> None:
    path, fields = data.draw(st.sampled_from(list(posts(document))))
    drawn = data.draw(st.dictionaries(st.sampled_from(sorted(fields)) | SHORT, VALUES, max_size=5))
    sent = json.dumps({**{name: value for name, value in USUAL.items() if name in fields}, **drawn})
    assert_answered(await http.post(path, content=sent), (path, sent))
