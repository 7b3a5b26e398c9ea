"""A tool server that runs as a process: it starts, talks by its standard streams within limits, and ends.

The package's own transport reads a line of any length, and passes standard error on to ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from mcp.client.stdio import get_default_environment
from mcp.os.win32.utilities import get_windows_executable_command
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

LONGEST_MESSAGE = 8 << 20
"""Bytes. An image of some megapixels in base64 fits."""
MOST_MESSAGES = 10_000
"""Messages from the server between two requests to it."""
KEPT_ERRORS = 2_000
"""Bytes of its standard error that are kept, to say why it ended."""
END_SECONDS = 2.0
"""The time that a server gets to end by itself, and then after SIGTERM."""


@dataclass
class ServerProcess:
    """A command, and what is known of its process. Use `opened` as a transport of `mcp.Client`."""

    command: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    problem: str = ""
    """A sentence about what ended the connection, after the process's name; "" while it runs."""
    messages: int = 0
    """Received since it was last set to 0."""
    _errors: bytes = b""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[anyio.abc.ObjectReceiveStream, anyio.abc.ObjectSendStream]]:
        """Run it, as the streams of messages from it and to it. Raises OSError if it cannot be started."""
        command = get_windows_executable_command(self.command) if os.name == "nt" else self.command
        process = await asyncio.create_subprocess_exec(
            command, *self.arguments, stdin=-1, stdout=-1, stderr=-1, limit=LONGEST_MESSAGE, cwd=self.folder,
            env=get_default_environment() | dict(self.environment), start_new_session=True,
        )  # fmt: skip
        sends, receives = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_send, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.ensure_future(self._read(process, sends)),
            asyncio.ensure_future(self._write(process, outgoing)),
            asyncio.ensure_future(self._read_errors(process)),
        ]
        try:
            yield receives, to_send
        finally:
            for task in tasks[:2]:
                task.cancel()
            await _end(process)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (sends, receives, to_send, outgoing):
                stream.close()

    async def _read(self, process: asyncio.subprocess.Process, sends: anyio.abc.ObjectSendStream) -> None:
        assert process.stdout is not None
        async with sends:
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:
                    self.problem = f"sent a message of more than {LONGEST_MESSAGE >> 20} MB, and was ended"
                    break
                self.messages += 1
                if self.messages > MOST_MESSAGES:
                    self.problem = f"sent more than {MOST_MESSAGES:,} messages at once, and was ended"
                    break
                if not line:
                    await self._note_end(process)
                    break
                with contextlib.suppress(ValueError):  # servers that print beside the protocol still work
                    message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                    await sends.send(message)

    async def _note_end(self, process: asyncio.subprocess.Process) -> None:
        if await _has_ended(process):
            await asyncio.sleep(0)  # its last words
        said = " ".join(self._errors.decode("utf-8", "replace").split())[-300:]
        how = f"ended (exit status {process.returncode})" if process.returncode is not None else "closed its output"
        self.problem = f"{how}{f': {said}' if said else ''}"

    async def _write(self, process: asyncio.subprocess.Process, outgoing: anyio.abc.ObjectReceiveStream) -> None:
        assert process.stdin is not None
        async for message in outgoing:
            process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # `_read` tells its end
                await process.stdin.drain()

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while piece := await process.stderr.read(1 << 16):
            self._errors = (self._errors + piece)[-KEPT_ERRORS:]


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and those that it started: close its input, then ask, then kill."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _has_ended(process):
        _signal(process, signal.SIGTERM)
        await _has_ended(process)
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))  # also what it left running
    await _has_ended(process)
    transport = getattr(process, "_transport", None)  # else it stays open as long as a child has the pipes
    if transport is not None:
        transport.close()


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Return True if it ends within END_SECONDS. Process.wait also waits for children that have its pipes."""
    for _ in range(round(100 * END_SECONDS)):
        if process.returncode is not None:
            return True
        await asyncio.sleep(0.01)
    return False


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
