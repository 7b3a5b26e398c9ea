"""`sonata mcp` as a program: over its standard input and output, over HTTP, beside another program."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from app.cli import mcp
from app.cli.home import PASSPHRASE, opened_memory
from app.records.lessons import Lesson
from py_core.store.passphrase import set_passphrase
from tests.cli.command_line import SONATA, assert_sentence, sonata

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Program:
    """The program, and its client: one line of JSON for each message."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [str(SONATA), "mcp", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, encoding="utf-8")
        self._asked = 0

    def send(self, method: str, params: dict[str, Any], **more: int) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **more}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._asked += 1
        self.send(method, params, id=self._asked)
        answer = json.loads(self.process.stdout.readline())
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._asked)
        return answer["result"]

    def call(self, name: str, **given: Any) -> dict[str, Any]:
        result = self.request("tools/call", {"name": name, "arguments": given})
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]


@contextmanager
def running(*arguments: str | Path) -> Iterator[Program]:
    program = Program(*arguments)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.communicate()


def other_program(home: Path, lesson: Lesson) -> list[str]:
    """Another program keeps a lesson in the same memory. Returns the answers that it finds there."""

    async def run() -> list[str]:
        async with opened_memory(home) as memory:
            await memory.lessons.keep(lesson)
            return [one.answer for one in await memory.lessons.all()]

    return asyncio.run(run())


def test_a_client_and_another_program_share_the_memory(tiny_path: Path, tmp_path: Path) -> None:
    with running("--home", tmp_path, "--model", tiny_path, "--backend", "numpy", "--max-tokens", "4") as program:
        told = program.request("initialize", HELLO)
        assert (told["serverInfo"]["name"], "resources" in told["capabilities"]) == ("sonata", True)
        program.send("notifications/initialized", {})
        names = [tool["name"] for tool in program.request("tools/list", {})["tools"]]
        assert names == ["search_memory", "list_memory", "read_memory", "remember", "forget", "route", "ask"]
        program.call("remember", question="Where is the key?", answer="Under the mat.")
        assert other_program(tmp_path, Lesson("Who am I?", "You are Ada.")) == ["Under the mat.", "You are Ada."]
        assert program.call("search_memory", query="who am I")["lessons"][0]["answer"] == "You are Ada."
        assert program.call("ask", question="Hello?")["cut_off"] is True
        rest, errors = program.process.communicate(timeout=60)  # closes its standard input
    assert (rest, errors, program.process.returncode) == ("", "", 0)


def test_a_locked_memory_without_its_passphrase_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE, raising=False)

    async def lock() -> None:
        async with opened_memory(tmp_path) as memory:
            await set_passphrase(memory.store, "correct horse", iterations=1000)

    asyncio.run(lock())
    assert_sentence(sonata("mcp", "--home", tmp_path), "A passphrase protects the memory", "$SONATA_PASSPHRASE")


@pytest.mark.parametrize("command", [["mcp"], ["tools", "list", "--mcp", "servers.json"]])
def test_without_the_package_a_sentence_says_how_to_get_it(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "find_spec", lambda name: None)
    assert_sentence(sonata(*command), "needs the package mcp", "pip install '.[mcp]'")


@pytest.mark.all
async def test_over_http_several_clients_share_the_memory(tmp_path: Path) -> None:
    with running("--home", tmp_path, "--http", "--port", "0") as program:
        said = await asyncio.to_thread(program.process.stderr.readline)
        address = next(word for word in said.split() if word.startswith("http://localhost:"))
        async with Client(address) as one, Client(address, mode="legacy") as other:
            await one.call_tool("remember", {"question": "Who am I?", "answer": "You are Ada."})
            found = await other.call_tool("list_memory", {"kind": "lessons"})
            assert found.structured_content["items"][0]["answer"] == "You are Ada."
        os.kill(program.process.pid, signal.SIGINT)
        out, errors = await asyncio.to_thread(program.process.communicate, timeout=60)
        assert (out, errors, program.process.returncode) == ("", "", 130)
