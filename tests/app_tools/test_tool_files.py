"""Files of tools: loaded, refused with the line of the mistake, listed, called, and asked for once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.tool_calls import ToolOptions
from app.tools.model_tool import NotAToolError
from app.tools.tool_file import ALLOWED, Allowed, load_tool_file
from tests.cli.command_line import assert_sentence, printed, sonata

GOOD = '''
from __future__ import annotations
from dataclasses import dataclass
from app.tools import tool

@dataclass
class Pair:
    one: int
    two: int = 2

@tool
def add(pair: Pair) -> int:
    """Add two numbers."""
    return helper(pair)

def helper(pair: Pair) -> int:
    print("adding")
    return pair.one + pair.two

@tool(hosts=["api.example.com"], files=["~/notes"])
async def fetch(name: str) -> str:
    """Fetch a note."""
    return name.upper()

again = add
'''

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "mine.py"
        path.write_text(text, encoding="utf-8")
        return path

    return written


async def test_a_file_gives_its_tools_in_their_order(write: Write) -> None:
    file = load_tool_file(write(GOOD))
    assert [tool.name for tool in file.tools] == ["add", "fetch"]
    assert file.needs == ["host:api.example.com", "file:~/notes"]
    assert await file.tools[0].run({"pair": {"one": 3}}) == "5"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\ndef f(:\n    pass\n", "mine.py, line 2: SyntaxError: invalid syntax."),
        ("\n\nimport nothing_of_this_name\n", "line 3: ModuleNotFoundError: No module named 'nothing_of_this_name'."),
        ("raise SystemExit('no')\n", "mine.py, line 1: SystemExit: no."),
        ("x = 1\n", "mine.py has no tools: write `from app.tools import tool` and @tool above a function."),
        ("x = '\0'\n", "mine.py: SyntaxError: source code string cannot contain null bytes."),
        (
            "from app.tools import tool\n\n@tool\ndef f(x) -> str:\n    'Do it.'\n",
            "mine.py, line 3: f: The parameter x has no type: give it one, such as x: str.",
        ),
        (
            "from app.tools import tool\n@tool\ndef f() -> str:\n    'Do it.'\ng = tool(f.function)\n",
            "mine.py: Two tools are called f: give each its own name.",
        ),
    ],
)
def test_a_broken_file_is_a_sentence_with_its_line(write: Write, text: str, sentence: str) -> None:
    with pytest.raises(NotAToolError) as failed:
        load_tool_file(write(text))
    assert str(failed.value).endswith(sentence)


def test_what_tools_declare_is_asked_for_once_until_the_file_changes(write: Write, tmp_path: Path) -> None:
    path, home = write(GOOD), ["--home", tmp_path / "home"]
    call = ["tools", "call", "fetch", tmp_path / "arguments.json", "--tools", path, *home]
    (tmp_path / "arguments.json").write_text('{"name": "tea"}')
    may = "The tools of mine.py may reach api.example.com over the network, and read and write ~/notes"
    assert_sentence(sonata(*call), f"{may}. Nobody can be asked here: give --yes to allow it.")
    assert printed(sonata(*call, "--yes")) == "TEA\n"
    refused = sonata(*call, stdin="n\n", terminal=True)
    assert (refused.returncode, refused.stdout.strip()) == (1, "")
    assert f"{may}." in refused.stderr
    assert not (tmp_path / "home" / ALLOWED).exists()
    assert sonata(*call, stdin="y\n", terminal=True).stdout.strip() == "TEA"
    assert printed(sonata(*call)) == "TEA\n"
    write(GOOD + "\n# changed\n")
    assert_sentence(sonata(*call), may)
    (tmp_path / "home" / ALLOWED).write_text("[broken")
    assert Allowed(tmp_path / "home").lacking(load_tool_file(path)) == ["host:api.example.com", "file:~/notes"]


def test_the_commands_list_and_call_tools_of_a_file_and_the_built_in_ones(write: Write, tmp_path: Path) -> None:
    path = write(GOOD)
    told = {one["name"]: one for one in json.loads(printed(sonata("tools", "list", "--tools", path, "--json")))}
    assert list(told) == [
        "calculate", "convert_units", "current_time", "dates", "search_memory", "keep_note", "add", "fetch"
    ]  # fmt: skip
    assert (told["add"]["from"], told["dates"]["from"]) == ("mine.py", "built-in")
    assert told["fetch"]["needs"] == ["host:api.example.com", "file:~/notes"]
    assert told["fetch"]["parameters"]["required"] == ["name"]
    shown = sonata("tools", "list", "--tools", path, "--python", terminal=True).stdout
    assert "It may reach api.example.com over the" in shown
    assert "python" in shown
    call = ["tools", "call", "add", "-", "--tools", path, "--home", tmp_path / "home"]  # declares nothing
    added = sonata(*call, stdin='{"pair": {"one": 3, "two": 4}}')
    assert (printed(added), added.stderr) == ("7\n", "adding\n")
    failed = sonata(*call, stdin='{"pair": {"one": "3"}}')
    assert failed.returncode == 1
    assert failed.stdout == "The argument pair.one must be a whole number, and is '3'.\n"
    assert_sentence(sonata("tools", "call", "python", "-", stdin="{}"), "There is no tool 'python'")
    clash = write("from app.tools import tool\n@tool\ndef dates() -> str:\n    'Do it.'\n")
    assert_sentence(sonata("tools", "list", "--tools", clash), "Two tools are called dates")


async def test_a_model_adds_to_the_memory_only_if_the_user_allows_it() -> None:
    for yes in (False, True):
        async with ToolOptions(tools=[Path("built-in")], yes=yes).opened([], None) as use:
            assert ("search_memory" in use.tools, "keep_note" in use.tools) == (True, yes)


def test_the_memory_is_opened_by_the_tool_that_needs_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    call = ["--home", home, "tools", "call"]
    assert printed(sonata(*call[2:], "calculate", "-", *call[:2], stdin='{"expression": "6*7"}')) == "6 × 7 = 42\n"
    assert not home.exists()
    note = '{"note": "My dentist is Dr. Quill."}'
    assert printed(sonata(*call[2:], "keep_note", "-", *call[:2], stdin=note)).startswith("Noted.")
    listed = json.loads(printed(sonata("memory", "list", "--json", *call[:2])))
    assert [one["answer"] for one in listed["lessons"]] == ["Your dentist is Dr. Quill."]
