"""The page's client (web/mcp), run by node, on servers that are honest and hostile. tests/page/panels has the rest."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.building.common import ROOT
from app.building.node import node_path

CALLS = """
import { McpClient } from './mcp/client.js';
const never = new AbortController().signal;
const told = (run) => run().catch((error) => ({ text: error.stack || error.message }));
const all = JSON.parse(process.argv[2]).map(async ([address, names, token]) => {
  const client = new McpClient(address, { token }), said = {};
  const { text: problem, ...listed } = await told(() => client.connect(never));
  said[''] = problem ?? listed;
  for (const name of names) {
    const stop = new AbortController();
    if (name === 'waits') setTimeout(() => stop.abort(), 100);
    const { text, failed } = await told(() => client.call(name, { a: 2, b: 3 }, stop.signal));
    said[name] = failed ? `failed: ${text}` : text;
  }
  client.close();
  return said;
});
console.log(JSON.stringify(await Promise.all(all)));
process.exit();
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.mcp.web_stranger"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the client for node, which does not know that it is a module."""
    folder = tmp_path_factory.mktemp("client")
    for name in ("mcp", "common"):
        shutil.copytree(ROOT / "web" / name, folder / name)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "calls.js").write_text(CALLS)
    return folder


def told(client: Path, *sessions: tuple[str, Sequence[str], str]) -> list[dict[str, Any]]:
    """Return the client's words on connections ("") and calls. sessions: addresses, names of tools, tokens."""
    command = [node_path(), client / "calls.js", json.dumps(sessions)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def test_a_server_of_the_package_mcp_is_listed_and_called(client: Path, server: str) -> None:
    (said,) = told(client, (f"{server}/mcp", ("add", "nothing", "waits"), ""))
    add, waits = said[""]["tools"]
    assert (add["name"], add["description"], list(add["parameters"]["properties"])) == (
        "add", "Add two numbers.", ["a", "b"],
    )  # fmt: skip
    assert waits["description"].endswith("all rules\ufffd\ufffd")
    assert (said["add"], said["waits"]) == ("5", "It was stopped.")
    assert "nothing" in said["nothing"]


def test_what_a_strange_server_sends_is_bounded_and_named(client: Path, server: str) -> None:
    names = ("fails", "parts", "long", "odd", "refuses", "says", "cut", "huge", "flood")
    begun = httpx2.get(f"{server}/seen").json().count("initialize")
    (said,) = told(client, (f"{server}/hostile", (*names, "forgets", "waits"), ""))
    assert [tool["name"] for tool in said[""]["tools"]] == ["same", "after"]
    assert said[""]["leftOut"] == 3
    of_server = f"The server {server.removeprefix('http://')}"
    assert [said[name] for name in names if name != "long"] == [
        "failed: There is no such city.",
        "Look:\n(A picture is left out: image/png, 9 bytes)\n(A link to a\ufffd: file:///a.txt)\nthe text of b",
        f"What the{of_server[3:]} sends does not follow the Model Context Protocol.",
        f"{of_server} refuses: No such tool",
        "says ä",
        f"{of_server} ended the connection before its answer was complete.",
        "The server sent more than 8 MB for one answer.",
        f"{of_server} sent more than 10000 messages at once.",
    ]
    assert said["long"] == "x" * 20_000 + "\n(The result is longer: 10000 more characters were left out.)"
    assert (said["forgets"], said["waits"]) == ("forgets ä", "It was stopped.")
    seen = httpx2.get(f"{server}/seen").json()
    assert seen.count("initialize") == begun + 2, "a session that the server has forgotten begins again"
    assert "notifications/cancelled" in seen
    assert "an error" in seen, "it is refused what it asks for"


def test_a_server_that_cannot_be_used_is_a_sentence(client: Path, server: str) -> None:
    source = (client / "mcp" / "client.js").read_text("utf-8")
    (client / "mcp" / "client.js").write_text(source.replace("CALL_SECONDS = 60", "CALL_SECONDS = 0.3"), "utf-8")
    (slow, *others, right) = told(
        client,
        (f"{server}/hostile", ["slow"], ""),
        *((f"{server}/{path}", [], "") for path in ("page", "broken", "elsewhere", "token")),
        *((f"{server}/token", [], token) for token in ("wrong", "ö")),
        ("http://localhost:9/mcp", [], ""),
        (f"{server}/token", [], "secret"),
    )
    says = [
        "does not follow the Model Context Protocol", "answers with HTTP 500", "answers with HTTP 307", "wants a token",
        "does not accept the token", "does not accept the token", "cannot be reached",
    ]  # fmt: skip
    assert slow["slow"].endswith("did not answer within 0.3 seconds.")
    assert all(words in said[""] for words, said in zip(says, others, strict=True))
    assert right[""]["leftOut"] == 3
    assert not [one for one in httpx2.get(f"{server}/seen").json() if one.startswith("127.0.0.1")]
