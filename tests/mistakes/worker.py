"""Runs tests for `python -m tests.mistakes`, in the folder that it is started in: a line of JSON is a question, another
is the answer.

A question is the list of pytest's arguments. An answer has `tests` {id: [outcome, seconds, why]}, where the outcome is
"passed", "failed", "skipped" or, if it cannot be imported, "broken"; and `said`, the end of pytest's output.

A fork answers each question: third-party packages are slow to import, so they are imported already, and Sonata is
not.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np  # noqa: F401
import playwright.async_api  # noqa: F401
import pytest
import wasmtime  # noqa: F401
import wgpu.backends.wgpu_native  # noqa: F401
from hypothesis import Phase, settings

RESULTS, SAID = Path("results.json"), Path("said.txt")

TYPOS = ("SyntaxError", "IndentationError", "NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError")
"""A program with one of these errors does not run: no test is needed to see it."""


class Recorder:
    """The result of each test, including its fixtures."""

    def __init__(self) -> None:
        self.tests: dict[str, tuple[str, float, str]] = {}

    def pytest_sessionstart(self) -> None:
        """The first failing example is enough: a smaller one may take minutes to find."""
        settings.register_profile("first", settings.default, phases=[Phase.explicit, Phase.reuse, Phase.generate])
        settings.load_profile("first")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = ("broken", 0.0, report.longreprtext.strip().rpartition("\n")[2])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            self.tests |= {item.nodeid: ("passed", 0.0, "") for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome, seconds, why = self.tests.get(report.nodeid, ("passed", 0.0, ""))
        if report.outcome != "passed" and outcome == "passed":
            crash = getattr(report.longrepr, "reprcrash", None)
            outcome, why = report.outcome, crash.message if crash else report.longreprtext
            if why.startswith(TYPOS):
                outcome = "broken"
        self.tests[report.nodeid] = (outcome, seconds + report.duration, why.partition("\n")[0])


def answer(arguments: list[str]) -> None:
    """Runs in the fork."""
    with SAID.open("wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    recorder = Recorder()
    pytest.main([*arguments, "-p", "no:cacheprovider"], plugins=[recorder])
    RESULTS.write_text(json.dumps(recorder.tests), encoding="utf-8")


def main() -> None:
    sys.path[0] = os.getcwd()
    for line in sys.stdin:
        RESULTS.write_text("{}", encoding="utf-8")
        if not (child := os.fork()):
            answer(json.loads(line))
            return
        os.waitpid(child, 0)
        tests, said = (
            json.loads(RESULTS.read_text(encoding="utf-8")),
            SAID.read_text(encoding="utf-8", errors="replace"),
        )
        print(json.dumps({"tests": tests, "said": said[-2000:]}), flush=True)


if __name__ == "__main__":
    main()
