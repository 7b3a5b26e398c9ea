"""The programs of docs/guide/code.md, each run as it stands there against the real server with a random model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.building.common import ROOT
from app.building.node import node_path
from tests.cli.command_line import SONATA
from tests.packages.programs import code_blocks, run

PROGRAMS = code_blocks((ROOT / "docs" / "guide" / "code.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def address(tiny_path: Path) -> Iterator[str]:
    """The server of the terminal, in a process of its own: "http://localhost:PORT/v1"."""
    command = [SONATA, "serve", "--api", "--model", tiny_path, "--backend", "wasm", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    yield next(word for word in server.stdout.readline().split() if word.startswith("http://"))
    server.terminate()
    server.wait(timeout=30)


@pytest.mark.parametrize("heading", ["From Python", pytest.param("With LangChain", marks=pytest.mark.all)])
def test_a_program_in_python_gets_an_answer(heading: str, address: str) -> None:
    assert len(run([sys.executable, "-c", _for(heading, address)])) > 5


@pytest.mark.parametrize("heading", ["From Node", pytest.param("With Vercel's AI SDK", marks=pytest.mark.all)])
def test_a_program_in_node_gets_an_answer(heading: str, address: str) -> None:
    assert len(run([node_path(), "--input-type=module", "--eval", _for(heading, address)], cwd=ROOT)) > 5


def test_the_command_of_the_shell_gets_an_answer_in_parts(address: str) -> None:
    told = run(["bash", "-c", _for("With curl", address)])
    assert told.count("chat.completion.chunk") > 2  # the head, texts and the end
    assert told.endswith("data: [DONE]\n\n")


def test_the_program_without_a_server_answers(tiny_path: Path) -> None:
    program = PROGRAMS["In your own Python, without a server"].replace('"model.gguf"', f'"{tiny_path}", backend="wasm"')
    assert len(run([sys.executable, "-c", program])) > 5


def _for(heading: str, address: str) -> str:
    """The program with the address of this test's server."""
    program = PROGRAMS[heading]
    assert "http://localhost:8000/v1" in program
    return program.replace("http://localhost:8000/v1", address)
