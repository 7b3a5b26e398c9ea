"""While a line is typed, the event loop continues; then it is the caller's again."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from app.cli.waiting_line import line_meanwhile


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Text that is written to this file descriptor counts as typed."""
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield write


def test_work_goes_on_while_nothing_is_typed_and_the_loop_comes_back(typed: int) -> None:
    threads = set()

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            threads.add(threading.current_thread())
        os.write(typed, b"hello\n")  # only once all was done: otherwise `input` would wait for ever

    async def begin() -> asyncio.Task[None]:
        return asyncio.ensure_future(work())

    with asyncio.Runner() as runner:
        for _ in range(2):
            task = runner.run(begin())
            assert line_meanwhile(runner, "") == "hello"
            assert task.done()
            assert runner.run(asyncio.sleep(0, "mine again")) == "mine again"
    assert threading.main_thread() not in threads


def test_the_end_of_what_is_typed_ends_the_other_thread_too(typed: int) -> None:
    with asyncio.Runner() as runner:
        os.close(typed)
        with pytest.raises(EOFError):
            line_meanwhile(runner, "")
        assert runner.run(asyncio.sleep(0, "mine again")) == "mine again"
    assert [thread.name for thread in threading.enumerate()].count("between two lines") == 0
