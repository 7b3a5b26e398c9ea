"""Puts the mistakes of this folder into the code, one after the other, and shows that the gate catches each.

    python -m tests.mistakes                      # all: some minutes
    python -m tests.mistakes kernels "no window"  # of kernels.toml, and those with these words in their names
    python -m tests.mistakes kernels --find tests/gpu tests/wasm

A mistake is a piece of text in one file (`before`, which is there exactly once) and what a tired engineer might have
written in its place (`after`). Each of its `tests` must pass without the mistake, fail with it, and be in the gate.
The table gives each mistake, the tests that catch it and their seconds; the exit code is 1 if one is not caught.

`--find` runs all tests of the gate in the given places instead, and names those that catch the mistake, the cheapest
first: put that one into the file. What else catches it may move to `all`.

The code is copied to a temporary folder for each worker; the checkout stays as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from app.paths import ROOT

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Mistake:
    """`tests` are pytest's ids; `room` is the name of the file that lists it."""

    room: str
    what: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """caught: seconds of each test that failed; missed: the tests that passed, or did not run. `said`: pytest's end."""

    mistake: Mistake
    caught: dict[str, float]
    missed: list[str]
    said: str


def read_mistakes() -> list[Mistake]:
    """Those of every *.toml file here. Raises ValueError if one does not fit the code as it is."""
    found = []
    for path in sorted(HERE.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mistake"]:
            mistake = Mistake(path.stem, **{**entry, "tests": tuple(entry.get("tests", ()))})
            times = (ROOT / mistake.file).read_text(encoding="utf-8").count(mistake.before)
            if times != 1 or mistake.before == mistake.after:
                raise ValueError(
                    f'{path.name}, "{mistake.what}": `before` is {times} times in {mistake.file}; it must be there '
                    "once, and `after` must differ."
                )
            found.append(mistake)
    names = [mistake.what for mistake in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Two mistakes have one name: {', '.join(twice)}")
    return found


def copy_code(to: Path) -> Path:
    """The checkout without what git ignores; .venv and node_modules are linked, dist is copied."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in names.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    for name in (".venv", "node_modules"):
        (to / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "dist", to / "dist")
    return to


@contextmanager
def put_in(mistake: Mistake, folder: Path) -> Iterator[None]:
    path = folder / mistake.file
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace(mistake.before, mistake.after), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(right, encoding="utf-8")


def run_tests(folder: Path, tests: Sequence[str], *options: str) -> tuple[dict[str, tuple[bool, float]], str]:
    """{id: (passed, seconds)} of the tests that ran, and what pytest said."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options, *tests]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "CI": "true", "PYTHONPATH": str(folder)}
    )
    results = {}
    if report.is_file():
        for case in ET.parse(report).getroot().iter("testcase"):
            test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            failed = case.find("failure") is not None or case.find("error") is not None
            if case.find("skipped") is None:
                results[test] = (not failed, float(case.get("time", 0)))
    return results, done.stdout[-2000:] + done.stderr[-2000:]


def gate_ids(paths: Sequence[str]) -> set[str]:
    """The ids of all tests of the gate in these places."""
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *paths], cwd=ROOT, capture_output=True, text=True
    )
    return {line for line in listed.stdout.splitlines() if "::" in line}


def try_out(mistake: Mistake, folder: Path, find: Sequence[str]) -> Outcome:
    with put_in(mistake, folder):
        results, said = run_tests(folder, find or mistake.tests)
    caught = {test: seconds for test, (passed, seconds) in results.items() if not passed}
    if find:
        return Outcome(mistake, dict(sorted(caught.items(), key=lambda one: one[1])), [], said)
    return Outcome(mistake, caught, [test for test in mistake.tests if test not in caught], said)


def try_all(mistakes: Sequence[Mistake], find: Sequence[str], workers: int) -> Iterator[Outcome]:
    """In order. Each worker has a copy of the code."""
    with tempfile.TemporaryDirectory(prefix="sonata-mistakes-") as place, ThreadPoolExecutor(workers) as pool:
        copies: Queue[Path] = Queue()
        for number in range(workers):
            copies.put(copy_code(Path(place) / str(number)))

        def work(mistake: Mistake) -> Outcome:
            folder = copies.get()
            try:
                return try_out(mistake, folder, find)
            finally:
                copies.put(folder)

        yield from pool.map(work, mistakes)


def show(outcome: Outcome, find: bool) -> bool:
    """Print a mistake's rows. Gives whether it was caught by all that should catch it."""
    good = bool(outcome.caught) and not outcome.missed
    head = f"{outcome.mistake.room:14} {outcome.mistake.what}"
    for test, seconds in list(outcome.caught.items())[: 5 if find else None]:
        print(f"{head:70} {seconds:6.2f} s  {test}", flush=True)
        head = ""
    for test in outcome.missed:
        print(f"{head:70} NOT CAUGHT  {test}", flush=True)
        head = ""
    if not good and not outcome.missed:
        print(f"{head:70} NOT CAUGHT\n{outcome.said}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mistakes", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="files of this folder, or words in the mistakes' names (else all)")
    parser.add_argument("--find", nargs="+", default=[], metavar="PLACE", help="where to look for tests that catch it")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    mistakes = [
        one
        for one in read_mistakes()
        if not options.names or any(name == one.room or name in one.what for name in options.names)
    ]
    wanted = sorted({test for one in mistakes for test in one.tests})
    good = bool(mistakes)
    if not options.find:
        if outside := sorted(set(wanted) - gate_ids(sorted({test.partition("::")[0] for test in wanted}))):
            print("Not in the gate:", *outside, sep="\n  ")
            good = False
        with tempfile.TemporaryDirectory(prefix="sonata-right-") as place:
            results, said = run_tests(copy_code(Path(place) / "code"), wanted)
        if failing := [test for test in wanted if not results.get(test, (False, 0))[0]]:
            print("These do not pass as the code is:", *failing, said, sep="\n  ")
            good = False
    rows = []
    for outcome in try_all(mistakes, options.find, options.workers):
        good &= show(outcome, bool(options.find))
        caught = [{"test": test, "seconds": seconds} for test, seconds in outcome.caught.items()]
        rows.append({"room": outcome.mistake.room, "mistake": outcome.mistake.what, "caught": caught})
    print(f"{len(rows)} mistakes, {sum(bool(row['caught']) for row in rows)} caught")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
