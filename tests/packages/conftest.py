"""The wheel, and what a page of another site needs to use it in its own Pyodide."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from app.building.common import ROOT, BuildError, one_build_at_a_time
from app.building.download import Download, Downloader, Source
from app.building.node import NODE_MODULES
from app.building.python_env import pypi_address
from app.paths import cache_dir
from tests.packages.programs import run

MICROPIP = Download(
    cache_dir() / "wheels" / "micropip-0.11.1-py3-none-any.whl",
    "768de165adb8e66906039d8fec4127a57f522dfdf8e6fbff877a4616941ecfd3",
    (Source(pypi="micropip==0.11.1"),),
)


@pytest.fixture(scope="session")
def wheel(made_files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sonata's wheel, made of these sources."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, ROOT])
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def pyodide_folder(made_files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page and Pyodide as its makers publish it, with numpy and micropip."""
    folder = tmp_path_factory.mktemp("other_site")
    (folder / "pyodide").mkdir()
    try:
        with one_build_at_a_time(cache_dir()):
            micropip = Downloader(cache_dir(), pypi_address).ensure(MICROPIP)
    except BuildError as error:
        pytest.fail(str(error))
    source = NODE_MODULES / "pyodide"
    lock = json.loads((source / "pyodide-lock.json").read_text("utf-8"))
    packages = {}
    for path in (micropip, next(path for name, path in made_files.items() if name.startswith("numpy-"))):
        name, version = path.name.split("-")[:2]
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        packages[name] = lock["packages"][name] | {"file_name": path.name, "version": version, "sha256": sha256}
        os.symlink(path, folder / "pyodide" / path.name)
    for name in ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"):
        os.symlink(source / name, folder / "pyodide" / name)
    (folder / "pyodide" / "pyodide-lock.json").write_text(json.dumps(lock | {"packages": packages}), "utf-8")
    (folder / "index.html").write_text("<!doctype html><title>Another site</title>", "utf-8")
    return folder
