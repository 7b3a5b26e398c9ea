"""The site in dist/, the lock files and the command, as they are in this repository."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from app.building import site
from app.building.common import ROOT, BuildError, sha256_of
from app.models import default_model_path, models


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# --- the site ---


def test_sync_copies_only_what_changed_and_removes_what_is_stale(tmp_path):
    source = tmp_path / "a.js"
    source.write_text("one")
    dist = tmp_path / "dist"
    content = {"a.js": source, "folder/b.json": b"{}"}
    assert site.sync(content, dist) == 2
    assert site.sync(content, dist) == 0
    (dist / "old").mkdir()
    (dist / "old" / "stale.js").write_text("stale")
    source.write_text("two!")
    assert site.sync({"a.js": source}, dist) == 3
    assert files_in(dist) == ["a.js"]
    assert not (dist / "old").exists()
    assert (dist / "a.js").read_text() == "two!"


def test_a_model_is_linked_not_copied(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(b"model")
    site.sync({"models/model.gguf": model}, tmp_path / "dist")
    assert (tmp_path / "dist/models/model.gguf").stat().st_ino == model.stat().st_ino


def test_a_source_that_is_missing_is_a_sentence(tmp_path):
    with pytest.raises(BuildError, match=r"nowhere\.js is missing: run `python build\.py clean`"):
        site.sync({"a.js": tmp_path / "nowhere.js"}, tmp_path / "dist")


def test_zips_are_the_same_bytes_each_time():
    members = {"b.py": b"b", "a.py": b"a"}
    assert site.zip_bytes(members) == site.zip_bytes(dict(reversed(members.items())))


def test_the_site_holds_what_the_page_asks_for_and_nothing_native(dist):
    names = {path.relative_to(dist).as_posix() for path in dist.rglob("*") if path.is_file()}
    assert {"vendor/comlink.mjs", "vendor/marked.esm.js", "vendor/purify.es.mjs", "THIRD_PARTY.txt"} <= names
    with zipfile.ZipFile(dist / "sonata.zip") as archive:
        modules = set(archive.namelist())
    assert {"app/__init__.py", "py_core/__init__.py", "py_core/backends/base.py", "wgsl_shaders/__init__.py"} <= modules
    assert not {name for name in modules if name.startswith(("app/building", "app/server", "app/cli", "app/models"))}


def test_sonata_zip_can_be_imported_from(dist):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import py_core; print(py_core.__file__)"
    command = [sys.executable, "-I", "-c", code, str(dist / "sonata.zip")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout
    assert "sonata.zip" in said


def test_pyodides_lock_tells_the_checksums_of_the_wheels_there_are(dist):
    packages = read_json(dist / "pyodide" / "pyodide-lock.json")["packages"]
    assert set(packages) == {"numpy", "jinja2", "markupsafe"}
    for package in packages.values():
        assert sha256_of(dist / "pyodide" / package["file_name"]) == package["sha256"]
    assert set(read_json(dist / "pyodide" / "wheels.json")) == {p["file_name"] for p in packages.values()}


def test_the_pure_markupsafe_wheel_works_without_its_c_part(dist):
    (wheel,) = (dist / "pyodide").glob("markupsafe-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", ".c"))]
    code = "import sys; sys.path.insert(0, sys.argv[1]); import markupsafe as m; print(m.__file__, m.escape('<'))"
    said = subprocess.run([sys.executable, "-I", "-c", code, str(wheel)], capture_output=True, text=True, check=True)
    assert wheel.name in said.stdout
    assert "&lt;" in said.stdout


def test_third_party_names_every_version_that_is_shipped():
    page = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    versions = {row[0].split(" (")[0].lower(): row[1] for row in rows}
    for name, version in read_json(ROOT / "package.json")["dependencies"].items():
        assert versions[name] == version
    for wheel in tomllib.loads((ROOT / "app/downloads.toml").read_text())["wheels"]:
        assert versions[wheel["name"].lower()] == wheel["version"]
    for model in models():
        assert model.file in page


def test_third_party_text_has_the_licences(dist):
    text = (dist / "THIRD_PARTY.txt").read_text(encoding="utf-8")
    for part in ("Mozilla Public License Version 2.0", "Apache License", "PYTHON SOFTWARE FOUNDATION LICENSE"):
        assert part in text
    for part in ("NumPy Developers", "Christopher Jeffrey", "Copyright 2010 Pallets", "Julian R Seward"):
        assert part in text


# --- the command ---


def test_an_old_python_gets_a_sentence():
    """build.py must parse on Python 3.8, to be able to say that it is too old."""
    source = (ROOT / "build.py").read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    first_import_of_ours = next(n.lineno for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and "app" in n.module)
    check = next(node.lineno for node in ast.walk(tree) if isinstance(node, ast.If))
    assert check < first_import_of_ours


def test_build_needs_only_the_standard_library():
    """-I -S: no site-packages at all."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import build; build.main(['--help'])"
    result = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "serve" in result.stdout


def test_the_locks_pin_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for group, requirements in {
        "runtime": project["project"]["dependencies"] + project["build-system"]["requires"],
        "dev": project["project"]["dependencies"] + project["project"]["optional-dependencies"]["dev"],
        "node": project["project"]["optional-dependencies"]["node"],
    }.items():
        lock = (ROOT / "requirements" / f"{group}.lock").read_text()
        missing = [requirement for requirement in requirements if f"{requirement} \\\n" not in lock]
        assert not missing, f"run `python build.py lock`: {group}.lock does not have {missing}"


def test_a_missing_model_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"run `python build\.py serve` once"):
        default_model_path()


def test_the_model_in_the_cache_is_the_one_listed(model_path):
    assert model_path.stat().st_size == models()[0].bytes
    assert sha256_of(model_path) == models()[0].sha256
