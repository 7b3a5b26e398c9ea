"""Shows the progress of a download: a bar that redraws itself on a terminal, a line every 10% in a log."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

SILENT_BELOW = 1_000_000
QUIET_BELOW = 10_000_000
"""In a log, a file smaller than this gets one line when it is complete, or none when it is very small."""


class BuildProgress:
    """Shows the progress of one file.

    `total` may be None if the sender does not state it; `started` is the time.monotonic() of the request.
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        done: int = 0,
        started: float | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self.label = label
        self.total = total
        self.done = done
        self._first = done
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self._start = started or time.monotonic()
        self._drawn = 0.0
        self._tenth = self._tenths()

    def _tenths(self) -> int:
        return 10 * self.done // self.total if self.total else 0

    def _text(self) -> str:
        speed = (self.done - self._first) / 1e6 / max(time.monotonic() - self._start, 1e-3)
        if not self.total:
            return f"{self.done / 1e6:.1f} MB  {speed:.1f} MB/s"
        percent = 100 * self.done // self.total
        return f"{percent:3d}%  {self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB  {speed:.1f} MB/s"

    def _draw(self) -> None:
        text = self._text()
        width = shutil.get_terminal_size().columns - 1
        room = width - len(text) - 6
        label = self.label if len(self.label) <= max(room - 12, 12) else self.label[: max(room - 13, 11)] + "~"
        cells = min(30, room - len(label))
        if self.total and cells > 4:
            full = cells * self.done // self.total
            text = f"[{'#' * full}{'.' * (cells - full)}] {text}"
        self._stream.write(f"\r  {label} {text}"[:width] + "\x1b[K")
        self._stream.flush()

    def to(self, done: int) -> None:
        """`done` bytes have arrived so far (a smaller number than before means that it started over)."""
        if done < self.done:
            self._first, self._start = done, time.monotonic()
        self.done = done
        if self._tty:
            if time.monotonic() - self._drawn > 0.1:
                self._drawn = time.monotonic()
                self._draw()
        elif self._tenths() != self._tenth:
            self._tenth = self._tenths()
            if self.total and self.total >= QUIET_BELOW and self._tenth < 10:
                print(f"  {self.label} {self._text()}", file=self._stream, flush=True)

    def close(self, complete: bool) -> None:
        """The last line: drawn in full when everything has arrived."""
        if self._tty:
            if complete or self.done:
                self._draw()
                self._stream.write("\n")
                self._stream.flush()
        elif complete and self.done >= SILENT_BELOW:
            print(f"  {self.label} {self._text()}", file=self._stream, flush=True)
