"""Reads a line from the terminal, while the event loop continues in a thread beside it."""

from __future__ import annotations

import asyncio
import contextlib
import threading


def line_meanwhile(runner: asyncio.Runner, prompt: str) -> str:
    """Returns and raises what `input` does. Tasks on the runner's loop continue until the line is there; then the loop
    is the caller's again. Ctrl-C reaches `input`, in the main thread."""
    loop = runner.get_loop()
    thread = threading.Thread(target=loop.run_forever, name="between two lines", daemon=True)
    thread.start()
    try:
        return input(prompt)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        while thread.is_alive():
            with contextlib.suppress(KeyboardInterrupt):  # typed twice: the loop must not run in two threads
                thread.join()
