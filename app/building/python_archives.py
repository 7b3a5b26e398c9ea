"""The archives that Pyodide loads: its standard library, the wheels and Sonata's own packages, each with the .pyc files
of what the page imports. The last ones that were made are kept in node_modules/."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from app.building.bytecode import PYODIDE, SCRIPTS, STDLIB, compiled_modules
from app.building.common import write_atomically
from app.building.node import NODE_MODULES
from app.building.zips import Members, members_of, zip_bytes
from app.checksums import sha256_of
from app.downloads import downloads

SONATA = "sonata.zip"
PYTHON_PACKAGES = ("py_core", "app", "wgsl_shaders")
NATIVE_ONLY = (
    *("app/adapter_folder.py", "app/agents/more_requests.toml", "app/agents/out_of_scope.toml", "app/asking.py"),
    *("app/autotune_cache.py", "app/bench_learning.py", "app/bench_routing", "app/bench_style.py"),
    "app/build_outputs.py",
    *("app/building/", "app/checksums.py", "app/cli", "app/converting/", "app/downloads", "app/embedder_adapter"),
    *("app/facts/", "app/http_range.py", "app/lesson_rows.py", "app/model_", "app/models.toml"),
    *("app/native_services.py", "app/paths.py", "app/plots.py", "app/quantizing.py", "app/readers/", "app/server"),
    *("app/site_headers.py", "app/style/", "app/terminal", "app/training/", "app/waiting_line.py"),
    *("py_core/memory/sqlite.py", "py_core/routing/embedder_onnx.py"),
)
"""Parts of the sources that the page never runs."""
SOURCE_SUFFIXES = {".py", ".wgsl", ".toml", ".json", ".txt", ".jinja", ".safetensors"}
NOT_RUN = (".c", ".h", ".pxd", ".pyi", ".pyx", "/RECORD")
"""Files of a wheel that the page has no use for."""
_KEPT = NODE_MODULES / ".sonata.python.zip"


def python_archives(files: Mapping[str, Path], root: Path) -> Members:
    """File name -> zip. `files`: the downloads, file name -> path; `root`: where the sources are."""
    sources = python_sources(root)
    fingerprint = _fingerprint(sources)
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(_KEPT) as kept:
        if kept.comment.decode() == fingerprint:
            return members_of(_KEPT)
    wheels = _wheels(files)
    compiled = compiled_modules(wheels | {SONATA: sources})
    made = {name: _wheel_bytes(members | compiled[name]) for name, members in wheels.items()}
    made[SONATA] = zip_bytes(sources | compiled[SONATA])
    made[STDLIB] = zip_bytes(members_of(PYODIDE / STDLIB) | compiled[STDLIB])
    write_atomically(_KEPT, zip_bytes(made, zipfile.ZIP_STORED, fingerprint))
    return made


def _fingerprint(sources: Members) -> str:
    """Of all that the archives are made from."""
    here = Path(__file__)
    read = (here, here.with_name("bytecode.py"), *SCRIPTS, PYODIDE / "pyodide.asm.wasm", PYODIDE / STDLIB)
    digests = [sha256_of(path) for path in read] + [entry["sha256"] for entry in downloads()["wheels"]]
    digests += [f"{name} {hashlib.sha256(sources[name]).hexdigest()}" for name in sorted(sources)]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def python_sources(root: Path) -> Members:
    """The packages that the worker imports. A folder without __init__.py gets one."""
    members: Members = {}
    for package in PYTHON_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SOURCE_SUFFIXES and path.is_file() and not name.startswith(NATIVE_ONLY):
                members[name] = path.read_bytes()
    for folder in {name.rsplit("/", depth)[0] for name in members for depth in range(1, name.count("/") + 1)}:
        members.setdefault(f"{folder}/__init__.py", b"")
    return members


def _wheels(files: Mapping[str, Path]) -> dict[str, Members]:
    """The wheels without what only a compiler reads: file name -> members."""
    made = {}
    for entry in downloads()["wheels"]:
        found = members_of(files[entry["file"]])
        made[entry["file"]] = {name: content for name, content in found.items() if not name.endswith(NOT_RUN)}
    return made


def _wheel_bytes(members: Members) -> bytes:
    """The wheel, with a RECORD of what is in it."""

    def line(name: str, data: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(data)}\n"

    record = f"{_dist_info(members)}/RECORD"
    lines = "".join(line(name, data) for name, data in sorted(members.items()))
    return zip_bytes(members | {record: f"{lines}{record},,\n".encode()})


def _dist_info(members: Members) -> str:
    (folder,) = {name.split("/")[0] for name in members if ".dist-info/" in name}
    return folder
