"""The archives that the page's Python comes in: its standard library, the wheels and Sonata's own packages, each with
the .pyc files of the modules that the page imports. The latest ones are kept in node_modules/."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from app.building.common import write_atomically
from app.building.node import NODE_MODULES
from app.building.python.bytecode import PYODIDE, SCRIPTS, STDLIB, compiled_modules
from app.building.python.zips import Members, members_of, zip_bytes
from app.checksums import sha256_of
from app.models.downloads import downloads
from app.paths import ROOT

SONATA = "sonata.packed"
PACKAGES = "pyodide/packages.packed"
PYTHON_PACKAGES = ("py_core", "app", "wgsl_shaders")
NATIVE_ONLY = (
    *(
        "app/api/metrics.py",
        "app/api/server.py",
        "app/bench/",
        "app/building/",
        "app/checksums.py",
        "app/cli/",
    ),
    "app/lessons/gate_multilingual.safetensors",  # the site has it beside that embedder
    "app/interpreter/",  # web/interpreter/ fetches the one module that it needs
    *("app/lessons/facts/", "app/lessons/readers/", "app/lessons/rows.py"),
    "app/mcp/",
    *("app/models/adapter_folder.py", "app/models/autotune_cache.py", "app/models/build_outputs.py"),
    *("app/models/cache.py", "app/models/catalog.py", "app/models/converting/", "app/models/downloads"),
    *(
        "app/models/hosts.py",
        "app/models/http_range.py",
        "app/models/models.toml",
        "app/models/model_pull.py",
        "app/models/quantization.py",
        "app/models/template_renderer.py",
    ),
    *("app/native_runtime.py", "app/paths.py", "app/routing/agents/more_requests.toml", "app/server/"),
    *("app/tools/dropped_file.py", "app/tools/tool_file.py"),  # TOOL_FILES
    *("app/training/", "py_core/adapters/merging.py", "py_core/backends/wasm/host_wasmtime.py"),
    *("py_core/backends/webgpu/host_wgpu.py", "py_core/draft_loading.py", "py_core/formats/format_choice.py"),
    *(
        "py_core/grammar/wasmtime_kernel.py",
        "py_core/hnsw/wasmtime_kernel.py",
        "py_core/store/sqlite.py",
        "py_core/routing/embedder_onnx.py",
    ),
    "py_core/tokenizers/template_renderer_wasmtime.py",
    *("app/chat/history/views.py", "app/consolidation/views.py", "app/files/views.py", "app/lessons/views.py"),
    *("app/extraction/views.py", "app/memory/views.py", "app/models/views.py"),
)
"""Parts of the sources that the page never runs."""
TOOL_FILES = (
    *("app/__init__.py", "app/tools/__init__.py", "app/tools/dropped_file.py", "app/tools/functions.py"),
    *("app/tools/model_tool.py", "app/tools/shapes.py", "app/tools/tool_file.py", "py_core/__init__.py"),
    *("py_core/display.py", "py_core/messages.py", "py_core/tool_calls/__init__.py"),
    "py_core/tool_calls/definitions.py",
)
"""The modules that a dropped file of tools imports, for the interpreter's worker."""
_OWN_MODEL = "llama"
ARCHITECTURES = [
    path.stem for path in (ROOT / "py_core/models").glob("*.py") if "\ndef describe(" in path.read_text("utf-8")
]
UNCOMPILED = (
    "py_core/tools/__pycache__/",
    *("app/models/__pycache__/adapter_views.", "app/chat/history/__pycache__/files."),
    *("app/consolidation/__pycache__/history.", "app/lessons/__pycache__/story."),
    *(f"app/generation/__pycache__/{name}." for name in ("call_answer", "called_messages", "tool_loop")),
    "app/page/__pycache__/tools.",
    *("app/files/__pycache__/analysis.", "app/files/__pycache__/look.", "app/memory/__pycache__/policy_words."),
    *("app/lessons/__pycache__/without_model.", "app/memory/__pycache__/items."),
    *(f"py_core/models/__pycache__/{name}." for name in ARCHITECTURES if name != _OWN_MODEL),
    *("app/api/", "app/extraction/", "app/tools/", "py_core/grammar/", "py_core/tool_calls/"),
    *("py_core/backends/webgpu/training/", "py_core/backends/wasm/__pycache__/training"),
)
"""Modules without bytecode: the exact tools, which the page imports for a message that needs one, modules for a panel,
architectures of other models than the page's own, tables, grammars, calls of tools, and training, which pauses begin
with. Bytecode is twice their size, and compiling the tools takes the page 0.3 s once."""
COMPILED = (
    "py_core/tools/__pycache__/first_look.",
    *("app/extraction/__pycache__/__init__.", "app/extraction/__pycache__/api."),
    "py_core/grammar/__pycache__/__init__.",
    *("py_core/grammar/__pycache__/constraint.", "py_core/grammar/__pycache__/expressions."),
)
"""Except the modules that look at each message, or are there for each answer."""
SOURCE_SUFFIXES = {".py", ".wgsl", ".toml", ".json", ".txt", ".jinja", ".safetensors"}
NOT_RUN = (".a", ".c", ".h", ".md", ".pxd", ".pyi", ".pyx", ".rst", "/RECORD")
"""Files of a wheel that the page has no use for."""
STAMP = "app/page/stamp.txt"
"""In the archive of our own packages: identifies it (app/page/snapshot.py)."""
NUMPY_NOT_RUN = (
    "numpy/f2py/", "numpy/ma/mrecords", "numpy/ma/testutils", "numpy/polynomial/", "numpy/testing/", "numpy/typing/",
)  # fmt: skip
"""numpy.ma itself stays: numpy's own unique, percentile and median ask it whether an array is masked."""
STDLIB_NOT_RUN = (
    *("_pydatetime", "http/cookiejar", "http/server", "logging/config", "logging/handlers", "optparse"),
    *("_pydecimal", "_pyio", "_pyrepl/", "curses/", "dbm/", "doctest.py", "ensurepip/", "idlelib/", "multiprocessing/"),
    *("pdb.py", "pydoc", "sqlite3/", "tkinter/", "turtle", "unittest/", "venv/", "wsgiref/", "xml/", "xmlrpc/"),
    *("ftplib.py", "imaplib.py", "mailbox.py", "pickletools.py", "poplib.py", "smtplib.py", "trace.py"),
    *("bdb.py", "cProfile.py", "plistlib.py", "profile.py", "pstats.py", "pyclbr.py", "shelve.py", "zipapp.py"),
    *("encodings/cp0", "encodings/cp10", "encodings/cp11", "encodings/cp1258", "encodings/cp2", "encodings/cp424"),
    *("encodings/cp5", "encodings/cp720", "encodings/cp775", "encodings/cp855", "encodings/cp856", "encodings/cp858"),
    *("encodings/cp860", "encodings/cp861", "encodings/cp863", "encodings/cp864", "encodings/cp865"),
    *("encodings/cp869", "encodings/cp875", "encodings/hp_roman8", "encodings/koi8_t", "encodings/kz1048"),
    *("encodings/mac_a", "encodings/mac_croatian", "encodings/mac_farsi", "encodings/mac_i"),
    *("encodings/mac_l", "encodings/mac_romanian", "encodings/palmos", "encodings/ptcp154"),
    "encodings/tis_620",
)
"""Modules that need a terminal, a display, a disk, a socket or another process, modules with a twin in C, developer
tools, and encodings that app/files/encoding.py does not try."""
NO_USE = (
    *("_pydatetime", "_pydecimal", "_pyio", "_pyrepl/", "curses/", "dbm/", "ensurepip/", "idlelib/", "sqlite3/"),
    *("tkinter/", "turtle", "venv/"),
)
"""Parts of STDLIB_NOT_RUN that no code in a browser can use."""
_KEPT = NODE_MODULES / ".sonata.python.zip"


def python_archives(files: Mapping[str, Path], root: Path) -> Members:
    """Path in the site -> content: the standard library, the wheels together and our own packages. `files`: the
    downloads, file name -> path; `root`: the folder of the sources."""
    sources = python_sources(root)
    fingerprint = _fingerprint(sources)
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(_KEPT) as kept:
        if kept.comment.decode() == fingerprint:
            return members_of(_KEPT)
    wheels = _wheels(files)
    compiled = compiled_modules(wheels | {SONATA: sources})
    packages: Members = {}
    for name, members in wheels.items():
        packages |= _run_compiled(members, compiled[name])
    stamp = {STAMP: fingerprint.encode()}
    made = {
        PACKAGES: packed(zip_bytes(packages, zipfile.ZIP_STORED)),
        SONATA: packed(zip_bytes(sources | _often_run(compiled[SONATA]) | stamp, zipfile.ZIP_STORED)),
        f"pyodide/{STDLIB}": zip_bytes(_stdlib(compiled[STDLIB])),
    }
    write_atomically(_KEPT, zip_bytes(made, zipfile.ZIP_STORED, fingerprint))
    return made


def interpreter_archives(files: Mapping[str, Path]) -> Members:
    """Parts of the standard library and of numpy that the page itself never runs, for the user's code, and modules for
    files of tools: file -> content."""
    (numpy,) = (entry["file"] for entry in downloads()["wheels"] if entry["name"] == "numpy")
    library = members_of(PYODIDE / STDLIB)
    rest = {name: code for name, code in library.items() if name.startswith(STDLIB_NOT_RUN)}
    tools = {name: (ROOT / name).read_bytes() for name in TOOL_FILES}
    of_numpy = {name: code for name, code in members_of(files[numpy]).items() if name.startswith(NUMPY_NOT_RUN)}
    return {
        "stdlib_rest.zip": zip_bytes({name: code for name, code in rest.items() if not name.startswith(NO_USE)}),
        "tools.packed": packed(zip_bytes(tools, zipfile.ZIP_STORED)),
        "numpy_rest.packed": packed(
            zip_bytes({name: code for name, code in of_numpy.items() if not name.endswith(NOT_RUN)}, zipfile.ZIP_STORED)
        ),
    }


def _is_not_run(name: str) -> bool:
    return name.endswith(NOT_RUN) or name.startswith(NUMPY_NOT_RUN)


def _run_compiled(members: Members, compiled: Members) -> Members:
    """A wheel whose compiled modules come without their sources, at the paths where Python finds them."""
    sourceless = {name.replace("__pycache__/", "").replace(".cpython-314", ""): code for name, code in compiled.items()}
    return {name: content for name, content in members.items() if f"{name}c" not in sourceless} | sourceless


def _often_run(compiled: Members) -> Members:
    return {
        name: code for name, code in compiled.items() if not name.startswith(UNCOMPILED) or name.startswith(COMPILED)
    }


def _stdlib(compiled: Members) -> Members:
    """The standard library, likewise, without modules that need a terminal, a display or another process."""
    kept = {name: content for name, content in members_of(PYODIDE / STDLIB).items() if f"{name}c" not in compiled}
    return {name: content for name, content in kept.items() if not name.startswith(STDLIB_NOT_RUN)} | compiled


def packed(content: bytes) -> bytes:
    """As web/engine/packed_files.js reads it: gzip, the same bytes each time. Servers do not compress zips, and
    unpacking one in Python takes a tenth to a quarter of a start."""
    return gzip.compress(content, 9, mtime=0)


def _fingerprint(sources: Members) -> str:
    """A digest of everything that the archives are made from."""
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
    """The wheels without the files that only a compiler reads: file name -> members."""
    made = {}
    for entry in downloads()["wheels"]:
        found = members_of(files[entry["file"]])
        made[entry["file"]] = {name: content for name, content in found.items() if not _is_not_run(name)}
    return made
