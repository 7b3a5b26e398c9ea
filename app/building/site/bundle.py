"""The page's and its workers' modules, joined by esbuild: the start waits for 20 files instead of 160.

Each file that the page asks for goes through the service worker, which finds it in the browser's cache and checks it,
one after the other. The output stays readable: nothing is minified, and source maps show the files of web/, which lie
in the site, too, for readers and for importing a module by hand.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.building.common import BuildError
from app.building.node import node_path

SCRIPT = Path(__file__).with_name("bundle.mjs")
FOLDER = "bundle/"
"""The folder of the page's files in the site. A worker is joined into the file of its own name."""
MODULES = f"{FOLDER}modules.json"
"""The joined modules: no page asks for them."""
PAGES = ("main.js",)
WORKERS = (
    "engine/worker.js", "downloads/model_worker.js", "downloads/other_sites_worker.js", "routing/embedder_worker.js",
    "markdown/highlight_worker.js", "interpreter/python_worker.js", "mcp/mcp_worker.js",
)  # fmt: skip
"""Scripts that import anything."""
LIBRARIES = ("sonata.js", "language_model.js")
"""Modules for other pages, each joined into the file of its own name; the second one imports the first."""
APART = ("sonata.js", "pyodide/", "vendor/ort", "vendor/highlight/", "vendor/katex/", "vendor/pdf/")
"""Path prefixes of modules that stay separate files: they are large, or few of many are needed."""


@dataclass(frozen=True)
class Bundle:
    """files: path in the site -> content. preload: the modules that the page imports at its start, besides main.js."""

    files: dict[str, bytes]
    preload: list[str]


def bundle(site: Mapping[str, Path | bytes]) -> Bundle:
    """Join the modules of a site. Raises BuildError in esbuild's words, if a module cannot be read."""
    sources = {
        name: str(content)
        for name, content in site.items()
        if isinstance(content, Path) and content.suffix in (".js", ".mjs")
    }
    asked = {"files": sources, "pages": PAGES, "workers": WORKERS + LIBRARIES, "apart": APART}
    ran = subprocess.run(
        [node_path(), SCRIPT], input=json.dumps(asked), capture_output=True, text=True, encoding="utf-8"
    )
    if ran.returncode:
        raise BuildError(f"The page's modules could not be joined: {ran.stderr.strip()}")
    made = json.loads(ran.stdout)
    files = {name: text.encode() for name, text in made["files"].items()}
    return Bundle(files | {MODULES: json.dumps(made["modules"], indent=1).encode()}, made["preload"])
