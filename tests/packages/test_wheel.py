"""The wheel: installed into an empty environment and run, and in the Pyodide of another site."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import zipfile
from pathlib import Path

from playwright.async_api import async_playwright

from app.building.common import ROOT, VENV_BIN
from app.building.system import CHROMIUM_FLAGS
from tests.packages.programs import run
from tests.page.plain_server import PlainServer

PACKAGES = ("app", "py_core", "sonata", "wgsl_shaders")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SAID = "Remember that my dentist is Dr. Quill.\nWho looks after my teeth?\nTranslate into German: good morning\n"
NOTEBOOK = json.loads((ROOT / "docs" / "notebooks" / "sonata.ipynb").read_text("utf-8"))


def test_an_installed_wheel_has_every_file_and_answers(wheel: Path, model_path: Path, tmp_path: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    files = {path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    sources = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert sources - set(zipfile.ZipFile(wheel).namelist()) == set()

    environment = tmp_path / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", environment])
    python = environment / VENV_BIN.name / "python"
    run([*PIP, "--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel])
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # Sonata's own .pth there is not read
    models = tmp_path / "cache" / "models"
    models.mkdir(parents=True)
    (models / model_path.name).symlink_to(model_path)
    env = {**os.environ, "SONATA_CACHE": str(models.parent)}
    chat = [python.with_name("sonata"), "chat", "--backend", "wasm", "--max-tokens", "8", "--home", tmp_path / "home"]
    told = run(chat, SAID, cwd=tmp_path, env=env)
    assert told.count("Dr. Quill") == 2  # the gate opens
    assert "Translator (chosen" in told
    assert "8 tokens" in told


async def test_the_notebook_runs_in_the_pyodide_of_another_site_and_on_the_kernels_of_ours(
    wheel: Path, pyodide_folder: Path, dist: Path, tiny_path: Path, chromium_path: Path
) -> None:
    (pyodide_folder / "sonata").symlink_to(dist)
    (pyodide_folder / wheel.name).symlink_to(wheel)
    (pyodide_folder / "model.gguf").symlink_to(tiny_path)
    cells = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        page = await browser.new_page()
        with PlainServer(pyodide_folder) as server:
            await page.goto(server.url)
            await page.evaluate(START, [wheel.name, "model.gguf"])
            results = [await page.evaluate("(code) => globalThis.runCell(code)", cell) for cell in cells]
            on_kernels, _ = await page.evaluate("(code) => globalThis.runCell(code)", ON_KERNELS)
            refused = await page.evaluate("(code) => globalThis.runCell(code).catch((error) => error.message)", WRONG)
        await browser.close()
    stream, (form, _) = results[-2], results[-1]
    assert len(stream[1]) > 8
    assert json.loads(form)["city"] in ("Bern", "Rome")
    assert on_kernels == form
    assert "SonataError: There are no messages" in refused


ON_KERNELS = """
import js

folder = js.location.href.rpartition("/")[0]
async with await Sonata.load(f"{folder}/model.gguf", backend="wasm", files=f"{folder}/sonata") as on_kernels:
    answer = await on_kernels.chat.completions.create(messages=messages, response_format=shape)
answer.choices[0].message.content
"""
"""The last cell of the notebook with another backend."""
WRONG = "await sonata.chat.completions.create(messages=[])"
START = """async (files) => {
  const { loadPyodide } = await import('./pyodide/pyodide.mjs');
  const python = await loadPyodide({ packages: ['micropip'] });
  let printed = '';
  const decoder = new TextDecoder();
  python.setStdout({ write: (bytes) => { printed += decoder.decode(bytes, { stream: true }); return bytes.length; } });
  for (const name of files) python.FS.writeFile(name, new Uint8Array(await (await fetch(name)).arrayBuffer()));
  globalThis.runCell = async (code) => {
    printed = '';
    const value = await python.runPythonAsync(code);
    python.runPython('import sys; sys.stdout.flush()');
    return [typeof value === 'string' ? value : null, printed];
  };
}"""
"""Starts Python with files beside it, as JupyterLite shows those of its site. `runCell` returns the text of a cell's
last line, and what it printed."""
