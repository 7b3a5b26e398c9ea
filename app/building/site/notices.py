"""The licence texts of everything that the site ships, from the packages' own files: dist/THIRD_PARTY.txt."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from app.building.common import BuildError
from app.models.downloads import downloads


def third_party_text(root: Path, node_modules: Path, files: Mapping[str, Path]) -> bytes:
    """THIRD_PARTY.md, then every text. `files`: the downloads; a wheel carries its licence inside, and those
    that the site has as they are (interpreter/packages/) are not repeated."""
    npm = {
        "Pyodide (Mozilla Public License 2.0)": "dompurify/LICENSE-MPL",  # Pyodide's package lacks it
        "Comlink, SmolLM2-135M-Instruct and all-MiniLM-L6-v2 (Apache License 2.0)": "comlink/LICENSE",
        "Chart.js": "chart.js/LICENSE.md",
        "@kurkle/color": "@kurkle/color/LICENSE.md",
        "esbuild": "esbuild/LICENSE.md",
        "hash-wasm": "hash-wasm/LICENSE",
        "idb": "idb/LICENSE",
        "lit-html": "lit-html/LICENSE",
        "Lucide": "lucide-static/LICENSE",
        "marked": "marked/LICENSE",
        "DOMPurify": "dompurify/LICENSE",
        "highlight.js (BSD 3-Clause License)": "@highlightjs/cdn-assets/LICENSE",
        "KaTeX, and its fonts": "katex/LICENSE",
        "PDF.js (Apache License 2.0)": "pdfjs-dist/LICENSE",
        "Character maps of Adobe (in PDF.js)": "pdfjs-dist/cmaps/LICENSE",
    }
    texts = {title: _read(node_modules / name) for title, name in npm.items()}
    texts["CPython (Python Software Foundation License)"] = _read(root / "docs" / "licenses" / "PSF-2.0.txt")
    texts["ONNX Runtime (MIT License) and libraries in it"] = _read(root / "docs" / "licenses" / "onnxruntime.txt")
    texts["multilingual-e5-small (MIT License)"] = _read(root / "docs" / "licenses" / "multilingual-e5-small.txt")
    texts["Libraries in Pyodide"] = _read(root / "docs" / "licenses" / "pyodide-parts.txt")
    for entry in downloads()["wheels"]:
        texts.update(_wheel_licences(files[entry["file"]]))
    parts = [_read(root / "THIRD_PARTY.md").strip()]
    parts += [f"{'=' * 80}\n{title}\n{'=' * 80}\n\n{text.strip()}" for title, text in texts.items()]
    return ("\n\n\n".join(parts) + "\n").encode()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BuildError(f"{path} is missing: run `python build.py clean` and then this command again.") from None


def _wheel_licences(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/licenses/" in name and not name.endswith("/")]
        if not names:
            raise BuildError(f"{wheel.name} has no licence file, so the site must not ship it.")
        return {
            f"{name.split('.dist-info/')[0]}: {name.split('/licenses/')[1]}": archive.read(name).decode("utf-8")
            for name in sorted(names)
        }
