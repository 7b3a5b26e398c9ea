"""The program of the child process: reads runs as lines of JSON, and writes their outputs as lines of JSON.

python -I child_main.py READ WRITE FOLDER LIMITS: two file descriptors, the session's folder, and the limits as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC = 0x10000000, 0x40000000, 0x08000000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38


def main() -> None:
    read, write = int(sys.argv[1]), int(sys.argv[2])
    folder, limits = sys.argv[3], json.loads(sys.argv[4])
    runs, outputs = os.fdopen(read, "r", encoding="utf-8"), os.fdopen(write, "w", encoding="utf-8")

    def tell(line: str) -> None:
        outputs.write(f"{line}\n")
        outputs.flush()

    has_no_network = _leave_the_network()
    _limit(limits)
    sys.path.insert(0, str(Path(__file__).parent))
    from session import Session  # type: ignore[import-not-found]  # by its path: Sonata itself is not on the path

    sys.path.pop(0)
    session = Session(folder, tell)
    tell(json.dumps({"type": "ready", "network": not has_no_network}))
    for line in runs:
        signal.setitimer(signal.ITIMER_REAL, limits["seconds"])
        with contextlib.suppress(KeyboardInterrupt):
            session.run(json.loads(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        tell('{"type": "end"}')


def _leave_the_network() -> bool:
    """Move into a network without devices. False if the system does not allow it."""
    with contextlib.suppress(OSError, AttributeError):
        system = ctypes.CDLL(None, use_errno=True)
        system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        system.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        ways = (CLONE_NEWNET | CLONE_NEWIPC, CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC)
        return any(system.unshare(way) == 0 for way in ways)
    return False


def _limit(limits: dict[str, int]) -> None:
    import resource

    wanted = {
        resource.RLIMIT_AS: limits["memory"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_NPROC: limits["processes"],
    }
    for limit, most in wanted.items():
        with contextlib.suppress(ValueError, OSError):  # a lower one is set already
            resource.setrlimit(limit, (most, most))


if __name__ == "__main__":
    main()
