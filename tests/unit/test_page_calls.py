"""What the page is told of a call: its value, bytes as they are, and errors as plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.page.calls import PageCalls
from py_core.memory.errors import StoreError

pytestmark = pytest.mark.asyncio


class Api:
    async def add(self, one: int, other: int = 1) -> int:
        return one + other

    async def read(self, data: bytes, times: int) -> bytes:
        return data * times

    async def locked(self) -> None:
        raise StoreError("locked")

    async def broken(self) -> None:
        raise RuntimeError("a bug")

    async def _hidden(self) -> str:
        return "not for the page"


async def ask(call: str, *given: Any, api: str = "numbers") -> dict[str, Any]:
    answer = await PageCalls({"numbers": Api()}).answer(api, call, json.dumps(given))
    assert isinstance(answer, str)
    return json.loads(answer)


async def test_a_call_gives_its_value_and_bytes_stay_bytes() -> None:
    assert await ask("add", 1, 2) == {"value": 3}
    assert await ask("add", 1) == {"value": 2}
    assert await PageCalls({"numbers": Api()}).answer("numbers", "read", "[2]", b"ab") == b"abab"


async def test_an_error_for_the_user_is_a_sentence_with_its_reason_and_a_bug_has_details() -> None:
    error = (await ask("locked"))["error"]
    assert (error["kind"], error["reason"], error["details"]) == ("StoreError", "locked", None)
    assert error["message"] == {"code": "memory.locked", "text": str(StoreError("locked")), "values": {}}
    bug = (await ask("broken"))["error"]
    assert bug["message"] == "RuntimeError: a bug"
    assert "Traceback" in bug["details"]


@pytest.mark.parametrize(("api", "call"), [("numbers", "_hidden"), ("numbers", "subtract"), ("letters", "add")])
async def test_there_are_no_other_calls(api: str, call: str) -> None:
    assert (await ask(call, api=api))["error"]["details"] is not None
