"""The static site: dist/ made from web/, the packages' files, the Python sources and the models. Incremental."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from app.building import kernels, routing
from app.building.common import ROOT, VENV_PYTHON, BuildError, run_logged, write_atomically
from app.building.download import Downloader, read_download
from app.building.embedder.files import ensure_embedder, ensure_multilingual, site_files
from app.building.headers import headers_file
from app.building.made_files import is_whole, note
from app.building.node import NODE_MODULES
from app.building.python.archives import SONATA, interpreter_archives, python_archives
from app.building.python.packages import interpreter_packages
from app.building.python.snapshot import SNAPSHOT, python_snapshot
from app.building.site import notices
from app.building.site.bundle import MODULES, bundle
from app.building.site.icons import icon_sprite
from app.checksums import sha256_of
from app.models.build_outputs import MULTILINGUAL_MODEL, ROUTING_DATA, embedder_files, multilingual_files
from app.models.catalog import MODELS
from app.models.downloads import ModelFile, downloads, model_files
from app.paths import cache_dir

DIST = ROOT / "dist"

VENDOR = {
    "chart.umd.min.js": "chart.js/dist/chart.umd.min.js",
    "comlink.mjs": "comlink/dist/esm/comlink.mjs",
    "hash-wasm.mjs": "hash-wasm/dist/index.esm.min.js",
    "idb.js": "idb/build/index.js",
    "lit-html/lit-html.js": "lit-html/lit-html.js",
    "lit-html/directive.js": "lit-html/directive.js",
    "lit-html/directive-helpers.js": "lit-html/directive-helpers.js",
    "lit-html/directives/live.js": "lit-html/directives/live.js",
    "lit-html/directives/repeat.js": "lit-html/directives/repeat.js",
    "marked.esm.js": "marked/lib/marked.esm.js",
    "purify.es.mjs": "dompurify/dist/purify.es.mjs",
    "ort.wasm.min.mjs": "onnxruntime-web/dist/ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs": "onnxruntime-web/dist/ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm": "onnxruntime-web/dist/ort-wasm-simd-threaded.wasm",
}
HIGHLIGHT = "@highlightjs/cdn-assets/es"
KATEX = "katex/dist"
PDF = "pdfjs-dist"
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
PIECE_BYTES = 4 << 20
NOT_PRECACHED = {"sw.js", "precache.json", "_headers"}
"""The browser itself keeps sw.js; the service worker requests precache.json to find a newer version; some servers read
_headers, and do not serve it."""
EMBEDDER = ("embedder/", "vendor/ort-wasm", ROUTING_DATA)
"""The folder of the files that route messages."""
MULTILINGUAL = "multilingual"
"""The folder of the same files for other languages than English, if the multilingual embedder was fetched."""
MULTILINGUAL_GATE = "app/lessons/gate_multilingual.safetensors"
INTERPRETER = "interpreter"
"""The folder of what runs the user's Python."""
PACKAGES = f"{INTERPRETER}/packages"
"""The folder of the packages that code there may import: never kept before they are requested."""
NEVER_KEPT = ("models/", "screenshots/")
"""Folders that the service worker ignores: web/storage/model_store.js keeps models, and only browsers that offer to
install the page look at its screenshots."""
LATER = (
    *(
        "bundle/call_lines-",
        "bundle/de-",
        "bundle/python_runs-",
        "bundle/table_dialog-",
        "bundle/table_look-",
        "interpreter/",
        "kernels/grammar.wasm",
    ),
    *(
        "files/table_look.css",
        "language_model.",
        "multilingual/",
        "readers/",
        "sonata.d.ts",
        "sonata.js",
        "table/",
        "turn/calls.css",
    ),
    *("vendor/highlight/", "vendor/katex/", "vendor/pdf/"),
)
"""Folders of files that no page needs to start: the service worker keeps them once they were requested, or once the
page is ready and has its model; those of MULTILINGUAL and PACKAGES only once they were requested."""
MODEL_SUFFIXES = (".gguf", ".onnx")
Content = Path | bytes
"""A file of the site: one to copy, or its bytes."""


def fetch_files(cache: Path, downloader: Downloader) -> dict[str, Path]:
    """Download the missing files of app/models/downloads.toml: file name -> path in the cache."""
    files = {}
    for folder in ("wheels", "models", "embedder", "interpreter"):
        for entry in downloads()[folder]:
            files[entry["file"]] = downloader.ensure(read_download(entry, cache / folder))
    return files


def made_files(cache: Path, downloader: Downloader) -> dict[str, Path]:
    """The downloads, and the files that are compiled and made from them: file name -> path in the cache."""
    files = fetch_files(cache, downloader) | kernels.ensure_kernels(cache, downloader)
    files |= ensure_embedder(cache, files)
    if multilingual := ensure_multilingual(cache):
        data = routing.ensure_routing(cache, multilingual=True)
        files |= {MULTILINGUAL_MODEL: multilingual.model, f"{MULTILINGUAL}/{ROUTING_DATA}": data[ROUTING_DATA]}
    return files | routing.ensure_routing(cache)


def ensure_protocol() -> None:
    """Write web/protocol.js according to app/protocol.py."""
    run_logged([VENV_PYTHON, "-m", "app.building.page_protocol"], "web/protocol.js could not be made")


def build_site(files: Mapping[str, Path], dist: Path = DIST, root: Path = ROOT) -> int:
    """Bring dist/ up to date: write changed files, remove obsolete ones. Returns the number of changed files.

    `files`: the result of `made_files`.
    """
    site: dict[str, Content] = {}
    for path in sorted((root / "web").rglob("*")):
        relative = path.relative_to(root / "web")
        if path.suffix in (".c", ".h") or any(part.startswith((".", "__pycache__")) for part in relative.parts):
            continue
        if path.is_file():
            site[relative.as_posix()] = path
    for name, source in VENDOR.items():
        site[f"vendor/{name}"] = NODE_MODULES / source
    site.update(_answer_libraries(root))
    site.update(_pdf_reader())
    joined = bundle(site)
    site.update(joined.files)
    site["icons.svg"] = icon_sprite(NODE_MODULES)
    for name in PYODIDE:
        site[f"pyodide/{name}"] = NODE_MODULES / "pyodide" / name
    site.update(python_archives(files, root))
    site["pyodide/pyodide-lock.json"] = _pyodide_lock()
    if snapshot := python_snapshot(site):
        site[SNAPSHOT] = snapshot
    site.update({f"kernels/{name}": files[name] for name in kernels.BUILDS})
    for model in model_files():
        site[f"models/{model.file}"] = files[model.file]
    site["models.json"] = _models_json()
    site["model_catalog.json"] = (json.dumps(tomllib.loads(MODELS.read_text(encoding="utf-8")), indent=1)).encode()
    site.update(site_files(embedder_files(cache_dir()), "embedder"))
    site[ROUTING_DATA] = files[ROUTING_DATA]
    if MULTILINGUAL_MODEL in files:
        data = f"{MULTILINGUAL}/{ROUTING_DATA}"
        site.update({**site_files(multilingual_files(cache_dir()), MULTILINGUAL), data: files[data]})
        site[f"{MULTILINGUAL}/gate.safetensors"] = root / MULTILINGUAL_GATE
    site.update(
        {f"readers/{path.name}": path for path in sorted((root / "app" / "lessons" / "readers").glob("*.safetensors"))}
    )
    site.update(_interpreter(files, root))
    site["sizes.json"] = sizes_json(site)
    site["THIRD_PARTY.txt"] = notices.third_party_text(root, NODE_MODULES, files)
    site["_headers"] = headers_file(root).encode()
    site["index.html"] = _page(site, joined.preload)
    site["precache.json"] = precache_json(site)  # last, so that it is never newer than what it lists
    return sync(site, dist)


def _answer_libraries(root: Path) -> dict[str, Path]:
    """Files for answers with code or formulas: highlight.js for the languages that the page names, KaTeX, its fonts."""
    listed = (root / "web" / "markdown" / "code_languages.js").read_text(encoding="utf-8")
    languages = re.findall(r"^  \['(\w+)', '", listed, re.MULTILINE)
    grammars = {f"vendor/highlight/{name}.min.js": f"{HIGHLIGHT}/languages/{name}.min.js" for name in languages}
    styles = {f"vendor/katex/{name}": f"{KATEX}/{name}" for name in ("katex.min.js", "katex.min.css")}
    sources = grammars | styles | {"vendor/highlight/core.min.js": f"{HIGHLIGHT}/core.min.js"}
    fonts = sorted((NODE_MODULES / KATEX / "fonts").glob("*.woff2"))
    made = {name: NODE_MODULES / source for name, source in sources.items()}
    return made | {f"vendor/katex/fonts/{path.name}": path for path in fonts}


def _pdf_reader() -> dict[str, Path]:
    """Files for reading attached PDF files. Older PDFs in Chinese, Japanese and Korean need the character maps."""
    package = NODE_MODULES / PDF
    made = {f"vendor/pdf/{name}": package / "legacy" / "build" / name for name in ("pdf.min.mjs", "pdf.worker.min.mjs")}
    return made | {f"vendor/pdf/cmaps/{path.name}": path for path in sorted((package / "cmaps").glob("*.bcmap"))}


def _interpreter(files: Mapping[str, Path], root: Path) -> dict[str, Content]:
    """Files that run the user's Python, beside web/interpreter/ and Pyodide: the session's module, and the packages
    with their list. A package carries its licence inside."""
    listed, packages = interpreter_packages(files)
    return {
        **{f"{INTERPRETER}/{name}": root / "app" / "interpreter" / name for name in ("session.py", "workbook.py")},
        **{f"{INTERPRETER}/{name}": content for name, content in interpreter_archives(files).items()},
        f"{INTERPRETER}/packages.json": json.dumps(listed, indent=1).encode(),
        **{f"{PACKAGES}/{name}": content for name, content in packages.items()},
    }


def _page(site: Mapping[str, Content], preload: Sequence[str]) -> bytes:
    """The page, with the modules that it imports at its start, and with a name for the version of the site: a tab
    shares its worker with tabs of the same version only (web/engine/model_tabs.js)."""
    page = site["index.html"]
    text = (page if isinstance(page, bytes) else page.read_bytes()).decode()
    digests = (f"{name} {_sha256(site[name])}" for name in sorted(site) if not name.startswith("models/"))
    version = hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]
    links = "".join(f'<link rel="modulepreload" href="{name}">\n  ' for name in preload)
    text = text.replace('<script type="module"', f'{links}<script type="module"', 1)
    return text.replace('content="unbuilt"', f'content="{version}"').encode()


def precache_json(site: Mapping[str, Content]) -> bytes:
    """The files that web/sw.js keeps in case the server is gone: {"files": {path: sha256}, "later": the same}.

    That is everything except itself, the models, which web/storage/model_store.js keeps, and files that only a reader
    of the code requests; `later` lists files that are kept only once they were requested, or the model is there. Sites
    with the same files have the same list, and so are the same version.
    """
    kept = (name for name in sorted(site.keys() - unused(site)) if not name.startswith(NEVER_KEPT))
    digests = {name: _sha256(site[name]) for name in kept}
    later = {name: digests.pop(name) for name in tuple(digests) if name.startswith(LATER)}
    return json.dumps({"files": digests, "later": later}, indent=1).encode()


def unused(site: Mapping[str, Content]) -> set[str]:
    """Files that no page requests: joined modules (bundle.py), source maps, and files for the browser and servers."""
    modules = site[MODULES]
    joined = json.loads(modules if isinstance(modules, bytes) else modules.read_bytes())
    return {*joined, *(name for name in site if name.endswith(".js.map")), MODULES, *NOT_PRECACHED}


def sizes_json(site: Mapping[str, Content]) -> bytes:
    """Bytes that the page counts while it loads (web/engine/worker.js): of Python, and of the router's files; and the
    checksum of the snapshot of Python, null if there is none. If the site has the multilingual embedder, also the bytes
    of its folder, and of the router's files with it.

    Scripts are left out: the browser fetches them before they could be counted. So is the snapshot, which may not be
    needed.
    """
    parts = {
        "python": ("pyodide/", SONATA),
        "routing": EMBEDDER,
    }
    if f"{MULTILINGUAL}/{ROUTING_DATA}" in site:
        parts |= {"multilingual": (f"{MULTILINGUAL}/",), "routing_multilingual": (f"{MULTILINGUAL}/", EMBEDDER[1])}
    counted = [name for name in site if not name.endswith((".js", ".mjs")) and name != SNAPSHOT]
    sizes = {part: sum(_size(site[name]) for name in counted if name.startswith(of)) for part, of in parts.items()}
    return json.dumps(sizes | {"snapshot": _sha256(site[SNAPSHOT]) if SNAPSHOT in site else None}).encode()


def _size(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _sha256(content: Content) -> str:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else sha256_of(content)


def sync(site: Mapping[str, Content], dist: Path) -> int:
    """Make the folder `dist` hold exactly `site` (path -> content). Returns the number of files that were written or
    removed."""
    changed = 0
    for name, content in site.items():
        target = dist / name
        if isinstance(content, bytes):
            if not target.is_file() or target.read_bytes() != content:
                write_atomically(target, content)
                changed += 1
        elif not content.is_file():
            raise BuildError(f"{content} is missing: run `python build.py clean` and then this command again.")
        elif not _is_copy(content, target):
            _copy(content, target)
            changed += 1
    for path in sorted(dist.rglob("*"), reverse=True):  # a folder's content comes before the folder itself
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(dist).as_posix() not in site:
            path.unlink()
            changed += 1
    return changed


def _is_copy(source: Path, target: Path) -> bool:
    """True for equal size and time: an earlier copy (or the same file, linked)."""
    try:
        there, here = source.stat(), target.stat()
    except OSError:
        return False
    return (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.tmp")
    try:
        partial.unlink(missing_ok=True)
        if source.suffix in MODEL_SUFFIXES:  # large files become hard links if the file system has them
            try:
                os.link(source, partial)
            except OSError:
                shutil.copy2(source, partial)
        else:
            shutil.copyfile(source, partial)
            stat = source.stat()
            os.utime(partial, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _pyodide_lock() -> bytes:
    """Pyodide's own lock without its packages: the site has the needed ones in PACKAGES."""
    lock = json.loads((NODE_MODULES / "pyodide" / "pyodide-lock.json").read_text(encoding="utf-8"))
    return json.dumps(lock | {"packages": {}}, indent=1, sort_keys=True).encode()


def _models_json() -> bytes:
    listing = [
        {
            "id": model.id,
            "title": model.title,
            "url": f"models/{model.file}",
            "bytes": model.bytes,
            "sha256": model.sha256,
            "pieces": {"bytes": PIECE_BYTES, "sha256": piece_checksums(model)},
            "licence": model.licence,
        }
        for model in model_files()
    ]
    return json.dumps(listing, indent=1).encode()


def piece_checksums(model: ModelFile) -> list[str]:
    """sha256 of each piece of a model file, which the page checks while downloading. Stored beside the file."""
    kept = model.path.with_name(f"{model.path.name}.pieces.json")
    of = {"sha256": model.sha256, "piece_bytes": PIECE_BYTES}
    if is_whole(kept) and (found := json.loads(kept.read_text(encoding="utf-8")))["of"] == of:
        return found["pieces"]
    pieces = []
    with open(model.path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            pieces.append(hashlib.sha256(piece).hexdigest())
    partial = kept.with_suffix(".part")
    partial.write_text(json.dumps({"of": of, "pieces": pieces}), encoding="utf-8")
    os.replace(partial, kept)
    note(kept)
    return pieces


def total_bytes(dist: Path, leave_out: Callable[[Path], bool] = lambda path: path.suffix in MODEL_SUFFIXES) -> int:
    """Size of the site in bytes; the models count only when asked for."""
    paths: Iterable[Path] = (path for path in dist.rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in paths if not leave_out(path))
