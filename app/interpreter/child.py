"""Python in a child process, with limits, in a folder of its own (docs/guide/python.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.interpreter.session import KINDS, Failure, Output

GRACE_SECONDS = 2.0
"""The time that code has to end after it was stopped or its time is over; then its process is killed."""
MOST_LINE = 64 << 20
MOST_READ = 64 << 20
MOST_OUTPUTS = 1_000
_PROGRAM = Path(__file__).with_name("child_main.py")


class InterpreterError(Exception):
    """Python cannot be started here; the message is a sentence."""


@dataclass(frozen=True)
class Limits:
    """Limits of the code: seconds of a run, seconds of CPU in all, bytes of address space, bytes of a file, open
    files, and processes and threads of the user (0: none; the system does not count those of root)."""

    seconds: float = 30.0
    cpu_seconds: int = 600
    memory: int = 2 << 30
    file_bytes: int = 256 << 20
    open_files: int = 256
    processes: int = 0


class PythonChild:
    """Code that is run one after the other keeps its variables, until it is ended by force: then a new Python starts
    with the files that are there."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._folder = Path(tempfile.mkdtemp(prefix="sonata-python-"))
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._runs: Any = None
        self._killed_for = ""
        self._stops: asyncio.Task[None] | None = None
        self.has_network = False
        """True if the system did not allow to take the network away; known after the first run."""

    @property
    def folder(self) -> Path:
        """The working folder of the code. Files that are put there can be read by their name."""
        return self._folder

    def put(self, name: str, data: bytes) -> None:
        """Add a file to the folder. Folders in its name are left out."""
        (self._folder / Path(name).name).write_bytes(data)

    def read(self, name: str) -> bytes:
        """A file that the code wrote, by its name in Files. Raises OSError, also for a link or a path that leads out of
        the folder."""
        path = self._folder / name
        if path.parent.resolve() != path.parent or not path.is_relative_to(self._folder) or ".." in Path(name).parts:
            raise PermissionError(f"{name} lies outside the folder")
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(MOST_READ)

    async def run(self, code: str, tell: Callable[[Output], object] = lambda output: None) -> list[Output]:
        """Run code; its outputs. tell: gets each when it is there. Whatever the code does is an output. Raises
        InterpreterError if no Python can be started."""
        if self._process is None:
            await self._start()
        assert self._process is not None
        self._killed_for = ""
        outputs: list[Output] = []

        def add(output: Output) -> None:
            outputs.append(output)
            tell(output)

        watch = asyncio.create_task(self._end_late(self._limits.seconds + GRACE_SECONDS, "time"))
        try:
            self._runs.write(f"{json.dumps(code)}\n".encode())
            self._runs.flush()
            while (told := await self._next()) is not None and told.get("type") != "end":
                if len(outputs) < MOST_OUTPUTS and (output := _read_output(told)) is not None:
                    add(output)
            if told is None:
                await self._lost(self._killed_for or "died", add)
        except ConnectionError:
            await self._lost("died", add)
        except asyncio.CancelledError:
            await self._kill()
            raise
        finally:
            watch.cancel()
            if self._stops is not None:
                self._stops.cancel()
        return outputs

    def stop(self) -> None:
        """End the code that runs. Its variables stay if it ends by itself in GRACE_SECONDS."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
            self._stops = asyncio.ensure_future(self._end_late(GRACE_SECONDS, "stopped"))

    async def close(self) -> None:
        """End Python and delete its folder."""
        await self._kill()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _start(self) -> None:
        if os.name != "posix":
            raise InterpreterError("Python code runs only on Linux and macOS so far.")
        child_reads, runs = os.pipe()
        outputs, child_writes = os.pipe()
        environment = {"HOME": str(self._folder), "PATH": os.defpath, "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(_PROGRAM), str(child_reads), str(child_writes), str(self._folder),
                json.dumps(asdict(self._limits)), pass_fds=(child_reads, child_writes), cwd=self._folder,
                env=environment, start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise InterpreterError(f"Python could not be started: {error.strerror}.") from error
        finally:
            os.close(child_reads)
            os.close(child_writes)
        self._runs = os.fdopen(runs, "wb")
        self._reader = asyncio.StreamReader(limit=MOST_LINE)
        protocol = asyncio.StreamReaderProtocol(self._reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(outputs, "rb"))
        told = await self._next()
        if told is None or told.get("type") != "ready":
            await self._kill()
            raise InterpreterError("Python could not be started in a child process.")
        self.has_network = bool(told.get("network"))

    async def _next(self) -> dict[str, Any] | None:
        """The next line of the child; None if it has ended, or what it writes is none."""
        assert self._reader is not None
        try:
            line = await self._reader.readline()
            told = json.loads(line) if line else None
        except ValueError:
            return None
        return told if isinstance(told, dict) else None

    async def _end_late(self, seconds: float, reason: str) -> None:
        await asyncio.sleep(seconds)
        self._killed_for = self._killed_for or reason
        self._signal_all()

    def _signal_all(self) -> None:
        """Kill the child and all that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _lost(self, reason: str, add: Callable[[Output], None]) -> None:
        await self._kill()
        add(Failure("", "", [], reason))
        add(Failure("", "", [], "lost"))

    async def _kill(self) -> None:
        if self._process is None:
            return
        self._signal_all()
        await self._process.wait()
        self._process = None
        with contextlib.suppress(OSError):
            self._runs.close()


def _read_output(told: dict[str, Any]) -> Output | None:
    """An output that the child tells; None if it is none: the code can write whatever it likes."""
    kind = KINDS.get(told.pop("type", ""))
    try:
        return kind(**told) if kind else None
    except TypeError:
        return None
