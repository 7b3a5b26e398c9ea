"""Shared by every build step: the build error, headings with the elapsed time, and a lock that admits one build."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from app.building.made_files import is_whole, note
from app.paths import ROOT

VENV = ROOT / ".venv"
VENV_BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
VENV_PYTHON = VENV_BIN / ("python.exe" if os.name == "nt" else "python")

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Error numbers of a write that found no room: no space, quota used up, file size limit."""

RUN_AGAIN = "check the network connection and run this command again"
_NO_NETWORK = re.compile(  # the words that pip, npm and apt use
    r"NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|Temporary failure|Name or service not known"
    r"|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|Could not resolve"
)

_started = time.monotonic()


class BuildError(Exception):
    """The build cannot continue; the message is one sentence that says what to do."""


class NoNetwork(BuildError):
    """A program that build.py called could not reach its servers."""


def heading(text: str) -> None:
    """Print the name of the next step, with the time since the start."""
    print(f"[{time.monotonic() - _started:6.1f} s] {text}", flush=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never half of it, even after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def disk_full(path: Path, wanted: str) -> BuildError:
    return BuildError(
        f"The disk is full: {wanted} does not fit into {path}; free some space there "
        "(or set SONATA_CACHE to a folder on another disk) and run this command again."
    )


def run_logged(
    command: Sequence[str | Path], failure: str, advice: str = RUN_AGAIN, env: Mapping[str, str] | None = None
) -> str:
    """Run a command in the repository root without showing its output, and return its stdout.

    If it fails, the sentence says: what failed, the command's own message, what to do.
    """
    words = [str(word) for word in command]
    result = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **(env or {})}, capture_output=True, text=True, errors="replace"
    )
    if result.returncode:
        said = [line.strip() for line in (result.stderr + result.stdout).splitlines() if line.strip()]
        if any(re.search(r"no space left on device", line, re.IGNORECASE) for line in said):
            raise disk_full(ROOT, f"what `{Path(words[0]).name}` writes")
        if any(_NO_NETWORK.search(line) for line in said):
            raise NoNetwork(f"{failure}: there is no network connection; {RUN_AGAIN}.")
        errors = [line for line in said if "error" in line.lower() or line.startswith("E:")]
        reason = (errors or said or ["it said nothing"])[0]
        raise BuildError(f"{failure} ({reason[:300]}): {advice}.")
    return result.stdout


def make_in_venv(made: Path, title: str, module: str, arguments: Sequence[str | Path], failure: str) -> None:
    """Unless a file exists, run a module that makes it, with .venv's Python: its last argument is the output path.

    Afterwards either the whole file exists or none. Raises as `run_logged` does.
    """
    if is_whole(made):
        return
    heading(title)
    made.parent.mkdir(parents=True, exist_ok=True)
    partial = made.with_suffix(".part")
    try:
        run_logged([VENV_PYTHON, "-m", module, *arguments, partial], failure)
        os.replace(partial, made)
        note(made)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def one_build_at_a_time(cache: Path) -> Iterator[None]:
    """A lock: two builds would write the same files, so the second waits for the first (not on Windows).

    Raises BuildError if no folder can be made at `cache`.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, FileNotFoundError) as error:
        raise BuildError(
            f"{cache} is not a folder and cannot be created: set SONATA_CACHE to another folder."
        ) from error
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (cache / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another build is running; waiting for it to finish ...", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
