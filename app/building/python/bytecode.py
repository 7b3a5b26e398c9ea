"""Compiled Python for the page: .pyc files, made in Node by the same Pyodide that will load them.

Without them Pyodide compiles each module that the page imports, at each start: 2.3 of its 4.2 seconds of CPU time.
Python compares their magic number with its own, and takes the sources beside them if they differ; tracebacks show
these sources.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from app.building.common import heading, run_logged
from app.building.node import NODE_MODULES, node_path
from app.building.python.zips import Members, members_of, zip_bytes

STDLIB = "python_stdlib.zip"
PYODIDE = NODE_MODULES / "pyodide"
HERE = Path(__file__).parent
SCRIPTS = (HERE / "runner.mjs", HERE / "compiler.py")
_TAG = "cpython-314"


def compiled_modules(archives: Mapping[str, Members]) -> dict[str, Members]:
    """Compiles the modules that the page imports. archives: the wheels and our own packages, file name -> members.

    Returns the .pyc files to add to each archive, and to Pyodide's standard library (STDLIB): path -> content. Raises
    BuildError with Python's message.
    """
    heading("Compiled Python for the page")
    runner, script = SCRIPTS
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work, "archives")
        folder.mkdir()
        for name, members in archives.items():
            (folder / name).write_bytes(zip_bytes(members))
        failure = "The page's Python could not be compiled"
        run_logged([node_path(), runner, PYODIDE, script, work], failure, "correct that and run this command again")
        compiled = members_of(Path(work, "compiled.zip"))
    found: dict[str, Members] = {name: {} for name in (*archives, STDLIB)}
    for name, content in compiled.items():
        archive, _, path = name.partition("/")
        found[archive][path if archive == STDLIB else _cached(path)] = content
    return found


def _cached(path: str) -> str:
    """The path at which Python looks for the .pyc of an unpacked module; in a zip it looks beside the source."""
    folder, slash, file = path.rpartition("/")
    return f"{folder}{slash}__pycache__/{file.removesuffix('.pyc')}.{_TAG}.pyc"
