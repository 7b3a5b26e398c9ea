"""The whole site with a tiny model instead of the real one, in a folder that a test may change."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import shutil
from pathlib import Path

from app.building.site.bundle import MODULES
from app.building.site.dist import LATER, precache_json
from tests.tiny.llama import TinyLlama
from tests.tiny.models import Variant

MODEL = "models/tiny.gguf"
STAND_IN = Path(__file__).with_name("stand_in_worker.js")
PIECE_BYTES = 1 << 16
TINY = TinyLlama(hidden=128, ffn=512, layers=4)


class SmallSite:
    """A copy of `dist` in `folder`. Files are links: `write` replaces them; they must not be changed in place."""

    def __init__(self, dist: Path, folder: Path, model: Variant = TINY) -> None:
        self.folder, self._dist = folder, dist
        shutil.copytree(dist, folder, copy_function=os.link, ignore=shutil.ignore_patterns("*.gguf"))
        model.write(folder / MODEL)
        self.model = (folder / MODEL).read_bytes()
        self.sha256 = hashlib.sha256(self.model).hexdigest()
        pieces = [self.model[at : at + PIECE_BYTES] for at in range(0, len(self.model), PIECE_BYTES)]
        listing = {
            "id": "tiny",
            "title": "Tiny",
            "url": MODEL,
            "bytes": len(self.model),
            "sha256": self.sha256,
            "pieces": {"bytes": PIECE_BYTES, "sha256": [hashlib.sha256(piece).hexdigest() for piece in pieces]},
            "licence": "none",
        }
        self.write("models.json", json.dumps([listing]))
        self.publish()

    def read(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")

    def publish(self) -> None:
        """The build's last step: the list of the current files. It knows the checksums of the links."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        content = {path.relative_to(self.folder).as_posix(): path for path in paths}
        lists = json.loads((self._dist / "precache.json").read_text("utf-8"))
        known = lists["files"] | lists["later"]
        links = {name: known[name] for name in content.keys() & known if content[name].samefile(self._dist / name)}
        changed = precache_json({name: path for name, path in content.items() if name not in links or name == MODULES})
        made = json.loads(changed)
        files = links | made["files"] | made["later"]
        later = {name: files.pop(name) for name in sorted(files) if name.startswith(LATER)}
        self.write("precache.json", json.dumps({"files": dict(sorted(files.items())), "later": later}, indent=1))

    def use_stand_in(self) -> None:
        """A worker without a model (stand_in_worker.js) instead of the engine, without the engine's large files: for
        tests of the page around it."""
        script = STAND_IN.read_text("utf-8")
        self.write("engine/worker.js", script)
        imported = self._imported_by("engine/worker.js")
        joined = set(json.loads(self.read(MODULES)))
        self.write(MODULES, json.dumps(sorted(joined - imported)))
        self.drop("pyodide/*", "sonata.packed", "embedder/*", "vendor/ort-*", "routing.safetensors")
        self.drop("vendor/pdf/*", "vendor/pdf/cmaps/*", "**/*.js.map")  # a service worker keeps each of them
        self.publish()

    def _imported_by(self, module: str) -> set[str]:
        """The modules that a module of the site imports, and those that they import."""
        found = set[str]()
        for name in re.findall(r"^import .*?'(.+)';$", self.read(module), re.MULTILINE):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(module), name))
            found |= {path} | self._imported_by(path)
        return found

    def holding(self, module: str) -> str:
        """The file of the page into which the build joined a module that other files import, too. A test that
        imports it gets the page's own instance of the module."""
        return next(
            path.relative_to(self.folder).as_posix()
            for path in sorted(self.folder.glob("bundle/*.js"))
            if f"// site:{module}\n" in path.read_text("utf-8")
        )

    def drop(self, *patterns: str) -> None:
        """Files that a test does not need."""
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                if path.is_file():
                    path.unlink()

    def publish_new_style(self, colour: str = "rgb(1, 2, 3)") -> None:
        """A version that differs in one file."""
        self.write("shell/style.css", f"{self.read('shell/style.css')}\n:root {{ accent-color: {colour}; }}")
        self.publish()
