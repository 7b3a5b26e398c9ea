"""The result of a call for the page: its value, bytes unchanged, and errors as plain data."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.page.calls import PageCalls
from py_core.store.errors import StoreError

pytestmark = pytest.mark.asyncio


class Api:
    ended = False

    async def add(self, one: int, other_one: int = 1) -> int:
        return one + other_one

    async def read(self, data: bytes, times: int) -> bytes:
        return data * times

    async def locked(self) -> None:
        raise StoreError("locked")

    async def broken(self) -> None:
        raise RuntimeError("a bug")

    async def _hidden(self) -> str:
        return "not for the page"

    async def count(self, to_number: int) -> AsyncIterator[int]:
        try:
            for number in range(to_number):
                yield number
        finally:
            self.ended = True


CALLS = PageCalls({"numbers": Api()})


async def ask(call: str, api: str = "numbers", **given: Any) -> dict[str, Any]:
    answer = await CALLS.call(api, call, json.dumps(given))
    assert isinstance(answer, str)
    return json.loads(answer)


async def test_a_call_gives_its_value_and_bytes_stay_bytes() -> None:
    assert await ask("add", one=1, otherOne=2) == {"value": 3}
    assert await ask("add", one=1) == {"value": 2}
    assert await CALLS.call("numbers", "read", '{"times": 2}', {"data": b"ab"}) == b"abab"


async def test_an_error_for_the_user_is_a_sentence_with_its_reason_and_a_bug_has_details() -> None:
    error = (await ask("locked"))["error"]
    assert (error["kind"], error["reason"], error["details"]) == ("StoreError", "locked", None)
    assert error["message"] == {"code": "memory.locked", "text": str(StoreError("locked")), "values": {}}
    bug = (await ask("broken"))["error"]
    assert bug["message"] == "RuntimeError: a bug"
    assert "Traceback" in bug["details"]


@pytest.mark.parametrize("call", ["numbers._hidden", "numbers.subtract", "numbers.Hidden", "letters.add"])
async def test_there_are_no_other_calls(call: str) -> None:
    api, _, name = call.partition(".")
    assert (await ask(name, api=api))["error"]["message"] == f"ValueError: There is no call {call}."


@pytest.mark.parametrize(("given", "said"), [({}, "missing"), ({"one": 1, "two": 2}, "unexpected")])
async def test_a_missing_and_a_surplus_argument_are_named_with_their_call(given: dict[str, Any], said: str) -> None:
    message = (await ask("add", **given))["error"]["message"]
    assert message.startswith("TypeError: Api.add() ")
    assert said in message


async def test_a_stream_is_told_until_its_end_or_until_nobody_listens() -> None:
    async def told_to(listens: bool, api: Api) -> list[str]:
        told: list[str] = []
        calls = PageCalls({"numbers": api})
        end = await calls.stream("numbers", "count", '{"toNumber": 3}', lambda one: told.append(one) or listens)
        assert end == '{"value": null}'
        return told

    assert await told_to(True, Api()) == ["0", "1", "2"]
    left = Api()
    assert await told_to(False, left) == ["0"]
    assert left.ended
