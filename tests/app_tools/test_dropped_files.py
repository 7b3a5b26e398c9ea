"""Files of tools that are dropped onto the page, as the interpreter's worker reads and runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.building.python.archives import TOOL_FILES
from app.paths import ROOT
from app.tools import dropped_file

SHOP = '''
from app.tools import tool as can, ToolFailure
open("ran.txt", "w").write("It ran.")
HOSTS = ["a.example"]

@can(hosts=HOSTS, files=["~/notes"])
async def price(article: str) -> str:
    """Tell the
    price.

    article: its name
    """
    raise ToolFailure("The shop does not answer.")

@can
def stock(article: str) -> dict[str, int]:
    """Tell how many there are."""
    print("said on the way")
    return {"pieces": {"scarf": 12}[article]}

def helper(): ...
'''
ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from app.tools import dropped_file
tools = json.loads(dropped_file.load("shop.py"))["tools"]
print([tool["name"] for tool in tools])
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    yield tmp_path
    dropped_file._tools.clear()


def test_what_a_file_declares_is_read_without_running_it(shop: Path) -> None:
    assert json.loads(dropped_file.declared(SHOP)) == [
        {"name": "price", "about": "Tell the price.", "needs": ["host:HOSTS", "file:~/notes"]},
        {"name": "stock", "about": "Tell how many there are.", "needs": []},
    ]
    assert not (shop / "ran.txt").exists()
    assert dropped_file.declared("def tool(f): ...\n@tool\ndef f(): ...") == dropped_file.declared("def (") == "[]"


async def test_a_loaded_file_gives_results_and_sentences(shop: Path) -> None:
    names = [one["name"] for one in json.loads(dropped_file.load("shop.py"))["tools"]]
    assert names == ["price", "stock"]
    failed = dropped_file.call("price", '{"article": "scarf"}')
    assert not isinstance(failed, str)
    assert json.loads(await failed) == {"failed": "The shop does not answer. The page gives it no network."}
    (shop / "broken.py").write_text("from app.tools import tool\n1 / 0")
    assert json.loads(dropped_file.load("broken.py")) == {
        "problem": "broken.py, line 2: ZeroDivisionError: division by zero."
    }


def test_the_modules_that_the_worker_gets_are_enough(shop: Path) -> None:
    for name in TOOL_FILES:
        (shop / "packed" / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / "packed" / name).write_bytes((ROOT / name).read_bytes())
    run = [sys.executable, "-I", "-S", "-c", ALONE, str(shop / "packed")]
    said = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60, cwd=shop)
    assert said.stdout.strip() == "['price', 'stock']"
