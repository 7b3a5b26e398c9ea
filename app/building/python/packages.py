"""The packages that the user's code may import (`interpreter` in app/models/downloads.toml), compiled by the Pyodide
that loads them: compiling pandas and matplotlib is half of their import. The latest ones are kept in node_modules/."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.building.common import heading, run_logged, write_atomically
from app.building.node import NODE_MODULES, node_path
from app.building.python.archives import NOT_RUN, packed
from app.building.python.bytecode import PYODIDE, SCRIPTS
from app.building.python.zips import Members, members_of, zip_bytes
from app.checksums import sha256_of
from app.models.downloads import downloads

_COMPILER = Path(__file__).with_name("package_compiler.py")
_KEPT = NODE_MODULES / ".sonata.interpreter.zip"


def interpreter_packages(files: Mapping[str, Path]) -> tuple[list[dict[str, Any]], Members]:
    """The list for the page: name, version, file, bytes, sha256 and, if others are needed, their names; and the files.
    `files`: the downloads, file name -> path."""
    entries = downloads()["interpreter"]
    made = _packages(files)
    listed = []
    for entry in entries:
        content = made[(name := f"{entry['name']}.packed")]
        facts = {"file": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        listed.append({key: entry[key] for key in ("name", "version", "needs") if key in entry} | facts)
    return listed, made


def _packages(files: Mapping[str, Path]) -> Members:
    """NAME.packed -> content, as web/engine/packed_files.js reads it. Raises BuildError."""
    entries = downloads()["interpreter"]
    read = (Path(__file__), _COMPILER, SCRIPTS[0], PYODIDE / "pyodide.asm.wasm")
    digests = [sha256_of(path) for path in read] + [f"{entry['name']} {entry['sha256']}" for entry in entries]
    fingerprint = hashlib.sha256("\n".join(digests).encode()).hexdigest()
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(_KEPT) as kept:
        if kept.comment.decode() == fingerprint:
            return members_of(_KEPT)
    heading("Packages for the Python of the user")
    wheels = {entry["name"]: _members(files[entry["file"]]) for entry in entries}
    compiled = _compiled(wheels)
    made = {
        f"{name}.packed": packed(zip_bytes(_run_compiled(members, compiled[name]), zipfile.ZIP_STORED))
        for name, members in wheels.items()
    }
    write_atomically(_KEPT, zip_bytes(made, zipfile.ZIP_STORED, fingerprint))
    return made


def _members(wheel: Path) -> Members:
    """A wheel without the files that only a compiler reads. What is said about the package and its licence stays."""
    found = members_of(wheel)
    return {name: code for name, code in found.items() if ".dist-info/" in name or not name.endswith(NOT_RUN)}


def _compiled(wheels: Mapping[str, Members]) -> dict[str, Members]:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work, "archives")
        folder.mkdir()
        for name, members in wheels.items():
            (folder / name).write_bytes(zip_bytes(members, zipfile.ZIP_STORED))
        failure = "The packages for the user's Python could not be compiled"
        run_logged(
            [node_path(), SCRIPTS[0], PYODIDE, _COMPILER, work], failure, "correct that and run this command again"
        )
        compiled = members_of(Path(work, "compiled.zip"))
    found: dict[str, Members] = {name: {} for name in wheels}
    for path, code in compiled.items():
        name, _, module = path.partition("/")
        found[name][module] = code
    return found


def _run_compiled(members: Members, compiled: Members) -> Members:
    """The compiled modules stand where their sources stood, which are left out."""
    return {name: code for name, code in members.items() if f"{name}c" not in compiled} | compiled
