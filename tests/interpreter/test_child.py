"""Python in a child process: its outputs, its limits, and that it goes on after code that means harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from app.interpreter.child import Limits, PythonChild
from app.interpreter.session import (
    MOST_TEXT,
    Cut,
    Failure,
    Files,
    Output,
    Table,
    Text,
    Value,
    describe,
    for_model,
    imports_of,
)
from tests.interpreter.programs import HOSTILE, MEAN, SALES

alone = pytest.mark.asyncio(loop_scope="module")
LIMITS = Limits(seconds=0.5, memory=600 << 20, file_bytes=8 << 20)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def child() -> AsyncIterator[PythonChild]:
    opened = PythonChild(LIMITS)
    yield opened
    await opened.close()
    assert not opened.folder.exists()


def reasons(outputs: list[Output]) -> list[str]:
    return [one.reason for one in outputs if isinstance(one, Failure)]


@alone
async def test_what_code_prints_shows_and_writes_is_told_in_its_order(child: PythonChild) -> None:
    child.put("sales.csv", SALES)
    assert await child.run(MEAN) == [
        Table(["region", "mean"], [False, True], [["north", "15"], ["south", "4.5"]], 2, 2)
    ]
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(groups)\nopen('new.txt', 'w').write('hi');"
    outputs = await child.run(code)
    assert outputs[:2] == [Text("stdout", "out\n"), Text("stderr", "err\n")]
    assert isinstance(outputs[2], Value)
    assert "north" in outputs[2].text
    assert outputs[-1] == Files([["new.txt", 2]])
    assert child.read("new.txt") == b"hi"
    printed = await child.run(f"print('a' * {2 * MOST_TEXT})\nprint('b')")
    assert sum(len(one.text) for one in printed if isinstance(one, Text)) == MOST_TEXT
    assert printed[-1] == Cut(MOST_TEXT)


@alone
async def test_an_error_names_the_lines_of_the_code(child: PythonChild) -> None:
    (failure,) = await child.run("def half(x):\n    return 1 / x\n\nhalf(0)")
    assert isinstance(failure, Failure)
    assert failure == Failure("ZeroDivisionError", failure.message, [[4, "half(0)"], [2, "return 1 / x"]])
    (later,) = await child.run("\nhalf(0)")
    assert isinstance(later, Failure)
    assert later.lines == [[2, "half(0)"], [2, "return 1 / x"]]
    (wrong,) = await child.run("x = 1\ny = (")
    assert isinstance(wrong, Failure)
    assert (wrong.kind, wrong.lines) == ("SyntaxError", [[2, "y = ("]])
    assert describe(wrong) == "Line 2: y = (\nSyntaxError: '(' was never closed"
    assert reasons(await child.run("import no_such_package")) == ["module"]
    assert reasons(await child.run("raise SystemExit")) == []


@pytest.mark.parametrize("name", HOSTILE)
@alone
async def test_a_program_that_means_harm_ends_with_a_reason(child: PythonChild, name: str) -> None:
    code, reason = HOSTILE[name]
    await child.run("kept = 7")
    assert reasons(await child.run(code)) == [reason]
    await child.run("a = None\nimport os\nif os.path.exists('large'): os.remove('large')")
    assert await child.run("kept") == [Value("7")]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "died"),
        ("import os, sys\nos.write(int(sys.argv[2]), b'\\xff no line of ours\\n' * 99)", "died"),
        ("import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: print('no')", "time"),
    ],
)
@alone
async def test_a_child_that_dies_or_must_be_killed_is_followed_by_another(
    child: PythonChild, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    monkeypatch.setattr("app.interpreter.child.GRACE_SECONDS", 0.1)
    await child.run("kept = 7")
    assert reasons(await child.run(code))[-2:] == [why, "lost"]
    assert reasons(await child.run("kept")) == [""]
    assert child.read("sales.csv") == SALES


@alone
async def test_stop_keeps_the_variables(child: PythonChild) -> None:
    begun = asyncio.Event()
    running = asyncio.create_task(child.run("kept = 8\nprint(1)\nwhile True: pass", lambda output: begun.set()))
    await begun.wait()
    child.stop()
    assert reasons(await running) == ["stopped"]
    assert await child.run("import numpy\nnumpy.float64(kept)") == [Value("8.0")]


@alone
async def test_only_files_of_the_folder_are_read(child: PythonChild) -> None:
    await child.run("import os\nos.symlink('/etc/passwd', 'link')\nos.symlink('/etc', 'folder')")
    for name in ("link", "folder/passwd", "../../etc/passwd", "/etc/passwd"):
        with pytest.raises(OSError, match=r"lies outside|symbolic link"):
            child.read(name)


@alone
async def test_the_child_knows_nothing_of_its_parent(child: PythonChild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONATA_SECRET", "x")
    secret = "[name for name in os.environ if 'SONATA' in name]"
    code = f"import os, sys\n{secret}, 'app' in sys.modules, len(os.listdir('/proc/self/fd')) <= 6"
    assert await child.run(code) == [Value("([], False, True)")]


def test_code_is_read_for_its_imports_and_outputs_for_a_model() -> None:
    assert imports_of("import pandas as pd, os.path\ndef f():\n    from matplotlib import pyplot\nfrom . import x") == [
        *("matplotlib", "os", "pandas")
    ]
    assert imports_of("import (") == []
    failure = Failure("", "", [[1, "while True: pass"]], "time")
    told = for_model([Text("stdout", "a\n"), Table(["x"], [True], [["1"]], 1, 1), failure])
    assert told == "a\nx\n1\nLine 1: while True: pass\nThe code took longer than it may."
    assert for_model([Text("stdout", "a" * 90 + "b")], 10) == "[...]aaaaaaaaab"
