"""The files that build.py makes in the cache: the compiled kernels, the sentence embedder, the router's data.

Each folder there is named by a digest of everything that goes into its files. So a file of other sources is never used,
and app/building makes missing files only. An installed wheel brings these files along. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.checksums import sha256_of, short_digest
from app.models.downloads import downloads
from app.paths import ROOT, cache_dir

MADE = Path("app", "made")
"""The folder of these files in a wheel (app/building/wheel.py). The repository has no such folder."""


def _in_wheel(name: str) -> Path | None:
    path = ROOT / MADE / name
    return path if path.is_file() else None


TEMPLATE_WORKER = ROOT / MADE / "template_worker.js"
"""web/tokenizers/template_worker.js in a wheel, for the Pyodide of any page."""


# ---- kernels, compiled from C ----

KERNEL_SOURCES = ROOT / "web" / "kernels"

_FLAGS = (
    *("-target", "wasm32-freestanding", "-O3", "-nostdlib"),
    *("-Wall", "-Wextra", "-Werror"),
    *("-msimd128", "-mbulk-memory"),
    *("-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--import-memory"),
    "-Wl,--export=__stack_pointer",  # the host sets the stack's address
)


@dataclass(frozen=True)
class KernelModule:
    """A folder of C files, the compiler's flags, and the files to make: name -> its own flags."""

    sources: Path
    flags: tuple[str, ...]
    builds: Mapping[str, tuple[str, ...]]


MODEL_KERNELS = KernelModule(
    KERNEL_SOURCES,
    (
        *_FLAGS,
        "-matomics",
        # The workers share one memory. 65,535 pages: one less than possible, because zig reads this number into 32
        # bits.
        *("-Wl,--shared-memory", f"-Wl,--max-memory={65535 << 16}"),
        # Constants lie in the last 64 KiB below HEAP_BASE (py_core/backends/wasm/host.py). Each worker sets its own
        # stack.
        *("-Wl,-z,stack-size=65536", f"-Wl,--global-base={(2 << 20) - (64 << 10)}"),
    ),
    {
        # For CPUs that add four products in an instruction, and for CPUs that add two (kernels.h).
        "kernels-dot.wasm": ("-mrelaxed-simd",),
        "kernels-pairs.wasm": ("-mrelaxed-simd", "-DPAIRS"),
        "kernels-simd.wasm": ("-DPLAIN_SIMD",),  # for browsers without relaxed SIMD
    },
)
# One build: with relaxed SIMD results would differ from machine to machine, and with them the graphs.
HNSW_KERNEL = KernelModule(KERNEL_SOURCES / "hnsw", (*_FLAGS, "-Wl,-z,stack-size=16384"), {"hnsw.wasm": ()})
# Chat templates come from strangers, so the caller of the module bounds its time, and its own memory ends at 128 MiB:
# the longest conversations that models read take about 20.
JINJA_KERNEL = KernelModule(
    KERNEL_SOURCES / "jinja",
    (
        *("-target", "wasm32-freestanding", "-Os", "-nostdlib"),
        *("-Wall", "-Wextra", "-Werror"),
        *("-mbulk-memory", "-Wl,--no-entry", "-Wl,--strip-all"),
        *(f"-Wl,--max-memory={128 << 20}", "-Wl,-z,stack-size=1048576"),
    ),
    {"jinja.wasm": ()},
)
# Grammars come from strangers, too. A vocabulary and its masks take some 30 MiB; one that takes more than the rest
# is refused.
GRAMMAR_KERNEL = KernelModule(
    KERNEL_SOURCES / "grammar",
    (
        *("-target", "wasm32-freestanding", "-O3", "-nostdlib"),
        *("-Wall", "-Wextra", "-Werror"),
        *("-mbulk-memory", "-msimd128", "-Wl,--no-entry", "-Wl,--strip-all"),
        *(f"-Wl,--max-memory={256 << 20}", "-Wl,-z,stack-size=1048576"),
    ),
    {"grammar.wasm": ()},
)
KERNEL_MODULES = (MODEL_KERNELS, HNSW_KERNEL, JINJA_KERNEL, GRAMMAR_KERNEL)


def kernel_files(cache: Path, module: KernelModule) -> dict[str, Path]:
    """The paths of the builds of a module's current sources, existing or not: file name -> path."""
    state = hashlib.sha256(repr((module.flags, dict(module.builds), _zig_version())).encode())
    for path in sources_in(module.sources, "*.[ch]"):
        content = path.read_bytes()
        state.update(f"\n{path.name} {len(content)}\n".encode() + content)
    return {name: cache / "kernels" / state.hexdigest()[:16] / name for name in module.builds}


def sources_in(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder, in the order of their names."""
    return sorted(folder.glob(pattern), key=lambda path: path.name)


def _zig_version() -> str:
    version = re.search(r"^ziglang==(\S+)", (ROOT / "requirements" / "build.lock").read_text(), re.MULTILINE)
    assert version, "requirements/build.lock names no ziglang"
    return version[1]


MODEL_BUILDS = ("pairs", "dot", "simd")
"""The builds of the model's kernels. The first is the fastest in wasmtime on every CPU."""


def kernel_path(build: str = MODEL_BUILDS[0]) -> Path:
    """A build of the model's kernels.

    Raises FileNotFoundError, with what to do, when they have not been compiled.
    """
    return _compiled(MODEL_KERNELS, f"kernels-{build}.wasm")


def hnsw_kernel_path() -> Path:
    """The kernel that searches indexes of vectors. Raises FileNotFoundError, as kernel_path does."""
    return _compiled(HNSW_KERNEL, "hnsw.wasm")


def jinja_kernel_path() -> Path:
    """The renderer of chat templates. Raises FileNotFoundError, as kernel_path does."""
    return _compiled(JINJA_KERNEL, "jinja.wasm")


def grammar_kernel_path() -> Path:
    """The kernel that follows grammars. Raises FileNotFoundError, as kernel_path does."""
    return _compiled(GRAMMAR_KERNEL, "grammar.wasm")


def _compiled(module: KernelModule, name: str) -> Path:
    path = _in_wheel(name) or kernel_files(cache_dir(), module)[name]
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: run `python build.py site` once to compile it.")
    return path


# ---- the sentence embedder ----

_EMBEDDER = ROOT / "app" / "building" / "embedder"
EMBEDDER_ADAPTER = _EMBEDDER / "adapter.safetensors"
EMBEDDER_MODEL = "all-MiniLM-L6-v2.int8.onnx"
EMBEDDER_TOKENIZER = "all-MiniLM-L6-v2.tokenizer.json"
MULTILINGUAL_ADAPTER = _EMBEDDER / "multilingual.safetensors"
MULTILINGUAL_WEIGHTS = "multilingual-e5-small.q4.bin"
MULTILINGUAL_MODEL = "multilingual-e5-small.int8.onnx"
MULTILINGUAL_TOKENIZER = "multilingual-e5-small.tokenizer.json"
EMBEDDER_REVISION = 1
"""Raise it when a change of the sources below changes vectors: stored vectors are then made again."""
MEANING_REVISION = 2
"""The same for the states of the model without the adapter."""
MULTILINGUAL_REVISION = 1
"""EMBEDDER_REVISION and MEANING_REVISION of the multilingual embedder, whose meanings depend on its adapter."""
_EMBEDDER_SOURCES = ("calibration.txt", "export.py", "minilm.py", "onnx_writer.py")


@dataclass(frozen=True)
class EmbedderFiles:
    """The embedder's path, whether it was made already or not. Vectors of different fingerprints cannot be compared.

    meaning_fingerprint: the same for meanings, which do not depend on MiniLM's adapter.
    """

    model: Path
    tokenizer: Path
    fingerprint: str
    meaning_fingerprint: str
    is_multilingual: bool = False


def embedder_files(cache: Path, adapter: Path = EMBEDDER_ADAPTER) -> EmbedderFiles:
    """The embedder's files in the cache. Without an adapter file, the model is unchanged."""
    published = [f"{entry['file']} {entry['sha256']}" for entry in downloads()["embedder"]]
    meaning = short_digest([f"meaning {MEANING_REVISION}", *published])
    parts = [f"revision {EMBEDDER_REVISION}", *published]
    if adapter.is_file():
        parts.append(f"adapter {sha256_of(adapter)}")
    sources = [f"{name} {sha256_of(_EMBEDDER / name)}" for name in _EMBEDDER_SOURCES]
    folder = cache / "embedder"
    made = _in_wheel(EMBEDDER_MODEL) or folder / short_digest([*parts, meaning, *sources]) / EMBEDDER_MODEL
    tokenizer = _in_wheel(EMBEDDER_TOKENIZER) or folder / EMBEDDER_TOKENIZER
    return EmbedderFiles(made, tokenizer, short_digest(parts), meaning)


def multilingual_files(cache: Path) -> EmbedderFiles:
    """The files of the embedder for other languages than English in the cache."""
    parts = [f"multilingual {MULTILINGUAL_REVISION}", f"adapter {sha256_of(MULTILINGUAL_ADAPTER)}"]
    parts += [f"{entry['file']} {entry['sha256']}" for entry in downloads()["multilingual"]]
    sources = [f"{name} {sha256_of(_EMBEDDER / name)}" for name in (*_EMBEDDER_SOURCES, "multilingual.py")]
    folder = cache / "embedder" / short_digest([*parts, *sources])
    named = short_digest(parts), short_digest(["meaning", *parts])
    return EmbedderFiles(folder / MULTILINGUAL_MODEL, folder / MULTILINGUAL_TOKENIZER, *named, is_multilingual=True)


# ---- the router's data ----

ROUTING_DATA = "routing.safetensors"
_AGENTS = ROOT / "app" / "routing" / "agents"
_ROUTING_SOURCES = (
    *("app/routing/agents/more_requests.toml", "app/building/routing_export.py"),
    *("py_core/routing/head.py", "py_core/routing/routing_data.py"),
)


def routing_file(cache: Path, multilingual: bool = False) -> Path:
    """The path of the router's data for one of the embedders, whether they were made already or not."""
    if not multilingual and (made := _in_wheel(ROUTING_DATA)):
        return made
    parameters = tomllib.loads((_AGENTS / "router.toml").read_text(encoding="utf-8"))
    files = multilingual_files(cache) if multilingual else embedder_files(cache)
    parts = [files.model.parent.name, files.fingerprint]
    parts += [f"{name} {value}" for name, value in parameters.items() if name.startswith("head_")]
    sources = [*sources_in(_AGENTS / "examples", "*.toml"), *(ROOT / name for name in _ROUTING_SOURCES)]
    parts += [f"{path.name} {sha256_of(path)}" for path in sources]
    return cache / "routing" / short_digest(parts) / ROUTING_DATA
