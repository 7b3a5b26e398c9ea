"""Programs that tests of packages run, and the code of documents."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def run(command: list[str | Path], said: str = "", **options) -> str:
    """Run a program to its end, and return what it printed."""
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", input=said, timeout=300, **options)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return ran.stdout


def code_blocks(text: str) -> dict[str, str]:
    """The blocks of code of a page, by the heading before each."""
    found = re.findall(r"^## (.+?)$(?:(?!^## ).)*?^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return dict(found)
