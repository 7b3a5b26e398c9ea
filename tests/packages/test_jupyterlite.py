"""docs/notebooks/sonata.ipynb in a JupyterLite site with a Pyodide of its own, in Chromium."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from playwright.async_api import async_playwright, expect

from app.building.common import ROOT, VENV_BIN
from app.building.system import CHROMIUM_FLAGS
from app.paths import cache_dir
from tests.packages.programs import run
from tests.page.plain_server import PlainServer

LOCK = Path(__file__).with_name("jupyterlite.txt")
NOTEBOOK = ROOT / "docs" / "notebooks" / "sonata.ipynb"
BUILDER = (
    "jupyterlite-core", "jupyterlite-pyodide-kernel", "doit", "jupyter-core", "packaging", "pkginfo", "platformdirs",
    "traitlets",
)  # fmt: skip
KERNEL = (
    "asttokens", "comm", "decorator", "executing", "ipython", "ipython_pygments_lexers", "jedi", "matplotlib_inline",
    "parso", "pexpect", "prompt_toolkit", "ptyprocess", "pure_eval", "pygments", "six", "stack_data", "traitlets",
    "wcwidth",
)  # fmt: skip
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
PATIENCE = 240_000


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The wheels of the lock, which are downloaded once."""
    folder = cache_dir() / "jupyterlite" / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    if not folder.is_dir():
        partial = folder.with_suffix(".part")
        options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--python-version=3.14", "-r", LOCK]
        run([*PIP, "download", "--quiet", *options, "--dest", partial])
        partial.rename(folder)
    return folder


@pytest.fixture(scope="module")
def lite(wheels: Path, wheel: Path, pyodide_folder: Path, tiny_path: Path, tmp_path_factory) -> Path:
    """A site that `jupyter lite build` made, with the notebook, the wheel and a model."""
    folder = tmp_path_factory.mktemp("lite")
    environment, site = folder / "environment", folder / "site"
    run([sys.executable, "-m", "venv", "--without-pip", environment])
    python = environment / VENV_BIN.name / "python"
    run([*PIP, "--python", python, "install", "--no-deps", "--no-index", "--find-links", wheels, *BUILDER])
    pyodide = folder / "static" / "pyodide"
    shutil.copytree(pyodide_folder / "pyodide", pyodide)
    lock = json.loads((pyodide / "pyodide-lock.json").read_text("utf-8"))
    for path in sorted(wheels.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        if name in KERNEL:
            shutil.copy(path, pyodide)
            needs = sorted({one.replace("_", "-") for one in KERNEL} - {"comm", "ipython"}) if name == "ipython" else []
            lock["packages"][name.replace("_", "-")] = {
                "name": name.replace("_", "-"), "version": version, "file_name": path.name, "install_dir": "site",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "imports": [name], "depends": needs,
                "package_type": "package", "unvendored_tests": False,
            }  # fmt: skip
    (pyodide / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")
    build = [python, "-m", "jupyterlite_core", "build", "--lite-dir", folder, "--output-dir", site]
    run([*build, "--apps", "notebooks"], cwd=folder, env={**os.environ, "PYTHONPATH": ""})
    _add_files(site, {NOTEBOOK.name: NOTEBOOK, wheel.name: wheel, "model.gguf": tiny_path})
    return site


def _add_files(site: Path, files: dict[str, Path]) -> None:
    """As `jupyter lite build --contents` adds them: it would need jupyter-server, 30 more packages."""
    facts = {"content": None, "created": "2026-01-01T00:00:00Z", "last_modified": "2026-01-01T00:00:00Z"}
    facts |= {"format": None, "mimetype": None, "writable": True}
    listed = []
    for name, path in files.items():
        (site / "files").mkdir(exist_ok=True)
        shutil.copy(path, site / "files" / name)
        kind = "notebook" if name.endswith(".ipynb") else "file"
        listed.append(facts | {"name": name, "path": name, "size": path.stat().st_size, "type": kind})
    (site / "api" / "contents").mkdir(parents=True, exist_ok=True)
    top = facts | {"content": listed, "format": "json", "name": "", "path": "", "size": None, "type": "directory"}
    (site / "api" / "contents" / "all.json").write_text(json.dumps(top), "utf-8")
    settings = json.loads((site / "jupyter-lite.json").read_text("utf-8"))
    settings["jupyter-config-data"]["contentsAllJsonFile"] = "all.json"
    (site / "jupyter-lite.json").write_text(json.dumps(settings), "utf-8")


@pytest.mark.all
async def test_the_notebook_runs_in_jupyterlite(lite: Path, chromium_path: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        page = await browser.new_page()
        with PlainServer(lite) as server:
            await page.goto(f"{server.url}/notebooks/index.html?path={NOTEBOOK.name}")
            await page.locator(".jp-Cell").first.wait_for(timeout=PATIENCE)
            await page.get_by_role("menuitem", name="Run", exact=True).click()
            await page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            last = page.locator(".jp-OutputArea-output").last
            await expect(last).to_have_text(re.compile("Bern|Rome|Error"), timeout=PATIENCE)
            outputs = await page.locator(".jp-OutputArea-output").all_inner_texts()
        await browser.close()
    assert len(outputs) == 2, outputs
    assert json.loads(outputs[1].strip("'"))["city"] in ("Bern", "Rome")
