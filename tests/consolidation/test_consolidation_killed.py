"""kill -9 in the middle of `sonata consolidate`: nothing is lost, the old adapter still answers, and the next run
continues from there.

The real command in a process of its own, a tiny model on the WASM kernels, the recipe and texts that Sonata ships.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.consolidation.service import RECIPE
from tests.cli.command_line import printed, sonata

PROGRAM = Path(__file__).with_name("killed_sonata.py")
KILLED_AT = 14


@pytest.mark.all
def test_a_program_that_is_killed_in_a_training_and_again_while_it_stores_loses_nothing(
    tiny_path: Path, tmp_path: Path
) -> None:
    model = ["--model", str(tiny_path), "--backend", "wasm", "--home"]
    home, other = tmp_path / "home", tmp_path / "other"

    def killed(point: str) -> list[int]:
        """The numbers of its steps."""
        command = [sys.executable, str(PROGRAM), point, "consolidate", *model, str(home)]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        return [int(line[5:]) for line in ended.stderr.splitlines() if line.startswith("step ")]

    def consolidated(folder: Path) -> dict:
        return json.loads(printed(sonata("consolidate", "--json", *model, folder)))

    def answers(*options: str) -> list[str]:
        return json.loads(printed(sonata("ask", "Cat?", "--max-tokens", "8", *options, *model, home)))

    def lessons() -> list[dict]:
        return json.loads(printed(sonata("memory", "list", "--all", "--json", "--home", home)))["lessons"]

    printed(sonata("teach", "Cat?", "Tom.", *model, home))
    shutil.copytree(home, other)
    without, known = answers("--without", "instant"), lessons()

    def nothing_is_lost() -> None:
        assert answers("--without", "instant") == without != ["Tom."]
        assert answers() == ["Tom."]
        assert lessons() == known

    assert killed(f"step:{KILLED_AT}") == list(range(1, KILLED_AT))
    nothing_is_lost()
    goes_on = killed("store")
    assert KILLED_AT - RECIPE.save_every <= goes_on[0] <= KILLED_AT
    nothing_is_lost()
    made, expected = consolidated(home), consolidated(other)  # the other one was not killed
    assert {**made, "seconds": 0} == {**expected, "seconds": 0}
    assert (made["revision"], made["recall"]["after"], len(made["steps"]["norm"])) == (1, 1.0, goes_on[-1])
    assert answers("--without", "instant") == ["Tom."]
