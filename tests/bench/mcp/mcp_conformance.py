"""The conformance tests of the Model Context Protocol, for the server over HTTP and for both clients.

Node and the tests (npm's @modelcontextprotocol/conformance, by the committed lock) are installed once, into .venv and
the cache; later runs need no network.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.building.common import ROOT, one_build_at_a_time
from app.building.download import Downloader
from app.building.node import npm_ci
from app.building.python_env import ensure_venv, pypi_address, venv_script
from app.checksums import sha256_of
from app.paths import cache_dir

HERE = Path(__file__).parent
SONATA = str(Path(sys.executable).with_name("sonata"))
OF_SONATA = (
    *("server-initialize", "ping", "tools-list", "resources-list", "server-sse-multiple-streams"),
    "dns-rebinding-protection",
)
"""Scenarios that ask for nothing but what each server has."""
OF_CLIENT = ("initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults")
"""Scenarios of the clients without those of OAuth, which Sonata does not have."""


def install() -> list[str]:
    """Return the command of the conformance tests. They need Node 22, which Debian does not have yet."""
    cache = cache_dir()
    folder = cache / "bench" / f"mcp-{sha256_of(HERE / 'package-lock.json')[:12]}"
    done = folder / "installed"
    with one_build_at_a_time(cache):
        downloader = Downloader(cache, pypi_address)
        ensure_venv(cache, downloader, ("runtime", "node"))
        if not done.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copyfile(HERE / name, folder / name)
            npm_ci(folder, cache, downloader)
            done.touch()
    script = folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return [str(venv_script("node")), str(script)]


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """The address that a server's first line on standard error tells."""
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield next(word for word in process.stderr.readline().split() if word.startswith("http://"))
    finally:
        process.terminate()
        process.communicate(timeout=30)


def checks(command: Sequence[str]) -> list[dict[str, str]]:
    """The checks of one scenario, each with its id, status and error."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [*command, "--output-dir", folder], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
        )
        found = [json.loads(path.read_text("utf-8")) for path in Path(folder).rglob("checks.json")]
    if len(found) != 1:
        return [{"id": "run", "status": "FAILURE", "errorMessage": (ran.stderr or ran.stdout)[-300:]}]
    return [one for one in found[0] if one["status"] in ("SUCCESS", "FAILURE", "WARNING")]


def tell(part: str, scenario: str, command: Sequence[str]) -> bool:
    """Run one scenario and print its line. Returns True if no check failed."""
    found = checks(command)
    failed = [one for one in found if one["status"] != "SUCCESS"]
    passed = bool(found) and not any(one["status"] == "FAILURE" for one in failed)
    result = "fail" if not passed else "warning" if failed else "pass"
    why = "; ".join(f"{one['id']}: {one.get('errorMessage') or one['status'].lower()}" for one in failed)
    print(f"| {part} | {scenario} | {len(found) - len(failed)}/{len(found)} | {result} | {why} |")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    only = parser.parse_args().only
    conformance = install()
    listed = subprocess.run([*conformance, "list", "--server"], capture_output=True, text=True, check=True).stdout
    of_server = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
    native = f"{sys.executable} -m tests.bench.mcp.conformance_client"
    page = f"{conformance[0]} {HERE / 'page_client.mjs'}"
    print("| part | scenario | checks | result | what failed |\n|---|---|---|---|---|")
    passed = list[bool]()
    with (
        tempfile.TemporaryDirectory() as home,
        serving(sys.executable, "-m", "tests.bench.mcp.everything_server") as everything,
        serving(SONATA, "mcp", "--home", home, "--http", "--port", "0") as sonata,
    ):
        for part, scenarios, url in (("server", of_server, everything), ("sonata mcp", OF_SONATA, sonata)):
            for scenario in scenarios:
                if only in scenario:
                    command = [*conformance, "server", "--url", url, "--scenario", scenario]
                    passed.append(tell(part, scenario, command))
    for part, client in (("client", native), ("client of the page", page)):
        for scenario in OF_CLIENT:
            if only in scenario:
                command = [*conformance, "client", "--command", client, "--scenario", scenario]
                passed.append(tell(part, scenario, command))
    print(f"\n{sum(passed)} of {len(passed)} scenarios pass.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
