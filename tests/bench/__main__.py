"""The benchmarks. Each says with --help what it measures, and prints a table.

python -m tests.bench NAME [options]
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def benchmarks() -> dict[str, tuple[str, str]]:
    """Each module that has a `main`, by its name: its path for an import, and the first line of its docstring."""
    found = {}
    for path in sorted(FOLDER.rglob("*.py"), key=lambda path: path.stem):
        module = ast.parse(path.read_text("utf-8"))
        mains = (node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        if path != Path(__file__) and any(node.name == "main" for node in mains):
            about = (ast.get_docstring(module) or "").split("\n\n")[0].replace("\n", " ")
            found[path.stem] = ".".join(("tests", "bench", *path.relative_to(FOLDER).with_suffix("").parts)), about
    return found


def main() -> int:
    known = benchmarks()
    if sys.argv[1:2] and sys.argv[1] in known:
        sys.argv = sys.argv[1:]
        ended = importlib.import_module(known[sys.argv[0]][0]).main()
        return (asyncio.run(ended) if inspect.iscoroutine(ended) else ended) or 0
    print(__doc__)
    for name, (_, about) in known.items():
        print(f"{name:20} {about}")
    return 0 if sys.argv[1:] in ([], ["--help"], ["-h"]) else 2


if __name__ == "__main__":
    sys.exit(main())
