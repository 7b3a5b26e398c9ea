"""The packages for other people's code, in dist-packages/: the wheel, and the package for npm."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.building.common import ROOT, VENV_PYTHON, run_logged, write_atomically
from app.building.node import npm_path

PACKAGES = ROOT / "dist-packages"
NPM = "sonata-llm"
_LIBRARY = (
    "THIRD_PARTY.txt", "backends/wasm/kernel_worker.js", "downloads/model_worker.js", "downloads/other_sites_worker.js",
    "embedder/", "engine/broker_worker.js", "engine/worker.js", "kernels/", "language_model.", "model_catalog.json",
    "pyodide/", "readers/", "routing.safetensors", "routing/embedder_worker.js", "sonata.d.ts", "sonata.js",
    "sonata.packed", "tokenizers/template_worker.js", "vendor/ort",
)  # fmt: skip
"""Beginnings of paths in the site: the files of sonata.js and language_model.js."""
_OF_PYODIDE = ("backends/wasm/kernel_pool.js", "backends/webgpu/executor.js", "backends/weight_stream.js")
"""Modules that sonata/browser.py imports, besides the next one."""
_SOURCE = "storage/model_source.js"
_NOT = ("pyodide/snapshot.packed",)
"""Only a page whose service worker keeps it, or one of this machine, starts from it."""
_IMPORTS = re.compile(r"(?:^|\b)(?:import|from|import\() *'(\.{1,2}/[^']+)'", re.MULTILINE)


def make_packages(site: Path) -> list[Path]:
    """Make the packages of these sources and their site, and return their files. Raises BuildError."""
    shutil.rmtree(PACKAGES, ignore_errors=True)
    wheel: list[str | Path] = [VENV_PYTHON, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    options: list[str | Path] = ["--no-build-isolation", "--no-index", "--wheel-dir", PACKAGES, ROOT]
    run_logged([*wheel, *options], "The wheel could not be made")
    make_npm_folder(site, PACKAGES / NPM)
    run_logged(
        [npm_path(), "pack", PACKAGES / NPM, "--pack-destination", PACKAGES, "--ignore-scripts"],
        "The package for npm could not be made",
    )
    return sorted(path for path in PACKAGES.iterdir() if path.is_file())


def make_npm_folder(site: Path, folder: Path) -> None:
    """Make the package for npm: the files of sonata.js, its types, and a page that uses it. site: dist/."""
    for name in sorted(_names(site)):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(site / name, target)
    sizes = json.loads((site / "sizes.json").read_text("utf-8")) | {"snapshot": None}
    made = {"sizes.json": json.dumps(sizes), "package.json": json.dumps(_package(), indent=2)}
    example, readme = ROOT / "docs" / "example" / "index.html", ROOT / "docs" / "example" / "README.md"
    version = re.search(r'name="sonata-version" content="\w+"', (site / "index.html").read_text("utf-8"))
    assert version, "dist/index.html has no version"
    made["index.html"] = example.read_text("utf-8").replace("<title>", f"<meta {version[0]}>\n<title>", 1)
    made |= {"README.md": readme.read_text("utf-8"), "LICENSE": (ROOT / "LICENSE").read_text("utf-8")}
    for name, text in made.items():
        write_atomically(folder / name, text.encode())


def _names(site: Path) -> set[str]:
    """The site's files that the package has."""
    names = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    of_library = {name for name in names if name.startswith(_LIBRARY) and not name.endswith(".js.map")}
    return (of_library | set(_imported(site, [*_OF_PYODIDE, _SOURCE]))) - set(_NOT)


def _imported(site: Path, modules: Iterable[str]) -> Iterator[str]:
    """The modules, and those that they import."""
    seen, left = set[str](), list(modules)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        found = _IMPORTS.findall((site / name).read_text("utf-8"))
        left += [posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in found]
    return iter(seen)


def _package() -> Mapping[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {
        "name": NPM, "version": project["version"], "license": project["license"], "type": "module",
        "description": "A language model in your page, with the calls of OpenAI's client and no server.",
        "types": "./sonata.d.ts",
        "exports": {".": {"types": "./sonata.d.ts", "default": "./sonata.js"}, "./*": "./*"},
    }  # fmt: skip
