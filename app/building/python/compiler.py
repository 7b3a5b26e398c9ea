"""Runs in Pyodide (bytecode.py): compiles what app.page.worker imports, and all of Sonata's own modules.

/work/archives holds the archives that the page unpacks. ARCHIVE/MODULE.pyc of each module is written to
/work/compiled.zip.
"""

from __future__ import annotations

import ast
import importlib
import sys
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from importlib.resources import files
from importlib.util import source_hash
from pathlib import Path

WORK = Path("/work")
UNPACKED = Path("/archives")
STDLIB = "/lib/python314.zip/"


def compiled(source: bytes, path: str) -> bytes:
    """The .pyc of a module; Python does not check its source (unchecked hash, PEP 552)."""
    tree = ast.parse(source)
    if "/numpy/" not in path:  # numpy.ma reads those of numpy
        drop_docstrings(tree)
    code = compile(tree, path, "exec", dont_inherit=True)
    return bytes(_code_to_hash_pyc(code, source_hash(source), False))


def drop_docstrings(tree: ast.Module) -> None:
    """The page reads none. A class keeps a space: a dataclass without a docstring would make one at each start."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str()) as docstring), *_] if isinstance(node, ast.ClassDef):
                    docstring.value = " "
                case [ast.Expr(ast.Constant(str())), _, *_]:
                    del node.body[0]


def main() -> None:
    sys.dont_write_bytecode = True
    for archive in sorted((WORK / "archives").iterdir()):
        folder = UNPACKED / archive.name
        zipfile.ZipFile(archive).extractall(folder)
        sys.path.insert(0, str(folder))
    importlib.import_module("app.page.worker")
    files("wgsl_shaders").joinpath("add.wgsl").read_bytes()  # imports more
    specs = [spec for module in list(sys.modules.values()) if (spec := getattr(module, "__spec__", None))]
    sources = {spec.origin: spec.loader.get_data(spec.origin) for spec in specs if (spec.origin or "").endswith(".py")}
    sources |= {str(path): path.read_bytes() for path in (UNPACKED / "sonata.packed").rglob("*.py")}
    with zipfile.ZipFile(WORK / "compiled.zip", "w") as out:
        for origin, source in sources.items():
            name = origin.replace(STDLIB, "python_stdlib.zip/").removeprefix(f"{UNPACKED}/")
            out.writestr(f"{name}c", compiled(source, origin))


main()
