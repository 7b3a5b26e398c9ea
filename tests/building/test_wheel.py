"""The wheel: built, installed into an empty environment, and run."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from app.building.common import ROOT, VENV_BIN

PACKAGES = ("app", "py_core", "wgsl_shaders")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SAID = "Remember that my dentist is Dr. Quill.\nWho looks after my teeth?\nTranslate into German: good morning\n"


def run(command: list[str | Path], said: str = "", **options) -> str:
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", input=said, **options)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return ran.stdout


def test_an_installed_wheel_has_every_file_and_answers(made_files, model_path, tmp_path):
    run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path, ROOT])
    (wheel,) = tmp_path.glob("*.whl")
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
