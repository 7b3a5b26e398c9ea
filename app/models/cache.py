"""The chat models that are kept natively: $SONATA_CACHE/models, each NAME.gguf with a NAME.json beside it.

A model in several files is NAME-00001-of-00003.gguf and so on, with one NAME.json. An interrupted download is
NAME.gguf.part with a NAME.part.json, which describes the whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from app.checksums import sha256_of
from app.models.downloads import default_model_path, model_files
from app.paths import cache_dir
from py_core.display import shown
from py_core.formats.gguf import GGUFHeader, read_header
from py_core.formats.source import open_source, parts_of
from py_core.models.config import name_of
from py_core.models.names import licence_of, title_of
from py_core.models.registry import refuse_adapters

SHIPPED = "python build.py"
"""The source of the model that Sonata comes with."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,78}[a-z0-9])?")
_RESERVE = 64 << 20
"""Bytes of the disk that stay free."""


class CacheError(Exception):
    """A model cannot be stored or found; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class StoredModel:
    """A kept model, in one or more files. `source` is an address or the file that it was imported from.

    `size` and `sha256` (`sum_of_parts`) are of the whole model, `path` is the first file.
    """

    name: str
    title: str
    source: str
    size: int
    sha256: str
    licence: str
    path: Path
    files: int = 1

    @property
    def is_shipped(self) -> bool:
        return self.source == SHIPPED


@dataclass(frozen=True)
class ModelPart:
    """An interrupted download: the bytes so far, of `size` bytes in all its files (None if unknown)."""

    name: str
    have: int
    size: int | None


class ModelCache:
    """The models in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_dir() / "models"

    def models(self) -> list[StoredModel]:
        """Every model that is kept, in the order of their names, after the shipped ones."""
        shipped = [
            StoredModel(model.id, model.title, SHIPPED, model.bytes, model.sha256, model.licence, path)
            for model in model_files()
            if (path := self.folder / model.file).is_file()
        ]
        found = (
            self._read(path) for path in sorted(self.folder.glob("*.json")) if not path.name.endswith(".part.json")
        )
        return shipped + [model for model in found if model]

    def parts(self) -> list[ModelPart]:
        """Every interrupted download; a model in several files counts once."""
        found: dict[str, ModelPart] = {}
        for path in sorted(self.folder.glob("*.part.json")):
            name = path.name.removesuffix(".part.json")
            part, whole = self.part_path(name), stem_of(f"{name}.gguf")
            if part.is_file():
                size = _read_json(path).get("size" if whole == name else "whole")
                before = found[whole].have if whole in found else 0
                found[whole] = ModelPart(whole, before + part.stat().st_size, size if isinstance(size, int) else None)
        return list(found.values())

    def find(self, name: str) -> StoredModel | None:
        """The model of this name, or whose sha256 begins with it (8 digits or more)."""
        wanted = name.lower()
        for model in self.models():
            if wanted == model.name or (len(wanted) >= 8 and model.sha256.startswith(wanted)):
                return model
        return None

    def path_of(self, name: str) -> Path:
        """The file of a kept model. Raises CacheError, with what to do, if there is none."""
        if model := self.find(name):
            return model.path
        kept = ", ".join(model.name for model in self.models()) or "none"
        raise CacheError(
            f"No file or kept model is called {name}. Kept models: {kept}. "
            "`sonata models list` shows what can be downloaded."
        )

    def new_name(self, title: str) -> str:
        """A name for a model: its title in lower case, with a number if another model has it."""
        base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].strip("-") or "model"
        taken = {model.name for model in self.models()}
        return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 1000))) if name not in taken)

    def import_file(self, path: Path, name: str | None = None, licence: str = "", copy: bool = False) -> StoredModel:
        """Keep an existing file: linked if the disk allows that, else copied. It must be a GGUF file.

        A model in several files is kept with all of them. Raises GGUFError (the header is read first), CacheError,
        OSError.
        """
        header = check_model_file(path)
        sources = [path.with_name(part) for part in parts_of(path.name)] or [path]
        sha256 = sum_of_parts([sha256_of(source) for source in sources])
        if same := next((model for model in self.models() if model.sha256 == sha256), None):
            return same
        stem = stem_of(path.name)
        given = self.check_name(name) if name else self.new_name(stem)
        licence = licence or licence_of(header.metadata)
        self.folder.mkdir(parents=True, exist_ok=True)
        names = part_names(given, len(sources))
        size = sum(source.stat().st_size for source in sources)
        try:
            for part, source in zip(names, sources, strict=True):
                self._bring(source, self.part_path(part), copy)
            model = StoredModel(
                given, title_of(name_of(header.metadata), stem), str(path), size, sha256, licence, path, len(sources)
            )
            return self.keep(model)
        finally:
            for part in names:
                self.part_path(part).unlink(missing_ok=True)

    def _bring(self, source: Path, part: Path, copy: bool) -> None:
        """Link or copy a file into this folder."""
        part.unlink(missing_ok=True)
        if not copy:
            try:
                os.link(source, part)
                return
            except OSError:
                pass  # another disk, or one without hard links
        self.check_room(source.stat().st_size, source.name)
        shutil.copyfile(source, part)

    def keep(self, model: StoredModel) -> StoredModel:
        """Give the complete, checked files of a model in `part_path` their final names."""
        names = part_names(model.name, model.files)
        kept = replace(model, path=self.folder / f"{names[0]}.gguf")
        facts = {key: value for key, value in asdict(model).items() if key != "path"}
        write_json(self.folder / f"{model.name}.json", facts)  # first: a file without it does not count as a model
        for name in names:
            os.replace(self.part_path(name), self.folder / f"{name}.gguf")
        return kept

    def remove(self, name: str) -> tuple[str, int]:
        """Delete a model, or its partial download, and return its name and the bytes that were freed.

        Raises CacheError if there is none, and for the shipped model.
        """
        model = self.find(name)
        if model and model.is_shipped:
            raise CacheError(f"{model.name} is the model that Sonata comes with; it stays.")
        found = model.name if model else name.lower()
        freed = self.bytes_of(found)
        for path in self._files(found):
            path.unlink()
        if not freed:
            raise CacheError(f"No model {name} is kept: `sonata models list` shows the ones that are.")
        return found, freed

    def discard_part(self, name: str) -> None:
        """Delete the partial download of a file."""
        self.part_path(name).unlink(missing_ok=True)
        self.part_facts(name).unlink(missing_ok=True)

    def bytes_of(self, name: str) -> int:
        """Bytes of all files of a model, or of its partial download."""
        return sum(path.stat().st_size for path in self._files(name))

    def usage(self) -> tuple[int, int]:
        """Bytes of this folder, and free bytes on its disk."""
        used = sum(path.stat().st_size for path in self.folder.glob("*") if path.is_file())
        there = self.folder if self.folder.is_dir() else next(p for p in self.folder.parents if p.is_dir())
        return used, shutil.disk_usage(there).free

    def check_room(self, nbytes: int, name: str) -> None:
        """Raises CacheError, with the numbers, if the disk has no room for this number of bytes."""
        free = self.usage()[1] - _RESERVE
        if nbytes > free:
            raise CacheError(
                f"{name} needs {nbytes / 1e9:.2f} GB more, but only {max(free, 0) / 1e9:.2f} GB are free in "
                f"{self.folder}. Delete a model (sonata models rm NAME), or set SONATA_CACHE to a folder elsewhere."
            )

    def check_name(self, name: str) -> str:
        """The name in lower case. Raises CacheError if it is invalid or belongs to another model."""
        wanted = name.lower()
        if not _NAME.fullmatch(wanted) or parts_of(f"{wanted}.gguf"):
            raise CacheError(f"{shown(name)} cannot be the name of a model: use letters, digits, dots, - and _.")
        if any(model.name == wanted for model in self.models()):
            raise CacheError(
                f"There is already a model {wanted}: choose another name, or run `sonata models rm {wanted}`."
            )
        return wanted

    def part_path(self, name: str) -> Path:
        """The path of a model while it is incomplete."""
        return self.folder / f"{name}.gguf.part"

    def part_facts(self, name: str) -> Path:
        """The path of the JSON file that describes a partial download."""
        return self.folder / f"{name}.part.json"

    def _files(self, name: str) -> list[Path]:
        """All files of a model and of its partial download."""
        if not _NAME.fullmatch(name):
            return []
        found = []
        for end in (".gguf", ".gguf.part", ".part.json", ".json"):
            for path in (self.folder / f"{name}{end}", *self.folder.glob(f"{name}-*-of-*{end}")):
                if path.is_file() and stem_of(f"{path.name.removesuffix(end)}.gguf") == name:
                    found.append(path)
        return found

    def _read(self, path: Path) -> StoredModel | None:
        """A model by its JSON; None if that or a file is missing, or was changed by something else."""
        facts = {"files": 1, **_read_json(path)}
        kinds = {field.name: int if field.name in ("size", "files") else str for field in fields(StoredModel)}
        del kinds["path"]
        if not all(type(facts.get(key)) is kind for key, kind in kinds.items()) or facts["name"] != path.stem:
            return None
        files = [path.with_name(f"{name}.gguf") for name in part_names(path.stem, facts["files"])]
        if not all(file.is_file() for file in files) or sum(file.stat().st_size for file in files) != facts["size"]:
            return None
        return StoredModel(**{key: facts[key] for key in kinds}, path=files[0])


def part_names(name: str, files: int) -> list[str]:
    """The names, without .gguf, of the files of a model."""
    return [Path(part).stem for part in parts_of(f"{name}-00001-of-{files:05d}.gguf")] or [name]


def stem_of(file: str) -> str:
    """The name of a model's file without .gguf, and without the number of a part."""
    stem = Path(file).stem
    return stem[: -len("-00001-of-00003")] if parts_of(file) else stem


def sum_of_parts(sums: Sequence[str]) -> str:
    """The sha256 of a model by those of its files: for several, the sha256 of their concatenated hex digits."""
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def sha256_of_model(path: Path) -> str:
    """The sha256 of a model's file, or of all its files. It is known for kept models; other files are read."""
    for model in ModelCache().models():
        if path.is_file() and model.path.samefile(path):
            return model.sha256
    parts = [path.with_name(part) for part in parts_of(path.name)] or [path]
    return sum_of_parts([sha256_of(part) for part in parts])


def model_path(given: Path | None) -> Path:
    """The file that `--model` means: a path, or the name of a model that is kept. None: the shipped one. Raises
    CacheError if neither a file nor a kept model has this name."""
    if given is None:
        return default_model_path()
    if given.is_file():
        return given
    return ModelCache().path_of(str(given))


def check_model_file(path: Path) -> GGUFHeader:
    """The header of a model file. Raises GGUFError, with what to do, if it is not one."""
    header = asyncio.run(read_header(open_source(path)))
    refuse_adapters(header)
    return header


def title_at(path: Path, own: str) -> str:
    """The title of a file's model: that of the cache, if it is kept there. own: the title in its metadata."""
    kept = next((model.title for model in ModelCache().models() if model.path == path), None)
    return kept or title_of(own, stem_of(path.name))


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Writes all of it or nothing."""
    made = path.with_name(f"{path.name}.new")
    made.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    os.replace(made, path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def read_part_facts(cache: ModelCache, name: str) -> dict[str, Any]:
    """The description of a partial download; empty if there is none."""
    return _read_json(cache.part_facts(name))
