"""The time of each folder of tests, beside its budget: printed at the end of every run. No test fails because of its
time."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import pytest

BUDGETS = Path(__file__).with_name("budgets.toml")
LONGEST = 10


def _folder(test: str, budgets: Collection[str]) -> str:
    """The folder with a budget that this test lies in, or else its room."""
    inside = test.partition("::")[0].split("/")[1:-1]
    places = ["/".join(inside[:count]) for count in range(len(inside), 0, -1)]
    return next((place for place in places if place in budgets), inside[0] if inside else ".")


class Times:
    """Seconds of each test, its fixtures included, as measured by the worker that ran it."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))["seconds"]
        folders: dict[str, list[float]] = defaultdict(list)
        for test, seconds in self._seconds.items():
            folders[_folder(test, budgets)].append(seconds)
        write = terminalreporter.write_line
        terminalreporter.section("seconds of each folder, and its budget in the gate (tests/budgets.toml)")
        for folder, times in sorted(folders.items(), key=lambda one: -sum(one[1])):
            budget, took = budgets.get(folder, 0), sum(times)
            write(f"{folder:16} {len(times):5} tests {took:7.1f} of {budget:4}{'  over' if took > budget else ''}")
        total = sum(map(sum, folders.values()))
        write(f"{'all':16} {len(self._seconds):5} tests {total:7.1f} of {sum(budgets.values()):4}")
        write("the longest tests:")
        for test, seconds in sorted(self._seconds.items(), key=lambda one: -one[1])[:LONGEST]:
            write(f"{seconds:7.1f}  {test}")
