"""Puts the mistakes of this folder into the code, one after the other, and shows that the gate catches each.

    python -m tests.mistakes                      # all: some minutes
    python -m tests.mistakes kernels "no window"  # of kernels.toml, and those with these words in their names
    python -m tests.mistakes kernels --find tests/backends/webgpu tests/backends/wasm

A mistake is a piece of text in one file (`before`, which is there exactly once) and what a tired engineer might have
written instead (`after`). Each of its `tests` must pass without the mistake, fail with it, and be in the gate. The
table gives each mistake, the tests that catch it and their seconds; the exit code is 1 if one is not caught. A test
that fails because a name or a module is missing has not caught a mistake: such code does not run at all.

`--find` runs all tests of the gate in the given places instead, and names those that catch the mistake, the cheapest
first: put that one into the file. Other tests that catch it may move to `all`.

The code is copied to a temporary folder for each worker (worker.py); the checkout stays unchanged.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Self

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
class Result:
    """The result of a test. outcome: "passed", "failed", "skipped" or "broken" (worker.py)."""

    outcome: str
    seconds: float
    why: str


Results = dict[str, Result]


@dataclass(frozen=True)
class Outcome:
    """The results of the tests that ran, and pytest's output."""

    mistake: Mistake
    results: Results
    said: str

    @property
    def caught(self) -> Results:
        """The failed tests, the cheapest first."""
        failed = {test: result for test, result in self.results.items() if result.outcome == "failed"}
        return dict(sorted(failed.items(), key=lambda one: one[1].seconds))


def read_mistakes() -> list[Mistake]:
    """The mistakes of every *.toml file here. Raises ValueError if one does not fit the current code."""
    found = []
    for path in sorted(HERE.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mistake"]:
            mistake = Mistake(path.stem, **{**entry, "tests": tuple(entry.get("tests", ()))})
            try:
                _check(mistake)
            except (OSError, ValueError) as error:
                raise ValueError(f'{path.name}, "{mistake.what}": {error}') from error
            found.append(mistake)
    names = [mistake.what for mistake in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Two mistakes have one name: {', '.join(twice)}")
    return found


def _check(mistake: Mistake) -> None:
    code = (ROOT / mistake.file).read_text(encoding="utf-8")
    if (times := code.count(mistake.before)) != 1:
        raise ValueError(f"`before` is {times} times in {mistake.file}; it must be there once.")
    if mistake.before == mistake.after:
        raise ValueError("`before` and `after` are the same.")
    for test in mistake.tests:
        if not (ROOT / test.partition("::")[0]).is_file():
            raise ValueError(f"The file of {test} is not there.")


def copy_code(to: Path) -> None:
    """The checkout without files that git ignores; the contents of .venv and node_modules are linked, dist is
    copied."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in names.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    for name in (".venv", "node_modules"):
        link_contents(ROOT / name, to / name)
    for stamp in (to / ".venv").glob(".*.stamp"):  # its first line names the checkout that it was made for
        stamp.write_text(f"{to.resolve()}\n{stamp.read_text(encoding='utf-8').partition(chr(10))[2]}", encoding="utf-8")
    if (ROOT / "dist").is_dir():
        shutil.copytree(ROOT / "dist", to / "dist")


def link_contents(folder: Path, to: Path) -> None:
    """A folder of links to another one's folders, with copies of its files. Not a link to the folder itself: a build
    in the copy that recreates .venv clears it, and would clear the original."""
    to.mkdir()
    for path in folder.iterdir():
        if path.is_dir():
            (to / path.name).symlink_to(path.resolve())
        elif path.name != ".installing":
            shutil.copy2(path, to / path.name)


class Worker:
    """A copy of the code, and a process that runs its tests. Close it by leaving its `with`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._writes = folder, 0
        copy_code(folder)
        environment = {**os.environ, "CI": "true", "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "tests/mistakes/worker.py"]
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str) -> tuple[Results, str]:
        """The tests that pytest ran with these arguments, by their ids, and its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(["-q", *arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return {test: Result(*result) for test, result in answer["tests"].items()}, answer["said"]

    def try_out(self, mistake: Mistake, places: Sequence[str]) -> Outcome:
        with self._put_in(mistake):
            return Outcome(mistake, *self.run(*places))

    @contextmanager
    def _put_in(self, mistake: Mistake) -> Iterator[None]:
        path = self._folder / mistake.file
        right = path.read_text(encoding="utf-8")
        self._write(path, right.replace(mistake.before, mistake.after))
        try:
            yield
        finally:
            self._write(path, right)

    def _write(self, path: Path, code: str) -> None:
        """With a new time: Python recompiles a file if its size or the second of its last change differs."""
        path.write_text(code, encoding="utf-8")
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


def try_all(mistakes: Sequence[Mistake], find: Sequence[str], workers: Sequence[Worker]) -> Iterator[Outcome]:
    """Runs them in order, each in the next free worker."""
    free: Queue[Worker] = Queue()
    for worker in workers:
        free.put(worker)

    def work(mistake: Mistake) -> Outcome:
        worker = free.get()
        try:
            return worker.try_out(mistake, find or mistake.tests)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        yield from pool.map(work, mistakes)


def do_pass(mistakes: Sequence[Mistake], worker: Worker) -> bool:
    """True if all tests of these mistakes are in the gate, and pass with the current code. Prints those that do not."""
    wanted = sorted({test for mistake in mistakes for test in mistake.tests})
    if not wanted:
        return True
    listed, said = worker.run("--collect-only", *sorted({test.partition("::")[0] for test in wanted}))
    outside = [test for test in wanted if test not in listed]
    results, said = (
        worker.run(*(test for test in wanted if test in listed)) if len(outside) < len(wanted) else ({}, said)
    )
    failing = [test for test in wanted if test in listed and (test not in results or results[test].outcome != "passed")]
    for title, tests in (("Not in the gate:", outside), ("These do not pass as the code is:", failing)):
        if tests:
            print(title, *tests, sep="\n  ")
    if outside or failing:
        print(said)
    return not outside and not failing


def show(outcome: Outcome, find: bool) -> bool:
    """Print a mistake's rows. Returns True if all of its tests caught it."""
    mistake = outcome.mistake
    head = f"{mistake.room:14} {mistake.what}"
    broken = {test: result.why for test, result in outcome.results.items() if result.outcome == "broken"}
    rows = [(f"{result.seconds:6.2f} s", test) for test, result in outcome.caught.items()]
    rows = rows[:5] if find else rows
    rows += [(f"DOES NOT RUN: {why}", test) for test, why in list(broken.items())[:5]]
    good = bool(outcome.caught) and not broken
    for test in () if find else mistake.tests:
        if test not in outcome.caught and test not in broken:
            rows.append(("NOT CAUGHT", test))
            good = False
    for said, test in rows or [("NOT CAUGHT", "")]:
        print(f"{head:70} {said:8}  {test}", flush=True)
        head = ""
    if not outcome.results:
        print(outcome.said)
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
    if not mistakes:
        rooms = ", ".join(path.stem for path in sorted(HERE.glob("*.toml")))
        parser.error(f"no mistake has {' or '.join(options.names)} in its name; the files are {rooms}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="sonata-mistakes-") as place, ExitStack() as stack:
        workers = [stack.enter_context(Worker(Path(place) / str(number))) for number in range(options.workers)]
        good = bool(options.find) or do_pass(mistakes, workers[0])
        for outcome in try_all(mistakes, options.find, workers):
            good &= show(outcome, bool(options.find))
            caught = [{"test": test, "seconds": result.seconds} for test, result in outcome.caught.items()]
            rows.append({"room": outcome.mistake.room, "mistake": outcome.mistake.what, "caught": caught})
    print(f"{len(rows)} mistakes, {sum(bool(row['caught']) for row in rows)} caught")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
