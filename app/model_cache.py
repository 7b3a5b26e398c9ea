"""The chat models that are kept natively: $SONATA_CACHE/models, each NAME.gguf with a NAME.json beside it.

A download that was broken off is NAME.gguf.part with a NAME.part.json, which says of what it is a part.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from app.checksums import sha256_of
from app.downloads import model_files
from app.paths import cache_dir
from py_core.formats.gguf import GGUFHeader, read_header
from py_core.formats.source import FileSource

SHIPPED = "python build.py"
"""The source of the model that Sonata comes with."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,78}[a-z0-9])?")
_RESERVE = 64 << 20
"""Bytes of the disk that stay free."""


class CacheError(Exception):
    """A model cannot be kept or found; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class StoredModel:
    """A model that is kept. `source` is an address or the file that it was imported from; `sha256` is of all of it."""

    name: str
    title: str
    source: str
    size: int
    sha256: str
    licence: str
    path: Path

    @property
    def is_shipped(self) -> bool:
        return self.source == SHIPPED


@dataclass(frozen=True)
class Part:
    """A download that was broken off: so many of `size` bytes (None where the server did not say)."""

    name: str
    have: int
    size: int | None


class ModelCache:
    """What lies in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_dir() / "models"

    def models(self) -> list[StoredModel]:
        """Every model that is kept, in the order of their names, after those that Sonata comes with."""
        shipped = [
            StoredModel(model.id, model.title, SHIPPED, model.bytes, model.sha256, model.licence, path)
            for model in model_files()
            if (path := self.folder / model.file).is_file()
        ]
        found = (
            self._read(path) for path in sorted(self.folder.glob("*.json")) if not path.name.endswith(".part.json")
        )
        return shipped + [model for model in found if model]

    def parts(self) -> list[Part]:
        """Every download that was broken off."""
        found = []
        for path in sorted(self.folder.glob("*.part.json")):
            name = path.name.removesuffix(".part.json")
            part = self.part_path(name)
            if part.is_file():
                size = _read_json(path).get("size")
                found.append(Part(name, part.stat().st_size, size if isinstance(size, int) else None))
        return found

    def find(self, name: str) -> StoredModel | None:
        """The model of this name, or whose sha256 begins with it (8 digits or more)."""
        wanted = name.lower()
        for model in self.models():
            if wanted == model.name or (len(wanted) >= 8 and model.sha256.startswith(wanted)):
                return model
        return None

    def path_of(self, name: str) -> Path:
        """The file of a model that is kept. Raises CacheError, with what to do, where there is none."""
        if model := self.find(name):
            return model.path
        kept = ", ".join(model.name for model in self.models()) or "none"
        raise CacheError(
            f"There is no file {name}. No model of this name is kept either ({kept} are); "
            "`sonata models list` shows those that can be downloaded."
        )

    def new_name(self, title: str) -> str:
        """A name for a model: its title in small letters, with a number where another one has it."""
        base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].strip("-") or "model"
        taken = {model.name for model in self.models()}
        return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 1000))) if name not in taken)

    def import_file(self, path: Path, name: str | None = None, licence: str = "", copy: bool = False) -> StoredModel:
        """Keep a file that is there already: linked where the disk allows that, else copied. It must be a GGUF file.

        Raises GGUFError (its header is read first), CacheError, OSError.
        """
        header = check_model_file(path)
        sha256 = sha256_of(path)
        if same := next((model for model in self.models() if model.sha256 == sha256), None):
            return same
        title = title_of(header, path.stem)
        given = self.check_name(name) if name else self.new_name(path.stem)
        licence = licence or str(header.metadata.get("general.license", ""))
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.part_path(given)
        part.unlink(missing_ok=True)
        linked = False
        if not copy:
            try:
                os.link(path, part)
                linked = True
            except OSError:
                pass  # another disk, or one without hard links
        try:
            if not linked:
                self.check_room(path.stat().st_size, given)
                shutil.copyfile(path, part)
            return self.keep(StoredModel(given, title, str(path), path.stat().st_size, sha256, licence, part))
        finally:
            part.unlink(missing_ok=True)

    def keep(self, model: StoredModel) -> StoredModel:
        """Give a complete, checked file its name; until here it may be called anything in this folder."""
        kept = replace(model, path=self.folder / f"{model.name}.gguf")
        facts = {key: value for key, value in asdict(model).items() if key != "path"}
        write_json(self.folder / f"{model.name}.json", facts)  # first: a file without it is no model of the list
        os.replace(model.path, kept.path)
        return kept

    def remove(self, name: str) -> tuple[str, int]:
        """Delete a model, or the part of one, and return its name and the bytes that are free now.

        Raises CacheError where there is none, and for the model that Sonata comes with.
        """
        model = self.find(name)
        if model and model.is_shipped:
            raise CacheError(f"{model.name} is the model that Sonata comes with; it stays.")
        freed = 0
        found = model.name if model else name.lower()
        for path in self._files(found) if model or _NAME.fullmatch(found) else ():
            if path.is_file():
                freed += path.stat().st_size
                path.unlink()
        if not freed:
            raise CacheError(f"No model {name} is kept: `sonata models list` shows those that are.")
        return found, freed

    def usage(self) -> tuple[int, int]:
        """Bytes of this folder, and bytes that are free on its disk."""
        used = sum(path.stat().st_size for path in self.folder.glob("*") if path.is_file())
        there = self.folder if self.folder.is_dir() else next(p for p in self.folder.parents if p.is_dir())
        return used, shutil.disk_usage(there).free

    def check_room(self, nbytes: int, name: str) -> None:
        """Raises CacheError, with the numbers, where the disk has no room for so many more bytes."""
        free = self.usage()[1] - _RESERVE
        if nbytes > free:
            raise CacheError(
                f"{name} needs {nbytes / 1e9:.2f} GB more, but only {max(free, 0) / 1e9:.2f} GB are free in "
                f"{self.folder}. Delete a model (sonata models rm NAME), or set SONATA_CACHE to a folder elsewhere."
            )

    def check_name(self, name: str) -> str:
        """The name in small letters. Raises CacheError for one that is no name or belongs to another model."""
        wanted = name.lower()
        if not _NAME.fullmatch(wanted):
            raise CacheError(f"{name!r} is no name for a model: use letters, digits, dots, - and _.")
        if any(model.name == wanted for model in self.models()):
            raise CacheError(f"There is a model {wanted} already: choose another name, or `sonata models rm {wanted}`.")
        return wanted

    def part_path(self, name: str) -> Path:
        """Where a model lies while it is not complete."""
        return self.folder / f"{name}.gguf.part"

    def part_facts(self, name: str) -> Path:
        """Where it is written of what that is a part."""
        return self.folder / f"{name}.part.json"

    def _files(self, name: str) -> tuple[Path, ...]:
        made = (self.folder / f"{name}.json", self.folder / f"{name}.gguf")
        return (*made, self.part_path(name), self.part_facts(name))

    def _read(self, path: Path) -> StoredModel | None:
        """A model by its JSON; None where that or the file is not there, or was changed by somebody."""
        file, facts = path.with_name(f"{path.stem}.gguf"), _read_json(path)
        kinds = {field.name: int if field.name == "size" else str for field in fields(StoredModel)}
        del kinds["path"]
        if not all(type(facts.get(key)) is kind for key, kind in kinds.items()) or facts["name"] != path.stem:
            return None
        if not file.is_file() or file.stat().st_size != facts["size"]:
            return None
        return StoredModel(**{key: facts[key] for key in kinds}, path=file)


def model_path(given: Path) -> Path:
    """The file that `--model` means: a path, or the name of a model that is kept. Raises CacheError for neither."""
    if given.is_file():
        return given
    return ModelCache().path_of(str(given))


def check_model_file(path: Path) -> GGUFHeader:
    """The header of a model file. Raises GGUFError, with what to do, for one that is none."""
    return asyncio.run(read_header(FileSource(path)))


def title_of(header: GGUFHeader, otherwise: str) -> str:
    """What a model calls itself, in one short line."""
    name = header.metadata.get("general.name")
    title = " ".join(name.split())[:80] if isinstance(name, str) else ""
    return title or otherwise


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """All of it or nothing."""
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
    """What was written of a part; nothing where there is none."""
    return _read_json(cache.part_facts(name))
