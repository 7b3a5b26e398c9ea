"""Runs in Pyodide (packages.py): compiles each module of /work/archives, which hold the members of wheels.

ARCHIVE/MODULE.pyc is written to /work/compiled.zip. A module that is no Python of this version is left out.
"""

from __future__ import annotations

import contextlib
import warnings
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from importlib.util import source_hash
from pathlib import Path

WORK = Path("/work")
SITE_PACKAGES = "/lib/python3.14/site-packages"


def main() -> None:
    warnings.simplefilter("ignore")  # of old escapes
    with zipfile.ZipFile(WORK / "compiled.zip", "w") as out:
        for archive in sorted((WORK / "archives").iterdir()):
            opened = zipfile.ZipFile(archive)
            for name in opened.namelist():
                if not name.endswith(".py"):
                    continue
                source = opened.read(name)
                with contextlib.suppress(SyntaxError, ValueError):
                    code = compile(source, f"{SITE_PACKAGES}/{name}", "exec", dont_inherit=True)
                    out.writestr(f"{archive.name}/{name}c", bytes(_code_to_hash_pyc(code, source_hash(source), False)))


main()
