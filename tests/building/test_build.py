"""The site in dist/, the lock files and the command, as in this repository."""

from __future__ import annotations

import _imp
import ast
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from encodings import normalize_encoding
from pathlib import Path, PurePosixPath

import pytest

from app.building import locks
from app.building.common import ROOT, BuildError, make_in_venv, one_build_at_a_time
from app.building.python.archives import COMPILED, UNCOMPILED
from app.building.python.zips import members_of, zip_bytes
from app.building.site.bundle import MODULES
from app.building.site.dist import precache_json, sync
from app.checksums import sha256_of
from app.files.encoding import CODECS
from app.models.downloads import default_model_path, downloads, model_files
from tests.bench.page.shell_sizes import first_load

VIEWS = ("wide", "narrow")
"""The manifest's screenshots (tests/bench/page/screenshots.py)."""


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
    assert sync(content, dist) == 2
    assert sync(content, dist) == 0
    (dist / "old").mkdir()
    (dist / "old" / "stale.js").write_text("stale")
    source.write_text("two!")
    assert sync({"a.js": source}, dist) == 3
    assert files_in(dist) == ["a.js"]
    assert not (dist / "old").exists()
    assert (dist / "a.js").read_text() == "two!"


def test_a_model_is_linked_not_copied(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(b"model")
    sync({"models/model.gguf": model}, tmp_path / "dist")
    assert (tmp_path / "dist/models/model.gguf").stat().st_ino == model.stat().st_ino


def test_a_source_that_is_missing_is_a_sentence(tmp_path):
    with pytest.raises(BuildError, match=r"nowhere\.js is missing: run `python build\.py clean`"):
        sync({"a.js": tmp_path / "nowhere.js"}, tmp_path / "dist")


def unpacked(archive: Path) -> dict[str, bytes]:
    """The members of a packed archive of the site."""
    with zipfile.ZipFile(io.BytesIO(gzip.decompress(archive.read_bytes()))) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.mark.parametrize("below", ["file", "file/cache"])
def test_a_cache_that_can_be_no_folder_is_a_sentence(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with (
        pytest.raises(BuildError, match=r"is not a folder .* set SONATA_CACHE to another folder"),
        one_build_at_a_time(tmp_path / below),
    ):
        pass


def test_zips_are_the_same_bytes_each_time():
    members = {"b.py": b"b", "a.py": b"a"}
    assert zip_bytes(members) == zip_bytes(dict(reversed(members.items())))


def test_the_site_holds_what_the_page_asks_for_and_nothing_native(dist):
    names = {path.relative_to(dist).as_posix() for path in dist.rglob("*") if path.is_file()}
    assert {"vendor/comlink.mjs", "vendor/marked.esm.js", "vendor/purify.es.mjs", "THIRD_PARTY.txt"} <= names
    modules = set(unpacked(dist / "sonata.packed"))
    assert {"app/__init__.py", "py_core/__init__.py", "py_core/sampling.py", "wgsl_shaders/__init__.py"} <= modules
    assert not {name for name in modules if name.startswith(("app/building", "app/server", "app/cli", "app/downloads"))}


def test_the_list_for_the_service_worker_has_each_file_but_the_models_with_its_checksum(dist):
    lists = read_json(dist / "precache.json")
    readers = {f"readers/{path.name}" for path in (ROOT / "app" / "lessons" / "readers").iterdir()}
    libraries = {
        name for name in lists["later"] if name.startswith(("vendor/highlight/", "vendor/katex/", "vendor/pdf/"))
    }
    (german,) = (name for name in lists["later"] if name.startswith("bundle/de-"))
    (dialog,) = (name for name in lists["later"] if name.startswith("bundle/table_dialog-"))
    (runs,) = (name for name in lists["later"] if name.startswith("bundle/python_runs-"))
    packages = {f"interpreter/packages/{entry['name']}.packed" for entry in downloads()["interpreter"]}
    code = {f"interpreter/{name}" for name in ("host_worker.js", "python_worker.js", "python.css", "session.py")}
    code |= {
        f"interpreter/{name}"
        for name in ("workbook.py", "packages.json", "numpy_rest.packed", "stdlib_rest.zip", "tools.packed")
    }
    (look,) = (name for name in lists["later"] if name.startswith("bundle/table_look-"))
    (calls,) = (name for name in lists["later"] if name.startswith("bundle/call_lines-"))
    shapes = {"kernels/grammar.wasm", "table/table.css", "files/table_look.css", "turn/calls.css", dialog, look, calls}
    for_pages = {"sonata.js", "sonata.d.ts", "language_model.js"}
    assert set(lists["later"]) == readers | libraries | shapes | {german, runs} | packages | code | for_pages
    assert {"vendor/highlight/core.min.js", "vendor/highlight/python.min.js", "vendor/katex/katex.min.css"} <= libraries
    assert {
        "vendor/pdf/pdf.min.mjs",
        "vendor/pdf/pdf.worker.min.mjs",
        "vendor/pdf/cmaps/UniGB-UCS2-H.bcmap",
    } <= libraries
    assert not lists["files"].keys() & lists["later"].keys()
    files = lists["files"] | lists["later"]
    names = {path.relative_to(dist).as_posix() for path in dist.rglob("*") if path.is_file()}
    never = {f"models/{model.file}" for model in model_files()} | {f"screenshots/{view}.jpg" for view in VIEWS}
    modules = set(read_json(dist / "bundle/modules.json"))
    maps = {name for name in names if name.endswith(".js.map")}
    assert {"main.js", "turn/turn_view.js", "vendor/comlink.mjs"} <= modules
    others = {"sw.js", "precache.json", "_headers", "bundle/modules.json"}
    assert names - set(files) == others | modules | maps | never
    assert files == {name: sha256_of(dist / name) for name in files}


def test_the_list_for_the_service_worker_depends_on_the_contents_alone(tmp_path):
    source = tmp_path / "a.js"
    source.write_text("one")
    joined = {MODULES: b'["c.js"]'}
    more = {"b.js": b"two", "a.js": source, "sw.js": b"three", "models/m.gguf": b"four", "c.js": b"five"}
    listed = precache_json(more | joined)
    assert listed == precache_json({"a.js": b"one", "b.js": b"two"} | joined)
    assert listed != precache_json({"a.js": b"one", "b.js": b"2"} | joined)


def test_the_manifest_names_files_that_there_are(dist):
    manifest = read_json(dist / "manifest.webmanifest")
    assert {icon["purpose"] for icon in manifest["icons"]} == {"any", "maskable"}
    assert all((dist / icon["src"]).is_file() for icon in manifest["icons"])
    for view, screenshot in zip(VIEWS, manifest["screenshots"], strict=True):
        assert (screenshot["src"], screenshot["form_factor"]) == (f"screenshots/{view}.jpg", view)
        data = (dist / screenshot["src"]).read_bytes()
        assert screenshot["sizes"] == "{}x{}".format(*size_of_jpeg(data))
        assert len(data) < 200_000


def size_of_jpeg(data: bytes) -> tuple[int, int]:
    """Width and height, of the first frame's header."""
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])


def test_our_own_packages_can_be_imported_from_what_the_page_unpacks(dist, tmp_path):
    for name, content in unpacked(dist / "sonata.packed").items():
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_bytes(content)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import py_core; print(py_core.__file__)"
    command = [sys.executable, "-I", "-c", code, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout
    assert str(tmp_path) in said


def test_each_module_of_ours_is_compiled_from_the_source_beside_it(dist):
    members = unpacked(dist / "sonata.packed")
    compiled = [name for name in members if name.endswith(".pyc")]
    for name in compiled:
        source = members[name.replace("__pycache__/", "").replace(".cpython-314", "")[:-1]]
        magic = int.from_bytes(members[name][:4], "little")
        unchecked, source_hash = members[name][4:8], members[name][8:16]  # PEP 552
        assert (unchecked, source_hash) == (b"\1\0\0\0", _imp.source_hash(magic, source)), name
    named = [
        str(PurePosixPath(name).parent / "__pycache__" / PurePosixPath(name).stem) + "."
        for name in members
        if name.endswith(".py")
    ]
    seldom = [name for name in named if name.startswith(UNCOMPILED) and not name.startswith(COMPILED)]
    assert len(seldom) > 20
    assert len(compiled) == len([name for name in members if name.endswith(".py")]) - len(seldom)


def test_libraries_come_compiled_where_the_page_imports_them_and_then_without_sources(dist):
    stdlib, packages = (
        members_of(dist / "pyodide" / "python_stdlib.zip"),
        unpacked(dist / "pyodide" / "packages.packed"),
    )
    for members, imported in ((stdlib, "asyncio/events.py"), (packages, "numpy/linalg/_linalg.py")):
        assert f"{imported}c" in members
        assert imported not in members


def test_the_page_has_each_encoding_that_it_may_read(dist):
    there = members_of(dist / "pyodide" / "python_stdlib.zip")
    missing = [name for name in CODECS if f"encodings/{normalize_encoding(name)}.py" not in there]
    assert missing == []


def test_the_first_load_without_models_and_embedder_is_under_12_megabytes(dist):
    sizes = first_load(dist)
    largest = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in list(sizes.items())[:4])
    total = sum(sizes.values())
    assert total < 12e6, f"The first load takes {total / 1e6:.2f} MB (gzip); the largest files: {largest}."


def test_third_party_names_every_version_that_is_shipped():
    page = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    versions = {row[0].split(" (")[0].lower(): row[1] for row in rows}
    for name, version in read_json(ROOT / "package.json")["dependencies"].items():
        assert versions[name] == version
    for wheel in tomllib.loads((ROOT / "app/models/downloads.toml").read_text())["wheels"]:
        assert versions[wheel["name"].lower()] == wheel["version"]
    for model in model_files():
        assert model.file in page


def test_third_party_text_has_the_licences(dist):
    text = (dist / "THIRD_PARTY.txt").read_text(encoding="utf-8")
    for part in ("Mozilla Public License Version 2.0", "Apache License", "PYTHON SOFTWARE FOUNDATION LICENSE"):
        assert part in text
    holders = ("NumPy Developers", "Christopher Jeffrey", "Julian R Seward", "Jukka Kurkela")
    for part in holders:
        assert part in text


# --- the command ---


def test_an_old_python_gets_a_sentence():
    """build.py must parse on Python 3.8, so that it can say that it is too old."""
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
        "build": project["project"]["optional-dependencies"]["build"],
    }.items():
        lock = (ROOT / "requirements" / f"{group}.lock").read_text()
        # A lock is for every platform. It pins numpy, of which the package takes what a page's Pyodide has, too.
        wanted = [f"{one.partition(';')[0]} \\\n" for one in requirements if ">=" not in one]
        wanted += ["\nnumpy=="] if group in ("runtime", "dev") else []
        missing = [one for one in wanted if one not in lock]
        assert not missing, f"run `python build.py lock`: {group}.lock does not have {missing}"


def test_a_missing_model_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"run `python build\.py serve` once"):
        default_model_path()


def test_the_model_in_the_cache_is_the_one_listed(model_path):
    assert model_path.stat().st_size == model_files()[0].bytes
    assert sha256_of(model_path) == model_files()[0].sha256


@pytest.fixture
def checkout(tmp_path: Path, dist: Path) -> Path:
    """A copy of this checkout with its npm packages, and a .venv whose making was interrupted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "node_modules", tmp_path / "node_modules", symlinks=True)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    config = f"home = {Path(sys.executable).resolve().parent}\ninclude-system-site-packages = false\nversion = 3.11.0\n"
    (tmp_path / ".venv" / "pyvenv.cfg").write_text(config)
    (tmp_path / ".venv" / ".runtime.stamp").write_text(f"{tmp_path}\nof an older lock\n")
    (tmp_path / ".venv" / ".installing").touch()
    return tmp_path


@pytest.mark.all
def test_with_everything_cached_it_works_without_network(checkout):
    nowhere = "http://127.0.0.1:9"  # a proxy that does not exist: any use of the network fails
    offline = os.environ | dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY"), nowhere)
    offline |= {"no_proxy": "localhost", "NO_PROXY": "localhost"}
    site_only = [sys.executable, "build.py", "site"]
    made = subprocess.run(site_only, cwd=checkout, env=offline, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert (checkout / ".venv/bin/sonata").is_file()
    assert not (checkout / ".venv/.installing").exists()

    command = [sys.executable, "build.py", "serve", "--no-open", "--port", "0"]
    server = subprocess.Popen(
        command, cwd=checkout, env=offline, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address = next((word for line in server.stdout for word in line.split() if word.startswith("http://")), None)
        assert address, server.communicate()[1]
        with urllib.request.urlopen(address) as page:
            assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    finally:
        server.send_signal(signal.SIGINT)
    _, said = server.communicate(timeout=10)
    waited = "Another build is running; waiting for it to finish ...\n"  # of a parallel test
    assert (server.returncode, said.removeprefix(waited)) == (0, "")


@pytest.mark.all
def test_without_network_and_without_the_cache_it_says_so_in_one_sentence(checkout, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    offline = os.environ | dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9"
    )
    offline |= {"SONATA_CACHE": str(cache)}
    result = subprocess.run(
        [sys.executable, "build.py", "site"], cwd=checkout, env=offline, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "there is no network connection" in result.stderr
    assert not list(cache.rglob("*.part")) + list(cache.rglob("*.whl"))


def test_a_made_file_that_was_damaged_is_made_again(tmp_path):
    source, made = tmp_path / "in.json", tmp_path / "cache" / "out.json"
    source.write_text("[1]")
    make_in_venv(made, "A file", "json.tool", [source], "It could not be made")
    good = made.read_bytes()
    source.write_text("[2]")
    make_in_venv(made, "A file", "json.tool", [source], "It could not be made")
    assert made.read_bytes() == good, "a whole one is kept"
    made.write_bytes(good[:-1])
    make_in_venv(made, "A file", "json.tool", [source], "It could not be made")
    assert b"2" in made.read_bytes()


def test_the_tool_that_makes_the_locks_is_installed_by_its_checksum_alone(tmp_path, monkeypatch):
    wheel = tmp_path / "tool-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tool.py", "")
        archive.writestr("tool-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n")
        archive.writestr("tool-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tool-1.0.dist-info/RECORD", "")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path), "TARGET": str(tmp_path / "there")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    lock = tmp_path / "tool.lock"
    lock.write_text(f"tool==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(BuildError, match="HASHES"):
        locks.install_locked(Path(sys.executable), lock)
    assert not (tmp_path / "there").exists()
    lock.write_text(f"tool==1.0 --hash=sha256:{sha256_of(wheel)}\n")
    locks.install_locked(Path(sys.executable), lock)
    assert (tmp_path / "there" / "tool.py").is_file()
    assert f"{locks.UV} \\\n    --hash=sha256:" in (locks.LOCKS / "lock.lock").read_text()
